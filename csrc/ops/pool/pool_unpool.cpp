// max_unpool2d and max_unpool3d: every value goes to the place that max pooling took it from.
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>

#include "backend/empty.h"
#include "backend/registration.h"
#include "backend/torch_versions.h"
#include "launch/common.h"

namespace torch_webgpu {
namespace {

using at::IntArrayRef;
using at::Tensor;

void check_unpool(const Tensor& self, const Tensor& indices, int64_t dims) {
  const std::string name = "max_unpooling" + std::to_string(dims) + "d";
  TORCH_CHECK(self.dim() == dims + 1 || self.dim() == dims + 2, "Input to ", name, " should be a ",
              dims + 1, "d or ", dims + 2, "d Tensor, but got a tensor with ", self.dim(),
              " dimensions.");
  TORCH_CHECK(self.sizes() == indices.sizes(),
              "Expected shape of indices to be same as that of the input tensor (", self.sizes(),
              ") but got indices tensor with shape: ", indices.sizes());
  check_unpooled_sizes(self, name, self.dim() - dims - 1);
  TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(self.scalar_type()), "\"max_unpool", dims,
                              "d\" not implemented for '", self.scalar_type(), "'");
}

// Where several values have one index, one of them is stored, as on every GPU.
Tensor& unpool(const Tensor& self, const Tensor& indices, IntArrayRef output_size, Tensor& out) {
  check_dtype(out, self.scalar_type());
  const auto dims = static_cast<int64_t>(output_size.size());
  at::DimVector sizes(self.sizes().begin(), self.sizes().end() - dims);
  sizes.append(output_size.begin(), output_size.end());
  at::native::resize_output(out, sizes);
  const Tensor packed =
      out.is_contiguous() ? out : empty_webgpu(sizes, out.scalar_type(), out.device());
  packed.zero_();
  if (packed.numel() != 0 && self.numel() != 0) {
    packed.flatten(-dims).scatter_(-1, indices.flatten(-dims), self.flatten(-dims));
  }
  return packed.is_same(out) ? out : out.copy_(packed);
}

Tensor& max_unpool2d_out(const Tensor& self, const Tensor& indices, IntArrayRef output_size,
                         Tensor& out) {
  at::globalContext().alertNotDeterministic("max_unpooling2d_forward_out");
  check_same_device("max_unpool2d", {{self, "self"}, {indices, "indices"}, {out, "out"}});
  TORCH_CHECK(indices.scalar_type() == at::kLong,
              "elements in indices should be type int64 but got: ", indices.scalar_type());
  TORCH_CHECK(output_size.size() == 2,
              "There should be exactly two elements (height, width) in output_size, but got ",
              output_size.size(), " elements.");
  check_unpool(self, indices, 2);
  return unpool(self, indices, output_size, out);
}

Tensor max_unpool2d(const Tensor& self, const Tensor& indices, IntArrayRef output_size) {
  Tensor out = empty_webgpu({0}, self.options());
  max_unpool2d_out(self, indices, output_size, out);
  return out.contiguous(self.suggest_memory_format());
}

Tensor& max_unpool3d_out(const Tensor& self, const Tensor& indices, IntArrayRef output_size,
                         IntArrayRef stride, IntArrayRef padding, Tensor& out) {
  at::globalContext().alertNotDeterministic("max_unpooling3d_forward_out");
  check_same_device("max_unpool3d", {{self, "self"}, {indices, "indices"}, {out, "out"}});
  TORCH_CHECK(indices.scalar_type() == at::kLong, "elements in indices should be type int64",
              long_indices_suffix(indices));
  TORCH_CHECK(output_size.size() == 3,
              "There should be exactly three elements (depth, height, width) in output_size, but "
              "got ",
              output_size.size(), " elements.");
  TORCH_CHECK(stride.size() == 3,
              "There should be exactly three elements (depth, height, width) in stride, but got: ",
              stride.size(), " elements.");
  TORCH_CHECK(padding.size() == 3,
              "There should be exactly three elements (depth, height, width) in padding, but got: ",
              padding.size(), " elements.");
  TORCH_CHECK(stride[0] > 0 && stride[1] > 0 && stride[2] > 0,
              "strides should be greater than zero, but got stride: ", stride);
  check_unpool(self, indices, 3);
  return unpool(self, indices, output_size, out);
}

Tensor max_unpool3d(const Tensor& self, const Tensor& indices, IntArrayRef output_size,
                    IntArrayRef stride, IntArrayRef padding) {
  Tensor out = empty_webgpu({0}, self.options());
  return max_unpool3d_out(self, indices, output_size, stride, padding, out);
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("max_unpool2d", TORCH_FN(max_unpool2d));
  m.impl("max_unpool2d.out", TORCH_FN(max_unpool2d_out));
  m.impl("max_unpool3d", TORCH_FN(max_unpool3d));
  m.impl("max_unpool3d.out", TORCH_FN(max_unpool3d_out));
}

} // namespace
} // namespace torch_webgpu
