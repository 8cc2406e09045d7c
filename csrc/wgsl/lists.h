// Operands that are lists of tensors, several of each list in a dispatch.
//
// A kernel whose file declares lists gets, for each but those of numbers, a member of `Elements`
// and an alias NAME_t, and
//   const tensors, list_stride, lanes     tensors in the dispatch, vectors of p.lists for each, and
//                                         elements in a vector of 16 bytes
//   fn update_vector(t, i, left)          reads vector i of tensor t of every list, calls
//                                         element(&elements, t) for each of its elements, which the
//                                         kernel defines, and stores what is writable. Of the
//                                         vector, `left` elements belong to the tensor. What is
//                                         computed of the others is not stored, and a kernel that
//                                         also updates another operand is not called for them.
//   fn NAME_of(t) -> NAME_t               the number of tensor t in a list of numbers
//
// p.lists has an entry of `list_stride` vec4s for each tensor t. In the first, x counts the
// tensor's elements, y is the number of the first workgroup that works on it, and zw are the two
// words of a number that the launch gives with it. The vec4s behind say where the tensor starts in
// each list, counted in vectors of 16 bytes (in a list of numbers: in elements).
#pragma once

#include <string>
#include <vector>

#include "wgsl/assemble.h"

namespace torch_webgpu {

/// The lists of a kernel in one form. Bindings are those of tensor 0 in every list that is there,
/// then of tensor 1, and so on.
class ListSet {
public:
  explicit ListSet(uint32_t tensors) : tensors_(tensors) {}

  /// The next list of the kernel, maybe absent.
  void add(const OperandInfo& operand, const KernelForm::Operand& given);
  /// The kernel's element() has other effects than its results.
  void stop_at_end() { stops_at_end_ = true; }
  uint32_t bindings() const { return tensors_ * static_cast<uint32_t>(lists_.size()); }
  std::string declarations() const;
  /// Completes the layout of the other operands, whose slots are counted from bindings() on.
  void add_to(BindingLayout& layout) const;

private:
  struct List {
    std::string name;
    DType dtype;
    uint32_t place; // among the kernel's lists, with the absent ones
    bool numbers;
    bool loaded;
    bool stored;
  };

  uint32_t stride() const { return 1 + (declared_ + 3) / 4; }
  std::string start_of(const List& list) const;
  std::string element_functions(const std::vector<const List*>& vectors) const;
  std::string update_function(const std::vector<const List*>& vectors) const;

  uint32_t tensors_;
  uint32_t declared_ = 0;
  bool stops_at_end_ = false;
  std::vector<List> lists_;
};

} // namespace torch_webgpu
