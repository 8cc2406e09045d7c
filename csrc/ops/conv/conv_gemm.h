// The three products of a convolution. x is its input, y its output, w its weight
// [channels of y, channels of x / groups, taps...]; all with one, two or three spatial dimensions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace torch_webgpu {

struct ConvGeometry {
  at::IntArrayRef stride, padding, dilation; // one number per spatial dimension
  int64_t groups = 1;
};

/// y from x and w; `bias` may be undefined.
void conv_output(const at::Tensor& y, const at::Tensor& x, const at::Tensor& w,
                 const at::Tensor& bias, const ConvGeometry& geometry);
/// x from y and w: the gradient of the input, or a transposed convolution.
void conv_input(const at::Tensor& x, const at::Tensor& y, const at::Tensor& w,
                const at::Tensor& bias, const ConvGeometry& geometry);
/// w from x and y: the gradient of the weight. w is contiguous.
void conv_weight(const at::Tensor& w, const at::Tensor& x, const at::Tensor& y,
                 const ConvGeometry& geometry);

} // namespace torch_webgpu
