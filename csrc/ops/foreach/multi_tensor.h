// The generator of multi-tensor kernels: the parts of multi_tensor.wgsl that depend on the number
// of tensors, their roles and their dtype.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/pipeline.h"
#include "wgsl/dtype.h"

namespace torch_webgpu {

inline constexpr uint32_t kMaxMultiTensors = 16; // in one dispatch
inline constexpr uint32_t kMaxMultiRoles = 5;
inline constexpr uint32_t kMaxMultiShared = 3;

/// A number in device memory that all tensors share.
struct SharedNumber {
  std::string_view name;
  DType dtype = DType::kF32;
  // Written by `set_<name>()`, which stores 1.0. Read by `<name>()`.
  bool written = false;
};

struct MultiTensorVariant {
  std::string_view name;
  DType dtype = DType::kF32; // of all roles
  uint32_t roles = 1;
  uint32_t read = 0; // bit r: role r is read
  // Bit r: role r is written. Unless it is also read, each of its tensors must be alone in its
  // buffer, because whole vectors are stored.
  uint32_t written = 1;
  uint32_t tensors = 1;
  bool steps = false; // each tensor has a float32 number as well, read by step(t)
  std::array<SharedNumber, kMaxMultiShared> shared{};
  uint32_t num_shared = 0;
  // WGSL: `fn prepare(t: u32)`, run once per invocation, and
  // `fn element(v: ptr<function, array<value_t, kRoles>>, t: u32)`, which changes the written
  // roles. They may call scalar(i), the i-th scalar of the op, and tensor_scalar(t).
  std::string body;

  uint32_t bindings_per_tensor() const { return roles + (steps ? 1 : 0); }
};

/// As `Params` in multi_tensor.wgsl.
struct MultiTensorParams {
  struct Entry {
    uint32_t count;
    uint32_t first_group;
    std::array<uint32_t, 2> scalar;
    std::array<uint32_t, kMaxMultiRoles> offsets;
    uint32_t step_offset;
    std::array<uint32_t, 2> unused;
  };
  uint32_t num_tensors;
  std::array<uint32_t, kMaxMultiShared> shared_offsets;
  std::array<std::array<uint32_t, 2>, 8> scalars;
  std::array<Entry, kMaxMultiTensors> tensors;
};

PipelineSpec multi_tensor_source(const MultiTensorVariant& variant);

} // namespace torch_webgpu
