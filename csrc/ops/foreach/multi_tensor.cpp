#include "ops/foreach/multi_tensor.h"

#include "wgsl/kernel_source.h"

namespace torch_webgpu {
namespace {

std::string str(uint32_t value) { return std::to_string(value); }

class Generator {
public:
  explicit Generator(const MultiTensorVariant& variant)
      : v_(variant), bytes_(info(variant.dtype).bytes), type_(info(variant.dtype).wgsl) {}

  PipelineSpec generate() {
    KernelSource source;
    source.file = "multi_tensor";
    source.hooks = {{"BINDINGS", bindings()}, {"BODY", body()}, {"APPLY", apply()}};
    PipelineSpec spec = build_kernel(std::string(v_.name), source);
    spec.operands = "tensors: " + std::string(info(v_.dtype).name);
    spec.binding.num_buffers = shared_binding(v_.num_shared);
    for (uint32_t t = 0; t < v_.tensors; ++t) {
      spec.binding.writable |= v_.written << (t * v_.bindings_per_tensor());
    }
    for (uint32_t i = 0; i < v_.num_shared; ++i) {
      spec.binding.writable |= (v_.shared[i].written ? 1u : 0u) << shared_binding(i);
    }
    return spec;
  }

private:
  uint32_t binding(uint32_t t, uint32_t role) const { return t * v_.bindings_per_tensor() + role; }
  uint32_t shared_binding(uint32_t i) const { return binding(v_.tensors, i); }
  bool is_written(uint32_t role) const { return (v_.written >> role & 1) != 0; }
  bool is_read(uint32_t role) const { return (v_.read >> role & 1) != 0; }

  static std::string declare(uint32_t binding, bool writable, const std::string& element) {
    return "@group(0) @binding(" + str(binding) + ") var<storage, " +
           (writable ? "read_write" : "read") + "> b" + str(binding) + ": array<" + element +
           ">;\n";
  }

  // Two parameter words as a value.
  std::string value_of(const std::string& words) const {
    switch (info(v_.dtype).kind) {
    case Kind::kFloat:
      return "bitcast<f32>((" + words + ").x)";
    case Kind::kInt:
      return "bitcast<i32>((" + words + ").x)";
    case Kind::kComplex:
      return "bitcast<vec2<f32>>(" + words + ")";
    default:
      return words;
    }
  }

  std::string bindings() const {
    std::string text = "alias value_t = " + type_ + ";\nconst kBytes = " + str(bytes_) +
                       "u;\nconst kRoles = " + str(v_.roles) + "u;\n";
    std::string steps = "fn step(t: u32) -> f32 {\n  switch t {\n";
    for (uint32_t t = 0; t < v_.tensors; ++t) {
      for (uint32_t role = 0; role < v_.roles; ++role) {
        text += declare(binding(t, role), is_written(role), "vec4<u32>");
      }
      if (v_.steps) {
        const uint32_t at = binding(t, v_.roles);
        text += declare(at, false, "u32");
        steps += "    case " + str(t) + "u: { return bitcast<f32>(b" + str(at) + "[p.tensors[" +
                 str(t) + "].more.y]); }\n";
      }
    }
    text += v_.steps ? steps + "    default: { return 0.0; }\n  }\n}\n" : "";
    for (uint32_t i = 0; i < v_.num_shared; ++i) {
      text += shared(i);
    }
    text += "fn scalar(i: u32) -> value_t {\n  let w = p.s[i / 2u];\n  let words = "
            "select(w.xy, w.zw, (i & 1u) == 1u);\n  return " +
            value_of("words") + ";\n}\n";
    return text + "fn tensor_scalar(t: u32) -> value_t { return " +
           value_of("p.tensors[t].head.zw") + "; }";
  }

  std::string shared(uint32_t i) const {
    const SharedNumber& number = v_.shared[i];
    const std::string name(number.name);
    const std::string buffer = "b" + str(shared_binding(i));
    const std::string offset = "p.head." + std::string(1, "yzw"[i]);
    if (number.written) {
      // Several invocations may store this value at once.
      return declare(shared_binding(i), true, "atomic<u32>") + "fn set_" + name +
             "() { atomicStore(&" + buffer + "[" + offset + "], bitcast<u32>(1.0)); }\n";
    }
    const DTypeInfo& type = info(number.dtype);
    std::string word = buffer + "[" + offset + "]";
    if (type.bytes == 2) { // the offset counts elements
      word = "((" + buffer + "[" + offset + " / 2u] >> (" + offset + " % 2u * 16u)) & 0xffffu)";
    } else if (type.bytes == 8) {
      word = "vec2<u32>(" + word + ", " + buffer + "[" + offset + " + 1u])";
    }
    return declare(shared_binding(i), false, "u32") + "fn " + name + "() -> " +
           std::string(type.wgsl) + " { return " + from_word(number.dtype, word) + "; }\n";
  }

  // Element `lane` of a vector.
  std::string element_of(const std::string& vector) const {
    if (bytes_ == 8) {
      return from_word(v_.dtype,
                       "vec2<u32>(" + vector + "[2u * lane], " + vector + "[2u * lane + 1u])");
    }
    if (bytes_ == 4) {
      return from_word(v_.dtype, vector + "[lane]");
    }
    const std::string per_word = str(4 / bytes_) + "u";
    return from_word(v_.dtype, "((" + vector + "[lane / " + per_word + "] >> (lane % " + per_word +
                                   " * " + str(bytes_ * 8) + "u)) & " +
                                   (bytes_ == 1 ? "0xffu" : "0xffffu") + ")");
  }

  // Puts element `lane` of role `role` into y.
  std::string set_element(uint32_t role) const {
    const std::string vector = "y[" + str(role) + "]";
    const std::string bits = to_word(v_.dtype, "v[" + str(role) + "]");
    if (bytes_ == 8) {
      return "    { let bits = " + bits + "; " + vector + "[2u * lane] = bits.x; " + vector +
             "[2u * lane + 1u] = bits.y; }\n";
    }
    if (bytes_ == 4) {
      return "    " + vector + "[lane] = " + bits + ";\n";
    }
    const std::string per_word = str(4 / bytes_) + "u";
    return "    " + vector + "[lane / " + per_word + "] |= (" + bits + ") << (lane % " + per_word +
           " * " + str(bytes_ * 8) + "u);\n";
  }

  // One loop over the elements for all tensors, because element() is long for some ops.
  std::string body() const {
    std::string text = v_.body +
                       "\nfn update(x: ptr<function, array<vec4<u32>, kRoles>>, t: u32) {\n" +
                       "  var y: array<vec4<u32>, kRoles>;\n  for (var lane = 0u; lane < " +
                       str(16 / bytes_) + "u; lane++) {\n    var v = array<value_t, kRoles>(";
    for (uint32_t role = 0; role < v_.roles; ++role) {
      text += (role != 0 ? ", " : "") + element_of("(*x)[" + str(role) + "]");
    }
    text += ");\n    element(&v, t);\n";
    for (uint32_t role = 0; role < v_.roles; ++role) {
      text += is_written(role) ? set_element(role) : "";
    }
    return text + "  }\n  *x = y;\n}";
  }

  // One switch loads, one switch stores, and one update stands between them: drivers compile small
  // cases faster. A role that is read and written keeps the bytes behind its end. A role that is
  // only written is new memory, where those bytes do not matter.
  std::string apply() const {
    std::string loads = "fn apply(t: u32, at: u32, left: u32) {\n"
                        "  var x: array<vec4<u32>, kRoles>;\n  let e = p.tensors[t];\n"
                        "  switch t {\n";
    std::string merge = "  var y = x;\n  update(&y, t);\n";
    std::string stores = "  switch t {\n";
    for (uint32_t role = 0; role < v_.roles; ++role) {
      if (is_written(role) && is_read(role)) {
        const std::string index = "[" + str(role) + "]";
        merge += "  y" + index + " = merged(x" + index + ", y" + index + ", left);\n";
      }
    }
    for (uint32_t t = 0; t < v_.tensors; ++t) {
      loads += "    case " + str(t) + "u: {\n";
      stores += "    case " + str(t) + "u: {\n";
      for (uint32_t role = 0; role < v_.roles; ++role) {
        const std::string place =
            "b" + str(binding(t, role)) + "[" +
            (role < 4 ? std::string("e.offsets.") + "xyzw"[role] : "e.more.x") + " + at]";
        if (is_read(role)) {
          loads += "      x[" + str(role) + "] = " + place + ";\n";
        }
        if (is_written(role)) {
          stores += "      " + place + " = y[" + str(role) + "];\n";
        }
      }
      loads += "    }\n";
      stores += "    }\n";
    }
    const std::string end = "    default: {}\n  }\n";
    return loads + end + merge + stores + end + "}";
  }

  const MultiTensorVariant& v_;
  const uint32_t bytes_;
  const std::string type_;
};

} // namespace

PipelineSpec multi_tensor_source(const MultiTensorVariant& variant) {
  return Generator(variant).generate();
}

} // namespace torch_webgpu
