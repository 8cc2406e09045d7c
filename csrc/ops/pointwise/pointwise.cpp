#include "ops/pointwise/pointwise.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/clone.h>

#include <algorithm>
#include <bit>

#include "backend/tensor.h"
#include "launch/common.h"
#include "launch/grid.h"
#include "launch/operand_launch.h"
#include "launch/operand_view.h"
#include "launch/pipelines.h"

namespace torch_webgpu {
namespace {

using at::TensorIteratorBase;

c10::Scalar read_cpu_scalar(const TensorIteratorBase& iter, int operand) {
  const void* data = iter.data_ptr(operand);
  switch (iter.dtype(operand)) { // Python numbers come as one of these
  case at::kDouble:
    return *static_cast<const double*>(data);
  case at::kLong:
    return *static_cast<const int64_t*>(data);
  case at::kBool:
    return *static_cast<const bool*>(data);
  case at::kFloat:
    return *static_cast<const float*>(data);
  default:
    return iter.tensor(operand).item();
  }
}

c10::Scalar convert(const c10::Scalar& value, DType dtype) {
  switch (dtype) {
  case DType::kF16:
    return static_cast<float>(value.to<c10::Half>());
  case DType::kBF16:
    return static_cast<float>(value.to<c10::BFloat16>());
  default:
    return value;
  }
}

// A number as operand, rounded likewise. One beyond the type is infinite: x < 1e6 has a result.
c10::Scalar rounded_operand(const c10::Scalar& value, DType dtype) {
  switch (dtype) {
  case DType::kF16:
    return static_cast<float>(c10::Half(static_cast<float>(value.toDouble())));
  case DType::kBF16:
    return static_cast<float>(c10::BFloat16(static_cast<float>(value.toDouble())));
  default:
    return value;
  }
}

class PointwiseLaunch : public OperandLaunch {
public:
  PointwiseLaunch(TensorIteratorBase& iter, PointwiseOp op, const PointwiseTypes& types)
      : OperandLaunch(row(op).name.data()), iter_(iter), types_(types) {
    variant_.op = op;
    variant_.compute = types.compute;
    // An iterator may have more inputs than the row takes, such as the one that ATen builds for
    // flip.
    variant_.num_inputs = std::min(static_cast<uint32_t>(iter.ninputs()), row(op).arity);
    variant_.dtypes = types.dtypes;
    for (uint32_t k = 0; k <= variant_.num_inputs; ++k) {
      add(k);
    }
  }

  /// Whether a kernel can count the elements.
  bool is_countable() const { return static_cast<uint64_t>(iter_.numel()) < target().max_elements; }
  /// Whether each operand lies in one binding. The shader names bindings itself, so it must.
  bool fits() const { return !has_windows() || fit_one_binding_each(); }
  /// Whether each operand would lie in one binding if no operands shared a large buffer.
  bool fits_apart() const { return fit_one_binding_apart(); }
  using OperandLaunch::shares_large_buffer;

  void run(c10::ArrayRef<c10::Scalar> scalars) {
    place_operands();
    for (uint32_t k = 0; k <= variant_.num_inputs; ++k) {
      variant_.slots[k] = static_cast<uint8_t>(slot(k));
    }
    variant_.num_scalars = static_cast<uint32_t>(scalars.size());
    choose_form();
    const PointwiseParams layout(variant_);
    std::array<uint32_t, kParamsWindow / 4> words;
    // Graph files keep words that no shader reads, too.
    std::fill_n(words.begin(), layout.words(), 0);
    const auto count = static_cast<uint32_t>(iter_.numel());
    words[PointwiseParams::count()] = count;
    for (uint32_t s = 0; s < variant_.num_scalars; ++s) {
      write_scalar(row(variant_.op).converts_arguments ? convert(scalars[s], types_.compute)
                                                       : scalars[s],
                   types_.compute, &words[layout.scalar(s)]);
    }
    for (uint32_t k = 0; k <= variant_.num_inputs; ++k) {
      write_operand(layout, k, words.data());
    }
    for (uint32_t d = 0; d < variant_.rank; ++d) {
      const bool real = d < static_cast<uint32_t>(iter_.ndim());
      words[layout.size(d)] = real ? static_cast<uint32_t>(iter_.shape()[d]) : 1;
    }
    if (variant_.lanes > 1 && variant_.rank > 0) { // walked in chunks of `lanes` elements
      words[layout.size(0)] /= variant_.lanes;
      words[PointwiseParams::count()] /= variant_.lanes;
    }
    uint64_t elements = count;
    const uint32_t each = variant_.elements_per_invocation();
    if (variant_.packs_words()) {
      elements += at(0) % each;
    }
    dispatch(key_of(PipelineFamily::kPointwise, variant_.key()), words.data(), layout.words() * 4,
             grid_1d((elements + each - 1) / each, kPointwiseWorkgroup, target()),
             [&] { return completed(pointwise_source(variant_), target()); });
  }

private:
  void add(uint32_t k) {
    const auto operand = static_cast<int>(k);
    if (k > 0 && iter_.is_cpu_scalar(operand)) {
      variant_.host_scalars |= 1u << k;
      variant_.dtypes[k] = types_.compute; // a host scalar's dtype does not change the kernel
      return;
    }
    check_operand_dtype(op(), kPointwiseOperands[k], iter_.dtype(operand), variant_.dtypes[k]);
    const Buffer& buffer = buffer_of(iter_.tensor_base(operand), k == 0 ? Use::kWrite : Use::kRead);
    put(k, variant_.dtypes[k], buffer, start_of(iter_, operand, buffer),
        [&] { return extent_of(iter_, operand); });
  }

  bool is_host_scalar(uint32_t k) const { return (variant_.host_scalars >> k & 1) != 0; }

  int64_t stride(uint32_t k, uint32_t d) const { return iter_.strides(static_cast<int>(k))[d]; }

  // Vectors are used where the elements of each operand are consecutive along the first dimension
  // and aligned to whole vectors (an input may also have stride 0 there); else one element at a
  // time.
  void choose_form() {
    const auto ndim = static_cast<uint32_t>(iter_.ndim());
    if (fits_vectors(ndim)) {
      variant_.rank = ndim <= 1 && variant_.splats == 0 ? 0 : rank_class(ndim);
      return;
    }
    variant_.lanes = 1;
    variant_.splats = 0;
    variant_.rank = rank_class(std::max(1u, ndim));
    int64_t expected = info(variant_.dtypes[0]).bytes;
    variant_.dense_output = true;
    for (uint32_t d = 0; d < ndim; ++d) {
      variant_.dense_output &= stride(0, d) == expected;
      expected *= iter_.shape()[d];
    }
  }

  bool fits_vectors(uint32_t ndim) {
    uint32_t widest = 1;
    for (uint32_t k = 0; k <= variant_.num_inputs; ++k) {
      if (!is_host_scalar(k)) {
        widest = std::max(widest, info(variant_.dtypes[k]).bytes);
      }
    }
    // 16 bytes per load where the types allow.
    variant_.lanes = widest < 4 ? 8 : 4;
    const bool rows = ndim > 1;
    std::array<uint32_t, 1 + kMaxPointwiseInputs> slot_words{};
    for (uint32_t k = 0; k <= variant_.num_inputs; ++k) {
      if (is_host_scalar(k)) {
        continue;
      }
      const uint32_t bytes = info(variant_.dtypes[k]).bytes;
      const VectorShape shape = variant_.vector_shape(bytes);
      uint32_t& words = slot_words[variant_.slots[k]];
      if (words != 0 && words != shape.words) {
        return false;
      }
      words = shape.words;
      if (k > 0 && ndim > 0 && stride(k, 0) == 0) {
        variant_.splats |= 1u << k;
        continue;
      }
      // A vector has a power of two of bytes, and divisions are slow.
      const int64_t within = shape.bytes() - 1;
      if ((ndim > 0 && stride(k, 0) != bytes) || (int64_t{at(k)} * bytes & within) != 0) {
        return false;
      }
      for (uint32_t d = 1; d < ndim; ++d) {
        if ((stride(k, d) & within) != 0) {
          return false;
        }
      }
    }
    return !(rows || variant_.splats != 0) || iter_.shape()[0] % variant_.lanes == 0;
  }

  void write_operand(const PointwiseParams& layout, uint32_t k, uint32_t* words) {
    if (is_host_scalar(k)) {
      words[layout.offset(k)] = 0;
      const c10::Scalar value = read_cpu_scalar(iter_, static_cast<int>(k));
      write_scalar(row(variant_.op).keeps_numbers ? value : rounded_operand(value, types_.compute),
                   types_.compute, &words[layout.host_scalar(k)]);
    }
    const auto ndim = is_host_scalar(k) ? 0u : static_cast<uint32_t>(iter_.ndim());
    const uint32_t bytes = info(variant_.dtypes[k]).bytes;
    const bool vectors = variant_.lanes > 1 && (variant_.splats >> k & 1) == 0;
    const VectorShape shape = variant_.vector_shape(bytes);
    const int unit = std::countr_zero(vectors ? shape.bytes() : bytes); // a logarithm
    if (!is_host_scalar(k)) {
      words[layout.offset(k)] = at(k) >> (unit - std::countr_zero(bytes));
    }
    for (uint32_t d = 0; d < variant_.rank; ++d) {
      uint32_t step = d < ndim ? static_cast<uint32_t>(stride(k, d) >> unit) : 0;
      if (d == 0 && vectors && ndim > 0) {
        step = shape.count; // dimension 0 is walked in chunks of `lanes` elements
      }
      words[layout.stride(k, d)] = step;
    }
  }

  TensorIteratorBase& iter_;
  const PointwiseTypes& types_;
  PointwiseVariant variant_;
};

// The same with copies of the inputs that share a large buffer with another operand.
void pointwise_of_copies(const TensorIteratorBase& iter, const PointwiseLaunch& launch,
                         PointwiseOp op, const PointwiseTypes& types,
                         c10::ArrayRef<c10::Scalar> scalars) {
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(false)
      .resize_outputs(false)
      .check_all_same_dtype(false)
      .allow_cpu_scalars(true)
      .add_owned_output(operand_view(iter, 0));
  for (int k = 1; k < iter.ntensors(); ++k) {
    if (iter.is_cpu_scalar(k)) {
      config.add_const_input(iter.tensor(k));
    } else {
      const at::Tensor view = operand_view(iter, k);
      config.add_owned_const_input(launch.shares_large_buffer(k) ? view.clone() : view);
    }
  }
  auto apart = config.build();
  pointwise(apart, op, types, scalars);
}

} // namespace

std::optional<PointwiseTypes> pointwise_types(const TensorIteratorBase& iter, PointwiseOp op) {
  const at::ScalarType common = iter.common_dtype();
  const bool is_unsigned = c10::isBarebonesUnsignedType(common) && row(op).unsigned_dtypes;
  const auto compute = is_unsigned ? convertible_dtype(common) : native_dtype(common);
  if (!compute || row(op).expression(info(*compute).kind).empty()) {
    return std::nullopt;
  }
  PointwiseTypes types;
  types.compute = *compute;
  for (int k = 0; k < iter.ntensors(); ++k) {
    // A float64 number in a tensor of no dimensions does not make the others' arithmetic float64.
    const auto dtype = iter.is_cpu_scalar(k) ? compute : convertible_dtype(iter.dtype(k));
    if (!dtype) {
      return std::nullopt;
    }
    types.dtypes[k] = *dtype;
  }
  return types;
}

void pointwise(TensorIteratorBase& iter, PointwiseOp op, const PointwiseTypes& types,
               c10::ArrayRef<c10::Scalar> scalars) {
  if (iter.numel() == 0) {
    return;
  }
  PointwiseLaunch launch(iter, op, types);
  const bool countable = launch.is_countable();
  if (countable && launch.fits()) {
    launch.run(scalars);
    return;
  }
  if (countable && launch.fits_apart()) {
    return pointwise_of_copies(iter, launch, op, types, scalars);
  }
  at::TensorIterator rest(iter);
  auto first = rest.split(rest.get_dim_to_split());
  pointwise(*first, op, types, scalars);
  pointwise(rest, op, types, scalars);
}

bool run_pointwise(PointwiseOp op, at::Tensor& out, at::ArrayRef<at::Tensor> inputs,
                   c10::ArrayRef<c10::Scalar> scalars) {
  at::TensorIteratorConfig config;
  config.add_output(out).resize_outputs(false);
  for (const at::Tensor& input : inputs) {
    check_dtype(input, inputs[0].scalar_type());
    config.add_const_input(input);
  }
  auto iter = config.build();
  const auto types = pointwise_types(iter, op);
  if (!types) {
    return false;
  }
  pointwise(iter, op, *types, scalars);
  out = iter.output();
  return true;
}

} // namespace torch_webgpu
