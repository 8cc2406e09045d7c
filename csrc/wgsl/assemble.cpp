#include "wgsl/assemble.h"

#include <algorithm>
#include <optional>

#include "runtime/error.h"
#include "wgsl/conditions.h"
#include "wgsl/lists.h"
#include "wgsl/wgsl_library.h"

namespace torch_webgpu {
namespace {

[[noreturn]] void fail(const KernelInfo& kernel, const std::string& why) {
  raise(ErrorKind::kRuntime, "kernel " + std::string(kernel.name) + ": " + why);
}

void check(const KernelInfo& kernel, const KernelForm& form) {
  if (form.operands.size() != kernel.operands.size() ||
      form.consts.size() != kernel.consts.size() || form.regions.size() != kernel.regions.size()) {
    fail(kernel, "the form does not have the kernel's operands, constants and regions");
  }
  for (size_t k = 0; k < kernel.operands.size(); ++k) {
    const OperandInfo& operand = kernel.operands[k];
    const KernelForm::Operand& given = form.operands[k];
    if (!given.present && !operand.optional) {
      fail(kernel, "operand " + std::string(operand.name) + " is missing");
    }
    if (given.present && (operand.dtypes & dtype_bit(given.dtype)) == 0) {
      fail(kernel, "operand " + std::string(operand.name) + " cannot have dtype " +
                       std::string(info(given.dtype).name));
    }
    if (given.present && operand.akin >= 0 && form.operands[operand.akin].present &&
        info(given.dtype).kind != info(form.operands[operand.akin].dtype).kind) {
      fail(kernel, "operand " + std::string(operand.name) + " is not computed in the type of " +
                       std::string(kernel.operands[operand.akin].name));
    }
  }
  for (size_t c = 0; c < kernel.consts.size(); ++c) {
    if (!std::ranges::binary_search(kernel.consts[c].values, form.consts[c])) {
      fail(kernel, "constant " + std::string(kernel.consts[c].name) + " cannot be " +
                       std::to_string(form.consts[c]));
    }
  }
}

// Bit k: the property holds of operand k.
uint32_t mask_of(const KernelForm& form, bool KernelForm::Operand::*property) {
  uint32_t mask = 0;
  for (size_t k = 0; k < form.operands.size(); ++k) {
    mask |= form.operands[k].*property ? 1u << k : 0u;
  }
  return mask;
}

std::string constants(const KernelInfo& kernel, const KernelForm& form) {
  std::string text;
  for (size_t c = 0; c < kernel.consts.size(); ++c) {
    const ConstInfo& constant = kernel.consts[c];
    const std::string value = constant.kind == ConstKind::kBool
                                  ? (form.consts[c] != 0 ? "true" : "false")
                                  : std::to_string(form.consts[c]) + "u";
    text += "const " + std::string(constant.name) + " = " + value + ";\n";
  }
  return text;
}

std::string_view kind_name(Kind kind) {
  switch (kind) {
  case Kind::kFloat:
    return "float";
  case Kind::kInt:
    return "int";
  case Kind::kLong:
    return "long";
  case Kind::kComplex:
    return "complex";
  case Kind::kBool:
    return "bool";
  case Kind::kRaw:
    return "raw";
  case Kind::kDouble:
    return "double";
  }
  return "";
}

// NAME_is_KIND and NAME_is_DTYPE; nothing for other conditions.
std::optional<bool> dtype_condition(const KernelInfo& kernel, const KernelForm& form,
                                    std::string_view condition) {
  const size_t at = condition.rfind("_is_");
  if (at == std::string_view::npos) {
    return std::nullopt;
  }
  const std::string_view word = condition.substr(at + 4);
  for (size_t k = 0; k < kernel.operands.size(); ++k) {
    if (kernel.operands[k].name == condition.substr(0, at)) {
      const DTypeInfo& dtype = info(form.operands[k].dtype);
      return form.operands[k].present && (word == dtype.name || word == kind_name(dtype.kind));
    }
  }
  return std::nullopt;
}

bool holds(const KernelInfo& kernel, const KernelForm& form, const ShaderTarget& target,
           std::string_view name) {
  for (size_t c = 0; c < kernel.consts.size(); ++c) {
    const ConstInfo& constant = kernel.consts[c];
    if (constant.kind == ConstKind::kBool && constant.name == name) {
      return form.consts[c] != 0;
    }
    for (size_t n = 0; n < constant.names.size(); ++n) {
      if (constant.names[n] == name) {
        return form.consts[c] == n;
      }
    }
  }
  for (size_t k = 0; k < kernel.operands.size(); ++k) {
    const std::string_view operand = kernel.operands[k].name;
    if (name.starts_with("has_") && name.substr(4) == operand) {
      return form.operands[k].present;
    }
    if ((name.starts_with("owns_") && name.substr(5) == operand) ||
        (name.starts_with("vectors_") && name.substr(8) == operand)) {
      return form.operands[k].whole_words;
    }
  }
  if (const auto value = dtype_condition(kernel, form, name)) {
    return *value;
  }
  if (const auto value = target.condition(name)) {
    return *value;
  }
  if (name == "is_complex") {
    return std::ranges::any_of(form.operands, [](const KernelForm::Operand& operand) {
      return operand.present && info(operand.dtype).kind == Kind::kComplex;
    });
  }
  fail(kernel, "a condition asks for " + std::string(name) + ", which nothing declares");
}

// Whether code, not only comments, speaks of subgroups: subgroupAdd, subgroup_size.
bool uses_subgroups(std::string_view code) {
  constexpr std::string_view word = "subgroup";
  for (size_t at = code.find(word); at != std::string_view::npos; at = code.find(word, at)) {
    at += word.size();
    if (at < code.size() && (code[at] == '_' || (code[at] >= 'A' && code[at] <= 'Z'))) {
      return true;
    }
  }
  return false;
}

// The `enable` lines of the extensions that the kernel needs; raises for a target without them.
// `code` may use subgroups beyond that, where it found the target to have them.
std::string enable_lines(const KernelInfo& kernel, const ShaderTarget& target,
                         std::string_view code) {
  std::string text;
  if (target.subgroups && std::ranges::count(kernel.enables, "subgroups") == 0 &&
      uses_subgroups(code)) {
    text += "enable subgroups;\n";
  }
  for (const std::string_view name : kernel.enables) {
    const bool granted = name == "f16"         ? target.shader_f16
                         : name == "subgroups" ? target.subgroups
                                               : target.subgroup_matrix;
    if (!granted) {
      fail(kernel, "the target has no " + std::string(name));
    }
    text += "enable " + std::string(name) + ";\n";
  }
  return text;
}

// The default of a region, which stands in its line between `=` and `:`; empty if it has none.
std::string default_of(std::string_view line) {
  const size_t begin = line.find('=');
  const size_t end = line.find(':');
  return begin < end ? std::string(line.substr(begin + 1, end - begin - 1)) : std::string();
}

// Puts the text of each region where the kernel declares it.
std::string fill_regions(const KernelInfo& kernel, const KernelForm& form) {
  std::string text(kernel.text);
  for (size_t r = 0; r < kernel.regions.size(); ++r) {
    const std::string marker = "// @region " + std::string(kernel.regions[r]);
    const size_t at = text.find(marker);
    if (at == std::string::npos) {
      fail(kernel, "the text has no region " + std::string(kernel.regions[r]));
    }
    const size_t length = text.find('\n', at) - at;
    const std::string& given = form.regions[r];
    text.replace(at, length, given.empty() ? default_of(text.substr(at, length)) : given);
  }
  return text;
}

} // namespace

std::string assemble_text(const std::string& label, std::string_view text,
                          const ShaderTarget& target) {
  const std::string resolved = resolve_conditions(text, [&](std::string_view name) {
    const std::optional<bool> value = target.condition(name);
    if (!value) {
      raise(ErrorKind::kRuntime,
            label + ": a condition asks for " + std::string(name) + ", which no target decides");
    }
    return *value;
  });
  return std::string(target.subgroups && uses_subgroups(resolved) ? "enable subgroups;\n" : "") +
         complete_shader(resolved, target);
}

PipelineSpec assemble(std::string label, const KernelInfo& kernel, const KernelForm& form,
                      const ShaderTarget& target) {
  check(kernel, form);
  if (kernel.workgroup > target.max_workgroup_invocations) {
    raise(ErrorKind::kNotImplemented,
          label + "(): kernel " + std::string(kernel.name) + " has workgroups of " +
              std::to_string(kernel.workgroup) + " invocations, where target '" + target.name +
              "' allows " + std::to_string(target.max_workgroup_invocations));
  }
  if (!kernel.is_form(form.consts, mask_of(form, &KernelForm::Operand::present),
                      mask_of(form, &KernelForm::Operand::whole_words))) {
    fail(kernel, "its constants and operands do not go together");
  }
  std::vector<Operand> operands;
  ListSet lists(form.tensors);
  for (size_t k = 0; k < kernel.operands.size(); ++k) {
    const OperandInfo& operand = kernel.operands[k];
    const KernelForm::Operand& given = form.operands[k];
    if (operand.many) {
      lists.add(operand, given);
      continue;
    }
    if (!given.present) {
      continue;
    }
    if (operand.access == Access::kSum || operand.access == Access::kUpdate) {
      lists.stop_at_end();
    }
    operands.push_back(
        {.name = operand.name,
         .dtype = given.dtype,
         .slot = lists.bindings() + given.slot,
         .writable = is_written(operand.access),
         .atomic_add = operand.access == Access::kSum,
         .owns_words = given.whole_words,
         .atomic_update = operand.access == Access::kUpdate,
         .stores_neighbours = operand.access == Access::kWords,
         .vector_words = operand.access == Access::kVectors && given.whole_words ? 4u : 0u,
         .element = operand.element,
         .loads_pairs = kernel.text.find("load2_" + std::string(operand.name) + "(") !=
                        std::string_view::npos});
  }
  PipelineSpec spec;
  spec.label = std::move(label);
  const std::string text =
      resolve_conditions(fill_regions(kernel, form),
                         [&](std::string_view name) { return holds(kernel, form, target, name); });
  spec.source = enable_lines(kernel, target, text);
  spec.source += complete_shader(constants(kernel, form) + text + lists.declarations() +
                                     operand_declarations(operands, form.windows),
                                 target);
  spec.binding = binding_layout(operands, kernel.reports_errors, form.windows);
  lists.add_to(spec.binding);
  return spec;
}

} // namespace torch_webgpu
