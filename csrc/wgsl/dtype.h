// Element types as kernels see them: how they are stored, and in which WGSL type they are computed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace torch_webgpu {

enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kI64,
  kI32,
  kI16,
  kI8,
  kU8,
  kBool,
  kC64,
  // Converted on the device, never computed in.
  kF64,
  kU16,
  kU32,
  kF8E4M3,
  kF8E5M2,
  kF8E4M3FNUZ,
  kF8E5M2FNUZ,
  // Raw bits, for ops that only move elements: they stand for any dtype of that width.
  kBits8,
  kBits16,
  kBits32,
  kBits64,
  kBits128,
};
inline constexpr uint32_t kNumDTypes = static_cast<uint32_t>(DType::kBits128) + 1;

/// Whether the dtype is raw bits, which say nothing of what they mean.
constexpr bool is_raw(DType dtype) { return dtype >= DType::kBits8; }

/// The WGSL type a value has in registers. The letter is the suffix of the library functions that
/// work on it (csrc/wgsl/lib).
enum class Kind : uint8_t {
  kFloat,   // f: f32
  kInt,     // i: i32
  kLong,    // l: vec2<u32>, low word first
  kComplex, // c: vec2<f32>
  kBool,    // b: bool; result of comparisons, never a storage kind
  kRaw,     // raw words
  kDouble,  // d: the bits of a float64 in a vec2<u32>; converted only
};

struct DTypeInfo {
  std::string_view name;
  uint32_t bytes;
  Kind kind;
  std::string_view wgsl; // type in registers
  // Library functions between the low bits of a word and the register type; empty where a bitcast
  // does.
  std::string_view load;
  std::string_view store;
};

inline constexpr std::array<DTypeInfo, kNumDTypes> kDTypes = {{
    {"f32", 4, Kind::kFloat, "f32", "", ""},
    {"f16", 2, Kind::kFloat, "f32", "f_from_f16", "f16_from_f"},
    {"bf16", 2, Kind::kFloat, "f32", "f_from_bf16", "bf16_from_f"},
    {"i64", 8, Kind::kLong, "vec2<u32>", "", ""},
    {"i32", 4, Kind::kInt, "i32", "", ""},
    {"i16", 2, Kind::kInt, "i32", "i_from_i16", "u32"},
    {"i8", 1, Kind::kInt, "i32", "i_from_i8", "u32"},
    {"u8", 1, Kind::kInt, "i32", "i_from_u8", "u32"},
    {"bool", 1, Kind::kInt, "i32", "i_from_bool", ""},
    {"c64", 8, Kind::kComplex, "vec2<f32>", "", ""},
    {"f64", 8, Kind::kDouble, "vec2<u32>", "", ""},
    {"u16", 2, Kind::kInt, "i32", "i32", "u32"},
    {"u32", 4, Kind::kLong, "vec2<u32>", "l_from_u", "u_from_l"},
    {"f8e4m3", 1, Kind::kFloat, "f32", "f_from_f8e4m3", "f8e4m3_from_f"},
    {"f8e5m2", 1, Kind::kFloat, "f32", "f_from_f8e5m2", "f8e5m2_from_f"},
    {"f8e4m3fnuz", 1, Kind::kFloat, "f32", "f_from_f8e4m3fnuz", "f8e4m3fnuz_from_f"},
    {"f8e5m2fnuz", 1, Kind::kFloat, "f32", "f_from_f8e5m2fnuz", "f8e5m2fnuz_from_f"},
    {"bits8", 1, Kind::kRaw, "u32", "u32", "u32"},
    {"bits16", 2, Kind::kRaw, "u32", "u32", "u32"},
    {"bits32", 4, Kind::kRaw, "u32", "", ""},
    {"bits64", 8, Kind::kRaw, "vec2<u32>", "", ""},
    {"bits128", 16, Kind::kRaw, "vec4<u32>", "", ""},
}};

constexpr const DTypeInfo& info(DType dtype) { return kDTypes[static_cast<size_t>(dtype)]; }

constexpr char kind_letter(Kind kind) {
  constexpr char letters[] = {'f', 'i', 'l', 'c', 'b', 'r', 'd'};
  return letters[static_cast<int>(kind)];
}

/// The WGSL type of a value in registers.
constexpr std::string_view kind_wgsl(Kind kind) {
  constexpr std::array<std::string_view, 7> types = {"f32",  "i32", "vec2<u32>", "vec2<f32>",
                                                     "bool", "u32", "vec2<u32>"};
  return types[static_cast<size_t>(kind)];
}

/// The raw-bits type of that width; bytes is 1, 2, 4, 8 or 16.
constexpr DType bits_dtype(uint32_t bytes) {
  switch (bytes) {
  case 1:
    return DType::kBits8;
  case 2:
    return DType::kBits16;
  case 4:
    return DType::kBits32;
  case 8:
    return DType::kBits64;
  default:
    return DType::kBits128;
  }
}

} // namespace torch_webgpu
