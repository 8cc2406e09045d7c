#include "distributed/staged_tensor.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/SparseTensorUtils.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "backend/empty.h"
#include "backend/graph.h"
#include "backend/tensor.h"
#include "distributed/statistics.h"

namespace torch_webgpu {
namespace {

// A part is copied while the context's lock is held, so this bounds how long other threads wait.
constexpr uint64_t kPartBytes = 8ull << 20;

// Waits without the context's lock, which Readback::wait keeps for all of its waiting: the program
// must be able to append work meanwhile. The values of a lost device never come; wait() then
// raises.
void await_ready(Readback& readback, const Device& device) {
  using std::chrono::microseconds;
  for (microseconds pause(20); !readback.ready() && !device.lost();
       pause = std::min(2 * pause, microseconds(320))) {
    std::this_thread::sleep_for(pause);
  }
}

// Whether the tensor's bytes can be written in whole words without touching a neighbour.
bool owns_its_words(const at::Tensor& tensor) {
  const uint64_t begin = byte_offset(tensor);
  const uint64_t end = begin + tensor.nbytes();
  return begin % 4 == 0 && (end % 4 == 0 || end == tensor.storage().nbytes());
}

// For a tensor on the same device. This thread's current device may be another one.
at::TensorOptions device_options(const at::Tensor& tensor) {
  return at::TensorOptions(tensor.device()).dtype(tensor.dtype());
}

void upload(const at::Tensor& target, const at::Tensor& host) {
  Context& context = context_of(target);
  const auto* data = static_cast<const uint8_t*>(host.const_data_ptr());
  const uint64_t bytes = target.nbytes();
  for (uint64_t at = 0; at < bytes; at += kPartBytes) {
    const Uncaptured outside(context);
    context.stream.upload(*WrittenBuffer(target), byte_offset(target) + at, data + at,
                          std::min(kPartBytes, bytes - at));
  }
  communication_statistics().bytes_written += bytes;
}

// A new tensor with the values of `host`.
at::Tensor uploaded(const at::Tensor& host, const at::TensorOptions& options) {
  at::Tensor tensor = empty_strided_webgpu(host.sizes(), host.strides(), options);
  upload(tensor, host);
  return tensor;
}

} // namespace

StagedTensor::StagedTensor(at::Tensor tensor, Access access, bool keeps_strides)
    : tensor_(std::move(tensor)), access_(access) {
  if (!is_webgpu(tensor_)) {
    TORCH_CHECK(tensor_.device().is_cpu(), "expected a tensor on webgpu or the CPU, got one on ",
                tensor_.device());
    host_ = tensor_;
    return;
  }
  // Only bytes are moved: autograd and version counters have no part in it.
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  if (tensor_.layout() != at::kStrided) {
    TORCH_CHECK(tensor_.layout() == at::kSparse, "unsupported layout ", tensor_.layout());
    stage_parts_of_coo();
    return;
  }
  packed_ = !tensor_.is_non_overlapping_and_dense() || tensor_.is_conj() || tensor_.is_neg();
  const auto options = at::TensorOptions(tensor_.scalar_type()).pinned_memory(true);
  if (keeps_strides && !tensor_.is_contiguous()) {
    host_ = at::empty_strided(tensor_.sizes(), tensor_.strides(), options);
    access_ = Access::kNone;
    return;
  }
  host_ = packed_ ? at::empty(tensor_.sizes(), options)
                  : at::empty_strided(tensor_.sizes(), tensor_.strides(), options);
  if (access_ == Access::kWrite || tensor_.numel() == 0) {
    return;
  }
  at::Tensor source = tensor_;
  if (packed_) {
    source = empty_webgpu(tensor_.sizes(), device_options(tensor_));
    source.copy_(tensor_);
  }
  Context& context = context_of(source);
  // All parts at once, so that they lie at one point of the stream.
  const std::lock_guard<std::recursive_mutex> lock(context.mutex);
  const uint64_t bytes = source.nbytes();
  for (uint64_t at = 0; at < bytes; at += kPartBytes) {
    parts_.push_back({context.stream.read_async(buffer_of(source), byte_offset(source) + at,
                                                std::min(kPartBytes, bytes - at)),
                      at});
  }
  communication_statistics().bytes_read += bytes;
}

// A COO tensor has no memory of its own.
Context& StagedTensor::context() const {
  return context_of(of_coo_.empty() ? tensor_ : of_coo_.front().tensor_);
}

// The values need not be coalesced: the CPU's backend does that, and the device would have to wait
// for the number of elements.
void StagedTensor::stage_parts_of_coo() {
  of_coo_.emplace_back(tensor_._indices(), Access::kRead);
  of_coo_.emplace_back(tensor_._values(), Access::kRead);
  host_ = at::_sparse_coo_tensor_unsafe(
      of_coo_[0].host(), of_coo_[1].host(), tensor_.sizes(),
      at::TensorOptions(tensor_.scalar_type()).layout(at::kSparse), tensor_.is_coalesced());
}

void StagedTensor::await() {
  std::exception_ptr failure;
  for (StagedTensor& part : of_coo_) {
    try {
      part.await();
    } catch (...) {
      failure = failure ? failure : std::current_exception();
    }
  }
  for (Part& part : parts_) {
    await_ready(*part.readback, context().device);
    try {
      part.readback->wait(static_cast<uint8_t*>(host_.mutable_data_ptr()) + part.offset);
    } catch (...) {
      failure = failure ? failure : std::current_exception();
    }
    part.readback.reset();
  }
  parts_.clear();
  if (failure) {
    std::rethrow_exception(failure);
  }
}

bool StagedTensor::is_lost() const { return is_webgpu(tensor_) && context().device.lost(); }

// The sum has elements of its own number, so the tensor gets other indices and values.
void StagedTensor::write_back_coo() {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const Uncaptured outside(context());
  const auto options = at::TensorOptions(tensor_.device());
  const at::Tensor indices = host_._indices().contiguous(), values = host_._values().contiguous();
  at::sparse::alias_into_sparse(tensor_, uploaded(indices, options.dtype(indices.dtype())),
                                uploaded(values, options.dtype(values.dtype())));
  tensor_._coalesced_(host_.is_coalesced());
}

void StagedTensor::write_back(bool reduced) {
  if (access_ == Access::kNone || access_ == Access::kRead || tensor_.numel() == 0) {
    return;
  }
  if (!of_coo_.empty()) {
    write_back_coo();
    return;
  }
  if (reduced && host_.scalar_type() == at::kBool) {
    host_.view(at::kByte).ne_(0); // bools are added as bytes, and a kernel may compare bytes
  }
  if (!is_webgpu(tensor_)) {
    return;
  }
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  if (!packed_ && owns_its_words(tensor_)) {
    upload(tensor_, host_);
  } else {
    const Uncaptured outside(context());
    tensor_.copy_(uploaded(host_, device_options(tensor_)));
  }
}

} // namespace torch_webgpu
