#include "launch/dtypes.h"

#include <bit>
#include <limits>

namespace torch_webgpu {
namespace {

// Out-of-range values keep their low bits, as a C++ integer conversion does.
int64_t to_integer(const c10::Scalar& value) {
  if (value.isComplex()) {
    return static_cast<int64_t>(value.toComplexDouble().real());
  }
  if (value.isFloatingPoint()) {
    return static_cast<int64_t>(value.toDouble());
  }
  return value.isBoolean() ? static_cast<int64_t>(value.toBool())
                           : static_cast<int64_t>(value.to<int64_t>());
}

int32_t wrap(int64_t value, DType dtype) {
  switch (dtype) {
  case DType::kI16:
    return static_cast<int16_t>(value);
  case DType::kI8:
    return static_cast<int8_t>(value);
  case DType::kU8:
    return static_cast<uint8_t>(value);
  case DType::kU16:
    return static_cast<uint16_t>(value);
  default:
    return static_cast<int32_t>(value);
  }
}

float to_float(double value) { return static_cast<float>(value); }

} // namespace

void raise_wrong_dtype(std::string_view op, std::string_view operand, at::ScalarType type,
                       DType dtype) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, op, "(): operand ", operand, " has scalar type ", type,
                              ", but the kernel reads ", info(dtype).name);
}

void raise_no_dtype(std::string_view op, std::string_view operand, at::ScalarType type) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, op, "(): not implemented for operand ", operand,
                              " of scalar type ", type);
}

void write_scalar(const c10::Scalar& value, DType dtype, uint32_t words[2]) {
  words[1] = 0;
  if (dtype == DType::kBool) {
    words[0] = value.isComplex()         ? value.toComplexDouble() != 0.0
               : value.isFloatingPoint() ? value.toDouble() != 0.0
                                         : to_integer(value) != 0;
    return;
  }
  switch (info(dtype).kind) {
  case Kind::kFloat:
    words[0] = std::bit_cast<uint32_t>(
        to_float(value.isComplex() ? value.toComplexDouble().real() : value.to<double>()));
    break;
  case Kind::kComplex: {
    const c10::complex<double> complex = value.toComplexDouble();
    words[0] = std::bit_cast<uint32_t>(to_float(complex.real()));
    words[1] = std::bit_cast<uint32_t>(to_float(complex.imag()));
    break;
  }
  case Kind::kRaw: // bits
  case Kind::kLong: {
    const auto bits = static_cast<uint64_t>(to_integer(value));
    words[0] = static_cast<uint32_t>(bits);
    words[1] = dtype == DType::kU32 ? 0 : static_cast<uint32_t>(bits >> 32);
    break;
  }
  default:
    words[0] = static_cast<uint32_t>(wrap(to_integer(value), dtype));
  }
}

void check_fits(const c10::Scalar& value, at::ScalarType type) {
  switch (type) {
#define TW_CASE(ctype, name)                                                                       \
  case at::ScalarType::name:                                                                       \
    static_cast<void>(value.to<ctype>());                                                          \
    break;
    AT_FORALL_SCALAR_TYPES_WITH_COMPLEX(TW_CASE)
    TW_CASE(uint16_t, UInt16)
    TW_CASE(uint32_t, UInt32)
#undef TW_CASE
  default:
    break;
  }
}

} // namespace torch_webgpu
