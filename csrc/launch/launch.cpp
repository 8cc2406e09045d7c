#include "launch/launch.h"

#include <algorithm>
#include <bit>

#include "backend/tensor.h"
#include "launch/dtypes.h"
#include "launch/pipelines.h"

namespace torch_webgpu {
namespace {

// The end of the last element, in bytes from the start of the buffer.
uint64_t end_of(const at::TensorBase& tensor, uint64_t begin) {
  if (tensor.numel() == 0) {
    return begin;
  }
  uint64_t last = 0;
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    last += static_cast<uint64_t>(tensor.stride(d)) * (tensor.size(d) - 1);
  }
  return begin + (last + 1) * tensor.itemsize();
}

} // namespace

DType Launch::checked_dtype(uint32_t k, at::ScalarType type) const {
  const uint32_t allowed = kernel_.operands[k].dtypes;
  std::optional<DType> dtype = convertible_dtype(type);
  if (!dtype || (allowed & dtype_bit(*dtype)) == 0) {
    // An operand that is declared as bits takes any dtype of that size.
    const DType bits = raw_dtype(type);
    TORCH_CHECK_NOT_IMPLEMENTED((allowed & dtype_bit(bits)) != 0, op_, "(): ", type,
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
  TORCH_INTERNAL_ASSERT(bytes == tensor.itemsize() || units, op_, "(): operand '",
                        kernel_.operands[k].name, "' of ", tensor.scalar_type(),
                        " cannot be read as ", info(dtype).name);
  const Buffer& buffer = buffer_of(tensor);
  const bool whole = buffer.size <= bindings_.target_with(buffer).max_storage_binding_size;
  bind_range(k, buffer, begin, whole ? buffer.size : end_of(tensor, begin), dtype);
}

void Launch::bind_range(uint32_t k, const Buffer& buffer, uint64_t begin, uint64_t end,
                        DType dtype) {
  const OperandInfo& operand = kernel_.operands[k];
  TORCH_CHECK_NOT_IMPLEMENTED((operand.dtypes & dtype_bit(dtype)) != 0, op_,
                              "(): ", info(dtype).name, " is not supported for '", operand.name,
                              "'");
  TORCH_INTERNAL_ASSERT(operand.like < 0 || !has(operand.like) ||
                            operands_[operand.like].dtype == dtype,
                        op_, "(): operand '", operand.name, "' is ", info(dtype).name,
                        ", which is not the dtype of '", kernel_.operands[operand.like].name, "'");
  TORCH_INTERNAL_ASSERT(!has(k), op_, "(): operand '", operand.name, "' is given twice");
  TORCH_INTERNAL_ASSERT(operand.element.empty() || begin == 0, op_, "(): operand '", operand.name,
                        "' must start at byte 0 of its buffer");
  if (C10_LIKELY(buffer.size <= bindings_.target_with(buffer).max_storage_binding_size)) {
    place(k, dtype, bindings_.add(buffer, info(dtype).bytes), begin);
  } else {
    operands_[k].present = true;
    operands_[k].dtype = dtype;
    present_ |= 1u << k;
    windowed_ |= 1u << k;
    ranges_[k] = {&buffer, begin, end};
  }
}

void Launch::place(uint32_t k, DType dtype, uint32_t slot, uint64_t begin) {
  operands_[k].present = true;
  operands_[k].dtype = dtype;
  operands_[k].slot = static_cast<uint8_t>(slot);
  present_ |= 1u << k;
  at_[k] = static_cast<uint32_t>(begin >> std::countr_zero(info(dtype).bytes));
  operand_key_.set(k, dtype, slot);
}

void Launch::place_windowed() {
  for (uint32_t k = 0; k < kernel_.operands.size(); ++k) {
    if ((windowed_ >> k & 1) == 0) {
      continue;
    }
    // The operands that lie in this buffer share its slot, which therefore holds them all.
    const Buffer* buffer = ranges_[k].buffer;
    uint64_t begin = ranges_[k].begin;
    uint64_t end = ranges_[k].end;
    for (uint32_t other = 0; other < kernel_.operands.size(); ++other) {
      if ((windowed_ >> other & 1) != 0 && ranges_[other].buffer == buffer) {
        begin = std::min(begin, ranges_[other].begin);
        end = std::max(end, ranges_[other].end);
      }
    }
    const uint32_t slot = bindings_.add(*buffer, info(operands_[k].dtype).bytes, begin, end);
    if (operands_[k].whole_words || !kernel_.operands[k].element.empty()) {
      bindings_.require_one_binding(slot);
    }
    place(k, operands_[k].dtype, slot, ranges_[k].begin - bindings_.base(slot));
  }
}

void Launch::own_words(uint32_t k) {
  const OperandInfo& operand = kernel_.operands[k];
  TORCH_INTERNAL_ASSERT(has(k) && operand.access == Access::kWords);
  const uint64_t begin = (windowed_ >> k & 1) != 0
                             ? ranges_[k].begin
                             : uint64_t{at_[k]} * info(operands_[k].dtype).bytes;
  TORCH_INTERNAL_ASSERT(begin % 4 == 0, op_, "(): operand '", operand.name,
                        "' does not start at a multiple of 4 bytes");
  take_whole(k);
}

void Launch::read_vectors(uint32_t k) {
  TORCH_INTERNAL_ASSERT(has(k) && kernel_.operands[k].access == Access::kVectors);
  take_whole(k);
}

void Launch::set(uint32_t constant, uint32_t value) {
  const ConstInfo& declared = kernel_.consts[constant];
  // A larger value would change its neighbours in the key. assemble() refuses the other values that
  // the kernel does not declare.
  TORCH_INTERNAL_ASSERT(value <= declared.values.back(), op_, "(): constant ", declared.name,
                        " of kernel ", kernel_.name, " cannot be ", value);
  TORCH_INTERNAL_ASSERT((consts_set_ >> constant & 1) == 0, op_, "(): ", declared.name,
                        " is given twice");
  const_key_ |= static_cast<uint64_t>(value) << declared.key_shift;
  consts_set_ |= 1u << constant;
}

void Launch::raise_incomplete() const {
  for (uint32_t k = 0; k < kernel_.operands.size(); ++k) {
    TORCH_INTERNAL_ASSERT(has(k) || kernel_.operands[k].optional, op_, "(): kernel ", kernel_.name,
                          " needs operand '", kernel_.operands[k].name, "'");
  }
  TORCH_INTERNAL_ASSERT(false, op_, "(): a constant of kernel ", kernel_.name, " is not set");
}

PipelineKey Launch::key() const {
  PipelineKey key;
  key.family = family_of(kernel_.id);
  key.lo = const_key_;
  return bindings_.key(operand_key_.in(key));
}

PipelineSpec Launch::make_spec(const KernelForm& form) const {
  const ShaderTarget& target = bindings_.target();
  PipelineSpec spec = assemble(op_, kernel_, form, target);
  check_limits(spec, target);
  return spec;
}

KernelForm Launch::form(std::vector<std::string> regions) const {
  KernelForm form;
  form.operands.assign(operands_.begin(), operands_.begin() + kernel_.operands.size());
  for (uint32_t constant = 0; constant < kernel_.consts.size(); ++constant) {
    form.consts.push_back(static_cast<uint32_t>(value(constant)));
  }
  form.regions = std::move(regions);
  form.windows = bindings_.windows();
  return form;
}

} // namespace torch_webgpu
