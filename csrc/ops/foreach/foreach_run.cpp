#include "ops/foreach/foreach_run.h"

#include <algorithm>

#include "backend/empty.h"
#include "backend/tensor.h"
#include "kernels/foreach_numbers.h"
#include "kernels/foreach_rows.h"
#include "launch/dtypes.h"

namespace torch_webgpu {
namespace {

using Form = ForeachForm;
using Arguments = ForeachArguments;
using c10::Scalar;

// Whether an operation of a tensor of this dtype and the number has a result of the tensor's dtype.
// If `is_operand`, the number is the second operand, else it is a factor.
bool keeps_dtype(const Scalar& number, bool is_operand, DType dtype) {
  const Kind kind = info(dtype).kind;
  if (dtype == DType::kBool && is_operand) {
    return number.isBoolean();
  }
  if (number.isComplex()) {
    return kind == Kind::kComplex;
  }
  return !number.isFloatingPoint() || kind == Kind::kFloat || kind == Kind::kComplex;
}

// The dtype of the multi-tensor kernel, or nullopt if it does not take the arguments.
std::optional<DType> fast_dtype(const Form& form, const Arguments& arguments,
                                at::TensorList outputs) {
  std::array<TensorListUse, 4> lists;
  size_t count = 0;
  if (!outputs.empty()) {
    lists[count++] = {outputs, true};
  }
  for (uint32_t i = 0; i < arguments.num_inputs; ++i) {
    const bool numbers = form.second == SecondOperand::kNumbers && i == 1;
    lists[count++] = {arguments.inputs[i], form.in_place && i == 0, numbers};
  }
  const auto dtype = common_dtype({lists.data(), count});
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
  const bool is_operand = form.second == SecondOperand::kScalar;
  for (const Scalar& number : arguments.scalars) {
    if (!keeps_dtype(number, is_operand, *dtype)) {
      return std::nullopt;
    }
  }
  if (!keeps_dtype(arguments.common, form.first_is_common, *dtype)) {
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

// Whether the second list has numbers that foreach_numbers.wgsl takes, and the results have the
// dtypes of the first list.
bool has_numbers(const Arguments& arguments) {
  for (size_t i = 0; i < arguments.inputs[0].size(); ++i) {
    const at::Tensor& tensor = arguments.inputs[0][i];
    const at::Tensor& number = arguments.inputs[1][i];
    // Of two tensors without dimensions, the wider dtype is that of the result.
    const bool keeps = tensor.dim() != 0 || tensor.scalar_type() == at::kFloat;
    if (!at::isFloatingType(tensor.scalar_type()) || !is_webgpu(number) || number.dim() != 0 ||
        number.scalar_type() != at::kFloat || number.is_neg() || !keeps || !is_webgpu(tensor) ||
        (tensor.numel() != 0 && buffer_of(tensor).context != buffer_of(number).context)) {
      return false;
    }
  }
  return true;
}

// The dtype in which kernels compute the form, whose second operand may become kNumbers; or
// nullopt.
std::optional<DType> take(Form& form, const Arguments& arguments, at::TensorList outputs) {
  const auto dtype = fast_dtype(form, arguments, outputs);
  if (dtype || form.second != SecondOperand::kList || form.factor != Factor::kCommon ||
      arguments.num_inputs != 2 || !has_numbers(arguments)) {
    return dtype;
  }
  form.second = SecondOperand::kNumbers;
  return fast_dtype(form, arguments, outputs);
}

void launch_numbers(const Form& form, const Arguments& arguments, DType dtype,
                    at::TensorList outputs, bool fresh) {
  const PointwiseRow& table_row = row(form.op);
  kernels::foreach_numbers::Launch launch(table_row.name.data());
  launch.y(form.in_place ? arguments.inputs[0] : outputs).b(arguments.inputs[1]);
  if (fresh) {
    launch.own_y();
  }
  if (!form.in_place) {
    launch.a(arguments.inputs[0]);
  }
  launch.row(static_cast<uint32_t>(form.op));
  launch.set_common_dtype(dtype);
  launch.run({.s0 = arguments.common.to<float>()}, [&] {
    return kernels::foreach_numbers::Regions{
        .expression = std::string(table_row.expression(info(dtype).kind))};
  });
}

// `fresh`: the outputs are newly allocated, so bytes behind their last element may be overwritten.
void launch(const Form& form, const Arguments& arguments, DType dtype, at::TensorList outputs,
            bool fresh) {
  if (form.second == SecondOperand::kNumbers) {
    launch_numbers(form, arguments, dtype, outputs, fresh);
    return;
  }
  const PointwiseRow& table_row = row(form.op);
  kernels::foreach_rows::Launch launch(table_row.name.data());
  launch.y(form.in_place ? arguments.inputs[0] : outputs);
  if (fresh) {
    launch.own_y();
  }
  if (form.first_is_common) {
    launch.b(arguments.inputs[0]);
  } else if (!form.in_place) {
    launch.a(arguments.inputs[0]);
  }
  if (form.second == SecondOperand::kList && arguments.num_inputs > 1) {
    launch.b(arguments.inputs[1]);
  } else if (form.second == SecondOperand::kDeviceScalar) {
    launch.other(arguments.other);
  }
  if (arguments.num_inputs > 2) {
    launch.c(arguments.inputs[2]);
  }
  launch.row(static_cast<uint32_t>(form.op))
      .a_is_number(form.first_is_common)
      .b_is_number(form.second == SecondOperand::kScalar)
      .s0_is_own(form.factor == Factor::kPerTensor)
      .entry_numbers(arguments.scalars);
  launch.set_common_dtype(dtype);
  kernels::foreach_rows::Params params;
  write_scalar(arguments.common, dtype, params.s0.data());
  launch.run(params, [&] {
    return kernels::foreach_rows::Regions{.expression =
                                              std::string(table_row.expression(info(dtype).kind))};
  });
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
  const auto dtype = take(form, arguments, {});
  if (dtype) {
    launch(form, arguments, *dtype, {}, false);
    count_as_written(arguments.inputs[0]);
  }
  return dtype.has_value();
}

bool foreach_into(at::TensorList outputs, ForeachForm form, const ForeachArguments& arguments) {
  form.in_place = false;
  const auto dtype = take(form, arguments, outputs);
  if (dtype) {
    launch(form, arguments, *dtype, outputs, false);
    count_as_written(outputs);
  }
  return dtype.has_value();
}

std::optional<std::vector<at::Tensor>> foreach_functional(ForeachForm form,
                                                          const ForeachArguments& arguments) {
  form.in_place = false;
  const auto dtype = take(form, arguments, {});
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
