// The backend of torch.distributed for tensors of webgpu.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "distributed/task_queue.h"
#include "distributed/works.h"

namespace torch_webgpu {

/// What init_process_group() knows the backend by.
inline constexpr const char* kProcessGroupName = "webgpu_gloo";

/// Communicates through host memory: reads tensors of webgpu, has a backend for CPU tensors
/// communicate, and uploads the results. Takes tensors of the CPU as well.
///
/// A collective returns at once. Its read is in the device's stream then; a thread of this object
/// waits for the values and starts the collective of the CPU's backend, another one waits for its
/// end and appends the upload. So collectives overlap with what the program does on the device, and
/// with each other.
///
/// What the CPU's backend refuses (a dtype, a reduction, sizes that do not match) is raised by the
/// work's wait(), which is part of each collective without async_op.
class ProcessGroupWebGPU : public c10d::Backend {
public:
  /// `cpu`: a backend for CPU tensors of the same processes, used by nobody else.
  explicit ProcessGroupWebGPU(c10::intrusive_ptr<c10d::Backend> cpu);
  ~ProcessGroupWebGPU() override;

  const std::string getBackendName() const override { return kProcessGroupName; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return cpu_->getBackendOptions(); }
  void setTimeout(std::chrono::milliseconds timeout) override { cpu_->setTimeout(timeout); }
  void setSequenceNumberForGroup() override { cpu_->setSequenceNumberForGroup(); }
  uint64_t getSequenceNumberForGroup() override { return cpu_->getSequenceNumberForGroup(); }
  void enableCollectivesTiming() override { cpu_->enableCollectivesTiming(); }
  void abort() override { cpu_->abort(); }
  /// Waits for what is under way, then shuts the CPU's backend down.
  void shutdown() override;

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs,
                 const c10d::GatherOptions& options) override;
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                  const c10d::ScatterOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_counts,
                        std::vector<int64_t>& input_counts,
                        const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs,
                   const c10d::AllToAllOptions& options) override;
  WorkPtr send(Tensors& tensors, int destination, int tag) override;
  WorkPtr recv(Tensors& tensors, int source, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

protected:
  void drain();
  /// Makes a backend for a part of this group's processes, `ranks`, from that of the CPU; null in
  /// processes that are not among them. All processes of the group must call it.
  c10::intrusive_ptr<Backend> split_cpu(const c10::intrusive_ptr<c10d::Store>& store,
                                        const std::vector<int>& ranks,
                                        const c10::intrusive_ptr<Options>& options);

private:
  struct Collective;
  using Start = std::function<WorkPtr(c10d::Backend& cpu)>;

  WorkPtr run(Collective collective, Start start);
  WorkPtr receive(c10d::OpType op, Tensors& tensors, const std::function<WorkPtr(Tensors&)>& start);
  // Has the CPU's backend do something after all that was given to it before.
  WorkPtr start_in_order(const Start& start);

  const c10::intrusive_ptr<c10d::Backend> cpu_;
  int splits_ = 0;
  std::mutex cpu_mutex_; // around each call that starts something
  // Queues run empty when they are destroyed; the starter fills the finisher.
  TaskQueue finisher_;
  TaskQueue starter_;
};

} // namespace torch_webgpu
