// Convolutions into tensors that exist, for compilers.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ops/conv/conv_gemm.h"

namespace torch_webgpu {

/// The arguments of at::convolution behind input, weight and bias.
struct ConvArguments {
  std::vector<int64_t> stride, padding, dilation, output_padding; // one number per dimension
  bool transposed = false;
  int64_t groups = 1;

  ConvGeometry geometry() const { return {stride, padding, dilation, groups}; }
};

/// out = fused(convolution), all on webgpu and of floating point numbers. `out` and the epilogue's
/// operands have the sizes of the result; `out` lies as one row of positions for each image and
/// channel, and shares no memory with the rest. Raises what at::convolution raises.
void convolve_into(const at::Tensor& out, const at::Tensor& input, const at::Tensor& weight,
                   const at::Tensor& bias, const ConvArguments& arguments,
                   const ConvEpilogue& epilogue);
/// The way in which convolve_into() computes it; the tensors may be meta tensors.
const Strategy& convolution_strategy(const at::Tensor& out, const at::Tensor& input,
                                     const at::Tensor& weight, const ConvArguments& arguments,
                                     const Strategy* wanted, const ShaderTarget& target);

} // namespace torch_webgpu
