#include "launch/user_kernel.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <array>
#include <cstring>

#include "backend/tensor.h"
#include "launch/pipelines.h"
#include "launch/target_scope.h"
#include "wgsl/kernel_info.h"
#include "wgsl/pipeline_family.h"

namespace torch_webgpu {
namespace {

// The family after those of the kernel files.
PipelineFamily user_family() { return family_of(static_cast<uint32_t>(all_kernels().size())); }

constexpr size_t kDigestBytes = 24;

uint64_t whole_words(uint64_t bytes) { return (bytes + 3) / 4 * 4; }

} // namespace

UserKernel::UserKernel(Spec spec) : spec_(std::move(spec)) {
  TORCH_CHECK_VALUE(spec_.digest.size() == kDigestBytes, "a digest has ", kDigestBytes, " bytes");
  pipeline(current_context());
}

const Pipeline& UserKernel::pipeline(Context& context) const {
  std::atomic<const Pipeline*>& known = pipelines_[context.index];
  if (const Pipeline* made = known.load(std::memory_order_acquire)) {
    return *made;
  }
  std::array<uint64_t, kDigestBytes / sizeof(uint64_t)> words;
  std::memcpy(words.data(), spec_.digest.data(), kDigestBytes);
  const PipelineKey key = {user_family(), words[0], words[1], words[2]};
  const Pipeline& made = context.pipelines.get(key, [&] {
    PipelineSpec pipeline;
    pipeline.label = spec_.name;
    pipeline.source = spec_.source;
    pipeline.entry = spec_.name;
    pipeline.constants = spec_.constants;
    pipeline.binding.num_buffers = static_cast<uint32_t>(spec_.operands.size());
    pipeline.binding.writable = spec_.writable;
    return pipeline;
  });
  known.store(&made, std::memory_order_release);
  return made;
}

bool UserKernel::check(const std::vector<at::Tensor>& tensors, uint32_t k) const {
  const at::Tensor& tensor = tensors[k];
  const std::string& name = spec_.operands[k];
  TORCH_CHECK_TYPE(is_webgpu(tensor), spec_.name, "(): '", name, "' takes a webgpu tensor, got one",
                   " on ", tensor.device());
  TORCH_CHECK(tensor.layout() == at::kStrided && tensor.is_contiguous(), spec_.name, "(): '", name,
              "' is not contiguous; .contiguous() makes a copy that is");
  TORCH_CHECK(!tensor.is_conj() && !tensor.is_neg(), spec_.name, "(): '", name,
              "' is a lazy conjugate or negative; .resolve_conj() and .resolve_neg() compute it");
  TORCH_CHECK(tensor.numel() > 0, spec_.name, "(): '", name, "' is empty");
  TORCH_CHECK(!(is_written(k) && tensor.requires_grad() && at::GradMode::is_enabled()), spec_.name,
              "(): '", name, "' is written and requires grad, which autograd would not record; ",
              "launch the kernel in a torch.autograd.Function or under torch.no_grad()");
  const uint64_t begin = byte_offset(tensor);
  const uint64_t end = begin + tensor.nbytes();
  const ShaderTarget& target = plan_target(tensor);
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.nbytes() <= target.max_storage_binding_size, spec_.name,
                              "(): '", name, "' of ", tensor.nbytes(),
                              " bytes is larger than a storage binding of target '", target.name,
                              "' (", target.max_storage_binding_size, " bytes)");
  bool direct = begin % target.storage_offset_alignment == 0;
  // The last word belongs to this tensor alone if the storage ends with it.
  direct &= end % 4 == 0 || end == tensor.storage().nbytes();
  for (uint32_t other = 0; other < tensors.size(); ++other) {
    const at::Tensor& second = tensors[other];
    if (other == k || !same_buffer(tensor, second) || !(is_written(k) || is_written(other))) {
      continue;
    }
    const uint64_t second_begin = byte_offset(second);
    TORCH_CHECK(end <= second_begin || second_begin + second.nbytes() <= begin, spec_.name, "(): '",
                name, "' and '", spec_.operands[other], "' share memory, and the kernel writes it");
    // WebGPU refuses a buffer that is bound twice where it is written.
    direct &= k < other;
  }
  return direct;
}

void UserKernel::launch(const std::vector<at::Tensor>& tensors, const std::string& uniforms,
                        Grid grid) const {
  const auto count = static_cast<uint32_t>(tensors.size());
  TORCH_CHECK_TYPE(count == spec_.operands.size(), spec_.name, "() takes ", spec_.operands.size(),
                   " tensors, got ", count);
  for (uint32_t k = 0; k < count; ++k) {
    if (is_written(k) && is_webgpu(tensors[k])) {
      buffer_of(tensors[k], Use::kWrite); // before the operands' buffers are compared
    }
  }
  std::vector<bool> direct(count);
  for (uint32_t k = 0; k < count; ++k) {
    direct[k] = check(tensors, k);
  }
  Context& context = count == 0 ? current_context() : context_of(tensors[0]);
  // Autograd must not record the copies to and from temporary tensors.
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  std::vector<at::Tensor> bound(tensors);
  std::array<Binding, kMaxBindings> bindings;
  for (uint32_t k = 0; k < count; ++k) {
    if (!direct[k]) {
      bound[k] = at::empty(tensors[k].sizes(), tensors[k].options());
      bound[k].copy_(tensors[k]);
    }
    check_context(spec_.name, buffer_of(bound[k]), context);
    bindings[k] = {&buffer_of(bound[k]), byte_offset(bound[k]), whole_words(bound[k].nbytes())};
  }
  context.stream.dispatch(pipeline(context), bindings.data(), count, uniforms.data(),
                          static_cast<uint32_t>(uniforms.size()), grid);
  for (uint32_t k = 0; k < count; ++k) {
    if (!is_written(k)) {
      continue;
    }
    if (!direct[k]) {
      tensors[k].copy_(bound[k]);
    }
    if (!tensors[k].is_inference()) {
      tensors[k].unsafeGetTensorImpl()->bump_version();
    }
  }
}

} // namespace torch_webgpu
