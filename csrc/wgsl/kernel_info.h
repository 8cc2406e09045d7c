// What a kernel's .wgsl file states, as the build reads it (tools/contract).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "wgsl/dtype.h"

namespace torch_webgpu {

/// How a kernel uses an operand, and with that the accessors it gets besides load_NAME(i).
enum class Access : uint8_t {
  kIn,
  kOut,    // store_NAME(i, v)
  kSum,    // and atomic_add_NAME(i, v)
  kUpdate, // and atomic_update_NAME(i, v), with combine_NAME(old, v) from the kernel
  kWords,  // and store2_NAME, store4_NAME: neighbours as whole words, where the launch allows it
  // load_vector_NAME(i) and NAME_in_vector(vector, lane): 16 bytes, where the launch allows it
  kVectors,
  kNumbers, // of a list: NAME_of(tensor)
};

constexpr bool is_written(Access access) {
  return access != Access::kIn && access != Access::kVectors && access != Access::kNumbers;
}

struct OperandInfo {
  std::string_view name;
  Access access = Access::kIn;
  bool optional = false;
  int8_t like = -1;           // the operand whose dtype this one has, -1: none
  int8_t akin = -1;           // the operand whose register type this one has, -1: none
  uint32_t dtypes = 0;        // bit d: DType d is allowed
  bool many = false;          // a list of tensors
  std::string_view element{}; // the type of its elements, where that is no dtype but the kernel's
};

enum class ConstKind : uint8_t { kNumber, kBool, kEnum };

/// A number or choice that the text of the kernel is specialized for. Part of the pipeline key.
struct ConstInfo {
  std::string_view name;
  ConstKind kind = ConstKind::kNumber;
  std::span<const uint32_t> values;        // all that it may have, ascending
  std::span<const std::string_view> names; // of an enumeration's values
  uint8_t key_shift = 0;                   // where its bits in the key start
  uint8_t zero_bits = 0; // low bits that are 0 in all values, and left out of the key
};

struct KernelInfo {
  uint32_t id = 0; // unique in a build
  std::string_view name;
  std::string_view text;
  uint32_t workgroup = 0; // invocations; 0 where constants decide
  bool reports_errors = false;
  std::span<const OperandInfo> operands;
  std::span<const ConstInfo> consts;
  std::span<const std::string_view> regions;
  std::span<const std::string_view> enables; // extensions of WGSL that it cannot do without
  uint32_t required = 0;                     // bit k: operand k is not optional
  int32_t random_at = -1; // where Params has the field `philox`, in bytes; -1: nowhere
  /// Whether constants and operands go together, as the file's @require lines say. Bit k of
  /// `present`: operand k is there; of `owned`: it has its words to itself.
  bool (*is_form)(std::span<const uint32_t> consts, uint32_t present, uint32_t owned) = nullptr;
};

/// Every kernel of this build, by name.
std::span<const KernelInfo* const> all_kernels();
/// Null if there is none of that name.
const KernelInfo* find_kernel(std::string_view name);

constexpr uint32_t dtype_bit(DType dtype) { return uint32_t{1} << static_cast<uint32_t>(dtype); }

} // namespace torch_webgpu
