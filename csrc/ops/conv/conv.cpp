// Convolution and its gradients. ATen sends every convolution of a PrivateUse1 device here,
// and turns 1-D convolutions into 2-D ones.
#include "ops/conv/conv.h"

#include <ATen/ops/convolution_backward_ops.h>
#include <ATen/ops/convolution_ops.h>
#include <ATen/ops/sum.h>

#include "backend/empty.h"
#include "backend/fallback.h"
#include "backend/registration.h"
#include "launch/common.h"
#include "ops/conv/conv_gemm.h"
#include "ops/matmul/matmul_gemm.h"

namespace torch_webgpu {
namespace {

using at::Tensor;

Tensor resolved(const Tensor& tensor) {
  return tensor.defined() ? tensor.resolve_conj().resolve_neg() : tensor;
}

// Channels last if either operand is, as CUDA does.
at::MemoryFormat output_format(const Tensor& input, const Tensor& weight) {
  const at::MemoryFormat format = input.suggest_memory_format();
  return format == at::MemoryFormat::Contiguous ? weight.suggest_memory_format() : format;
}

std::vector<int64_t> output_sizes(const Tensor& input, const Tensor& weight, at::IntArrayRef stride,
                                  at::IntArrayRef padding, at::IntArrayRef dilation,
                                  bool transposed, at::IntArrayRef output_padding, int64_t groups) {
  std::vector<int64_t> sizes = {input.size(0),
                                transposed ? weight.size(1) * groups : weight.size(0)};
  for (int64_t d = 0; d < input.dim() - 2; ++d) {
    const int64_t span = dilation[d] * (weight.size(d + 2) - 1);
    const int64_t in = input.size(d + 2);
    sizes.push_back(transposed
                        ? (in - 1) * stride[d] - 2 * padding[d] + span + output_padding[d] + 1
                        : (in + 2 * padding[d] - span - 1) / stride[d] + 1);
    TORCH_CHECK(sizes.back() >= 0, "convolution of input of size ", input.sizes(),
                " with a kernel of size ", weight.sizes(), ": the output would be too small");
  }
  return sizes;
}

void check_types(const Tensor& input, const Tensor& weight) {
  TORCH_CHECK(input.scalar_type() == weight.scalar_type(), "expected scalar type ",
              at::toString(input.scalar_type()), " but found ", at::toString(weight.scalar_type()));
  TORCH_CHECK_NOT_IMPLEMENTED(input.scalar_type() != at::kBool,
                              "\"slow_conv2d_cpu\" not implemented for 'Bool'");
}

// Repeats the checks of at::convolution and of the CPU's kernels, because programs can also call
// these operators directly, with any arguments.
void check_geometry(const Tensor& input, const Tensor& weight, const Tensor& bias,
                    const ConvGeometry& geometry, bool transposed, at::IntArrayRef output_padding) {
  const int64_t dims = input.dim() - 2;
  TORCH_CHECK(dims >= 1 && dims <= 3 && weight.dim() == input.dim(),
              "Expected 3-, 4- or 5-dimensional input and weight of as many dimensions, but got ",
              "input of size ", input.sizes(), " and weight of size ", weight.sizes());
  const std::array<std::pair<const char*, at::IntArrayRef>, 4> lists = {
      {{"stride", geometry.stride},
       {"padding", geometry.padding},
       {"dilation", geometry.dilation},
       {"output_padding", output_padding}}};
  for (const auto& [name, values] : lists) {
    TORCH_CHECK(static_cast<int64_t>(values.size()) == dims, "expected ", name,
                " to be a single integer value or a list of ", dims,
                " values to match the convolution dimensions, but got ", name, "=", values);
  }
  for (int64_t d = 0; d < dims; ++d) {
    TORCH_CHECK(geometry.stride[d] > 0, "non-positive stride is not supported");
    TORCH_CHECK(geometry.padding[d] >= 0, "negative padding is not supported");
    TORCH_CHECK(output_padding[d] >= 0, "negative output_padding is not supported");
    TORCH_CHECK(geometry.dilation[d] > 0, "dilation should be greater than zero, but got ",
                geometry.dilation);
  }
  for (int64_t d = 2; d < input.dim(); ++d) {
    TORCH_CHECK(input.size(d) > 0, "Only zero batch or zero channel inputs are supported, but got ",
                "input shape: ", input.sizes());
    TORCH_CHECK(weight.size(d) > 0, "kernel size should be greater than zero, but got weight of ",
                "size ", weight.sizes());
  }
  TORCH_CHECK(geometry.groups > 0, "non-positive groups is not supported");
  TORCH_CHECK(weight.size(0) % geometry.groups == 0, "Given groups=", geometry.groups,
              ", expected weight to be divisible by ", geometry.groups,
              " at dimension 0, but got weight of size ", weight.sizes());
  const int64_t channels = transposed ? weight.size(0) : weight.size(1) * geometry.groups;
  TORCH_CHECK(input.size(1) == channels, "Given groups=", geometry.groups, ", weight of size ",
              weight.sizes(), ", expected input", input.sizes(), " to have ", channels,
              " channels, but got ", input.size(1), " channels instead");
  const int64_t results = transposed ? weight.size(1) * geometry.groups : weight.size(0);
  TORCH_CHECK(!bias.defined() || (bias.dim() == 1 && bias.size(0) == results), "Given weight of ",
              "size ", weight.sizes(), ", expected bias to be 1-dimensional with ", results,
              " elements, but got ", bias.defined() ? bias.sizes() : at::IntArrayRef());
}

Tensor convolution(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
                   at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation,
                   bool transposed, at::IntArrayRef output_padding, int64_t groups) {
  const Tensor given_bias = bias.value_or(Tensor());
  check_same_device("convolution_overrideable",
                    {{input, "input"}, {weight, "weight"}, {given_bias, "bias"}});
  check_types(input, weight);
  const ConvGeometry geometry{stride, padding, dilation, groups};
  check_geometry(input, weight, given_bias, geometry, transposed, output_padding);
  if (given_bias.defined()) {
    check_dtype(given_bias, input.scalar_type());
  }
  if (!is_gemm_dtype(input.scalar_type())) {
    // Calls `convolution`, because the overrideable form has no CPU kernel.
    return call_cpu_fallback_symint<at::_ops::convolution>::call(
        input, weight, bias, c10::fromIntArrayRefSlow(stride), c10::fromIntArrayRefSlow(padding),
        c10::fromIntArrayRefSlow(dilation), transposed, c10::fromIntArrayRefSlow(output_padding),
        groups);
  }
  Tensor output = empty_webgpu(
      output_sizes(input, weight, stride, padding, dilation, transposed, output_padding, groups),
      input.options().memory_format(output_format(input, weight)));
  if (output.numel() == 0) {
    return output;
  }
  const Tensor b = resolved(given_bias);
  if (transposed) {
    conv_input(output, resolved(input), resolved(weight), b, geometry);
  } else {
    conv_output(output, resolved(input), resolved(weight), b, geometry);
  }
  return output;
}

std::tuple<Tensor, Tensor, Tensor>
convolution_backward(const Tensor& grad_output, const Tensor& input_in, const Tensor& weight_in,
                     at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation,
                     bool transposed, at::IntArrayRef output_padding, int64_t groups,
                     std::array<bool, 3> output_mask) {
  check_same_device("convolution_backward_overrideable",
                    {{grad_output, "grad_output"}, {input_in, "input"}, {weight_in, "weight"}});
  check_types(grad_output, weight_in);
  check_dtype(input_in, weight_in.scalar_type());
  const ConvGeometry geometry{stride, padding, dilation, groups};
  check_geometry(input_in, weight_in, {}, geometry, transposed, output_padding);
  const auto sizes = output_sizes(input_in, weight_in, stride, padding, dilation, transposed,
                                  output_padding, groups);
  TORCH_CHECK(grad_output.sizes() == at::IntArrayRef(sizes), "Expected grad_output of size ", sizes,
              ", but got ", grad_output.sizes());
  if (!is_gemm_dtype(grad_output.scalar_type())) {
    const std::array<c10::SymInt, 1> bias_sizes = {grad_output.size(1)};
    return call_cpu_fallback_symint<at::_ops::convolution_backward>::call(
        grad_output, input_in, weight_in, at::OptionalSymIntArrayRef(bias_sizes),
        c10::fromIntArrayRefSlow(stride), c10::fromIntArrayRefSlow(padding),
        c10::fromIntArrayRefSlow(dilation), transposed, c10::fromIntArrayRefSlow(output_padding),
        groups, output_mask);
  }
  Tensor grad = resolved(grad_output);
  Tensor grad_input, grad_weight, grad_bias;
  if (output_mask[2]) {
    std::vector<int64_t> all_but_channels = {0};
    for (int64_t d = 2; d < grad.dim(); ++d) {
      all_but_channels.push_back(d);
    }
    grad_bias = at::sum(grad, all_but_channels);
  }
  if (output_mask[0] && output_mask[1] && !transposed) {
    grad = conv_shared_gradient(grad, input_in, weight_in, geometry);
  }
  if (output_mask[0]) {
    const Tensor weight = resolved(weight_in);
    grad_input = empty_webgpu(input_in.sizes(),
                              input_in.options().memory_format(output_format(input_in, weight_in)));
    if (transposed) {
      conv_output(grad_input, grad, weight, {}, geometry);
    } else {
      conv_input(grad_input, grad, weight, {}, geometry);
    }
  }
  if (output_mask[1]) {
    const Tensor input = resolved(input_in);
    grad_weight = empty_webgpu(
        weight_in.sizes(), weight_in.options().memory_format(output_format(input_in, weight_in)));
    conv_weight(grad_weight, transposed ? grad : input, transposed ? input : grad, geometry);
  }
  return {grad_input, grad_weight, grad_bias};
}

// Checks the arguments, and that `out` fits.
void check_into(const Tensor& out, const Tensor& input, const Tensor& weight, const Tensor& bias,
                const ConvArguments& arguments) {
  check_types(input, weight);
  check_geometry(input, weight, bias, arguments.geometry(), arguments.transposed,
                 arguments.output_padding);
  const std::vector<int64_t> sizes =
      output_sizes(input, weight, arguments.stride, arguments.padding, arguments.dilation,
                   arguments.transposed, arguments.output_padding, arguments.groups);
  TORCH_CHECK(out.sizes() == at::IntArrayRef(sizes), "expected a result of size ", sizes,
              ", but got ", out.sizes());
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("convolution_overrideable", convolution);
  m.impl("convolution_backward_overrideable", convolution_backward);
}

} // namespace

void convolve_into(const Tensor& out, const Tensor& input, const Tensor& weight, const Tensor& bias,
                   const ConvArguments& arguments, const ConvEpilogue& epilogue) {
  check_into(out, input, weight, bias, arguments);
  for (const Tensor& result : {out, epilogue.second}) {
    TORCH_CHECK(!result.defined() || has_position_stride(result),
                "the positions of a convolution's result have one stride, but got strides ",
                result.strides(), " for size ", result.sizes());
  }
  if (out.numel() == 0) {
    return;
  }
  ConvEpilogue placed = epilogue;
  for (Tensor& operand : placed.operands) {
    if (operand.defined() && !has_position_stride(operand)) {
      operand = operand.contiguous();
    }
  }
  const auto convolve = arguments.transposed ? &conv_input : &conv_output;
  convolve(out, input, weight, bias, arguments.geometry(), placed);
}

const Strategy& convolution_strategy(const Tensor& out, const Tensor& input, const Tensor& weight,
                                     const ConvArguments& arguments, const Strategy* wanted,
                                     const ShaderTarget& target) {
  check_into(out, input, weight, {}, arguments);
  const auto strategy = arguments.transposed ? &conv_input_strategy : &conv_output_strategy;
  return strategy(out, input, weight, arguments.geometry(), wanted, target);
}

} // namespace torch_webgpu
