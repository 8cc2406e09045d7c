#include "ops/matmul/gemm_conv.h"

#include <bit>

namespace torch_webgpu {
namespace {

constexpr const char* kTap = R"(
fn tap(n: u32) -> ConvPlace {
  let digits = conv_digits(n, p.extra[0], p.extra[1], p.extra[2]);
  return ConvPlace(digits.w * p.extra[7].w, vec3<i32>(digits.xyz * p.extra[10].xyz));
}
)";

// Where tap 0 of a position lies in x.
constexpr const char* kPosition = R"(
fn position(n: u32) -> ConvPlace {
  let digits = conv_digits(n, p.extra[3], p.extra[4], p.extra[5]);
  return ConvPlace(digits.w * p.extra[6].w,
                   vec3<i32>(digits.xyz * p.extra[8].xyz) - vec3<i32>(p.extra[9].xyz));
}
)";

// The reverse: x's coordinates as y's taps see them, before the stride is divided out.
constexpr const char* kPaddedPosition = R"(
fn position(n: u32) -> ConvPlace {
  let digits = conv_digits(n, p.extra[3], p.extra[4], p.extra[5]);
  return ConvPlace(digits.w * p.extra[6].w, vec3<i32>(digits.xyz + p.extra[9].xyz));
}
)";

std::string element(const std::string& at) {
  return R"(
alias b_row_t = ConvPlace;
alias b_column_t = ConvPlace;
fn b_at(row: b_row_t, column: b_column_t) -> vec3<i32> { return )" +
         at + R"(; }
fn b_exists(row: b_row_t, column: b_column_t) -> bool {
  return is_inside(b_at(row, column), p.extra[7].xyz);
}
fn b_element(row: b_row_t, column: b_column_t) -> b_t {
  let at = b_at(row, column);
  if (is_inside(at, p.extra[7].xyz)) {
    return load_b(row.offset + column.offset + dot(vec3<u32>(at), p.extra[6].xyz));
  }
  return b_t();
}
)";
}

std::string walks(const std::string& row, const std::string& column) {
  return "fn b_row(k: u32) -> b_row_t { return " + row +
         "(k); }\n"
         "fn b_column(batch: u32, n: u32) -> b_column_t {\n  let place = " +
         column +
         "(n);\n"
         "  return ConvPlace(place.offset + p.b_offset + batch * p.b_batch, place.at);\n}";
}

const char* const kAByTaps =
    "fn a_column(k: u32) -> u32 { return two_levels(k, p.extra[0], p.extra[8].w, p.a_column); }";
const char* const kAByPositions =
    "fn a_column(k: u32) -> u32 { return two_levels(k, p.extra[3], p.extra[8].w, p.a_column); }";
const char* const kCByPositions =
    "fn c_column(n: u32) -> u32 { return two_levels(n, p.extra[3], p.extra[9].w, p.c_column); }";

} // namespace

std::array<uint32_t, 4> divisor_words(uint32_t d) {
  // Granlund and Montgomery's round-up multiplier.
  const uint32_t shift = d <= 1 ? 0 : static_cast<uint32_t>(std::bit_width(d - 1));
  const uint64_t multiplier = ((uint64_t{1} << 32) * ((uint64_t{1} << shift) - d)) / d + 1;
  return {d, static_cast<uint32_t>(multiplier), shift, 0};
}

KernelHooks conv_hooks(ConvForm form, bool strided) {
  const std::string forward_element = element("row.at + column.at");
  switch (form) {
  case ConvForm::kNone:
    return {};
  case ConvForm::kOutput:
    return {{"B_ELEMENT", kTap + (kPosition + forward_element) + walks("tap", "position")},
            {"C_COLUMN", kCByPositions}};
  case ConvForm::kInput: {
    const std::string at = strided ? "conv_unstride(column.at - row.at, vec3<i32>(p.extra[8].xyz))"
                                   : "column.at - row.at";
    return {{"A_COLUMN", kAByTaps},
            {"B_ELEMENT", kTap + (kPaddedPosition + element(at)) + walks("tap", "position")},
            {"C_COLUMN", kCByPositions}};
  }
  case ConvForm::kWeight:
    return {{"A_COLUMN", kAByPositions},
            {"B_ELEMENT", kTap + (kPosition + forward_element) + walks("position", "tap")}};
  }
  return {};
}

} // namespace torch_webgpu
