#include "ops/blockwise/packed.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <limits>

#include "backend/empty.h"
#include "backend/tensor.h"
#include "kernels/packed_mm.h"
#include "kernels/unpack_blocks.h"
#include "launch/dtypes.h"

namespace torch_webgpu {
namespace {

using at::Tensor;

// Up to so many rows of x each kernel reads the weights themselves: packed_mv, then packed_mm. With
// more, weights are unpacked part by part for the general product, whose tiles (and, in half
// types, subgroup matrices) then pay.
constexpr int64_t kFewRows = 16;
constexpr int64_t kTileRows = 64;
// The unpacked part has at most so many elements, so that memory stays small for any matrix.
constexpr int64_t kUnpackedElements = int64_t{1} << 24;

// A kernel file's launch with the weights' operands. Each file has its own types for them.
template <typename Kernel>
void bind_weights(Kernel& launch, const PackedWeights& weights) {
  const auto bind = [&](auto function, const PackedPart& part) {
    if (part) {
      (launch.*function)(*part.buffer, part.begin, part.end, part.dtype);
    }
  };
  bind(&Kernel::w_range, weights.w);
  bind(&Kernel::scale_range, weights.scale);
  bind(&Kernel::sub_range, weights.sub);
  bind(&Kernel::table_range, weights.table);
  bind(&Kernel::scale_table_range, weights.scale_table);
  bind(&Kernel::scale_scale_range, weights.scale_scale);
  bind(&Kernel::scale_offset_range, weights.scale_offset);
}

void check_count(const char* op, int64_t count) {
  TORCH_CHECK_NOT_IMPLEMENTED(count < std::numeric_limits<uint32_t>::max(), op, "(): ", count,
                              " packed weights, more than kernels count");
}

// Runs a kernel that computes `rows` x `columns` elements in a workgroup.
template <typename Params, typename Kernel>
void multiply(Kernel& launch, const Tensor& out, const Tensor& a, const PackedWeights& weights,
              const std::optional<Tensor>& bias, int64_t rows, int64_t columns) {
  const int64_t tiles_m = (out.size(0) + rows - 1) / rows;
  const int64_t tiles_n = (out.size(1) + columns - 1) / columns;
  launch.out(out).a(a);
  bind_weights(launch, weights);
  if (bias) {
    launch.bias(*bias);
  }
  launch.run(Params{.m = static_cast<uint32_t>(out.size(0)),
                    .n = static_cast<uint32_t>(out.size(1)),
                    .k = static_cast<uint32_t>(a.size(1)),
                    .block = weights.block,
                    .a_row = static_cast<uint32_t>(a.stride(0)),
                    .tiles_n = static_cast<uint32_t>(tiles_n)},
             launch.grid_of_groups(static_cast<uint64_t>(tiles_m * tiles_n)));
}

// Unpacks some rows at a time.
void multiply_unpacked(const char* op, const Tensor& out, const Tensor& a,
                       const PackedWeights& weights, const std::optional<Tensor>& bias) {
  const int64_t n = out.size(1);
  const int64_t k = a.size(1);
  // A part starts at a multiple of 4 weights.
  const int64_t part = std::min(n, std::max<int64_t>(kUnpackedElements / k / 4 * 4, 4));
  for (int64_t first = 0; first < n; first += part) {
    const int64_t rows = std::min(part, n - first);
    const Tensor w = empty_webgpu({rows, k}, a.scalar_type(), a.device());
    unpack(op, weights, first * k, w, /*owns_words=*/true);
    Tensor columns = out.narrow(1, first, rows);
    if (bias) {
      at::addmm_out(columns, bias->narrow(0, first, rows), a, w.t());
    } else {
      at::mm_out(columns, a, w.t());
    }
  }
}

} // namespace

PackedPart::PackedPart(const at::TensorBase& tensor, DType dtype)
    : PackedPart(tensor, 0, tensor.numel() * tensor.itemsize(), dtype) {}

PackedPart::PackedPart(const at::TensorBase& tensor, uint64_t begin, uint64_t end, DType dtype)
    : buffer(&buffer_of(tensor)), begin(byte_offset(tensor) + begin),
      end(byte_offset(tensor) + end), dtype(dtype) {}

void unpack(const char* op, const PackedWeights& weights, int64_t first, const Tensor& out,
            bool owns_words) {
  const int64_t count = out.numel();
  if (count == 0) {
    return;
  }
  check_count(op, first + count);
  namespace kernel = kernels::unpack_blocks;
  kernel::Launch launch(op);
  launch.out(out).packing(static_cast<kernel::Packing>(weights.packing));
  bind_weights(launch, weights);
  if (owns_words && out.itemsize() < 4 && count % 4 == 0) {
    launch.own_words_of_out();
  }
  launch.run({.first = static_cast<uint32_t>(first),
              .count = static_cast<uint32_t>(count),
              .block = weights.block},
             launch.grid_of(static_cast<uint64_t>((count + 3) / 4)));
}

Tensor packed_linear(const char* op, const Tensor& x, const PackedWeights& weights, int64_t n,
                     const std::optional<Tensor>& bias) {
  const int64_t k = x.size(-1);
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = n;
  Tensor out = empty_webgpu(sizes, x.scalar_type(), x.device());
  if (out.numel() == 0) {
    return out;
  }
  if (k == 0) {
    return bias ? out.copy_(*bias) : out.zero_();
  }
  check_count(op, n * k);
  // Rows of whole pairs of elements, which start at a word.
  Tensor a = x.contiguous();
  if (k % 2 == 0 && byte_offset(a) % 4 != 0) {
    a = a.clone();
  }
  a = a.view({-1, k});
  const Tensor matrix = out.view({-1, n});
  const int64_t rows = a.size(0);
  if (rows <= kFewRows && k % 8 == 0) {
    namespace kernel = kernels::packed_mv;
    kernel::Launch launch(op);
    const uint32_t together = rows == 1 ? 1 : 4;
    launch.packing(weights.packing).rows(together);
    multiply<kernel::Params>(launch, matrix, a, weights, bias, together, 8);
  } else if (rows <= kTileRows && k % 4 == 0) {
    namespace kernel = kernels::packed_mm;
    kernel::Launch launch(op);
    launch.packing(static_cast<kernel::Packing>(weights.packing));
    multiply<kernel::Params>(launch, matrix, a, weights, bias, 64, 64);
  } else {
    multiply_unpacked(op, matrix, a, weights, bias);
  }
  return out;
}

} // namespace torch_webgpu
