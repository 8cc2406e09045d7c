// Moving elements about: roll, triangles, repetition, and the gradient of unfold.
#include <ATen/Context.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/native/UnfoldBackward.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/searchsorted.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "backend/fallback.h"
#include "wgsl/kernel_source.h"
#include "launch/binding_list.h"
#include "launch/common.h"
#include "launch/dtypes.h"
#include "ops/index/index_move.h"
#include "ops/movement/movement_map.h"
#include "launch/stub.h"
#include "structured_ops.h"

namespace torch_webgpu {
namespace {

using at::Tensor;

constexpr PipelineFamily kTriangleFamily = PipelineFamily::kTriangle;
constexpr uint32_t kMaxDims = 12;
constexpr uint32_t kWorkgroup = 256;

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
  if (self.dim() <= kMaxDims) {
    map_elements("roll", CoordinateMap::kWrap, out, self, wrapped);
    return out;
  }
  // One dimension after the other, of three: all in front of it, itself, all behind it.
  Tensor rolled = self.contiguous();
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (wrapped[d] != 0) {
      const int64_t front = c10::multiply_integers(self.sizes().slice(0, d));
      rolled = roll(rolled.view({front, self.size(d), -1}), wrapped[d], 1).view(self.sizes());
    }
  }
  return out.copy_(rolled);
}

// Mirrors Params of triangular.wgsl.
struct TriangleParams {
  uint32_t count;
  uint32_t rank;
  uint32_t out_offset;
  uint32_t in_offset;
  int32_t diagonal;
  uint32_t upper;
  uint32_t unused[2];
  uint32_t dims[kMaxDims][4];
};

void triangle(const char* name, bool upper, const Tensor& self, int64_t diagonal,
              const Tensor& out) {
  if (self.numel() == 0) {
    return;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(self.numel() < int64_t{1} << 31, name, "(): more than 2^31 elements");
  if (self.dim() > kMaxDims) { // as one batch
    const Tensor matrices = self.contiguous().view({-1, self.size(-2), self.size(-1)});
    const Tensor result = at::empty_like(matrices);
    triangle(name, upper, matrices, diagonal, result);
    out.copy_(result.view(out.sizes()));
    return;
  }
  TriangleParams params{};
  params.count = static_cast<uint32_t>(self.numel());
  params.rank = bounded_rank(name, self.dim(), kMaxDims);
  params.out_offset = static_cast<uint32_t>(byte_offset(out) / out.itemsize());
  params.in_offset = static_cast<uint32_t>(byte_offset(self) / self.itemsize());
  params.diagonal =
      static_cast<int32_t>(std::clamp<int64_t>(diagonal, -(int64_t{1} << 31), INT32_MAX));
  params.upper = upper ? 1 : 0;
  for (uint32_t k = 0; k < params.rank; ++k) {
    const int64_t d = params.rank - 1 - k;
    params.dims[k][0] = static_cast<uint32_t>(self.size(d));
    params.dims[k][1] = static_cast<uint32_t>(out.stride(d));
    params.dims[k][2] = static_cast<uint32_t>(self.stride(d));
  }
  BindingList bindings(name);
  const DType bits = raw_dtype(self.scalar_type());
  bindings.operand("out", out, bits, true);
  const uint32_t in_slot = bindings.operand("in", self, bits).slot;
  Context& ctx = context();
  const Pipeline& pipeline =
      ctx.pipelines.get(bindings.key({kTriangleFamily, static_cast<uint64_t>(bits), in_slot}), [&] {
        KernelSource source;
        source.file = "triangular";
        source.operands = {{"out", bits, 0, true}, {"in", bits, in_slot}};
        source.windows = bindings.windows();
        return build_kernel("triangular", source);
      });
  bindings.dispatch(pipeline, params, ctx.stream.grid_1d(params.count, kWorkgroup));
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
    note_fallback("aten::unfold_backward", std::string("for ") + c10::toString(grad.scalar_type()));
    Tensor host = grad_in.cpu();
    call_on_cpu(at::native::unfold_backward_stub, host, grad.cpu(), dim, size, step);
    grad_in.copy_(host);
    return;
  }
  const Tensor windows = grad_in.unfold(dim, size, step);
  IndexMove move("unfold_backward", step >= size ? Placing::kCopy : Placing::kAdd);
  const DType type = step >= size ? raw_dtype(grad.scalar_type()) : *dtype;
  move.sizes.assign(grad.sizes().begin(), grad.sizes().end());
  move.out = move_operand(windows, type, windows.strides());
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

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("narrow_copy.out", TORCH_FN(narrow_copy_out));
  m.impl("roll", TORCH_FN(roll));
  m.impl("repeat_interleave.Tensor", TORCH_FN(repeat_interleave));
}

} // namespace

void structured_tril_out::impl(const Tensor& self, int64_t diagonal, const Tensor& out) {
  triangle("tril", false, self, diagonal, out);
}

void structured_triu_out::impl(const Tensor& self, int64_t diagonal, const Tensor& out) {
  triangle("triu", true, self, diagonal, out);
}

} // namespace torch_webgpu

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(unfold_backward_stub, &torch_webgpu::unfold_backward)
} // namespace at::native
