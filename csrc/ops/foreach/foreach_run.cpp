#include "ops/foreach/foreach_run.h"

#include <algorithm>

#include "backend/empty.h"
#include "backend/tensor.h"
#include "launch/dtypes.h"
#include "ops/foreach/foreach_launch.h"
#include "wgsl/kernel_source.h"

namespace torch_webgpu {
namespace {

using Form = ForeachForm;
using Arguments = ForeachArguments;
using c10::Scalar;

std::string element_body(const MultiTensorOp& op) {
  const Form form = Form::of(op.id);
  const Kind kind = info(op.dtype).kind;
  const PointwiseRow& table_row = row(form.op);
  std::string text = "fn prepare(t: u32) {}\n"
                     "fn element(v: ptr<function, array<value_t, kRoles>>, t: u32) {\n";
  uint32_t role = form.in_place ? 0 : 1;
  for (uint32_t k = 0; k < table_row.arity; ++k) {
    std::string value = "(*v)[" + std::to_string(role) + "]";
    if (k == 1 && form.second == SecondOperand::kScalar) {
      value = "tensor_scalar(t)";
    } else if (k == 1 && form.second == SecondOperand::kDeviceScalar) {
      value = convert(info(op.shared[0].dtype).kind, kind, "other()");
    } else {
      ++role;
    }
    text += "  let " + std::string(1, "abc"[k]) + " = " + value + ";\n";
  }
  text += std::string("  let s0 = ") +
          (form.factor == Factor::kPerTensor ? "tensor_scalar(t)" : "scalar(0u)") + ";\n";
  return text + "  (*v)[0] = " + std::string(table_row.expression(kind)) + ";\n}";
}

// Whether arithmetic between a tensor of that dtype and the number gives the tensor's dtype.
bool keeps_dtype(const Scalar& number, DType dtype) {
  const Kind kind = info(dtype).kind;
  if (number.isComplex()) {
    return kind == Kind::kComplex;
  }
  return !number.isFloatingPoint() || kind == Kind::kFloat || kind == Kind::kComplex;
}

// The dtype of the fast path, or nothing.
std::optional<DType> fast_dtype(const Form& form, const Arguments& arguments,
                                at::TensorList outputs) {
  MultiTensorOperands operands;
  for (uint32_t i = 0; i < arguments.num_inputs; ++i) {
    operands.roles[operands.num_roles++] = arguments.inputs[i];
  }
  uint32_t written = form.in_place ? 1 : 0;
  if (!outputs.empty()) {
    written = 1u << operands.num_roles;
    operands.roles[operands.num_roles++] = outputs;
  }
  const auto dtype = multi_tensor_dtype(operands, written);
  if (!dtype || row(form.op).expression(info(*dtype).kind).empty()) {
    return std::nullopt;
  }
  const Kind kind = info(*dtype).kind;
  if (kind == Kind::kComplex && row(form.op).result != PointwiseResult::kSame) {
    return std::nullopt;
  }
  // ATen refuses negative exponents of integers.
  if (form.op == PointwiseOp::pow_tensor_tensor && kind != Kind::kFloat) {
    return std::nullopt;
  }
  for (const Scalar& number : arguments.scalars) {
    if (!keeps_dtype(number, *dtype)) {
      return std::nullopt;
    }
  }
  if (!keeps_dtype(arguments.common, *dtype)) {
    return std::nullopt;
  }
  if (form.second == SecondOperand::kDeviceScalar) {
    const auto other = native_dtype(arguments.other.scalar_type());
    const bool fits = other && info(*other).bytes > 1 && info(*other).kind == kind;
    if (!fits || !is_webgpu(arguments.other) || arguments.other.dim() != 0) {
      return std::nullopt;
    }
  }
  return dtype;
}

// `fresh`: the outputs are newly allocated, so bytes behind their last element may be overwritten.
void launch(const Form& form, const Arguments& arguments, DType dtype, at::TensorList outputs,
            bool fresh) {
  MultiTensorOp op;
  op.id = form.id() | (fresh ? uint64_t{1} << 30 : 0);
  op.name = row(form.op).name;
  op.dtype = dtype;
  op.body = &element_body;
  write_scalar(arguments.common, dtype, op.scalars[0].data());
  MultiTensorOperands operands;
  operands.scalars = arguments.scalars;
  if (!form.in_place) {
    op.read = fresh ? 0 : 1;
    operands.roles[operands.num_roles++] = outputs;
  }
  for (uint32_t i = 0; i < arguments.num_inputs; ++i) {
    op.read |= 1u << operands.num_roles;
    operands.roles[operands.num_roles++] = arguments.inputs[i];
  }
  if (form.second == SecondOperand::kDeviceScalar) {
    const DType other = *native_dtype(arguments.other.scalar_type());
    op.id |= static_cast<uint64_t>(other) << 20;
    op.shared[0] = {"other", other};
    op.num_shared = 1;
    // A copy, since the number may lie in one of the tensors.
    operands.shared[0] = form.in_place ? arguments.other.clone() : arguments.other;
  }
  multi_tensor(op, operands);
}

// Increases the version counters of tensors that were written. Autograd does so only for operators
// that return their result, and these return nothing.
void count_as_written(at::TensorList tensors) {
  for (const at::Tensor& tensor : tensors) {
    tensor.unsafeGetTensorImpl()->bump_version();
  }
}

} // namespace

bool foreach_in_place(ForeachForm form, const ForeachArguments& arguments) {
  form.in_place = true;
  const auto dtype = fast_dtype(form, arguments, {});
  if (dtype) {
    launch(form, arguments, *dtype, {}, false);
    count_as_written(arguments.inputs[0]);
  }
  return dtype.has_value();
}

bool foreach_into(at::TensorList outputs, ForeachForm form, const ForeachArguments& arguments) {
  form.in_place = false;
  const auto dtype = fast_dtype(form, arguments, outputs);
  if (dtype) {
    launch(form, arguments, *dtype, outputs, false);
    count_as_written(outputs);
  }
  return dtype.has_value();
}

std::optional<std::vector<at::Tensor>> foreach_functional(ForeachForm form,
                                                          const ForeachArguments& arguments) {
  form.in_place = false;
  const auto dtype = fast_dtype(form, arguments, {});
  if (!dtype) {
    return std::nullopt;
  }
  std::vector<at::Tensor> outputs;
  outputs.reserve(arguments.inputs[0].size());
  for (const at::Tensor& tensor : arguments.inputs[0]) {
    outputs.push_back(empty_strided_webgpu(tensor.sizes(), tensor.strides(), tensor.options()));
  }
  launch(form, arguments, *dtype, outputs, true);
  return outputs;
}

} // namespace torch_webgpu
