// The three products of a convolution. x is its input, y its output, w its weight
// [channels of y, channels of x / groups, taps...]; all with one, two or three spatial dimensions.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

#include "ops/matmul/matmul_gemm.h"

namespace torch_webgpu {

struct ConvGeometry {
  at::IntArrayRef stride, padding, dilation; // one number per spatial dimension
  int64_t groups = 1;
};

/// How a convolution is computed, and what is done with each element of its result before it is
/// stored.
struct ConvEpilogue {
  uint32_t text = 0; // number of a Fusion's text; 0: none
  // What it reads, of the result's sizes. Undefined ones are zero.
  std::array<at::Tensor, Fusion::kOperands> operands;
  at::Tensor second;                // its second result, of the same sizes; undefined: none
  const Strategy* wanted = nullptr; // see Gemm
};

/// y from x and w; `bias` may be undefined. The positions of y lie in their order, with one stride.
void conv_output(const at::Tensor& y, const at::Tensor& x, const at::Tensor& w,
                 const at::Tensor& bias, const ConvGeometry& geometry,
                 const ConvEpilogue& epilogue = {});
/// x from y and w: the gradient of the input, or a transposed convolution. The positions of x lie
/// in their order, with one stride.
void conv_input(const at::Tensor& x, const at::Tensor& y, const at::Tensor& w,
                const at::Tensor& bias, const ConvGeometry& geometry,
                const ConvEpilogue& epilogue = {});
/// The way in which conv_output() or conv_input() computes its result, all of which lies in one
/// binding. Needs no memory of the tensors: they may be meta tensors.
const Strategy& conv_output_strategy(const at::Tensor& y, const at::Tensor& x, const at::Tensor& w,
                                     const ConvGeometry& geometry, const Strategy* wanted,
                                     const ShaderTarget& target);
const Strategy& conv_input_strategy(const at::Tensor& x, const at::Tensor& y, const at::Tensor& w,
                                    const ConvGeometry& geometry, const Strategy* wanted,
                                    const ShaderTarget& target);
/// y, or the copy that conv_input() and conv_weight() would both make of it. x and w stand for the
/// results.
at::Tensor conv_shared_gradient(const at::Tensor& y, const at::Tensor& x, const at::Tensor& w,
                                const ConvGeometry& geometry);
/// w from x and y: the gradient of the weight.
void conv_weight(const at::Tensor& w, const at::Tensor& x, const at::Tensor& y,
                 const ConvGeometry& geometry);

/// Every tensor is treated as having three spatial dimensions. Missing ones come first and have
/// size 1.
inline constexpr int64_t kSpatial = 3;
/// Of sizes, strides or the like of the spatial dimensions: that of depth, height or width (`d` 0
/// to 2); `missing` for one that the tensor does not have.
int64_t spatial(at::IntArrayRef values, int64_t d, int64_t missing);
/// Whether each tensor of a convolution lies in one binding.
bool lie_in_bindings(const Gemm& g, const ShaderTarget& target);
/// n / d by a multiplication, for n < 2^31: the words of divide_by in conv_places.wgsl.
std::array<uint32_t, 4> divisor_words(uint32_t d);
/// The stride of the innermost spatial dimension that has one: a dimension of size 1 may have any.
int64_t position_stride(const at::Tensor& tensor);
/// Whether images and positions have one stride.
bool has_one_stride(const at::Tensor& tensor);
/// The distance from a tensor's first element to its last.
int64_t reach_of(const at::Tensor& tensor);
/// The bytes that the tensor's elements lie in.
MatrixView::Range range_of(const at::Tensor& tensor);
/// Whether the spatial dimensions can be viewed as one dimension with one stride, which may be 0.
bool has_position_stride(const at::Tensor& tensor);

} // namespace torch_webgpu
