#include "ops/reduce/reduce_source.h"

#include <string>
#include <vector>

#include "runtime/error.h"
#include "wgsl/kernel_source.h"

namespace torch_webgpu {
namespace {

using std::to_string;

std::string str(std::string_view text) { return std::string(text); }
std::string u(uint32_t value) { return to_string(value) + "u"; }

// Declares the scalar arguments that the text uses.
std::string scalars(Kind kind, std::string_view text) {
  static constexpr std::string_view pairs[] = {"xy", "zw"};
  std::string out;
  for (int s = 0; s < 2; ++s) {
    const std::string name = "s" + to_string(s);
    if (text.find(name) == std::string_view::npos) {
      continue;
    }
    const std::string pair = "p.scalars." + str(pairs[s]);
    out += "  let " + name + " = ";
    out += kind == Kind::kLong      ? pair
           : kind == Kind::kComplex ? "bitcast<vec2<f32>>(" + pair + ")"
                                    : "bitcast<" + str(kind_wgsl(kind)) + ">(" + pair + ".x)";
    out += ";\n";
  }
  return out;
}

std::string reduction(const ReduceTexts& texts) {
  return "alias acc_t = " + str(texts.accumulator) +
         ";\n"
         "fn identity() -> acc_t { return " +
         str(texts.identity) +
         "; }\n"
         "fn combine(a: acc_t, b: acc_t) -> acc_t { return " +
         str(texts.combine) + "; }\n";
}

std::string lift(const ReduceTexts& texts, Kind kind, bool more) {
  return std::string("fn lift(x: x_t, ") + (more ? "w: w_t, m: m_t, r: r_t, " : "") +
         "i: u32) -> acc_t {\n" + scalars(kind, texts.lift) + "  return " + str(texts.lift) +
         ";\n}\n";
}

std::string inner(uint32_t rank) {
  if (rank == 1) {
    return "fn inner(r: u32) -> u32 { return r * p.inner[0].y; }\n";
  }
  return "fn inner(r: u32) -> u32 {\n"
         "  let next = r / p.inner[0].x;\n"
         "  return (r - next * p.inner[0].x) * p.inner[0].y + next * p.inner[1].y;\n}\n";
}

// Access to x and three further inputs, each with strides of its own (0 where it is broadcast).
constexpr std::string_view more_inputs = R"(var<private> more_begin: vec3<u32>;
fn locate_more(result: u32) {
  var rest = result;
  more_begin = p.more_at.xyz;
  for (var d = 0u; d < p.outer_rank; d++) {
    let next = rest / p.outer[d].x;
    more_begin += (rest - next * p.outer[d].x) * p.outer_more[d].xyz;
    rest = next;
  }
}
)";
constexpr std::string_view more_access = R"(const width = 1u;
fn origin(base: u32) -> u32 { return 0u; }
fn fetch(base: u32, e: u32) -> acc_t {
  var rest = e;
  var at = more_begin;
  for (var d = 0u; d + 1u < p.inner_rank; d++) {
    let next = rest / p.inner[d].x;
    at += (rest - next * p.inner[d].x) * p.inner_more[d].xyz;
    rest = next;
  }
  at += rest * p.inner_more[p.inner_rank - 1u].xyz;
  return lift(load_x(base + inner(e)), load_w(at.x), load_m(at.y), load_r(at.z), e);
}
fn fetch_group(base: u32, g: u32) -> acc_t { return fetch(base, g); }
)";

std::string binding(uint32_t index, const std::string& name, bool writable,
                    const std::string& element) {
  return "@group(0) @binding(" + to_string(index) + ") var<storage, " +
         (writable ? "read_write" : "read") + "> " + name + ": array<" + element + ">;\n";
}

// Element access through 16-byte vectors. The input's binding is declared here.
std::string vector_access(DType dtype, uint32_t slot) {
  const DTypeInfo& type = info(dtype);
  const uint32_t width = 16 / type.bytes;
  const uint32_t per_word = type.bytes < 4 ? 4 / type.bytes : 1;
  const std::string mask = type.bytes == 1 ? " & 0xffu)" : " & 0xffffu)";
  std::string one; // bits of element e
  if (type.bytes == 8) {
    one = "select(vectors[e / 2u].xy, vectors[e / 2u].zw, e % 2u == 1u)";
  } else {
    one = "vectors[e / " + u(width) + "][e % " + u(width) + " / " + u(per_word) + "]";
    if (type.bytes < 4) {
      one = "((" + one + " >> (e % " + u(per_word) + " * " + u(type.bytes * 8) + "))" + mask;
    }
  }
  std::vector<std::string> terms;
  for (uint32_t k = 0; k < width; ++k) {
    std::string bits;
    if (type.bytes == 8) {
      bits = k == 0 ? "v.xy" : "v.zw";
    } else {
      bits = std::string("v.") + "xyzw"[k / per_word];
      if (type.bytes < 4) {
        bits = "((" + bits + " >> " + u(k % per_word * type.bytes * 8) + ")" + mask;
      }
    }
    terms.push_back("lift(" + from_word(dtype, bits) + ", i + " + u(k) + ")");
  }
  while (terms.size() > 1) {
    for (size_t k = 0; k < terms.size() / 2; ++k) {
      terms[k] = "combine(" + terms[2 * k] + ", " + terms[2 * k + 1] + ")";
    }
    terms.resize(terms.size() / 2);
  }
  return binding(slot, "vectors", false, "vec4<u32>") + "const width = " + u(width) +
         ";\n"
         "fn origin(base: u32) -> u32 { return base; }\n"
         "fn fetch(base: u32, e: u32) -> acc_t { return lift(" +
         from_word(dtype, one) +
         ", e - base); }\n"
         "fn fetch_group(base: u32, g: u32) -> acc_t {\n"
         "  let v = vectors[g];\n  let i = g * width - base;\n  return " +
         terms[0] + ";\n}\n";
}

std::string partial_access(uint32_t slot) {
  return binding(slot, "partials", false, "acc_t") +
         "const width = 1u;\n"
         "fn origin(base: u32) -> u32 { return 0u; }\n"
         "fn fetch(base: u32, e: u32) -> acc_t { return partials[base + inner(e)]; }\n"
         "fn fetch_group(base: u32, g: u32) -> acc_t { return fetch(base, g); }\n";
}

Kind result_kind(ReduceResult result, Kind kind) {
  return result == ReduceResult::kIndex  ? Kind::kLong
         : result == ReduceResult::kReal ? Kind::kFloat
                                         : kind;
}

std::string emit_results(const ReduceVariant& v, Kind kind) {
  const ReduceRow& op = row(v.op);
  const std::array<std::string_view, 2> finish = {op.at(kind).finish, op.at(kind).second};
  std::string text = "fn emit(result: u32, split: u32, at: vec3<u32>, a: acc_t) {\n"
                     "  let n = f32(p.count);\n" +
                     scalars(kind, finish[0]);
  for (uint32_t k = 0; k < v.num_outputs; ++k) {
    const std::string name(1, "yz"[k]);
    text += "  store_" + name + "(at." + name + ", " +
            convert(result_kind(op.results[k], kind), info(v.outputs[k]).kind, str(finish[k])) +
            ");\n";
  }
  return text + "}\n";
}

} // namespace

PipelineKey ReduceVariant::key() const {
  constexpr uint32_t kDTypeBits = 5;
  constexpr uint32_t kSlotBits = 4;
  constexpr size_t kOperands = 2 + kReduceMaxInputs;
  static_assert(kNumDTypes <= 1u << kDTypeBits && kOperands <= 1u << kSlotBits);
  static_assert(kOperands * (kDTypeBits + kSlotBits) <= 64);
  PipelineKey key;
  key.family = PipelineFamily::kReduce;
  key.lo = static_cast<uint64_t>(op) | static_cast<uint64_t>(stage) << 8 |
           static_cast<uint64_t>(num_inputs) << 12 | static_cast<uint64_t>(num_outputs) << 20 |
           static_cast<uint64_t>(vectors) << 24 | static_cast<uint64_t>(inner_rank) << 28;
  for (const DType dtype : inputs) {
    key.hi = key.hi << kDTypeBits | static_cast<uint64_t>(dtype);
  }
  for (const DType dtype : outputs) {
    key.hi = key.hi << kDTypeBits | static_cast<uint64_t>(dtype);
  }
  for (const uint8_t slot : slots) {
    key.hi = key.hi << kSlotBits | slot;
  }
  key.windows = windows.key();
  return key;
}

PipelineSpec reduce_source(const ReduceVariant& v) {
  const Kind kind = info(v.inputs[0]).kind;
  const ReduceRow& op = row(v.op);
  if (kind > Kind::kComplex || !op.has(kind)) {
    raise(ErrorKind::kNotImplemented,
          str(op.name) + "(): not implemented for " + str(info(v.inputs[0]).name));
  }
  const bool reads_input = v.stage != ReduceStage::kFinal;
  const bool writes_results = v.stage != ReduceStage::kPartial;
  const uint32_t num_outputs = writes_results ? v.num_outputs : 0;
  const bool more = reads_input && v.num_inputs > 1;

  KernelSource source;
  source.file = "reduce";
  uint32_t num_slots = 0;
  for (uint32_t k = 0; k < num_outputs; ++k) {
    source.operands.push_back({k == 0 ? "y" : "z", v.outputs[k], v.slots[k], true});
    num_slots = std::max<uint32_t>(num_slots, v.slots[k] + 1u);
  }
  std::string access;
  if (reads_input) {
    static constexpr std::array<std::string_view, kReduceMaxInputs> names = {"x", "w", "m", "r"};
    for (uint32_t k = 0; k < v.num_inputs; ++k) {
      const uint32_t slot = v.slots[num_outputs + k];
      num_slots = std::max(num_slots, slot + 1);
      if (v.vectors) {
        access = vector_access(v.inputs[k], slot);
      } else {
        source.operands.push_back({names[k], v.inputs[k], slot});
      }
    }
    if (more) {
      access = more_access;
      source.hooks.emplace_back("more", more_inputs);
    }
  } else {
    access = partial_access(num_slots++);
  }
  if (v.windows.firsts != 0) { // what follows is bound behind all windows
    num_slots = static_cast<uint32_t>(std::bit_width(v.windows.firsts)) - 1;
    source.windows = v.windows;
  }
  std::string ops = reduction(op.at(kind));
  if (reads_input) {
    ops += lift(op.at(kind), kind, more);
  }
  if (v.vectors) {
    ops = "alias x_t = " + str(info(v.inputs[0]).wgsl) + ";\n" + ops;
  }
  source.hooks.emplace_back("reduction", ops);
  if (v.inner_rank <= 2) {
    source.hooks.emplace_back("inner", inner(v.inner_rank));
  }
  if (!access.empty()) {
    source.hooks.emplace_back("access", access);
  }
  source.hooks.emplace_back(
      "emit", writes_results ? emit_results(v, kind)
                             : binding(num_slots, "partials", true, "acc_t") +
                                   "fn emit(result: u32, split: u32, at: vec3<u32>, a: acc_t) {\n"
                                   "  partials[result * p.splits + split] = a;\n}\n");
  PipelineSpec spec = build_kernel(str(op.name), source);
  if (!writes_results) {
    spec.binding.writable |= 1u << num_slots++;
  }
  spec.binding.num_buffers = num_slots;
  return spec;
}

} // namespace torch_webgpu
