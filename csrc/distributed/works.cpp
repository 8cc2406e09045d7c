#include "distributed/works.h"

#include <mutex>
#include <utility>

namespace torch_webgpu {
namespace {

using c10::ivalue::Future;

Tensors inputs_of(const std::vector<StagedTensor>& staged) {
  Tensors tensors;
  for (const StagedTensor& tensor : staged) {
    tensors.push_back(tensor.host());
  }
  return tensors;
}

// Without devices: results are in the stream when the future is completed, and there is one stream.
c10::intrusive_ptr<Future> future_of(const std::vector<Tensors>& outputs) {
  const c10::TypePtr list = c10::ListType::ofTensors();
  return c10::make_intrusive<Future>(outputs.size() > 1 ? c10::ListType::create(list) : list);
}

} // namespace

CollectiveWork::CollectiveWork(c10d::OpType op, const char* title, const Tensors& inputs,
                               std::vector<Tensors> outputs)
    : Work(-1, op, title, inputs), outputs_(std::move(outputs)), future_(future_of(outputs_)) {}

Tensors CollectiveWork::result() {
  TORCH_CHECK(isCompleted(), "Work needs to be completed before calling result(). "
                             "Should call wait() before result().");
  TORCH_CHECK(outputs_.size() <= 1,
              "work result does not support list of lists, use .getFuture() and value()");
  return outputs_.empty() ? Tensors() : outputs_.front();
}

bool CollectiveWork::isCompleted() { return future_->completed(); }

bool CollectiveWork::isSuccess() const { return future_->completed() && !future_->hasError(); }

bool CollectiveWork::wait(std::chrono::milliseconds timeout) {
  try {
    Work::wait(timeout);
  } catch (...) {
    if (Work::isCompleted()) { // if not, the time is over
      future_->wait();
    }
    throw;
  }
  future_->wait();
  return true;
}

void CollectiveWork::succeed() {
  finish();
  if (outputs_.size() > 1) {
    future_->markCompleted(c10::IValue(outputs_));
  } else {
    future_->markCompleted(c10::IValue(outputs_.empty() ? Tensors() : outputs_.front()));
  }
}

void CollectiveWork::fail(const std::exception_ptr& error) {
  finish(error);
  future_->setError(error);
}

SendWork::SendWork(const Tensors& tensors, std::shared_future<Sent> sent)
    : Work(-1, c10d::OpType::SEND, "webgpu:send", tensors), sent_(std::move(sent)) {}

bool SendWork::wait(std::chrono::milliseconds timeout) {
  if (isCompleted()) {
    finishAndThrow(exception());
    return true;
  }
  bool sent = false;
  std::exception_ptr error;
  try {
    sent = sent_.get().work->wait(timeout);
    error = sent_.get().failure;
  } catch (...) {
    error = std::current_exception();
  }
  finishAndThrow(error);
  return sent;
}

void SendWork::abort() { sent_.get().work->abort(); }

RecvWork::RecvWork(c10d::OpType op, std::vector<StagedTensor> tensors, WorkPtr received)
    : Work(-1, op, "webgpu:recv", inputs_of(tensors)), tensors_(std::move(tensors)),
      received_(std::move(received)) {}

bool RecvWork::wait(std::chrono::milliseconds timeout) {
  if (isCompleted()) {
    finishAndThrow(exception());
    return true;
  }
  bool received = false;
  std::exception_ptr error;
  try {
    received = received_->wait(timeout);
    if (received) {
      for (StagedTensor& tensor : tensors_) {
        tensor.write_back(/*reduced=*/false);
      }
      tensors_.clear(); // a second wait() must not overwrite what the program did since
    }
  } catch (...) {
    error = std::current_exception();
  }
  finishAndThrow(error);
  return received;
}

} // namespace torch_webgpu
