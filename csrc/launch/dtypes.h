// ATen's dtypes as kernels know them.
#pragma once

#include <ATen/core/TensorBase.h>
#include <c10/core/Scalar.h>
#include <c10/core/ScalarType.h>

#include <optional>
#include <string_view>

#include "wgsl/dtype.h"

namespace torch_webgpu {

/// The kernel dtype that arithmetic on `type` uses; nothing for types whose arithmetic is left to
/// the counted fallback (float64, complex128, ...).
inline std::optional<DType> native_dtype(at::ScalarType type) {
  switch (type) {
  case at::kFloat:
    return DType::kF32;
  case at::kHalf:
    return DType::kF16;
  case at::kBFloat16:
    return DType::kBF16;
  case at::kLong:
    return DType::kI64;
  case at::kInt:
    return DType::kI32;
  case at::kShort:
    return DType::kI16;
  case at::kChar:
    return DType::kI8;
  case at::kByte:
    return DType::kU8;
  case at::kBool:
    return DType::kBool;
  case at::kComplexFloat:
    return DType::kC64;
  default:
    return std::nullopt;
  }
}

/// The kernel dtype of the floating point types: float32, float16 and bfloat16.
inline std::optional<DType> native_float_dtype(at::ScalarType type) {
  const auto dtype = native_dtype(type);
  return dtype && info(*dtype).kind == Kind::kFloat ? dtype : std::nullopt;
}

/// Whether kernels compute in the dtype as floating point: else the counted fallback.
inline bool is_native_float(at::ScalarType type) { return native_float_dtype(type).has_value(); }
inline bool is_native_float(const at::TensorBase& tensor) {
  return is_native_float(tensor.scalar_type());
}

/// The kernel dtype that converts `type`: the native ones, and those that are only stored and
/// converted.
inline std::optional<DType> convertible_dtype(at::ScalarType type) {
  switch (type) {
  case at::kDouble:
    return DType::kF64;
  case at::kUInt16:
    return DType::kU16;
  case at::kUInt32:
    return DType::kU32;
  case at::kFloat8_e4m3fn:
    return DType::kF8E4M3;
  case at::kFloat8_e5m2:
    return DType::kF8E5M2;
  case at::kFloat8_e4m3fnuz:
    return DType::kF8E4M3FNUZ;
  case at::kFloat8_e5m2fnuz:
    return DType::kF8E5M2FNUZ;
  default:
    return native_dtype(type);
  }
}

/// The raw-bits dtype that moves elements of `type`.
inline DType raw_dtype(at::ScalarType type) {
  return bits_dtype(static_cast<uint32_t>(c10::elementSize(type)));
}

/// Whether a kernel that reads `dtype` may read elements of `type`.
inline bool holds_dtype(at::ScalarType type, DType dtype) {
  return is_raw(dtype) ? info(dtype).bytes == c10::elementSize(type)
                       : convertible_dtype(type) == dtype;
}

/// Refuses an operand whose elements are not what the kernel reads. Every launch asks, so that no
/// kernel ever takes the bytes of one dtype for another's.
[[noreturn]] void raise_wrong_dtype(std::string_view op, std::string_view operand,
                                    at::ScalarType type, DType dtype);
inline void check_operand_dtype(std::string_view op, std::string_view operand, at::ScalarType type,
                                DType dtype) {
  if (C10_UNLIKELY(!holds_dtype(type, dtype))) {
    raise_wrong_dtype(op, operand, type, dtype);
  }
}

/// The kernel dtype of an operand that is read in its own dtype. Raises for types without one.
[[noreturn]] void raise_no_dtype(std::string_view op, std::string_view operand,
                                 at::ScalarType type);
inline DType operand_dtype(std::string_view op, std::string_view operand, at::ScalarType type) {
  const auto dtype = native_dtype(type);
  if (C10_UNLIKELY(!dtype)) {
    raise_no_dtype(op, operand, type);
  }
  return *dtype;
}

/// `value` as the (at most two) parameter words of a kernel that computes in `dtype`, wrapped or
/// rounded as a cast to the dtype's ATen type would. Half types stay float32: they are computed in
/// it.
void write_scalar(const c10::Scalar& value, DType dtype, uint32_t words[2]);

/// Refuses a value that `type` cannot hold (an imaginary part, too large a number), with the text
/// of c10::Scalar::to, which is how the CPU's kernels read their scalars.
void check_fits(const c10::Scalar& value, at::ScalarType type);

} // namespace torch_webgpu
