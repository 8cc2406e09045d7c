// Moving elements about: roll, repetition, and the gradient of unfold.
#include <ATen/Context.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/native/UnfoldBackward.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/searchsorted.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "backend/fallback.h"
#include "backend/registration.h"
#include "launch/common.h"
#include "launch/dtypes.h"
#include "launch/halves.h"
#include "launch/stub.h"
#include "ops/checks/check_values.h"
#include "ops/index/index_move.h"
#include "ops/movement/movement_map.h"

namespace torch_webgpu {
namespace {

using at::Tensor;

// Rolls by copies of slices: `out` is divided at the shift of each dimension, all in [0, size).
void roll_slices(const Tensor& out, const Tensor& in, at::IntArrayRef shifts, int64_t dim) {
  while (dim < in.dim() && shifts[dim] == 0) {
    ++dim;
  }
  if (dim == in.dim()) {
    out.copy_(in);
    return;
  }
  const int64_t shift = shifts[dim];
  const int64_t rest = in.size(dim) - shift;
  roll_slices(out.narrow(dim, 0, shift), in.narrow(dim, rest, shift), shifts, dim + 1);
  roll_slices(out.narrow(dim, shift, rest), in.narrow(dim, 0, rest), shifts, dim + 1);
}

Tensor roll(const Tensor& self, at::IntArrayRef shifts, at::IntArrayRef dims) {
  TORCH_CHECK(!shifts.empty(), "`shifts` required");
  if (dims.empty() && shifts.size() == 1) {
    return roll(self.reshape({-1}), shifts, 0).view(self.sizes());
  }
  TORCH_CHECK(shifts.size() == dims.size(),
              "shifts and dimensions must align. shifts: ", shifts.size(), ", dims:", dims.size());
  Tensor out = at::empty_like(self, at::MemoryFormat::Contiguous);
  if (self.numel() == 0) {
    return out;
  }
  c10::SmallVector<int64_t, 8> wrapped(self.dim(), 0); // in [0, size)
  for (size_t k = 0; k < dims.size(); ++k) {
    const int64_t d = at::maybe_wrap_dim(dims[k], self.dim());
    const int64_t size = self.size(d);
    wrapped[d] = ((wrapped[d] + shifts[k]) % size + size) % size;
  }
  if (!is_countable(self)) {
    roll_slices(out, self, wrapped, 0);
    return out;
  }
  if (self.dim() <= kMaxMappedDims) {
    map_elements("roll", CoordinateMap::kWrap, out, self, wrapped);
    return out;
  }
  // Rolls one dimension at a time, on a view of three dimensions: all before it, itself, all after
  // it.
  Tensor rolled = self.contiguous();
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (wrapped[d] != 0) {
      const int64_t front = c10::multiply_integers(self.sizes().slice(0, d));
      rolled = roll(rolled.view({front, self.size(d), -1}), wrapped[d], 1).view(self.sizes());
    }
  }
  return out.copy_(rolled);
}

// The indices that repeat each position as often as `repeats` says.
Tensor repeat_interleave(const Tensor& repeats, std::optional<int64_t> output_size) {
  TORCH_CHECK(repeats.dim() == 1, "repeat_interleave only accept 1D vector as repeat");
  TORCH_CHECK(repeats.scalar_type() == at::kLong || repeats.scalar_type() == at::kInt,
              "repeats has to be Long or Int tensor");
  if (repeats.numel() == 0) {
    return at::empty_like(repeats, at::MemoryFormat::Contiguous);
  }
  const Tensor ends = repeats.cumsum(0);
  int64_t total = 0;
  if (output_size) {
    total = *output_size;
    // Reading the sum would wait for the device, which is what `output_size` avoids.
    require_true("repeat_interleave", repeats.ge(0), "repeats can not be negative");
    require_true("repeat_interleave", ends.narrow(0, ends.size(0) - 1, 1).eq(total),
                 "repeat_interleave: output_size does not match the sum of repeats");
  } else {
    TORCH_CHECK(repeats.min().item<int64_t>() >= 0, "repeats can not be negative");
    total = ends[-1].item<int64_t>();
  }
  const Tensor positions = at::arange(total, ends.options());
  return at::searchsorted(ends, positions, /*out_int32=*/repeats.scalar_type() == at::kInt,
                          /*right=*/true);
}

// Every window adds its gradient to the place it was taken from.
void unfold_backward(Tensor& grad_in, const Tensor& grad, int64_t dim, int64_t size, int64_t step) {
  const auto dtype = native_dtype(grad.scalar_type());
  if (!dtype) {
    note_fallback("aten::unfold_backward", grad.scalar_type());
    Tensor host = grad_in.cpu();
    call_on_cpu(at::native::unfold_backward_stub, host, grad.cpu(), dim, size, step);
    grad_in.copy_(host);
    return;
  }
  const Tensor windows = grad_in.unfold(dim, size, step);
  IndexMove move("unfold_backward", step >= size ? StoreMode::kCopy : StoreMode::kAdd);
  const DType type = step >= size ? raw_dtype(grad.scalar_type()) : *dtype;
  move.sizes.assign(grad.sizes().begin(), grad.sizes().end());
  move.out = move_target(windows, type, windows.strides());
  move.in = move_operand(grad, type, grad.strides());
  if (step < size && at::globalContext().deterministicAlgorithms()) {
    move.serial_dims = uint64_t{1} << dim | uint64_t{1} << (grad.dim() - 1);
  }
  run_index_move(std::move(move));
}

// ATen composes the functional form only.
Tensor& narrow_copy_out(const Tensor& self, int64_t dim, int64_t start, int64_t length,
                        Tensor& out) {
  check_same_device("narrow_copy", {{self, "self"}, {out, "out"}});
  TORCH_CHECK(self.scalar_type() == out.scalar_type(), "narrow_copy(): Expected out of dtype ",
              self.scalar_type(), ", but got ", out.scalar_type());
  return write_out(self.narrow(dim, start, length), out);
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("narrow_copy.out", TORCH_FN(narrow_copy_out));
  m.impl("roll", TORCH_FN(roll));
  m.impl("repeat_interleave.Tensor", TORCH_FN(repeat_interleave));
}

} // namespace
} // namespace torch_webgpu

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(unfold_backward_stub, &torch_webgpu::unfold_backward)
} // namespace at::native
