// im2col and col2im, i.e. unfold and fold.
#include <ATen/native/Resize.h>
#include <ATen/native/im2col_shape_check.h>
#include <ATen/ops/col2im.h>
#include <ATen/ops/im2col.h>
#include <torch/library.h>

#include "backend/empty.h"
#include "backend/fallback.h"
#include "launch/dtypes.h"
#include "launch/kernel_call.h"
#include "launch/spatial.h"

namespace torch_webgpu {
namespace {

using at::IntArrayRef;
using at::Tensor;

constexpr PipelineFamily kUnfold = PipelineFamily::kIm2col;
constexpr PipelineFamily kFold = PipelineFamily::kCol2im;

// Mirrors FoldParams of lib/fold.wgsl.
struct Params {
  SpatialLayout image;
  SpatialLayout columns;
  Triple size; // extra: count
  Triple grid; // extra: channels
  Triple kernel;
  Triple stride;
  Triple padding;
  Triple dilation;
};

// The sliding windows over an image.
struct Sliding {
  IntArrayRef kernel;
  IntArrayRef dilation;
  IntArrayRef padding;
  IntArrayRef stride;

  int64_t places(int64_t d, int64_t size) const {
    return (size + 2 * padding[d] - (dilation[d] * (kernel[d] - 1) + 1)) / stride[d] + 1;
  }

  Params params(const Tensor& image, const Tensor& columns, uint64_t count) const {
    TORCH_CHECK_NOT_IMPLEMENTED(count < uint64_t{1} << 31, "unfold(): more than 2^31 elements");
    const Spatial pixels(image, 2);
    Params params;
    params.image = pixels.layout();
    params.columns = Spatial(columns, 1).layout();
    params.size = pixels.sizes(static_cast<uint32_t>(count));
    params.grid = pair(places(0, pixels.size(1)), places(1, pixels.size(2)));
    params.grid.extra = pixels.channels();
    params.kernel = pair(kernel[0], kernel[1]);
    params.stride = pair(stride[0], stride[1]);
    params.padding = pair(padding[0], padding[1]);
    params.padding.depth = 0;
    params.dilation = pair(dilation[0], dilation[1]);
    return params;
  }

  static Triple pair(int64_t row, int64_t column) {
    return {1, static_cast<uint32_t>(row), static_cast<uint32_t>(column)};
  }
};

void check_two(const char* name, IntArrayRef values) {
  TORCH_CHECK(values.size() == 2, "It is expected ", name, " equals to 2, but got size ",
              values.size());
}

Tensor& im2col_out(const Tensor& self, IntArrayRef kernel_size, IntArrayRef dilation,
                   IntArrayRef padding, IntArrayRef stride, Tensor& out) {
  check_same_device("im2col_out", {{out, "out"}, {self, "self"}});
  check_dtype(out, self.scalar_type());
  check_two("kernel_size", kernel_size);
  check_two("dilation", dilation);
  check_two("padding", padding);
  check_two("stride", stride);
  at::native::im2col_shape_check(self, Tensor(), kernel_size[0], kernel_size[1], dilation[0],
                                 dilation[1], padding[0], padding[1], stride[0], stride[1]);
  const Sliding sliding{kernel_size, dilation, padding, stride};
  c10::SmallVector<int64_t, 3> size;
  if (self.dim() == 4) {
    size.push_back(self.size(0));
  }
  size.push_back(self.size(-3) * kernel_size[0] * kernel_size[1]);
  size.push_back(sliding.places(0, self.size(-2)) * sliding.places(1, self.size(-1)));
  at::native::resize_output(out, size);
  if (out.numel() == 0) {
    return out;
  }
  const Params params = sliding.params(self, out, out.numel());
  const DType bits = raw_dtype(self.scalar_type());
  KernelCall call("im2col", "fold_im2col");
  call.add_output("columns", out, bits);
  call.add_input("image", self, bits);
  call.run({kUnfold, 0, 0}, params, out.numel(), [] { return KernelCall::Hooks{}; });
  return out;
}

Tensor im2col(const Tensor& self, IntArrayRef kernel_size, IntArrayRef dilation,
              IntArrayRef padding, IntArrayRef stride) {
  Tensor out = empty_webgpu({0}, self.options());
  return im2col_out(self, kernel_size, dilation, padding, stride, out);
}

Tensor& col2im_out(const Tensor& self, IntArrayRef output_size, IntArrayRef kernel_size,
                   IntArrayRef dilation, IntArrayRef padding, IntArrayRef stride, Tensor& out) {
  check_same_device("col2im_out", {{out, "out"}, {self, "self"}});
  check_dtype(out, self.scalar_type());
  const auto dtype = native_dtype(self.scalar_type());
  if (!dtype || info(*dtype).kind == Kind::kLong) {
    return call_cpu_fallback_symint<at::_ops::col2im_out>::call(
        self, c10::fromIntArrayRefSlow(output_size), kernel_size, dilation, padding, stride, out);
  }
  check_two("output_size", output_size);
  check_two("kernel_size", kernel_size);
  check_two("dilation", dilation);
  check_two("padding", padding);
  check_two("stride", stride);
  at::native::col2im_shape_check(self, Tensor(), output_size[0], output_size[1], kernel_size[0],
                                 kernel_size[1], dilation[0], dilation[1], padding[0], padding[1],
                                 stride[0], stride[1]);
  c10::SmallVector<int64_t, 4> size;
  if (self.dim() == 3) {
    size.push_back(self.size(0));
  }
  size.push_back(self.size(-2) / (kernel_size[0] * kernel_size[1]));
  size.append(output_size.begin(), output_size.end());
  at::native::resize_output(out, size);
  if (out.numel() == 0) {
    return out;
  }
  const Sliding sliding{kernel_size, dilation, padding, stride};
  const Params params = sliding.params(out, self, out.numel());
  KernelCall call("col2im", "fold_col2im");
  call.add_output("image", out, *dtype);
  call.add_input("columns", self, *dtype);
  call.run({kFold, 0, 0}, params, out.numel(), [] { return KernelCall::Hooks{}; });
  return out;
}

Tensor col2im(const Tensor& self, IntArrayRef output_size, IntArrayRef kernel_size,
              IntArrayRef dilation, IntArrayRef padding, IntArrayRef stride) {
  Tensor out = empty_webgpu({0}, self.options());
  return col2im_out(self, output_size, kernel_size, dilation, padding, stride, out);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("im2col", TORCH_FN(im2col));
  m.impl("im2col.out", TORCH_FN(im2col_out));
  m.impl("col2im", TORCH_FN(col2im));
  m.impl("col2im.out", TORCH_FN(col2im_out));
}

} // namespace
} // namespace torch_webgpu
