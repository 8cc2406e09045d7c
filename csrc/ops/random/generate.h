// Launching generate.wgsl: filling a tensor with values that follow from each element's position in
// row-major order, whatever the tensor's strides.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <string_view>

#include "backend/generator.h"
#include "kernels/generate.h"
#include "ops/random/random_table.h"

namespace torch_webgpu {

/// What is generated: a row of a table, and its arguments.
struct GenerateSpec {
  const char* name = nullptr; // of the operator
  kernels::generate::Table table{};
  uint32_t row = 0;
  kernels::generate::Source source{};
  kernels::generate::Kind kind{}; // of the values, before conversion to the tensor's dtype
  std::string_view value{};       // the row's expression
  std::array<uint32_t, 8> arguments{};
  PhiloxState philox{};
};

/// Fills `out`, whose dtype must be native. `input`, if defined, is a contiguous float tensor of as
/// many elements.
void generate(const at::TensorBase& out, const GenerateSpec& spec, const at::Tensor& input = {});

/// Fills `out` with numbers of a row of rows.yaml, and advances the generator past them.
void draw_row(RandomOp op, const at::TensorBase& out, GeneratorImpl& generator,
              std::array<uint32_t, 8> arguments = {}, const at::Tensor& input = {});

} // namespace torch_webgpu
