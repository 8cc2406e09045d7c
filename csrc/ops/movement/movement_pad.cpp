// Reflection and replication padding, and their gradients.
#include <ATen/Context.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <vector>

#include "backend/empty.h"
#include "backend/registration.h"
#include "backend/torch_versions.h"
#include "launch/common.h"
#include "launch/dtypes.h"
#include "ops/movement/movement_map.h"
#include "structured_ops.h"

namespace torch_webgpu {
namespace {

using at::IntArrayRef;
using at::Tensor;

void check_padding(const Tensor& tensor, IntArrayRef padding) {
  TORCH_CHECK(padding.size() % 2 == 0 && static_cast<int64_t>(padding.size()) <= 2 * tensor.dim(),
              "padding of ", padding.size(), " numbers does not belong to a tensor of ",
              tensor.dim(), " dimensions");
}

// The padding before each dimension. `padding` starts with the front of the last dimension.
c10::SmallVector<int64_t, 8> front_padding(const Tensor& tensor, IntArrayRef padding) {
  check_padding(tensor, padding);
  c10::SmallVector<int64_t, 8> shifts(tensor.dim(), 0);
  for (size_t k = 0; k < padding.size() / 2; ++k) {
    shifts[tensor.dim() - 1 - k] = padding[2 * k];
  }
  return shifts;
}

// Makes `result` channels last if `self` is. (The meta functions ask for contiguous results.)
void restride_like(const Tensor& result, const Tensor& self) {
  if (result.is_contiguous() && result.dim() == self.dim()) {
    result.unsafeGetTensorImpl()->empty_tensor_restride(self.suggest_memory_format());
  }
}

void pad(const char* name, CoordinateMap map, const Tensor& self, IntArrayRef padding,
         const Tensor& out) {
  restride_like(out, self);
  map_elements(name, map, out, self, front_padding(self, padding));
}

// The index in [0, size) to which index `at` is mapped.
int64_t mapped(CoordinateMap map, int64_t at, int64_t size) {
  if (map == CoordinateMap::kReplicate) {
    return std::clamp<int64_t>(at, 0, size - 1);
  }
  return at < 0 ? -at : at >= size ? 2 * (size - 1) - at : at;
}

// Handles one dimension after another with index_add, which can add in a fixed order.
Tensor pad_backward_in_order(CoordinateMap map, const Tensor& grad_output, IntArrayRef padding,
                             IntArrayRef input_size) {
  const auto shifts = front_padding(grad_output, padding);
  Tensor sums = grad_output;
  for (int64_t d = 0; d < grad_output.dim(); ++d) {
    if (input_size[d] == sums.size(d) && shifts[d] == 0) {
      continue;
    }
    std::vector<int64_t> places(sums.size(d));
    for (int64_t i = 0; i < sums.size(d); ++i) {
      places[i] = mapped(map, i - shifts[d], input_size[d]);
    }
    at::DimVector size(sums.sizes());
    size[d] = input_size[d];
    sums = at::zeros(size, sums.options())
               .index_add(d, at::tensor(places, at::kLong).to(sums.device()), sums);
  }
  return sums;
}

void pad_backward(const char* name, CoordinateMap map, const Tensor& grad_output,
                  IntArrayRef padding, const Tensor& grad_input) {
  if (at::isReducedFloatingType(grad_input.scalar_type())) { // sums of halves are kept in float32
    const Tensor sums = at::zeros(grad_input.sizes(), grad_input.options().dtype(at::kFloat));
    pad_backward(name, map, grad_output.to(at::kFloat), padding, sums);
    grad_input.copy_(sums);
    return;
  }
  // For dtypes without a kernel, index_add falls back to the CPU.
  if (at::globalContext().deterministicAlgorithms() || !native_dtype(grad_input.scalar_type())) {
    grad_input.copy_(pad_backward_in_order(map, grad_output, padding, grad_input.sizes()));
    return;
  }
  grad_input.zero_();
  add_mapped_elements(name, map, grad_input, grad_output, front_padding(grad_output, padding));
}

c10::SmallVector<int64_t, 8> padded_size(const Tensor& self, IntArrayRef padding) {
  check_padding(self, padding);
  c10::SmallVector<int64_t, 8> size(self.sizes().begin(), self.sizes().end());
  for (size_t k = 0; k < padding.size() / 2; ++k) {
    size[self.dim() - 1 - k] += padding[2 * k] + padding[2 * k + 1];
  }
  return size;
}

// The 2d forms below have no meta function in ATen, so their checks are here.
Tensor& reflection_pad2d_out(const Tensor& self, IntArrayRef padding, Tensor& out) {
  check_same_device("reflection_pad2d_out", {{out, "out"}, {self, "self"}});
  check_padded_input<2>(self, padding);
  const int64_t width = self.size(-1);
  const int64_t height = self.size(-2);
  TORCH_CHECK(padding[0] < width && padding[1] < width,
              "Argument #4: Padding size should be less than the corresponding input dimension, "
              "but got: padding (",
              padding[0], ", ", padding[1], ") at dimension ", self.dim() - 1, " of input ",
              self.sizes());
  TORCH_CHECK(padding[2] < height && padding[3] < height,
              "Argument #6: Padding size should be less than the corresponding input dimension, "
              "but got: padding (",
              padding[2], ", ", padding[3], ") at dimension ", self.dim() - 2, " of input ",
              self.sizes());
  const auto size = padded_size(self, padding);
  const int64_t out_width = size[self.dim() - 1];
  const int64_t out_height = size[self.dim() - 2];
  TORCH_CHECK(out_width >= 1 || out_height >= 1, "input (H: ", height, ", W: ", width,
              ") is too small. Calculated output H: ", out_height, " W: ", out_width);
  check_dtype(out, self.scalar_type());
  at::native::resize_output(out, size);
  pad("reflection_pad2d", CoordinateMap::kReflect, self, padding, out);
  return out;
}

Tensor reflection_pad2d(const Tensor& self, IntArrayRef padding) {
  Tensor out = empty_webgpu({0}, self.options());
  return reflection_pad2d_out(self, padding, out);
}

void check_grad_output(const Tensor& grad_output, const Tensor& self, IntArrayRef padding) {
  static constexpr const char* names[] = {"width", "height", "depth"};
  const auto size = padded_size(self, padding);
  TORCH_CHECK(grad_output.dim() == self.dim(), "gradOutput has ", grad_output.dim(),
              " dimensions, the input ", self.dim());
  for (size_t k = 0; k < padding.size() / 2; ++k) {
    const int64_t d = self.dim() - 1 - static_cast<int64_t>(k);
    TORCH_CHECK(size[d] == grad_output.size(d), "gradOutput ", names[k],
                " unexpected. Expected: ", size[d], ", Got: ", grad_output.size(d));
  }
}

template <CoordinateMap map, size_t dims>
struct PlainBackward {
  static constexpr const char* name() {
    return map == CoordinateMap::kReflect ? "reflection_pad2d_backward"
           : dims == 2                    ? "replication_pad2d_backward"
                                          : "replication_pad3d_backward";
  }

  static Tensor& run_out(const Tensor& grad_output, const Tensor& self, IntArrayRef padding,
                         Tensor& grad_input) {
    TORCH_CHECK(padding.size() == 2 * dims, "padding size is expected to be ", 2 * dims);
    check_grad_output(grad_output, self, padding);
    check_same_device(name(),
                      {{grad_input, "grad_input"}, {grad_output, "grad_output"}, {self, "self"}});
    check_dtype(grad_input, grad_output.scalar_type());
    at::native::resize_output(grad_input, self.sizes());
    pad_backward(name(), map, grad_output, padding, grad_input);
    return grad_input;
  }

  static Tensor run(const Tensor& grad_output, const Tensor& self, IntArrayRef padding) {
    // Contiguous or channels last, as on the CPU: other strides of the input are not kept.
    Tensor grad_input = at::empty_like(self, self.suggest_memory_format());
    return run_out(grad_output, self, padding, grad_input);
  }
};

using Reflect2d = PlainBackward<CoordinateMap::kReflect, 2>;
using Replicate2d = PlainBackward<CoordinateMap::kReplicate, 2>;
using Replicate3d = PlainBackward<CoordinateMap::kReplicate, 3>;

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("reflection_pad2d", TORCH_FN(reflection_pad2d));
  m.impl("reflection_pad2d.out", TORCH_FN(reflection_pad2d_out));
  m.impl("reflection_pad2d_backward", TORCH_FN(Reflect2d::run));
  m.impl("reflection_pad2d_backward.grad_input", TORCH_FN(Reflect2d::run_out));
  m.impl("replication_pad2d_backward", TORCH_FN(Replicate2d::run));
  m.impl("replication_pad2d_backward.grad_input", TORCH_FN(Replicate2d::run_out));
  m.impl("replication_pad3d_backward", TORCH_FN(Replicate3d::run));
  m.impl("replication_pad3d_backward.grad_input", TORCH_FN(Replicate3d::run_out));
}

} // namespace

#define TW_PAD(name, map)                                                                          \
  void structured_##name##_out::impl(const Tensor& self, IntArrayRef padding, const Tensor& out) { \
    pad(#name, map, self, padding, out);                                                           \
  }
TW_PAD(reflection_pad1d, CoordinateMap::kReflect)
TW_PAD(reflection_pad3d, CoordinateMap::kReflect)
TW_PAD(replication_pad1d, CoordinateMap::kReplicate)
TW_PAD(replication_pad2d, CoordinateMap::kReplicate)
TW_PAD(replication_pad3d, CoordinateMap::kReplicate)
#undef TW_PAD

#define TW_PAD_BACKWARD(name, map)                                                                 \
  void structured_##name##_out::impl(const Tensor& grad_output, const Tensor& self,                \
                                     IntArrayRef padding, const Tensor& grad_input) {              \
    restride_like(grad_input, self);                                                               \
    pad_backward(#name, map, grad_output, padding, grad_input);                                    \
  }
TW_PAD_BACKWARD(reflection_pad1d_backward, CoordinateMap::kReflect)
TW_PAD_BACKWARD(reflection_pad3d_backward, CoordinateMap::kReflect)
TW_PAD_BACKWARD(replication_pad1d_backward, CoordinateMap::kReplicate)
#undef TW_PAD_BACKWARD

} // namespace torch_webgpu
