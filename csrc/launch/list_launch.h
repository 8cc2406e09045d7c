// Launches of kernels whose operands are lists of tensors: a dispatch takes as many tensors of each
// list as the target has storage bindings for. The build derives a class from ListLaunch for each
// such kernel file (tools/contract).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <array>
#include <optional>
#include <span>
#include <vector>

#include "launch/launch.h"

namespace torch_webgpu {

/// How many tensors of each list fit one dispatch on `target`, with `lists` lists and `others`
/// other buffers; 0 if not even one fits.
uint32_t tensors_per_dispatch(const ShaderTarget& target, uint32_t lists, uint32_t others);

/// A list of tensors, and what a kernel does with it.
struct TensorListUse {
  at::TensorList tensors{};
  bool written = false;
  bool numbers = false; // of one element each
};

/// The dtype of the tensors if kernels can take them as they are, else nothing. All tensors must be
/// on webgpu and have one native dtype. Tensors at the same place of their lists must have
/// equal sizes and strides. All must be dense and start at a multiple of 16 bytes. No tensor may
/// share memory with one at the same place of another list that is written. All must have one
/// context.
std::optional<DType> common_dtype(std::span<const TensorListUse> lists);

class ListLaunch : public Launch {
public:
  /// Gives the result of common_dtype() if it is known, so that prepare() need not compute it.
  void set_common_dtype(DType dtype) { common_dtype_ = dtype; }

protected:
  ListLaunch(const KernelInfo& kernel, const char* op) : Launch(kernel, op) {}

  /// Adds a list as operand `k`. The tensors must outlive the launch.
  void bind_list(uint32_t k, at::TensorList tensors);
  /// Adds a number in device memory, which all tensors share.
  void bind_number(uint32_t k, const at::Tensor& number);
  /// Says that the tensors of list `k` are new: what they held need not be kept.
  void own_tensors(uint32_t k) { take_whole(k); }
  /// A number for each tensor, or one for all, which the kernel finds in its entry.
  void set_numbers(c10::ArrayRef<c10::Scalar> numbers) { entry_numbers_ = numbers; }

  /// Settles context, dtype and slots. Raises if the tensors lie in two contexts. Lists that
  /// kernels cannot take as they are are copied, to one layout and to the dtype of the first.
  void prepare();
  /// Describes the tensors of the next dispatch in `entries`, Params::lists; false if none is left.
  bool fill(std::array<uint32_t, 4>* entries);
  /// Appends the dispatch. `entries_at` is where Params::lists starts.
  template <typename MakeRegions>
  void dispatch_lists(const void* params, uint32_t entries_at, MakeRegions&& make_regions) {
    Context& context = owner();
    const Pipeline& pipeline = context.pipelines.get(list_key(), [&] {
      KernelForm variant = form(make_regions());
      variant.tensors = filled_;
      return make_spec(variant);
    });
    context.stream.dispatch(pipeline, list_bindings_.data(), filled_ * num_lists_ + num_slots_,
                            params, entries_at + 16 * stride_ * filled_, grid_of_groups(groups_));
  }
  /// Writes copies back.
  void finish();

private:
  static constexpr uint32_t kMaxLists = 8;
  static constexpr uint32_t kMaxNumbers = 4;

  struct List : TensorListUse {
    uint32_t operand = 0;
    uint32_t place = 0; // among the lists that the kernel declares
  };
  struct Number {
    uint32_t operand = 0;
    at::Tensor tensor;
  };

  std::span<const List> lists() const { return {lists_.data(), num_lists_}; }
  const at::Tensor& tensor(uint32_t k, size_t index) const {
    return copied_ ? copies_[k][index] : lists_[k].tensors[index];
  }
  std::optional<DType> taken_dtype() const;
  // Raises if the tensor is not in the launch's context.
  void check_device(const at::Tensor& tensor) const;
  // The same for all tensors. `checked`: common_dtype() has checked all but the numbers.
  void check_devices(bool checked) const;
  void copy_lists();
  void place_numbers(const ShaderTarget& target);
  void pack_numbers();
  bool is_written(const Buffer& buffer) const;
  bool clashes(size_t index) const;
  PipelineKey list_key() const {
    PipelineKey list_key = key();
    list_key.windows = filled_; // lists have no windows, so the field holds the tensor count
    return list_key;
  }

  std::array<List, kMaxLists> lists_{};
  std::array<Number, kMaxNumbers> numbers_{};
  std::array<std::vector<at::Tensor>, kMaxLists> copies_{};
  c10::ArrayRef<c10::Scalar> entry_numbers_{};
  std::array<Binding, kMaxBindings> list_bindings_{};
  std::array<const Buffer*, kMaxNumbers> slots_{}; // of the numbers
  uint32_t num_lists_ = 0;
  uint32_t num_numbers_ = 0;
  uint32_t num_slots_ = 0;
  uint32_t stride_ = 0; // vectors of an entry
  uint32_t capacity_ = 0;
  size_t next_ = 0; // of the tensors
  uint32_t filled_ = 0;
  uint32_t groups_ = 0;
  std::optional<DType> common_dtype_;
  DType dtype_ = DType::kF32;
  bool copied_ = false;
};

} // namespace torch_webgpu
