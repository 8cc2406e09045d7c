#include "wgsl/dtype.h"

#include <array>

namespace torch_webgpu {

const DTypeInfo& info(DType dtype) {
  static constexpr std::array<DTypeInfo, 18> table = {{
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
      {"bits8", 1, Kind::kRaw, "u32", "u32", "u32"},
      {"bits16", 2, Kind::kRaw, "u32", "u32", "u32"},
      {"bits32", 4, Kind::kRaw, "u32", "", ""},
      {"bits64", 8, Kind::kRaw, "vec2<u32>", "", ""},
      {"bits128", 16, Kind::kRaw, "vec4<u32>", "", ""},
  }};
  return table[static_cast<size_t>(dtype)];
}

std::string_view kind_wgsl(Kind kind) {
  static constexpr std::array<std::string_view, 7> types = {"f32",  "i32", "vec2<u32>", "vec2<f32>",
                                                            "bool", "u32", "vec2<u32>"};
  return types[static_cast<size_t>(kind)];
}

} // namespace torch_webgpu
