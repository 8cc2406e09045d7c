// What a program holds while it communicates.
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <exception>
#include <future>
#include <vector>

#include "distributed/staged_tensor.h"

namespace torch_webgpu {

using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

/// A collective. It is complete when the upload of its results is in the device's stream, so that
/// whatever the program does then sees them.
class CollectiveWork final : public c10d::Work {
public:
  CollectiveWork(c10d::OpType op, const char* title, const Tensors& inputs,
                 std::vector<Tensors> outputs);

  // The work and its future are complete at the same moment, the one of the future. Whoever waits
  // for either may then ask the other. Callbacks of the future run after it, and may wait for the
  // work.
  bool isCompleted() override;
  bool isSuccess() const override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  Tensors result() override;
  /// Its value is a list of tensors, for several lists of outputs a list of those.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

  void succeed();
  void fail(const std::exception_ptr& error);

private:
  const std::vector<Tensors> outputs_;
  const c10::intrusive_ptr<c10::ivalue::Future> future_;
};

/// A message to another process: read from the device, then sent by the CPU's backend.
class SendWork final : public c10d::Work {
public:
  /// What the CPU's backend returned when it was asked to send, and what had gone wrong on the
  /// device before, if anything had; wait() raises it.
  struct Sent {
    WorkPtr work;
    std::exception_ptr failure;
  };
  SendWork(const Tensors& tensors, std::shared_future<Sent> sent);

  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void abort() override;

private:
  const std::shared_future<Sent> sent_;
};

/// A message from another process. As with Gloo, it arrives in wait(), on the thread of the caller:
/// a thread of our own would be held by a message that comes late.
class RecvWork final : public c10d::Work {
public:
  RecvWork(c10d::OpType op, std::vector<StagedTensor> tensors, WorkPtr received);

  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void abort() override { received_->abort(); }
  int sourceRank() const override { return received_->sourceRank(); }

private:
  std::vector<StagedTensor> tensors_;
  const WorkPtr received_;
};

} // namespace torch_webgpu
