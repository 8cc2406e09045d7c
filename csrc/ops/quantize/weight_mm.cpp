// Products with weights of 8 and 4 bits, which the kernels dequantize when they load them:
// _weight_int8pack_mm, _weight_int4pack_mm, _convert_weight_to_int4pack.
#include <ATen/core/Tensor.h>
#include <ATen/ops/bitwise_left_shift.h>
#include <ATen/ops/bitwise_right_shift.h>

#include "backend/empty.h"
#include "backend/registration.h"
#include "kernels/weight_mm.h"
#include "kernels/weight_mv.h"
#include "launch/common.h"
#include "launch/dtypes.h"

namespace torch_webgpu {
namespace {

using at::Tensor;

// Runs a kernel that computes `rows` x `columns` elements in a workgroup.
template <class Params, class Launch>
void run(Launch& launch, const Tensor& out, const Tensor& a, const Tensor& w, const Tensor& scale,
         int64_t group_size, int64_t rows, int64_t columns) {
  const int64_t tiles_m = (out.size(0) + rows - 1) / rows;
  const int64_t tiles_n = (out.size(1) + columns - 1) / columns;
  launch.out(out).a(a).w(w).scale(scale);
  launch.run(Params{.m = static_cast<uint32_t>(out.size(0)),
                    .n = static_cast<uint32_t>(out.size(1)),
                    .k = static_cast<uint32_t>(a.size(1)),
                    .group_size = static_cast<uint32_t>(group_size),
                    .a_row = static_cast<uint32_t>(a.stride(0)),
                    .tiles_n = static_cast<uint32_t>(tiles_n)},
             launch.grid_of_groups(static_cast<uint64_t>(tiles_m * tiles_n)));
}

// out = a @ dequantized(w)^T. `w` has n rows of k weights. Weights of 4 bits lie eight in a word,
// with a scale and a zero point per group. Weights of 8 bits have a scale per row.
Tensor multiply(const char* op, bool is_int4, const Tensor& a, const Tensor& w, const Tensor& scale,
                int64_t n, int64_t group_size) {
  Tensor out = empty_webgpu({a.size(0), n}, a.scalar_type(), a.device());
  if (out.numel() == 0 || a.size(1) == 0) {
    return out.zero_();
  }
  // With few rows of `a` tiles do not pay. This kernel uses each unpacked weight for up to four
  // rows.
  if (a.size(0) <= 16) {
    namespace kernel = kernels::weight_mv;
    kernel::Launch launch(op);
    launch.packing(is_int4 ? kernel::Packing::int4 : kernel::Packing::int8);
    run<kernel::Params>(launch, out, a, w, scale, group_size, 4, 8);
  } else {
    namespace kernel = kernels::weight_mm;
    kernel::Launch launch(op);
    launch.packing(is_int4 ? kernel::Packing::int4 : kernel::Packing::int8);
    run<kernel::Params>(launch, out, a, w, scale, group_size, 64, 64);
  }
  return out;
}

void check_activations(const char* op, const Tensor& a) {
  TORCH_CHECK(is_native_float(a), op, " : expect A to be either 32-bit or 16-bit float tensor.");
  TORCH_CHECK(a.dim() == 2, op, " : expect A to be 2D tensor.");
}

Tensor weight_int8pack_mm(const Tensor& a, const Tensor& w, const Tensor& scales) {
  constexpr const char* op = "_weight_int8pack_mm_cpu"; // errors are the CPU's
  check_same_device("_weight_int8pack_mm", {{a, "self"}, {w, "mat2"}, {scales, "scales"}});
  check_activations(op, a);
  TORCH_CHECK(a.stride(1) == 1, op, " : A must be contiguous on the last dimension.");
  TORCH_CHECK(w.scalar_type() == at::kChar, op, " : expect B to be int8 tensor.");
  TORCH_CHECK(w.is_contiguous(), op, " : expect B to be contiguous.");
  TORCH_CHECK(w.size(1) == a.size(1), op, " : expect B.size(1) == ", a.size(1));
  TORCH_CHECK(scales.dim() == 1 && scales.size(0) == w.size(0), op,
              " : expect scales to be 1d tensor with size ", w.size(0));
  TORCH_CHECK(is_native_float(scales), op, " : expect scales to be a float tensor.");
  const bool in_words = a.size(1) % 4 == 0 && byte_offset(w) % 4 == 0;
  return multiply("_weight_int8pack_mm", /*is_int4=*/false, a, in_words ? w.view(at::kInt) : w,
                  scales.contiguous(), w.size(0), a.size(1));
}

// The result has the shape that it has on CUDA, because programs compute with that shape. In it, a
// word has eight weights of one row of the matrix, and rows follow one another. Two weights come in
// a byte, the first in its high half.
Tensor convert_weight_to_int4pack(const Tensor& weight, int64_t inner_k_tiles) {
  constexpr const char* op = "_convert_weight_to_int4pack";
  constexpr int64_t kTileN = 8;
  constexpr int64_t kTileK = 16;
  TORCH_CHECK(weight.dim() == 2, op, " : expect weight to be 2D tensor.");
  TORCH_CHECK(weight.scalar_type() == at::kByte, op, " : expect weight to be kByte.");
  TORCH_CHECK(inner_k_tiles == 2 || inner_k_tiles == 4 || inner_k_tiles == 8, op,
              " : innerKTiles need to be 2, 4, or 8, got ", inner_k_tiles);
  const int64_t n = weight.size(0);
  const int64_t k = weight.size(1) * 2;
  TORCH_CHECK(n % kTileN == 0, op, " : expect N to be dividable by ", kTileN);
  TORCH_CHECK(k % (inner_k_tiles * kTileK) == 0, op, " : expect K to be dividable by ",
              inner_k_tiles * kTileK);
  const Tensor rows = weight.contiguous();
  const Tensor swapped =
      at::bitwise_left_shift(rows, 4).bitwise_or_(at::bitwise_right_shift(rows, 4));
  return swapped.view(at::kInt).view(
      {n / kTileN, k / (inner_k_tiles * kTileK), 32, inner_k_tiles / 2});
}

Tensor weight_int4pack_mm(const Tensor& a, const Tensor& w, int64_t group_size,
                          const Tensor& scale_and_zeros) {
  constexpr const char* op = "_weight_int4pack_mm";
  check_same_device(op, {{a, "self"}, {w, "mat2"}, {scale_and_zeros, "qScaleAndZeros"}});
  check_activations(op, a);
  TORCH_CHECK(a.is_contiguous(), op, " : expect A to be contiguous.");
  TORCH_CHECK(w.scalar_type() == at::kInt, op, " : expect B to be int32 tensor.");
  TORCH_CHECK(w.is_contiguous(), op, " : expect B to be contiguous.");
  TORCH_CHECK(w.dim() == 4, op, " : expect B to 4d tensor.");
  TORCH_CHECK(group_size == 32 || group_size == 64 || group_size == 128 || group_size == 256, op,
              ": expect qGroupSize to be 32, 64, 128 or 256, got ", group_size);
  const int64_t k = a.size(1);
  const int64_t n = w.size(0) * 8;
  TORCH_CHECK(w.numel() * 8 == n * k, op, " : expect B to hold ", n, " rows of ", k, " weights");
  TORCH_CHECK(k % group_size == 0, op, ": expect K to be divisible by qGroupSize, got K:", k,
              ", qGroupSize:", group_size);
  TORCH_CHECK(scale_and_zeros.dim() == 3 && scale_and_zeros.size(0) == k / group_size &&
                  scale_and_zeros.size(1) == n && scale_and_zeros.size(2) == 2,
              op, ": expect qScaleAndZeros to be 3d tensor with sizes [", k / group_size, ", ", n,
              ", 2]");
  TORCH_CHECK(is_native_float(scale_and_zeros), op,
              ": expect qScaleAndZeros to be a float tensor.");
  return multiply(op, /*is_int4=*/true, a, w, scale_and_zeros.contiguous(), n, group_size);
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_weight_int8pack_mm", TORCH_FN(weight_int8pack_mm));
  m.impl("_convert_weight_to_int4pack", TORCH_FN(convert_weight_to_int4pack));
  m.impl("_weight_int4pack_mm", TORCH_FN(weight_int4pack_mm));
}

} // namespace
} // namespace torch_webgpu
