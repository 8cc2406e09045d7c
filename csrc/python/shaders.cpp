// Enumerates shaders for validation: each row of the op tables in each form that its generator
// knows.
#include "python/shaders.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "kernels/index_combine.h"
#include "ops/pointwise/pointwise_source.h"
#include "ops/reduce/reduce_table.h"
#include "python/targets.h"
#include "wgsl/assemble.h"
#include "wgsl/kernel_source.h"
#include "wgsl/wgsl_library.h"

namespace torch_webgpu {
namespace {

using Sources = std::vector<std::pair<std::string, std::string>>;

constexpr DType native_dtypes[] = {DType::kF32,  DType::kF16, DType::kBF16, DType::kI64,
                                   DType::kI32,  DType::kI16, DType::kI8,   DType::kU8,
                                   DType::kBool, DType::kC64};
// Converted only.
constexpr DType stored_dtypes[] = {DType::kF64,       DType::kU16,    DType::kU32,
                                   DType::kF8E4M3,    DType::kF8E5M2, DType::kF8E4M3FNUZ,
                                   DType::kF8E5M2FNUZ};
constexpr DType raw_dtypes[] = {DType::kBits8, DType::kBits16, DType::kBits32, DType::kBits64,
                                DType::kBits128};

DType result_dtype(const PointwiseRow& row, DType compute) {
  if (row.result == PointwiseResult::kBool) {
    return DType::kBool;
  }
  const bool is_real = row.result == PointwiseResult::kReal && compute == DType::kC64;
  return is_real ? DType::kF32 : compute;
}

class PointwiseSources {
public:
  explicit PointwiseSources(Sources& out) : out_(out) {}

  void add_row(PointwiseOp op) {
    const PointwiseRow& op_row = row(op);
    for (DType compute : native_dtypes) {
      if (!op_row.expression(info(compute).kind).empty()) {
        add_forms(variant(op, compute, result_dtype(op_row, compute)));
      }
    }
    for (DType bits : raw_dtypes) {
      if (!op_row.expression(Kind::kRaw).empty()) {
        PointwiseVariant v = variant(op, bits, bits);
        v.num_scalars *= 2; // 16 bytes take two
        for (uint32_t k = 1; k <= v.num_inputs; ++k) {
          if ((op_row.bool_inputs >> k & 1) != 0) {
            v.dtypes[k] = DType::kBool;
          }
        }
        add_forms(v);
      }
    }
  }

  void add_casts() {
    std::vector<DType> dtypes(std::begin(native_dtypes), std::end(native_dtypes));
    dtypes.insert(dtypes.end(), std::begin(stored_dtypes), std::end(stored_dtypes));
    for (DType from : dtypes) {
      for (DType to : dtypes) {
        if (from != to) {
          add_forms(variant(PointwiseOp::copy, from, to));
        }
      }
    }
  }

private:
  static PointwiseVariant variant(PointwiseOp op, DType compute, DType result) {
    PointwiseVariant v;
    v.op = op;
    v.compute = compute;
    v.num_inputs = row(op).arity;
    v.num_scalars = row(op).num_scalars;
    v.dtypes[0] = result;
    for (uint32_t k = 1; k <= v.num_inputs; ++k) {
      v.dtypes[k] = compute;
    }
    give_slots(v);
    return v;
  }

  static void give_slots(PointwiseVariant& v) {
    for (uint32_t k = 0; k <= v.num_inputs; ++k) {
      v.slots[k] = static_cast<uint8_t>(k);
    }
  }

  void add_forms(PointwiseVariant v) {
    uint32_t widest = 1;
    for (uint32_t k = 0; k <= v.num_inputs; ++k) {
      widest = std::max(widest, info(v.dtypes[k]).bytes);
    }
    const uint32_t lanes = widest < 4 ? 8 : 4;
    v.lanes = lanes;
    add(v, "vectors");
    if (v.num_inputs > 0) {
      v.rank = 2;
      v.splats = 1u << v.num_inputs;
      add(v, "rows, last input splat");
      v.splats = 0;
    }
    v.lanes = 1;
    v.rank = 3;
    add(v, "strided");
    v.dense_output = true;
    if (v.packs_words()) {
      add(v, "packed words");
    }
    v.dense_output = false;
    if (v.num_inputs > 1 && info(v.compute).kind != Kind::kRaw) {
      v.host_scalars = 1u << v.num_inputs;
      v.slots[v.num_inputs] = 0;
      add(v, "strided, last input from the host");
      v.host_scalars = 0;
      // A float32 input for half types, and a bool input for all others.
      v.slots[v.num_inputs] = static_cast<uint8_t>(v.num_inputs);
      v.dtypes[v.num_inputs] = info(v.compute).bytes == 2 ? DType::kF32 : DType::kBool;
      add(v, "strided, last input of another type");
      v.dtypes[v.num_inputs] = v.compute;
    }
    if (v.num_inputs > 0) {
      add_in_place(v, lanes);
    }
  }

  // All operands in one buffer, then only the output and the first input.
  void add_in_place(PointwiseVariant v, uint32_t lanes) {
    v.slots = {};
    add(v, "strided, one buffer");
    v.dense_output = true;
    if (v.packs_words()) {
      add(v, "packed words, one buffer");
    }
    v.dense_output = false;
    for (uint32_t k = 2; k <= v.num_inputs; ++k) {
      v.slots[k] = static_cast<uint8_t>(k - 1);
    }
    v.lanes = lanes;
    v.rank = 0;
    const uint32_t out_words = v.vector_shape(info(v.dtypes[0]).bytes).words;
    if (v.vector_shape(info(v.dtypes[1]).bytes).words == out_words) {
      add(v, "vectors, in place");
    }
  }

  void add(const PointwiseVariant& v, const char* form) {
    std::string label = std::string(row(v.op).name) + " " + std::string(info(v.compute).name);
    if (v.dtypes[0] != v.compute) {
      label += " to " + std::string(info(v.dtypes[0]).name);
    }
    out_.emplace_back(label + ", " + form, pointwise_source(v).source);
  }

  Sources& out_;
};

DType reduced_dtype(ReduceResult result, DType input) {
  return result == ReduceResult::kIndex                          ? DType::kI64
         : result == ReduceResult::kReal && input == DType::kC64 ? DType::kF32
                                                                 : input;
}

void add_reduction(ReduceOp op, const ShaderTarget& target, Sources& out) {
  namespace kernel = kernels::reduce;
  enum Operand : size_t { kY, kZ, kX, kW, kM, kR, kParts, kNewParts, kCount };
  const ReduceRow& op_row = row(op);
  for (DType input : native_dtypes) {
    const Kind kind = info(input).kind;
    if (!op_row.has(kind)) {
      continue;
    }
    std::vector<DType> results;
    for (uint32_t k = 0; k < op_row.num_results(); ++k) {
      results.push_back(reduced_dtype(op_row.results[k], input));
    }
    const auto add = [&](kernel::InnerForm inner, bool from_parts, bool to_parts, bool vectors,
                         const std::string& form) {
      KernelForm v;
      v.operands.resize(kCount);
      uint8_t slots = 0;
      const auto give = [&](size_t operand, DType dtype) {
        v.operands[operand] = {.present = true, .dtype = dtype, .slot = slots++};
      };
      for (size_t k = 0; !to_parts && k < results.size(); ++k) {
        give(kY + k, results[k]);
      }
      for (size_t k = 0; !from_parts && k < op_row.num_inputs; ++k) {
        give(kX + k, input);
      }
      v.operands[kX].whole_words = vectors;
      if (from_parts || to_parts) {
        give(from_parts ? kParts : kNewParts, DType::kBits8);
      }
      v.consts = {static_cast<uint32_t>(op), static_cast<uint32_t>(reduce_element(kind)),
                  static_cast<uint32_t>(inner)};
      auto regions = reduce_regions(
          op, kind, std::span<const DType>(results.data(), to_parts ? 0 : results.size()));
      v.regions = kernel::Launch::texts(std::move(regions));
      out.emplace_back(std::string(op_row.name) + " " + std::string(info(input).name) + ", " + form,
                       assemble(std::string(op_row.name), kernel::kInfo, v, target).source);
    };
    add(kernel::InnerForm::one_inner, false, false, false, "rank 1");
    add(kernel::InnerForm::two_inner, false, false, false, "rank 2");
    add(kernel::InnerForm::any_inner, false, false, false, "rank 3");
    add(kernel::InnerForm::one_inner, false, true, false, "partial results");
    if (op_row.num_inputs == 1) {
      add(kernel::InnerForm::one_inner, false, true, true, "partial results from vectors");
      add(kernel::InnerForm::one_inner, false, false, true, "vectors");
    }
    add(kernel::InnerForm::one_inner, true, false, false, "final stage");
  }
}

// Every accessor of an operand in several bindings: `target` is what the kernel stores to.
void add_windows(const char* name, std::string_view target, DType dtype,
                 std::vector<uint32_t> consts, const ShaderTarget& made_for, Sources& out) {
  const KernelInfo& kernel = *find_kernel(name);
  KernelForm form;
  form.consts = std::move(consts);
  for (const OperandInfo& operand : kernel.operands) {
    const bool is_index = operand.name == "index0";
    const bool is_target = operand.name == target;
    if (is_target && (operand.dtypes & dtype_bit(dtype)) == 0) {
      return;
    }
    form.operands.push_back({.present = is_index || is_target || operand.name == "in",
                             .dtype = is_index ? DType::kI64 : dtype,
                             .slot = static_cast<uint8_t>(is_target  ? 0
                                                          : is_index ? 2
                                                                     : 1)});
  }
  form.windows = {0b10010101, 1 << 20}; // two bindings, two, and three
  out.emplace_back(std::string(name) + " " + std::string(info(dtype).name) + ", windows, " +
                       std::string(target),
                   assemble(name, kernel, form, made_for).source);
}

void add_windows(DType dtype, const ShaderTarget& target, Sources& out) {
  if (is_raw(dtype)) {
    add_windows("index_copy", "out", dtype, {}, target, out);
    add_windows("index_copy", "shared", dtype, {}, target, out);
  } else {
    using kernels::index_combine::How;
    add_windows("index_combine", "out", dtype, {static_cast<uint32_t>(How::add)}, target, out);
    add_windows("index_combine", "sum", dtype, {static_cast<uint32_t>(How::add)}, target, out);
    add_windows("index_combine", "result", dtype, {static_cast<uint32_t>(How::multiply)}, target,
                out);
  }
}

Sources shader_sources(const std::string& base, const TargetChanges& changes) {
  const ShaderTarget target = python_target(base, changes);
  Sources out;
  PointwiseSources pointwise(out);
  for (uint16_t op = 0; op < static_cast<uint16_t>(PointwiseOp::kCount); ++op) {
    pointwise.add_row(static_cast<PointwiseOp>(op));
  }
  pointwise.add_casts();
  for (auto& [label, source] : out) {
    source = complete_shader(source, target);
  }
  for (uint16_t op = 0; op < static_cast<uint16_t>(ReduceOp::kCount); ++op) {
    add_reduction(static_cast<ReduceOp>(op), target, out);
  }
  for (DType dtype : native_dtypes) {
    if (dtype != DType::kBool) {
      add_windows(dtype, target, out);
    }
  }
  return out;
}

} // namespace

void register_shader_sources(pybind11::module_& m) {
  m.def("_shader_sources", &shader_sources, pybind11::arg("target"), pybind11::arg("changes"),
        pybind11::call_guard<pybind11::gil_scoped_release>());
}

} // namespace torch_webgpu
