// Element types as kernels see them: how they are stored, and in which WGSL type they are computed.
#pragma once

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

const DTypeInfo& info(DType dtype);

constexpr char kind_letter(Kind kind) {
  constexpr char letters[] = {'f', 'i', 'l', 'c', 'b', 'r', 'd'};
  return letters[static_cast<int>(kind)];
}

std::string_view kind_wgsl(Kind kind);

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
