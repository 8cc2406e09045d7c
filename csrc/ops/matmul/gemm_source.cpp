#include "ops/matmul/gemm_source.h"

#include "wgsl/kernel_source.h"

namespace torch_webgpu {
namespace {

std::string str(uint32_t value) { return std::to_string(value) + "u"; }
std::string flag(bool value) { return value ? "true" : "false"; }

// Replaces every "$" by the kind's letter.
std::string with_letter(std::string text, Kind kind) {
  for (char& c : text) {
    c = c == '$' ? kind_letter(kind) : c;
  }
  return text;
}

std::string kind_hook(Kind kind) {
  const bool is_long = kind == Kind::kLong;
  const char* const scalars[] = {"bitcast<f32>(words.x)", "bitcast<i32>(words.x)", "words",
                                 "bitcast<vec2<f32>>(words)"};
  const std::string type(kind_wgsl(kind));
  const std::string sum = is_long ? "add_l(a, b)" : "a + b";
  const std::string product = is_long                  ? "mul_l(a, b)"
                              : kind == Kind::kComplex ? "mul_c(a, b)"
                                                       : "a * b";
  return with_letter("alias acc_t = " + type + ";\nalias row_t = row_$;\n" +
                         "fn row_of(x0: acc_t, x1: acc_t, x2: acc_t, x3: acc_t) -> row_t { "
                         "return row_of_$(x0, x1, x2, x3); }\n"
                         "fn row_get(row: row_t, i: u32) -> acc_t { return row_get_$(row, i); }\n"
                         "fn row_mul_add(a: acc_t, b: row_t, acc: row_t) -> row_t { "
                         "return row_mul_add_$(a, b, acc); }\n"
                         "fn acc_add(a: acc_t, b: acc_t) -> acc_t { return " +
                         sum + "; }\nfn acc_mul(a: acc_t, b: acc_t) -> acc_t { return " + product +
                         "; }\nfn acc_scalar(words: vec2<u32>) -> acc_t { return " +
                         scalars[static_cast<size_t>(kind)] + "; }",
                     kind);
}

std::string epilogue_hook(GemmEpilogue epilogue) {
  std::string body;
  if (reads_d(epilogue)) {
    body = "let d = load_d(p.d_offset + batch * p.d_batch + m * p.d_row + n * p.d_column); ";
  }
  switch (epilogue) {
  case GemmEpilogue::kProduct:
    body += "return acc;";
    break;
  case GemmEpilogue::kScaled:
    body += "return acc_mul(acc_scalar(p.alpha), acc);";
    break;
  case GemmEpilogue::kAdd:
    body += "return acc_add(acc, d);";
    break;
  case GemmEpilogue::kScaledAdd:
    body += "return acc_add(acc_mul(acc_scalar(p.alpha), acc), acc_mul(acc_scalar(p.beta), d));";
    break;
  }
  return "fn epilogue(acc: acc_t, batch: u32, m: u32, n: u32) -> acc_t { " + body + " }";
}

std::string tile_hook(const GemmVariant& variant) {
  // Values of 16 bytes get one of padding per row, against bank conflicts of walks along K. With
  // values of 32 bytes the padding would exceed 16 KiB of workgroup memory.
  const Kind kind = info(variant.dtype).kind;
  const bool wide = kind == Kind::kLong || kind == Kind::kComplex;
  return "const kTile = " + str(variant.tile) +
         ";\nconst kPitch = " + str(variant.tile + (wide ? 0 : 1)) +
         ";\nconst kColumnGroup = " + str(variant.packed ? 4 : 1) +
         ";\nconst kColumnStep = " + str(variant.packed ? 1 : variant.tile) + ";";
}

// Stores four neighbouring elements of a 1- or 2-byte type as whole words.
std::string packed_store_hook(DType dtype) {
  const uint32_t per_word = 4 / info(dtype).bytes;
  std::string text =
      "fn store_row(c_batch: u32, d_batch: u32, m: u32, n: u32, row: row_t) {\n"
      "  if (m < p.m && n < p.n) {\n"
      "    let i = (p.c_offset + c_batch * p.c_batch + m * p.c_row + c_column(n)) / " +
      str(per_word) + ";\n";
  for (uint32_t j = 0; j < 4; ++j) {
    text += "    let x" + std::to_string(j) + " = epilogue(row_get(row, " + str(j) +
            "), d_batch, m, n + " + str(j) + ");\n";
  }
  for (uint32_t w = 0; w < 4 / per_word; ++w) {
    text += "    b0[i + " + str(w) + "] = ";
    for (uint32_t e = 0; e < per_word; ++e) {
      const std::string value = "x" + std::to_string(w * per_word + e);
      text += (e != 0 ? " | (" : "(") + to_word(dtype, value) + " << " +
              str(e * 8 * info(dtype).bytes) + ")";
    }
    text += ";\n";
  }
  return text + "  }\n}";
}

void add_c_and_d(const GemmVariant& variant, uint32_t d_slot, KernelSource& source) {
  source.operands.push_back({.name = "c",
                             .dtype = variant.out,
                             .slot = 0,
                             .writable = true,
                             .owns_words = variant.packed});
  if (reads_d(variant.epilogue)) {
    source.operands.push_back(
        {.name = "d", .dtype = variant.dtype, .slot = variant.d_in_c ? 0 : d_slot});
  }
}

void add_a_and_b(const GemmVariant& variant, KernelSource& source) {
  source.operands.push_back({.name = "a", .dtype = variant.dtype, .slot = 1});
  source.operands.push_back({.name = "b", .dtype = variant.dtype, .slot = 2});
}

KernelHooks kind_and_epilogue(const GemmVariant& variant) {
  return {{"KIND", kind_hook(info(variant.dtype).kind)},
          {"EPILOGUE", epilogue_hook(variant.epilogue)}};
}

void add_conv_hooks(const GemmVariant& variant, KernelSource& source) {
  for (auto& [name, text] : conv_hooks(variant.conv, variant.conv_strided)) {
    if (!variant.pieces || name != "C_COLUMN") {
      source.hooks.emplace_back(name, std::move(text));
    }
  }
}

// Which elements of B are missing: those in the padding, and those between or beyond the elements
// of a strided y.
void add_mask_hook(const GemmVariant& variant, KernelSource& source) {
  const Kind kind = info(variant.dtype).kind;
  if (variant.conv == ConvForm::kNone || (kind != Kind::kFloat && kind != Kind::kComplex)) {
    return;
  }
  source.hooks.emplace_back(
      "MASK",
      with_letter("var<workgroup> not_finite: atomic<u32>;\n"
                  "fn forget_not_finite() { atomicStore(&not_finite, 0u); }\n"
                  "fn note_not_finite(a: row_t) {\n"
                  "  if (!row_is_finite_$(a)) { atomicStore(&not_finite, 1u); }\n}\n"
                  "fn found_not_finite() -> bool { return atomicLoad(&not_finite) != 0u; }\n"
                  "fn row_where(condition: vec4<bool>, yes: row_t, no: row_t) -> row_t { "
                  "return row_where_$(condition, yes, no); }",
                  kind));
}

PipelineSpec tiled_source(const GemmVariant& variant) {
  KernelSource source;
  source.file = "gemm";
  add_c_and_d(variant, 3, source);
  add_a_and_b(variant, source);
  source.hooks = kind_and_epilogue(variant);
  source.hooks.emplace_back("TILE", tile_hook(variant));
  if (variant.packed) {
    source.hooks.emplace_back("STORE_ROW", packed_store_hook(variant.out));
  }
  add_mask_hook(variant, source);
  add_conv_hooks(variant, source);
  return build_kernel("gemm", source);
}

PipelineSpec direct_source(const GemmVariant& variant) {
  KernelSource source;
  source.file = "gemm_direct";
  add_c_and_d(variant, 3, source);
  add_a_and_b(variant, source);
  source.hooks = kind_and_epilogue(variant);
  add_conv_hooks(variant, source);
  return build_kernel("gemm_direct", source);
}

PipelineSpec vector_source(const GemmVariant& variant) {
  KernelSource source;
  source.file = "gemv";
  add_c_and_d(variant, 3, source);
  add_a_and_b(variant, source);
  source.hooks = kind_and_epilogue(variant);
  return build_kernel("gemv", source);
}

PipelineSpec f32_source(const GemmVariant& variant) {
  KernelSource source;
  source.file = "gemm_f32";
  add_c_and_d(variant, 3, source);
  add_a_and_b(variant, source);
  std::string d;
  if (variant.d_in_c) {
    d = "let d = c4[group]; ";
  } else if (reads_d(variant.epilogue)) {
    d = "let i = p.d_offset + batch * p.d_batch + m * p.d_row + n * p.d_column; "
        "let d = vec4<f32>(load_d(i), load_d(i + p.d_column), load_d(i + 2u * p.d_column), "
        "load_d(i + 3u * p.d_column)); ";
  }
  const char* const results[] = {"acc", "bitcast<f32>(p.alpha.x) * acc", "acc + d",
                                 "bitcast<f32>(p.alpha.x) * acc + bitcast<f32>(p.beta.x) * d"};
  source.hooks = {
      {"WALK", "const kAAlongK = " + flag(variant.a_along_k) +
                   ";\nconst kBAlongK = " + flag(variant.b_along_k) + ";"},
      {"EPILOGUE4",
       "fn epilogue4(acc: vec4<f32>, batch: u32, m: u32, n: u32, group: u32) -> vec4<f32> { " + d +
           "return " + results[static_cast<size_t>(variant.epilogue)] + "; }"}};
  return build_kernel("gemm_f32", source);
}

PipelineSpec reduce_source(const GemmVariant& variant) {
  KernelSource source;
  source.file = "gemm_reduce";
  add_c_and_d(variant, 2, source);
  source.operands.push_back({.name = "a", .dtype = accumulator_dtype(variant.dtype), .slot = 1});
  source.hooks = kind_and_epilogue(variant);
  for (auto& [name, text] : conv_hooks(variant.conv, variant.conv_strided)) {
    if (name == "C_COLUMN") {
      source.hooks.emplace_back(name, std::move(text));
    }
  }
  return build_kernel("gemm_reduce", source);
}

} // namespace

DType accumulator_dtype(DType dtype) {
  switch (info(dtype).kind) {
  case Kind::kFloat:
    return DType::kF32;
  case Kind::kLong:
    return DType::kI64;
  case Kind::kComplex:
    return DType::kC64;
  default:
    return DType::kI32;
  }
}

PipelineKey GemmVariant::key(GemmKernel kernel) const {
  const uint64_t flags = uint64_t{d_in_c} | uint64_t{a_along_k} << 1 | uint64_t{b_along_k} << 2 |
                         uint64_t{packed} << 3 | uint64_t{conv_strided} << 4 |
                         uint64_t{pieces} << 5;
  return {PipelineFamily::kGemm,
          static_cast<uint64_t>(kernel) | static_cast<uint64_t>(dtype) << 8 |
              static_cast<uint64_t>(out) << 16 | static_cast<uint64_t>(epilogue) << 24 |
              flags << 32 | uint64_t{tile} << 40 | static_cast<uint64_t>(conv) << 48,
          0};
}

PipelineSpec gemm_source(GemmKernel kernel, const GemmVariant& variant) {
  switch (kernel) {
  case GemmKernel::kTiled:
    return tiled_source(variant);
  case GemmKernel::kF32:
    return f32_source(variant);
  case GemmKernel::kVector:
    return vector_source(variant);
  case GemmKernel::kDirect:
    return direct_source(variant);
  case GemmKernel::kReduce:
    break;
  }
  return reduce_source(variant);
}

} // namespace torch_webgpu
