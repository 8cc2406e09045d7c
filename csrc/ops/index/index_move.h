// Launching the kernels of walk.wgsl: every op that finds elements by index tensors.
#pragma once

#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>
#include <c10/core/ScalarType.h>
#include <c10/util/SmallVector.h>

#include <array>
#include <string_view>
#include <vector>

#include "backend/tensor.h"
#include "runtime/error.h"
#include "wgsl/dtype.h"

namespace torch_webgpu {

/// How an element is combined with the one at its place in `out`.
enum class StoreMode : uint8_t {
  kCopy, // of several elements for one place, one is stored
  kFill, // a scalar instead of elements of `in`
  kAdd,
  kMultiply,
  kMinimum,
  kMaximum,
};

/// One tensor of a move. Strides in elements, one per dimension of the move.
struct MoveOperand {
  const Buffer* buffer = nullptr;
  uint64_t begin = 0;               // bytes
  at::ScalarType type = at::kFloat; // the tensor's
  DType dtype = DType::kF32;        // what the kernel reads
  c10::SmallVector<int64_t, 8> strides;
};

/// What a move writes to.
struct MoveTarget : MoveOperand {
  WrittenBuffer written;
};

struct MoveIndex {
  MoveOperand tensor; // int64 or int32
  int64_t size;       // indices must be below it
  int64_t out_stride; // strides in `out` and in `in` of one step of the index
  int64_t in_stride;
};

struct IndexMove {
  explicit IndexMove(const char* op, StoreMode how = StoreMode::kCopy) : name(op), mode(how) {}

  const char* name; // a literal; errors name the op by it
  /// The error text that follows the name. May contain {index}, {dim} and {size}. Must be a
  /// literal, too.
  const char* message = "index {index} is out of bounds for dimension {dim} with size {size}";
  ErrorKind error = ErrorKind::kIndex;
  int64_t dim = 0; // of the first index; those of others follow it
  StoreMode mode;
  c10::SmallVector<int64_t, 8> sizes;
  MoveTarget out;
  MoveOperand in; // not used by kFill
  c10::SmallVector<MoveIndex, 5> indices;
  bool wrap_negative = false;
  std::array<uint32_t, 4> value{}; // of kFill: an element's bits
  /// Bit d: dimension d is walked in order by one invocation. For a deterministic result, all
  /// elements that may go to one place in `out` must lie along such dimensions.
  uint64_t serial_dims = 0;
};

inline constexpr size_t kMaxMoveIndices = 5;

/// Index tensors of one shape, the sizes of the dimensions they index, and their strides.
struct IndexList {
  std::vector<at::Tensor> tensors;
  c10::SmallVector<int64_t, 8> sizes;
  c10::SmallVector<int64_t, 8> strides; // elements

  /// If there are more than kMaxMoveIndices tensors, replaces the last ones by one tensor of
  /// element offsets. Values out of range stay out of range; negative ones count from the end.
  void fold();
};

/// The message of index_select and its relatives.
inline constexpr char kOutOfSelf[] =
    "index out of range in self: {index}, for dimension {dim} with size {size}";

/// The tensor as an operand with these strides (0 for dimensions along which an index gives the
/// position).
MoveOperand move_operand(const at::TensorBase& tensor, DType dtype, at::IntArrayRef strides);
MoveOperand move_operand(const at::TensorIteratorBase& iter, int operand, DType dtype);
/// The same of a tensor that is written.
MoveTarget move_target(const at::TensorBase& tensor, DType dtype, at::IntArrayRef strides);
MoveTarget move_target(const at::TensorIteratorBase& iter, int operand, DType dtype);
MoveIndex move_index(const at::TensorBase& tensor, at::IntArrayRef strides, int64_t size);

/// The dimensions along which some index tensor varies. Elements along these dimensions may have
/// equal indices, and so go to one element of `out`.
uint64_t indexed_dims(const IndexMove& move);

/// Sets serial_dims to indexed_dims() if torch.use_deterministic_algorithms asks for it. All
/// indices must have been added.
void keep_order_if_deterministic(IndexMove& move);

/// The bits of a scalar as an element of that type.
std::array<uint32_t, 4> element_bits(const c10::Scalar& value, at::ScalarType type);

/// Whether elements of this type can be combined atomically; otherwise only serially.
bool combines_atomically(StoreMode mode, DType dtype);

/// Of the arguments, checks only the index values. The device checks these, and IndexError is
/// raised at the next synchronization. Does nothing if a dimension is empty.
void run_index_move(IndexMove&& move);

/// The computation of index_add_ and index_reduce_: combines each slice of `source` along `dim`
/// with the slice of `result` that the index vector names. The arguments must have been checked,
/// and `result` must have a native dtype.
void index_combine(const char* name, StoreMode mode, const at::Tensor& result, int64_t dim,
                   const at::Tensor& index, const at::Tensor& source);

/// index_reduce_, but for its warning of an interface in beta, which is not for those who call an
/// operator that is made of it. Returns `out`.
at::Tensor index_reduce_unwarned(const at::Tensor& out, int64_t dim, const at::Tensor& index,
                                 const at::Tensor& source, std::string_view reduce,
                                 bool include_self = true);

} // namespace torch_webgpu
