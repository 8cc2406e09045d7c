#include "launch/list_launch.h"

#include <ATen/ops/stack.h>

#include <algorithm>

#include "backend/tensor.h"
#include "launch/dtypes.h"
#include "launch/pipelines.h"

namespace torch_webgpu {
namespace {

constexpr uint32_t kVectorBytes = 16;

bool same_strides(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes()) {
    return false;
  }
  for (int64_t d = 0; d < a.dim(); ++d) {
    if (a.size(d) != 1 && a.stride(d) != b.stride(d)) {
      return false;
    }
  }
  return true;
}

// Whether the tensor can stand beside `first`, the one at the same place of the first list.
bool fits(const at::Tensor& tensor, const at::Tensor& first, at::ScalarType dtype,
          const Context& context, uint64_t limit) {
  if (!is_webgpu(tensor) || tensor.scalar_type() != dtype || tensor.layout() != at::kStrided ||
      !tensor.is_non_overlapping_and_dense() || tensor.is_conj() || tensor.is_neg() ||
      !same_strides(tensor, first)) {
    return false;
  }
  if (tensor.numel() == 0) {
    return true;
  }
  const Buffer& buffer = buffer_of(tensor);
  return buffer.context == &context && buffer.size <= limit &&
         byte_offset(tensor) % kVectorBytes == 0;
}

// The first tensor with elements, or else the first: empty storages have no context of their own.
const at::Tensor& first_with_elements(at::TensorList tensors) {
  const auto* found =
      std::ranges::find_if(tensors, [](const at::Tensor& tensor) { return tensor.numel() != 0; });
  return found == tensors.end() ? tensors[0] : *found;
}

} // namespace

uint32_t tensors_per_dispatch(const ShaderTarget& target, uint32_t lists, uint32_t others) {
  const uint32_t buffers = std::min(target.max_storage_buffers, kMaxBindings);
  return buffers <= others ? 0 : (buffers - others) / lists;
}

std::optional<DType> common_dtype(std::span<const TensorListUse> lists) {
  const at::Tensor& first = lists[0].tensors[0];
  const auto dtype = native_dtype(first.scalar_type());
  const at::Tensor& with_elements = first_with_elements(lists[0].tensors);
  if (!dtype || !is_webgpu(with_elements)) {
    return std::nullopt;
  }
  Context& context = context_of(with_elements);
  const uint64_t limit = plan_target(context).max_storage_binding_size;
  for (size_t i = 0; i < lists[0].tensors.size(); ++i) {
    for (size_t k = 0; k < lists.size(); ++k) {
      const at::Tensor& tensor = lists[k].tensors[i];
      if (!lists[k].numbers &&
          !fits(tensor, lists[0].tensors[i], first.scalar_type(), context, limit)) {
        return std::nullopt;
      }
      for (size_t other = 0; tensor.numel() != 0 && other < k; ++other) {
        const at::Tensor& before = lists[other].tensors[i];
        if ((lists[k].written || lists[other].written) && before.numel() != 0 &&
            same_buffer(before, tensor)) {
          return std::nullopt;
        }
      }
    }
  }
  return dtype;
}

void ListLaunch::bind_list(uint32_t k, at::TensorList tensors) {
  const OperandInfo& operand = kernel().operands[k];
  TORCH_INTERNAL_ASSERT(num_lists_ < kMaxLists && operand.many);
  TORCH_CHECK(num_lists_ == 0 || tensors.size() == lists_[0].tensors.size(), op(),
              ": tensor lists must have the same number of tensors");
  List& list = lists_[num_lists_++];
  list.tensors = tensors;
  list.written = torch_webgpu::is_written(operand.access);
  list.numbers = operand.access == Access::kNumbers;
  list.operand = k;
  const auto operands = kernel().operands;
  list.place = static_cast<uint32_t>(
      std::count_if(operands.begin(), operands.begin() + k, [](auto& o) { return o.many; }));
}

void ListLaunch::bind_number(uint32_t k, const at::Tensor& number) {
  TORCH_INTERNAL_ASSERT(num_numbers_ < kMaxNumbers);
  TORCH_CHECK(number.numel() == 1, op(), ": expected ", kernel().operands[k].name,
              " to be one number, but got a tensor of sizes ", number.sizes());
  if (torch_webgpu::is_written(kernel().operands[k].access)) {
    buffer_of(number, Use::kWrite); // before buffers are compared
  }
  numbers_[num_numbers_++] = {k, number};
}

std::optional<DType> ListLaunch::taken_dtype() const {
  std::array<TensorListUse, kMaxLists> uses;
  std::ranges::copy(lists(), uses.begin());
  return common_dtype({uses.data(), num_lists_});
}

void ListLaunch::copy_lists() {
  copied_ = true;
  const at::ScalarType dtype = lists_[0].tensors[0].scalar_type();
  for (uint32_t k = 0; k < num_lists_; ++k) {
    List& list = lists_[k];
    for (const at::Tensor& tensor : list.tensors) {
      copies_[k].push_back(
          (list.numbers ? tensor : tensor.to(dtype)).clone(at::MemoryFormat::Contiguous));
    }
  }
}

void ListLaunch::check_device(const at::Tensor& tensor) const {
  const Buffer& buffer = buffer_of(tensor); // raises for a tensor on the CPU
  if (tensor.numel() != 0) {
    check_context(op(), buffer, owner());
  }
}

void ListLaunch::check_devices(bool checked) const {
  for (const List& list : lists()) {
    if (!checked || list.numbers) {
      std::ranges::for_each(list.tensors, [&](const at::Tensor& t) { check_device(t); });
    }
  }
  for (uint32_t n = 0; n < num_numbers_; ++n) {
    check_device(numbers_[n].tensor);
  }
}

void ListLaunch::prepare() {
  const auto operands = kernel().operands;
  stride_ = static_cast<uint32_t>(
      1 + (std::ranges::count_if(operands, [](auto& o) { return o.many; }) + 3) / 4);
  // In the kernel's order. The dtype is that of the first list.
  std::ranges::sort(lists_.begin(), lists_.begin() + num_lists_, {}, &List::operand);
  auto dtype = common_dtype_ ? common_dtype_ : taken_dtype();
  const ShaderTarget& target = target_with(buffer_of(first_with_elements(lists_[0].tensors)));
  check_devices(dtype.has_value());
  if (!dtype) {
    copy_lists();
    dtype = native_dtype(copies_[0][0].scalar_type());
    TORCH_CHECK_NOT_IMPLEMENTED(dtype, op(), "(): not implemented for ",
                                copies_[0][0].scalar_type());
  }
  dtype_ = *dtype;
  for (const List& list : lists()) {
    place(list.operand, list.numbers ? DType::kF32 : dtype_, 0, 0);
  }
  place_numbers(target);
  check_complete();
}

bool ListLaunch::is_written(const Buffer& buffer) const {
  return std::ranges::any_of(lists(), [&](const List& list) {
    return list.written && std::ranges::any_of(list.tensors, [&](const at::Tensor& tensor) {
             return tensor.numel() != 0 && &buffer_of(tensor) == &buffer;
           });
  });
}

// Numbers in one buffer share a slot. A buffer that lists write may not be bound again.
void ListLaunch::place_numbers(const ShaderTarget& target) {
  for (bool packed = false;; packed = true) {
    num_slots_ = 0;
    for (uint32_t n = 0; n < num_numbers_; ++n) {
      Number& number = numbers_[n];
      const bool reads = kernel().operands[number.operand].access == Access::kIn;
      if (is_written(buffer_of(number.tensor)) ||
          buffer_of(number.tensor).size > target.max_storage_binding_size) {
        TORCH_CHECK_NOT_IMPLEMENTED(
            reads, op(), "(): '", kernel().operands[number.operand].name,
            "' shares a buffer with a tensor that is written, or is too large to bind");
        number.tensor = number.tensor.clone();
      }
      const Buffer* buffer = &buffer_of(number.tensor);
      const auto* end = slots_.begin() + num_slots_;
      if (std::find(slots_.cbegin(), end, buffer) == end) {
        slots_[num_slots_++] = buffer;
      }
    }
    capacity_ = tensors_per_dispatch(target, num_lists_, num_slots_);
    if (capacity_ != 0 || packed) {
      break;
    }
    pack_numbers();
  }
  TORCH_CHECK_NOT_IMPLEMENTED(capacity_ != 0, op(),
                              "(): one tensor of each list and the numbers need ",
                              num_lists_ + num_slots_, " storage buffers, where target '",
                              target.name, "' has ", target.max_storage_buffers);
  for (uint32_t n = 0; n < num_numbers_; ++n) {
    const Number& number = numbers_[n];
    const auto* slot = std::find(slots_.cbegin(), slots_.cend(), &buffer_of(number.tensor));
    place(number.operand, checked_dtype(number.operand, number.tensor.scalar_type()),
          static_cast<uint32_t>(slot - slots_.cbegin()), byte_offset(number.tensor));
  }
}

// Copies the numbers that are only read into one buffer.
void ListLaunch::pack_numbers() {
  std::vector<at::Tensor> read;
  std::vector<uint32_t> which;
  for (uint32_t n = 0; n < num_numbers_; ++n) {
    if (kernel().operands[numbers_[n].operand].access == Access::kIn) {
      read.push_back(numbers_[n].tensor.reshape({}));
      which.push_back(n);
    }
  }
  if (read.size() > 1) {
    const at::Tensor together = at::stack(read);
    for (size_t i = 0; i < which.size(); ++i) {
      numbers_[which[i]].tensor = together[static_cast<int64_t>(i)];
    }
  }
}

// A buffer that is written may be bound once only.
bool ListLaunch::clashes(size_t index) const {
  for (uint32_t k = 0; k < num_lists_; ++k) {
    const Buffer* buffer = &buffer_of(tensor(k, index));
    for (uint32_t i = 0; i < filled_ * num_lists_; ++i) {
      if (list_bindings_[i].buffer == buffer &&
          (lists_[k].written || lists_[i % num_lists_].written)) {
        return true;
      }
    }
  }
  return false;
}

bool ListLaunch::fill(std::array<uint32_t, 4>* entries) {
  const uint32_t lanes = kVectorBytes / info(dtype_).bytes;
  filled_ = 0;
  groups_ = 0;
  for (; next_ < lists_[0].tensors.size(); ++next_) {
    const auto count = static_cast<uint64_t>(tensor(0, next_).numel());
    if (count == 0) {
      continue;
    }
    if (filled_ == capacity_ || clashes(next_)) {
      break;
    }
    std::array<uint32_t, 4>* entry = entries + filled_ * stride_;
    entry[0] = {static_cast<uint32_t>(count), groups_, 0, 0};
    if (!entry_numbers_.empty()) {
      write_scalar(entry_numbers_[entry_numbers_.size() == 1 ? 0 : next_], dtype_, &entry[0][2]);
    }
    for (uint32_t k = 0; k < num_lists_; ++k) {
      const at::Tensor& of = tensor(k, next_);
      const uint32_t unit = lists_[k].numbers ? 4 : kVectorBytes;
      entry[1 + lists_[k].place / 4][lists_[k].place % 4] =
          static_cast<uint32_t>(byte_offset(of) / unit);
      const Buffer& buffer = buffer_of(of, lists_[k].written ? Use::kWrite : Use::kRead);
      list_bindings_[filled_ * num_lists_ + k] = {&buffer, 0, 0};
    }
    const uint64_t vectors = (count + lanes - 1) / lanes;
    groups_ += static_cast<uint32_t>((vectors + kernel().workgroup - 1) / kernel().workgroup);
    ++filled_;
  }
  for (uint32_t s = 0; s < num_slots_; ++s) {
    list_bindings_[filled_ * num_lists_ + s] = {slots_[s], 0, 0};
  }
  return filled_ != 0;
}

void ListLaunch::finish() {
  for (uint32_t k = 0; copied_ && k < num_lists_; ++k) {
    for (size_t i = 0; lists_[k].written && i < copies_[k].size(); ++i) {
      lists_[k].tensors[i].copy_(copies_[k][i]);
    }
  }
}

} // namespace torch_webgpu
