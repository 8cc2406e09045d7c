// Bindings and accessors of a shader's operands, for their dtypes and aliasing.
//
// For an operand `x` the generated accessors are
//   alias x_t = ...;                      the register type
//   fn load_x(i: u32) -> x_t              element i, counted in elements from the buffer's start
//   fn store_x(i: u32, v: x_t)            if writable; never disturbs neighbours of a sub-word
//   fn atomic_add_x(i: u32, v: x_t)       if asked for
//   fn atomic_update_x(i: u32, v: x_t)    if asked for, up to 4 bytes: element i becomes
//                                         combine_x(element i, v), which the kernel defines
// Values of half types are f32 in registers. Library functions (lib/*.wgsl) are added as far as
// used.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/pipeline.h"
#include "wgsl/dtype.h"
#include "wgsl/pipeline_family.h"

namespace torch_webgpu {

struct Operand {
  std::string_view name;
  DType dtype = DType::kF32;
  // Which storage binding holds it. Operands in one buffer must share a slot: WebGPU forbids
  // binding a buffer twice in a dispatch that writes it.
  uint32_t slot = 0;
  bool writable = false;
  bool atomic_add = false;
  // The kernel writes whole words itself: plain words in the slot, no store accessor.
  bool owns_words = false;
  bool atomic_update = false;
  // store2_NAME(i, a, b) and store4_NAME(i, a, b, c, d) store neighbours. With owns_words as whole
  // words: i is then a multiple of 2 or 4. Without, i is any number, and elements of 2 bytes that
  // fill a word are stored together.
  bool stores_neighbours = false;
  // Words in each vector of the binding: 1, 2 or 4. 0: bound as words. With 4, an operand that is
  // read has load_vector_NAME(i), NAME_in_vector(vector, lane) and NAME_lanes.
  uint32_t vector_words = 0;
  // A type of the kernel's that the elements have instead of the dtype.
  std::string_view element{};
  // load2_NAME(i) loads neighbours; of 2-byte types i is a multiple of 2.
  bool loads_pairs = false;
};

/// The part of a pipeline key that tells operands apart: dtype and slot of each, by its position.
class OperandKey {
public:
  /// Operand `k`; once for each k.
  void set(uint32_t k, DType dtype, uint32_t slot) {
    // A present operand is never 0, so that an absent one differs from every other.
    const uint64_t bits = (static_cast<uint64_t>(dtype) + 1) | uint64_t{slot} << kDTypeBits;
    words_[k / kPerWord] |= bits << (k % kPerWord * kBits);
  }
  /// `key` with these operands as its words `hi`, `more` and `rest`.
  PipelineKey in(PipelineKey key) const {
    key.hi = words_[0];
    key.more = words_[1];
    key.rest = static_cast<uint32_t>(words_[2]);
    return key;
  }

private:
  static constexpr uint32_t kDTypeBits = 5;
  static constexpr uint32_t kSlotBits = 4;
  static constexpr uint32_t kBits = kDTypeBits + kSlotBits;
  static constexpr uint32_t kPerWord = 64 / kBits;
  static_assert(kNumDTypes < 1u << kDTypeBits);
  static_assert(kMaxBindings <= 1u << kSlotBits);

  std::array<uint64_t, 3> words_{};

public:
  static constexpr uint32_t kMaxOperands = 2 * kPerWord + 32 / kBits;
};

/// A buffer larger than a storage binding takes several bindings, its windows, that share a slot.
/// Accessors find an element's window.
struct SlotWindows {
  uint32_t firsts = 0; // bit i: binding i is the first of a slot. 0: every slot is one binding
  uint64_t bytes = 0;  // of every window but the last of a slot; a multiple of kAlignment

  static constexpr uint64_t kAlignment = 256;
  uint64_t key() const { return firsts | bytes / kAlignment << 32; }
};

/// Bindings of the operands.
std::string binding_declarations(const std::vector<Operand>& operands,
                                 const SlotWindows& windows = {});
/// Bindings, aliases and accessors of the operands.
std::string operand_declarations(const std::vector<Operand>& operands,
                                 const SlotWindows& windows = {});
/// Names and dtypes of the operands, for errors.
std::string operand_names(const std::vector<Operand>& operands);
/// Slots and writability as the pipeline layout wants them.
BindingLayout binding_layout(const std::vector<Operand>& operands, bool checks_indices = false,
                             const SlotWindows& windows = {});
/// Expression of the value in lane `lane` of a vector of `words` words. A vector of one word is a
/// plain u32. `vector` and `lane` are names or literals of WGSL.
std::string from_vector(DType dtype, const std::string& vector, const std::string& lane,
                        uint32_t words = 4);
/// Expression of element `i`, a name or literal, of an array of words. word_at(index) gives the
/// expression of a word.
std::string from_words(DType dtype, const std::string& i,
                       const std::function<std::string(const std::string& index)>& word_at);
/// Statement that writes the value to lane `lane` of the vector. The lane must be 0 before.
std::string to_vector(DType dtype, const std::string& vector, const std::string& lane,
                      const std::string& value);
/// Expression of register type from the low bits of `word` (8 bytes: vec2<u32>, 16: vec4<u32>).
std::string from_word(DType dtype, const std::string& word);
/// The reverse; for types narrower than a word the result is masked to the type's bits.
std::string to_word(DType dtype, const std::string& value);
/// Converts a value between register types, with C++'s and PyTorch's rules.
std::string convert(Kind from, Kind to, const std::string& value);

} // namespace torch_webgpu
