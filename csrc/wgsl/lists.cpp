#include "wgsl/lists.h"

#include <algorithm>

namespace torch_webgpu {
namespace {

std::string str(uint32_t value) { return std::to_string(value); }

std::string buffer_of(uint32_t binding) { return "b" + str(binding); }

std::string declare(uint32_t binding, bool writable, const std::string& element) {
  return "@group(0) @binding(" + str(binding) + ") var<storage, " +
         (writable ? "read_write" : "read") + "> " + buffer_of(binding) + ": array<" + element +
         ">;\n";
}

} // namespace

void ListSet::add(const OperandInfo& operand, const KernelForm::Operand& given) {
  const uint32_t place = declared_++;
  if (given.present) {
    lists_.push_back(
        {.name = std::string(operand.name),
         .dtype = given.dtype,
         .place = place,
         .numbers = operand.access == Access::kNumbers,
         .loaded = !given.whole_words,
         .stored = operand.access == Access::kOut || operand.access == Access::kWords});
  }
}

// The word that says where the tensor starts in `list`, in the entry that begins at vec4 `e`.
std::string ListSet::start_of(const List& list) const {
  return "p.lists[e + " + str(1 + list.place / 4) + "u]." + "xyzw"[list.place % 4];
}

std::string ListSet::declarations() const {
  if (lists_.empty()) {
    return "";
  }
  std::string text =
      "const tensors = " + str(tensors_) + "u;\nconst list_stride = " + str(stride()) + "u;\n";
  std::vector<const List*> vectors;
  for (const List& list : lists_) {
    text += "alias " + list.name + "_t = " + std::string(info(list.dtype).wgsl) + ";\n";
    if (!list.numbers) {
      vectors.push_back(&list);
    }
  }
  const auto each = static_cast<uint32_t>(lists_.size());
  for (uint32_t k = 0; k < each; ++k) {
    const List& list = lists_[k];
    std::string cases;
    for (uint32_t t = 0; t < tensors_; ++t) {
      const uint32_t binding = t * each + k;
      text += declare(binding, list.stored, list.numbers ? "u32" : "vec4<u32>");
      cases += "    case " + str(t) + "u: { return " +
               from_word(list.dtype, buffer_of(binding) + "[" + start_of(list) + "]") + "; }\n";
    }
    if (list.numbers) {
      text += "fn " + list.name + "_of(t: u32) -> " + list.name +
              "_t {\n  let e = t * list_stride;\n  switch t {\n" + cases +
              "    default: { return " + list.name + "_t(); }\n  }\n}\n";
    }
  }
  return text + element_functions(vectors) + update_function(vectors);
}

// One loop over the elements for all tensors, because element() is long for some kernels.
std::string ListSet::element_functions(const std::vector<const List*>& vectors) const {
  const uint32_t lanes = 16 / info(vectors[0]->dtype).bytes;
  const std::string array = "array<vec4<u32>, " + str(static_cast<uint32_t>(vectors.size())) + ">";
  std::string members;
  std::string values;
  std::string results;
  for (uint32_t k = 0; k < vectors.size(); ++k) {
    const List& list = *vectors[k];
    members += "  " + list.name + ": " + list.name + "_t,\n";
    values += (k != 0 ? ", " : "") + from_vector(list.dtype, "(*x)[" + str(k) + "]", "lane");
    if (list.stored) {
      results +=
          "    " + to_vector(list.dtype, "y[" + str(k) + "]", "lane", "v." + list.name) + "\n";
    }
  }
  return "const lanes = " + str(lanes) + "u;\nstruct Elements {\n" + members +
         "}\nfn update_elements(x: ptr<function, " + array +
         ">, t: u32, left: u32) {\n  var y = " + array + "();\n  for (var lane = 0u; lane < " +
         (stops_at_end_ ? "left" : "lanes") + "; lane++) {\n    var v = Elements(" + values +
         ");\n    element(&v, t);\n" + results + "  }\n  *x = y;\n}\n";
}

// One switch loads, one switch stores, and one update stands between them: drivers compile small
// cases faster. A tensor that is read and written keeps the bytes behind its end. One that is only
// written is new memory, where those bytes do not matter.
std::string ListSet::update_function(const std::vector<const List*>& vectors) const {
  const auto each = static_cast<uint32_t>(lists_.size());
  std::string loads;
  std::string merge;
  std::string stores;
  for (uint32_t t = 0; t < tensors_; ++t) {
    loads += "    case " + str(t) + "u: {\n";
    stores += "    case " + str(t) + "u: {\n";
    for (uint32_t k = 0; k < vectors.size(); ++k) {
      const List& list = *vectors[k];
      const auto number = static_cast<uint32_t>(&list - lists_.data());
      const std::string place = buffer_of(t * each + number) + "[" + start_of(list) + " + i]";
      const std::string index = "[" + str(k) + "]";
      loads += list.loaded ? "      x" + index + " = " + place + ";\n" : "";
      stores += list.stored ? "      " + place + " = y" + index + ";\n" : "";
      if (t == 0 && list.loaded && list.stored) {
        merge += "  y" + index + " = merged_vector(x" + index + ", y" + index + ", bytes);\n";
      }
    }
    loads += "    }\n";
    stores += "    }\n";
  }
  const std::string end = "    default: {}\n  }\n";
  const std::string array = "array<vec4<u32>, " + str(static_cast<uint32_t>(vectors.size())) + ">";
  return "fn update_vector(t: u32, i: u32, left: u32) {\n  var x = " + array +
         "();\n  let e = t * list_stride;\n  switch t {\n" + loads + end +
         "  var y = x;\n  update_elements(&y, t, left);\n  let bytes = left * " +
         str(info(vectors[0]->dtype).bytes) + "u;\n" + merge + "  switch t {\n" + stores + end +
         "}\n";
}

void ListSet::add_to(BindingLayout& layout) const {
  const auto each = static_cast<uint32_t>(lists_.size());
  layout.num_buffers = std::max(layout.num_buffers, bindings());
  for (uint32_t t = 0; t < tensors_; ++t) {
    for (uint32_t k = 0; k < each; ++k) {
      layout.writable |= (lists_[k].stored ? 1u : 0u) << (t * each + k);
    }
  }
}

} // namespace torch_webgpu
