// A kernel that a user wrote, for torch.webgpu.compile_shader.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runtime/context.h"

namespace torch_webgpu {

class UserKernel {
public:
  struct Spec {
    std::string name; // the entry point
    std::string source;
    std::vector<std::pair<std::string, double>> constants; // override values
    std::vector<std::string> operands; // names of the storage buffers at bindings 0, 1, ...
    uint32_t writable = 0;             // bit i: operand i is written
    std::string digest;                // 24 bytes that tell this kernel from all others
  };

  /// Builds the pipeline on the current device; other devices that it is launched on build theirs
  /// then. Raises RuntimeError with the compiler's message if that fails.
  explicit UserKernel(Spec spec);

  /// Appends a dispatch of `grid` workgroups. `uniforms` are the bytes at kParamsBinding. Raises
  /// RuntimeError for a tensor that is not contiguous, for two that overlap where one is written,
  /// and for a written one that requires grad while gradients are recorded.
  void launch(const std::vector<at::Tensor>& tensors, const std::string& uniforms, Grid grid) const;

private:
  // Raises, or says whether the tensor's bytes can be bound where they are.
  bool check(const std::vector<at::Tensor>& tensors, uint32_t k) const;
  // On the context's device.
  const Pipeline& pipeline(Context& context) const;
  bool is_written(uint32_t k) const { return (spec_.writable >> k & 1) != 0; }

  Spec spec_;
  // Of each device. The contexts' caches keep them.
  mutable std::array<std::atomic<const Pipeline*>, kMostDevices> pipelines_{};
};

} // namespace torch_webgpu
