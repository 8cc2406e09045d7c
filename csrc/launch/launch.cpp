#include "launch/launch.h"

#include <bit>

#include "backend/tensor.h"
#include "launch/dtypes.h"
#include "launch/operand_view.h"
#include "launch/pipelines.h"

namespace torch_webgpu {

DType Launch::checked_dtype(uint32_t k, at::ScalarType type) const {
  const uint32_t allowed = kernel_.operands[k].dtypes;
  std::optional<DType> dtype = convertible_dtype(type);
  if (!dtype || (allowed & dtype_bit(*dtype)) == 0) {
    // An operand that is declared as bits takes any dtype of that size.
    const DType bits = raw_dtype(type);
    TORCH_CHECK_NOT_IMPLEMENTED((allowed & dtype_bit(bits)) != 0, op(), "(): ", type,
                                " is not supported for '", kernel_.operands[k].name, "'");
    dtype = bits;
  }
  return *dtype;
}

void Launch::bind(uint32_t k, const at::TensorBase& tensor) {
  bind_as(k, tensor, checked_dtype(k, tensor.scalar_type()));
}

void Launch::bind_as(uint32_t k, const at::TensorBase& tensor, DType dtype) {
  const uint64_t begin = byte_offset(tensor);
  // Several neighbours may be moved together, as raw bits.
  const uint32_t bytes = info(dtype).bytes;
  const bool units = is_raw(dtype) && bytes % tensor.itemsize() == 0 && begin % bytes == 0;
  TORCH_INTERNAL_ASSERT(bytes == tensor.itemsize() || units, op(), "(): operand '",
                        kernel_.operands[k].name, "' of ", tensor.scalar_type(),
                        " cannot be read as ", info(dtype).name);
  check_operand(k, dtype, begin);
  put(k, dtype, buffer_of(tensor, use(k)), begin, [&] { return extent_of(tensor); });
}

void Launch::bind_range(uint32_t k, const Buffer& buffer, uint64_t begin, uint64_t end,
                        DType dtype) {
  check_operand(k, dtype, begin);
  put(k, dtype, buffer, begin, [&] { return Extent{begin, end}; });
}

void Launch::check_operand(uint32_t k, DType dtype, uint64_t begin) {
  const OperandInfo& operand = kernel_.operands[k];
  TORCH_CHECK_NOT_IMPLEMENTED((operand.dtypes & dtype_bit(dtype)) != 0, op(),
                              "(): ", info(dtype).name, " is not supported for '", operand.name,
                              "'");
  TORCH_INTERNAL_ASSERT(operand.like < 0 || !has(operand.like) ||
                            operands_[operand.like].dtype == dtype,
                        op(), "(): operand '", operand.name, "' is ", info(dtype).name,
                        ", which is not the dtype of '", kernel_.operands[operand.like].name, "'");
  TORCH_INTERNAL_ASSERT(!has(k), op(), "(): operand '", operand.name, "' is given twice");
  if (!operand.element.empty()) {
    TORCH_INTERNAL_ASSERT(begin == 0, op(), "(): operand '", operand.name,
                          "' must start at byte 0 of its buffer");
    require_one_binding(k);
  }
}

void Launch::own_words(uint32_t k) {
  const OperandInfo& operand = kernel_.operands[k];
  TORCH_INTERNAL_ASSERT(has(k) && operand.access == Access::kWords);
  TORCH_INTERNAL_ASSERT(start(k) % 4 == 0, op(), "(): operand '", operand.name,
                        "' does not start at a multiple of 4 bytes");
  take_whole(k);
}

void Launch::read_vectors(uint32_t k) {
  TORCH_INTERNAL_ASSERT(has(k) && kernel_.operands[k].access == Access::kVectors);
  take_whole(k);
}

void Launch::set(uint32_t constant, uint32_t value) {
  const ConstInfo& declared = kernel_.consts[constant];
  // A larger value would change its neighbours in the key, and one with other low bits would have
  // the key of another one. assemble() refuses the other values that the kernel does not declare.
  const uint32_t in_key = value >> declared.zero_bits;
  TORCH_INTERNAL_ASSERT(value <= declared.values.back() && in_key << declared.zero_bits == value,
                        op(), "(): constant ", declared.name, " of kernel ", kernel_.name,
                        " cannot be ", value);
  TORCH_INTERNAL_ASSERT((consts_set_ >> constant & 1) == 0, op(), "(): ", declared.name,
                        " is given twice");
  const_key_ |= static_cast<uint64_t>(in_key) << declared.key_shift;
  consts_set_ |= 1u << constant;
}

void Launch::raise_incomplete() const {
  for (uint32_t k = 0; k < kernel_.operands.size(); ++k) {
    TORCH_INTERNAL_ASSERT(has(k) || kernel_.operands[k].optional, op(), "(): kernel ", kernel_.name,
                          " needs operand '", kernel_.operands[k].name, "'");
  }
  TORCH_INTERNAL_ASSERT(false, op(), "(): a constant of kernel ", kernel_.name, " is not set");
}

PipelineSpec Launch::make_spec(const KernelForm& form) const {
  PipelineSpec spec = assemble(op(), kernel_, form, target());
  spec.random_at = kernel_.random_at;
  check_limits(spec, target());
  return spec;
}

KernelForm Launch::form(std::vector<std::string> regions) const {
  KernelForm form;
  form.operands.assign(operands_.begin(), operands_.begin() + kernel_.operands.size());
  for (uint32_t constant = 0; constant < kernel_.consts.size(); ++constant) {
    form.consts.push_back(static_cast<uint32_t>(value(constant)));
  }
  form.regions = std::move(regions);
  form.windows = windows();
  return form;
}

} // namespace torch_webgpu
