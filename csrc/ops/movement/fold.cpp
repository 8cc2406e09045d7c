// im2col and col2im, i.e. unfold and fold.
#include <ATen/native/Resize.h>
#include <ATen/native/im2col_shape_check.h>
#include <ATen/ops/col2im.h>
#include <ATen/ops/im2col.h>

#include <algorithm>
#include <array>
#include <initializer_list>

#include "backend/empty.h"
#include "backend/fallback.h"
#include "backend/registration.h"
#include "kernels/fold_col2im.h"
#include "kernels/fold_im2col.h"
#include "launch/common.h"
#include "launch/dtypes.h"

namespace torch_webgpu {
namespace {

using at::IntArrayRef;
using at::Tensor;

using Words = std::array<uint32_t, 4>;

Words words_of(std::initializer_list<int64_t> values) {
  Words words{};
  std::transform(values.begin(), values.end(), words.begin(),
                 [](int64_t value) { return static_cast<uint32_t>(value); });
  return words;
}

// The stride of a dimension counted from the last; 0 for a missing batch.
int64_t stride_from_last(const Tensor& tensor, int64_t number) {
  return number < tensor.dim() ? tensor.stride(-1 - number) : 0;
}

// The sliding windows over an image.
struct Sliding {
  IntArrayRef kernel;
  IntArrayRef dilation;
  IntArrayRef padding;
  IntArrayRef stride;

  int64_t places(int64_t d, int64_t size) const {
    return (size + 2 * padding[d] - (dilation[d] * (kernel[d] - 1) + 1)) / stride[d] + 1;
  }

  // The fields that both kernels have.
  template <class Params>
  Params params(const char* op, const Tensor& image, const Tensor& columns,
                const Tensor& out) const {
    TORCH_CHECK_NOT_IMPLEMENTED(out.numel() < int64_t{1} << 31, op, "(): more than 2^31 elements");
    const int64_t height = image.size(-2);
    const int64_t width = image.size(-1);
    Params params;
    params.count = static_cast<uint32_t>(out.numel());
    params.image = words_of(
        {stride_from_last(image, 3), image.stride(-3), image.stride(-2), image.stride(-1)});
    params.columns =
        words_of({stride_from_last(columns, 2), columns.stride(-2), columns.stride(-1)});
    params.sizes = words_of({height, width, places(0, height), places(1, width)});
    params.kernel = words_of({kernel[0], kernel[1], dilation[0], dilation[1]});
    params.sliding = words_of({stride[0], stride[1], padding[0], padding[1]});
    return params;
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
  namespace kernel = kernels::fold_im2col;
  auto params = sliding.params<kernel::Params>("im2col", self, out, out);
  params.planes = static_cast<uint32_t>(out.size(-2));
  kernel::Launch launch("im2col");
  launch.columns(out).image(self);
  launch.run(params, launch.grid_of(params.count));
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
  namespace kernel = kernels::fold_col2im;
  auto params = sliding.params<kernel::Params>("col2im", out, self, out);
  params.planes = static_cast<uint32_t>(out.size(-3));
  kernel::Launch launch("col2im");
  launch.image(out).columns(self);
  launch.run(params, launch.grid_of(params.count));
  return out;
}

Tensor col2im(const Tensor& self, IntArrayRef output_size, IntArrayRef kernel_size,
              IntArrayRef dilation, IntArrayRef padding, IntArrayRef stride) {
  Tensor out = empty_webgpu({0}, self.options());
  return col2im_out(self, output_size, kernel_size, dilation, padding, stride, out);
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("im2col", TORCH_FN(im2col));
  m.impl("im2col.out", TORCH_FN(im2col_out));
  m.impl("col2im", TORCH_FN(col2im));
  m.impl("col2im.out", TORCH_FN(col2im_out));
}

} // namespace
} // namespace torch_webgpu
