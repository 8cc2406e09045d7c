// Launching generate.wgsl: filling a tensor with values that follow from each
// element's position in row-major order, whatever the tensor's strides.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "backend/generator.h"
#include "wgsl/dtype.h"

namespace torch_webgpu {

/// Kinds of generated values; part of the pipeline key.
enum class Generated : uint8_t { kRandom, kRange, kSampled };

struct GenerateSpec {
  Generated family;
  uint32_t op;           // within the family
  std::string_view name; // a literal
  Kind kind;             // of the values, before conversion to the tensor's dtype
  // Arguments, as the kernel's p.s.
  std::array<uint32_t, 8> arguments{};
  PhiloxState philox{};
};

/// `values(dtype)` gives the WGSL of `fn values(block: u32, index: u32) -> array<T, 4>`: the
/// elements 4 * block and on; an input's elements are at p.x_at + index and on. Only called
/// when the pipeline is built. `input`, if defined, is a contiguous float tensor of as many
/// elements, read by load_x. The dtype of `out` must be native.
void generate(const at::TensorBase& out, const GenerateSpec& spec,
              std::string (*values)(const GenerateSpec& spec), const at::Tensor& input = {});

} // namespace torch_webgpu
