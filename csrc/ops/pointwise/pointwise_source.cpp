#include "ops/pointwise/pointwise_source.h"

#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include "runtime/error.h"
#include "wgsl/kernel_source.h"

namespace torch_webgpu {
namespace {

using std::to_string;

constexpr std::array<uint32_t, 9> rank_classes = {1, 2, 3, 4, 5, 6, 8, 12, 32};

std::string u(uint32_t value) { return to_string(value) + "u"; }

bool is_signed(DType dtype) {
  return dtype == DType::kI8 || dtype == DType::kI16 || dtype == DType::kI32 ||
         dtype == DType::kI64;
}

// Integers with more bits in registers than in memory.
bool widens_in_registers(DType dtype) {
  const DTypeInfo& type = info(dtype);
  return (type.kind == Kind::kInt && type.bytes < 4) || dtype == DType::kU32;
}

// Whether each value of the integer dtype `from` is one of `to`.
bool holds(DType to, DType from) {
  if (from == to || from == DType::kBool) {
    return true;
  }
  return info(from).bytes < info(to).bytes && (is_signed(to) || !is_signed(from));
}

class Generator {
public:
  explicit Generator(const PointwiseVariant& variant)
      : v_(variant), row_(row(variant.op)), params_(variant), kind_(info(variant.compute).kind) {}

  PipelineSpec generate() {
    if (row_.expression(kind_).empty()) {
      raise(ErrorKind::kNotImplemented, std::string(row_.name) + "(): not implemented for " +
                                            std::string(info(v_.compute).name));
    }
    declare_params();
    declare_op();
    const std::vector<Operand> operands = buffer_operands();
    if (v_.lanes > 1) {
      text_ += binding_declarations(operands);
      vectors();
    } else {
      text_ += operand_declarations(operands);
      strided();
    }
    PipelineSpec spec;
    spec.label = row_.name;
    spec.operands = operand_names(operands);
    spec.source = std::move(text_);
    spec.binding = binding_layout(operands);
    return spec;
  }

private:
  // Parameter word i: constant indices, so that each is one uniform load.
  std::string word(uint32_t i) const {
    return "p.w[" + to_string(i / 4) + "]." + std::string(1, "xyzw"[i % 4]);
  }

  std::string scalar_value(uint32_t at) const {
    const std::string pair = "vec2<u32>(" + word(at) + ", " + word(at + 1) + ")";
    switch (kind_) {
    case Kind::kFloat:
      return "bitcast<f32>(" + word(at) + ")";
    case Kind::kInt:
      return "bitcast<i32>(" + word(at) + ")";
    case Kind::kComplex:
      return "bitcast<vec2<f32>>(" + pair + ")";
    case Kind::kRaw:
      return raw_scalar(at);
    default:
      return pair;
    }
  }

  // The bits of one element; 16 bytes take two scalars in a row.
  std::string raw_scalar(uint32_t at) const {
    const uint32_t words = std::max(1u, info(v_.compute).bytes / 4);
    std::string value = word(at);
    for (uint32_t i = 1; i < words; ++i) {
      value += ", " + word(at + i);
    }
    return words == 1 ? value : "vec" + to_string(words) + "<u32>(" + value + ")";
  }

  std::string register_type(DType dtype) const { return std::string(info(dtype).wgsl); }

  bool is_raw() const { return kind_ == Kind::kRaw; }

  // The type that input k has inside the op: the compute type, or its own where bits are only
  // moved.
  std::string input_type(uint32_t k) const {
    return is_raw() ? register_type(v_.dtypes[k]) : std::string(kind_wgsl(kind_));
  }

  Kind result_kind() const {
    if (row_.result == PointwiseResult::kBool) {
      return Kind::kBool;
    }
    return row_.result == PointwiseResult::kReal && kind_ == Kind::kComplex ? Kind::kFloat : kind_;
  }

  void declare_params() {
    text_ +=
        "struct Params { w: array<vec4<u32>, " + to_string((params_.words() + 3) / 4) + "> }\n";
    text_ += "@group(0) @binding(" + to_string(kParamsBinding) + ") var<uniform> p: Params;\n";
  }

  void declare_op() {
    std::string arguments;
    for (uint32_t k = 1; k <= v_.num_inputs; ++k) {
      arguments += (k > 1 ? ", " : "") + name_of(k) + ": " + input_type(k);
    }
    const std::string result =
        is_raw() ? register_type(v_.dtypes[0]) : std::string(kind_wgsl(result_kind()));
    text_ += "fn op(" + arguments + ") -> " + result + " {\n";
    for (uint32_t s = 0; s < v_.num_scalars; ++s) {
      if (row_.expression(kind_).find("s" + to_string(s)) == std::string_view::npos) {
        continue;
      }
      text_ += "  let s" + to_string(s) + " = " + scalar_value(params_.scalar(s)) + ";\n";
    }
    text_ += "  return " + std::string(row_.expression(kind_)) + ";\n}\n";
  }

  // Input k as the op wants it, from its register value.
  std::string converted(uint32_t k, const std::string& value) const {
    if (is_raw()) {
      return value;
    }
    std::string out = convert(info(v_.dtypes[k]).kind, kind_, value);
    // In a computation in a half or small integer type, an input of a type with other values is
    // first cast to the common dtype.
    const DType own = v_.dtypes[k];
    const bool wider = own != v_.compute && info(own).bytes >= info(v_.compute).bytes &&
                       info(own).bytes > 1 && !row_.is_cast;
    if (v_.compute == DType::kF16 && (wider || own == DType::kF32)) {
      out = "round_f16_f(" + out + ")";
    } else if (v_.compute == DType::kBF16 && (wider || own == DType::kF32)) {
      out = "round_bf16_f(" + out + ")";
    } else if (widens_in_registers(v_.compute) && !row_.is_cast && !holds(v_.compute, own)) {
      out = from_word(v_.compute, to_word(v_.compute, out));
    }
    return out;
  }

  // The op's result as a register value of the output's dtype.
  std::string to_output(const std::string& value) const {
    if (is_raw()) {
      return value;
    }
    const DType out = v_.dtypes[0];
    if (out == DType::kBool && result_kind() != Kind::kBool) {
      return "i_from_b(" + convert(result_kind(), Kind::kBool, value) + ")";
    }
    return convert(result_kind(), info(out).kind, rounded(value));
  }

  // Half and small integer types are computed in wider ones. An output of another dtype gets the
  // result after rounding to the compute type.
  std::string rounded(const std::string& value) const {
    const bool half = kind_ == Kind::kFloat && info(v_.compute).bytes < 4;
    const bool wider =
        !row_.is_cast && v_.dtypes[0] != v_.compute && result_kind() == kind_ &&
        (half ? info(v_.dtypes[0]).kind != Kind::kInt : widens_in_registers(v_.compute));
    return wider ? from_word(v_.compute, to_word(v_.compute, value)) : value;
  }

  bool is_host_scalar(uint32_t k) const { return (v_.host_scalars >> k & 1) != 0; }

  static std::string name_of(uint32_t k) { return std::string(kPointwiseOperands[k]); }

  // Numbers of the operands in buffers, from `first` on.
  std::vector<uint32_t> in_buffers(uint32_t first) const {
    std::vector<uint32_t> operands;
    for (uint32_t k = first; k <= v_.num_inputs; ++k) {
      if (!is_host_scalar(k)) {
        operands.push_back(k);
      }
    }
    return operands;
  }

  std::vector<Operand> buffer_operands() const {
    std::vector<Operand> operands;
    for (uint32_t k : in_buffers(0)) {
      operands.push_back({.name = kPointwiseOperands[k],
                          .dtype = v_.dtypes[k],
                          .slot = v_.slots[k],
                          .writable = k == 0,
                          .owns_words = k == 0 && (v_.lanes > 1 || v_.packs_words()),
                          .vector_words = v_.lanes > 1 ? shape(k).words : 0});
    }
    return operands;
  }

  // Call of the op; value(k) is the register value of a buffer operand.
  template <typename Value>
  std::string call(Value&& value) const {
    std::string arguments;
    for (uint32_t k = 1; k <= v_.num_inputs; ++k) {
      arguments += k > 1 ? ", " : "";
      arguments +=
          is_host_scalar(k) ? scalar_value(params_.host_scalar(k)) : converted(k, value(k));
    }
    return to_output("op(" + arguments + ")");
  }

  void begin_main() {
    text_ += "@compute @workgroup_size(" + to_string(kPointwiseWorkgroup) +
             ")\n"
             "fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: "
             "vec3<u32>,\n"
             "        @builtin(local_invocation_index) lid: u32) {\n"
             "  let id = (wid.y * groups.x + wid.x) * " +
             u(kPointwiseWorkgroup) + " + lid;\n";
  }

  // ---- Walking dimensions: strided and row forms ----

  // Declares i<k> for each operand in `walked`: its position for iteration index `index`.
  void walk(const std::vector<uint32_t>& walked, const std::string& index) {
    text_ += "  var rest = " + index + ";\n";
    for (uint32_t k : walked) {
      text_ += "  var i" + to_string(k) + " = " + word(params_.offset(k)) + ";\n";
    }
    for (uint32_t d = 0; d < v_.rank && !walked.empty(); ++d) {
      const std::string at = "at" + to_string(d);
      if (d + 1 == v_.rank) {
        text_ += "  let " + at + " = rest;\n";
      } else {
        const std::string quotient = "next" + to_string(d);
        const std::string size = word(params_.size(d));
        text_ += "  let " + quotient + " = rest / " + size + ";\n  let " + at + " = rest - " +
                 quotient + " * " + size + ";\n  rest = " + quotient + ";\n";
      }
      for (uint32_t k : walked) {
        text_ += "  i" + to_string(k) + " += " + at + " * " + word(params_.stride(k, d)) + ";\n";
      }
    }
  }

  // ---- Strided form: one element at a time ----

  void strided() {
    declare_element();
    begin_main();
    if (v_.packs_words()) {
      pack_words();
    } else {
      text_ += "  if (id >= " + word(params_.count()) + ") { return; }\n  element(id);\n}\n";
    }
  }

  // fn element(index): computes one element; stores it, or returns its bits where words are packed.
  void declare_element() {
    const bool packs = v_.packs_words();
    text_ += std::string("fn element(index: u32)") + (packs ? " -> u32" : "") + " {\n";
    walk(in_buffers(packs ? 1 : 0), "index");
    const std::string value =
        call([](uint32_t k) { return "load_" + name_of(k) + "(i" + to_string(k) + ")"; });
    text_ += packs ? "  return " + to_word(v_.dtypes[0], value) + ";\n}\n"
                   : "  store_out(i0, " + value + ");\n}\n";
  }

  // Each invocation owns one word of the output. Elements of the word that lie outside of the
  // tensor (views start and end anywhere) keep their bits.
  void pack_words() {
    const uint32_t bytes = info(v_.dtypes[0]).bytes;
    const uint32_t lanes = 4 / bytes;
    const std::string mask = bytes == 1 ? "0xffu" : "0xffffu";
    const std::string offset = word(params_.offset(0));
    text_ += "  let skipped = " + offset + " % " + u(lanes) + ";\n";
    text_ += "  let first = id * " + u(lanes) + " - skipped;\n";
    text_ +=
        "  if (id * " + u(lanes) + " >= " + word(params_.count()) + " + skipped) { return; }\n";
    text_ += "  var bits = 0u;\n  var mask = 0u;\n";
    for (uint32_t lane = 0; lane < lanes; ++lane) {
      const std::string shift = u(lane * bytes * 8);
      text_ += "  if (first + " + u(lane) + " < " + word(params_.count()) +
               ") { bits |= element(first + " + u(lane) + ") << " + shift + "; mask |= " + mask +
               " << " + shift + "; }\n";
    }
    const std::string buffer = "b" + to_string(v_.slots[0]);
    text_ += "  let at = " + offset + " / " + u(lanes) + " + id;\n";
    text_ += "  if (mask != 0xffffffffu) { bits |= " + buffer + "[at] & ~mask; }\n";
    text_ += "  " + buffer + "[at] = bits;\n}\n";
  }

  // ---- Vector forms: `lanes` elements per invocation, moved in vectors of up to four words ----

  bool is_splat(uint32_t k) const { return (v_.splats >> k & 1) != 0; }
  VectorShape shape(uint32_t k) const { return v_.vector_shape(info(v_.dtypes[k]).bytes); }

  void vectors() {
    begin_main();
    if (v_.rank == 0) {
      text_ += "  let first = id * " + u(v_.lanes) + ";\n  if (first >= " + word(params_.count()) +
               ") { return; }\n";
      for (uint32_t k : in_buffers(0)) {
        text_ += "  let i" + to_string(k) + " = " + word(params_.offset(k)) + " + id * " +
                 u(shape(k).count) + ";\n";
      }
    } else {
      text_ += "  if (id >= " + word(params_.count()) + ") { return; }\n";
      walk(in_buffers(0), "id");
    }
    for (uint32_t k : in_buffers(1)) {
      load(k);
    }
    for (uint32_t lane = 0; lane < v_.lanes; ++lane) {
      const std::string value = call([&](uint32_t k) { return lane_value(k, lane); });
      text_ += "  let r" + to_string(lane) + " = " + to_word(v_.dtypes[0], value) + ";\n";
    }
    store();
    text_ += "}\n";
  }

  void load(uint32_t k) {
    const std::string name = "v" + to_string(k);
    const std::string at = "i" + to_string(k);
    const std::string buffer = "b" + to_string(v_.slots[k]);
    if (is_splat(k)) { // position in elements; the same value for all lanes
      text_ +=
          "  let " + name + " = " +
          from_words(v_.dtypes[k], at,
                     [&](const std::string& w) { return word_in(buffer, shape(k).words, w); }) +
          ";\n";
      return;
    }
    for (uint32_t i = 0; i < shape(k).count; ++i) {
      text_ +=
          "  let " + name + "_" + to_string(i) + " = " + buffer + "[" + at + " + " + u(i) + "];\n";
    }
  }

  // A word of a buffer that is bound as vectors of `width` words.
  static std::string word_in(const std::string& buffer, uint32_t width, const std::string& word) {
    return width == 1
               ? buffer + "[" + word + "]"
               : buffer + "[(" + word + ") / " + u(width) + "][(" + word + ") % " + u(width) + "]";
  }

  std::string lane_value(uint32_t k, uint32_t lane) const {
    const std::string name = "v" + to_string(k);
    if (is_splat(k)) {
      return name;
    }
    const uint32_t per_vector = v_.lanes / shape(k).count;
    return from_vector(v_.dtypes[k], name + "_" + to_string(lane / per_vector),
                       u(lane % per_vector), shape(k).words);
  }

  // Word w of the result, from the lanes that lie in it.
  std::string result_word(uint32_t w) const {
    const uint32_t bytes = info(v_.dtypes[0]).bytes;
    if (bytes >= 4) {
      const uint32_t words = bytes / 4;
      const std::string lane = "r" + to_string(w / words);
      return words == 1 ? lane : lane + "." + "xyzw"[w % words];
    }
    const uint32_t per_word = 4 / bytes;
    std::string value;
    for (uint32_t i = 0; i < per_word; ++i) {
      value += (i != 0 ? " | " : "") + ("(r" + to_string(w * per_word + i)) + " << " +
               u(i * bytes * 8) + ")";
    }
    return value;
  }

  void store() {
    const VectorShape out = shape(0);
    const std::string buffer = "b" + to_string(v_.slots[0]);
    auto whole = [&](uint32_t i) {
      std::string value;
      for (uint32_t c = 0; c < out.words; ++c) {
        value += (c != 0 ? ", " : "") + result_word(i * out.words + c);
      }
      return out.words == 1 ? value : "vec" + to_string(out.words) + "<u32>(" + value + ")";
    };
    const bool has_tail = v_.rank == 0;
    if (has_tail) {
      text_ += "  let left = " + word(params_.count()) + " - first;\n  if (left >= " + u(v_.lanes) +
               ") {\n";
    }
    for (uint32_t i = 0; i < out.count; ++i) {
      text_ += "  " + buffer + "[i0 + " + u(i) + "] = " + whole(i) + ";\n";
    }
    if (!has_tail) {
      return;
    }
    // The last invocation may own fewer elements. The bits behind the tensor's end are kept.
    text_ += "  } else {\n";
    const uint32_t bytes = info(v_.dtypes[0]).bytes;
    for (uint32_t w = 0; w < out.words * out.count; ++w) {
      const std::string target = buffer + "[i0 + " + u(w / out.words) + "]" +
                                 (out.words == 1 ? "" : std::string(".") + "xyzw"[w % out.words]);
      if (bytes >= 4) {
        text_ += "    if (left > " + u(w * 4 / bytes) + ") { " + target + " = " + result_word(w) +
                 "; }\n";
        continue;
      }
      const uint32_t per_word = 4 / bytes;
      text_ += "    if (left >= " + u((w + 1) * per_word) + ") { " + target + " = " +
               result_word(w) + "; } else if (left > " + u(w * per_word) +
               ") { let mask = (1u << ((left - " + u(w * per_word) + ") * " + u(bytes * 8) +
               ")) - 1u; " + target + " = (" + target + " & ~mask) | ((" + result_word(w) +
               ") & mask); }\n";
    }
    text_ += "  }\n";
  }

  const PointwiseVariant& v_;
  const PointwiseRow& row_;
  PointwiseParams params_;
  Kind kind_;
  std::string text_;
};

} // namespace

uint32_t rank_class(uint32_t rank) {
  return *std::find_if(rank_classes.begin(), rank_classes.end(),
                       [&](uint32_t limit) { return rank <= limit; });
}

uint32_t PointwiseVariant::elements_per_invocation() const {
  return packs_words() ? 4 / info(dtypes[0]).bytes : lanes;
}

VectorShape PointwiseVariant::vector_shape(uint32_t bytes) const {
  const uint32_t total = std::max(1u, lanes * bytes / 4);
  const uint32_t words = std::min(4u, total);
  return {words, total >> std::countr_zero(words)}; // both are powers of two
}

uint64_t PointwiseVariant::key() const {
  return static_cast<uint64_t>(op) | static_cast<uint64_t>(compute) << 12 |
         static_cast<uint64_t>(host_scalars) << 17 | static_cast<uint64_t>(rank) << 23 |
         static_cast<uint64_t>(dense_output) << 29 | static_cast<uint64_t>(num_inputs) << 30 |
         static_cast<uint64_t>(lanes) << 33 | static_cast<uint64_t>(splats) << 38;
}

PipelineSpec pointwise_source(const PointwiseVariant& variant) {
  return Generator(variant).generate();
}

} // namespace torch_webgpu
