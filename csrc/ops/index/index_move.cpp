#include "ops/index/index_move.h"

#include <ATen/Context.h>
#include <ATen/Dispatch.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "backend/tensor.h"
#include "kernels/index_combine.h"
#include "kernels/index_copy.h"
#include "kernels/index_fill.h"
#include "launch/dtypes.h"
#include "launch/operand_view.h"
#include "runtime/context.h"

namespace torch_webgpu {
namespace {

constexpr uint32_t kMaxDims = 12;

// Calls visit(strides) for the strides of every operand.
template <typename Visit>
void for_each_strides(IndexMove& move, Visit&& visit) {
  visit(move.out.strides);
  if (move.mode != StoreMode::kFill) {
    visit(move.in.strides);
  }
  for (MoveIndex& index : move.indices) {
    visit(index.tensor.strides);
  }
}

// Sorts the parallel dimensions by their strides in the output, the smallest first. The serial ones
// follow in their own order. Merges neighbouring dimensions where the strides of every operand
// allow it. Returns the number of parallel dimensions.
uint32_t simplify(IndexMove& move) {
  const size_t rank = move.sizes.size();
  auto is_serial = [&](size_t d) { return (move.serial_dims >> d & 1) != 0; };
  c10::SmallVector<size_t, 8> order;
  for (size_t d = 0; d < rank; ++d) {
    if (move.sizes[d] != 1) {
      order.push_back(d);
    }
  }
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (is_serial(a) != is_serial(b)) {
      return is_serial(b);
    }
    if (is_serial(a)) {
      return false; // sorting would change the order of visits
    }
    return std::abs(move.out.strides[a]) < std::abs(move.out.strides[b]);
  });
  const auto parallel = static_cast<uint32_t>(
      std::count_if(order.begin(), order.end(), [&](size_t d) { return !is_serial(d); }));
  auto permute = [&](auto& values) {
    std::remove_reference_t<decltype(values)> sorted;
    for (size_t d : order) {
      sorted.push_back(values[d]);
    }
    values = std::move(sorted);
  };
  permute(move.sizes);
  for_each_strides(move, permute);

  uint32_t kept = 0;
  uint32_t kept_parallel = 0;
  for (uint32_t d = 0; d < move.sizes.size(); ++d) {
    bool merges = kept != 0 && d != parallel;
    for_each_strides(move, [&](auto& strides) {
      merges = merges && strides[d] == strides[kept - 1] * move.sizes[kept - 1];
    });
    if (merges) {
      move.sizes[kept - 1] *= move.sizes[d];
      continue;
    }
    move.sizes[kept] = move.sizes[d];
    for_each_strides(move, [&](auto& strides) { strides[kept] = strides[d]; });
    ++kept;
    kept_parallel += d < parallel ? 1 : 0;
  }
  move.sizes.resize(kept);
  for_each_strides(move, [&](auto& strides) { strides.resize(kept); });
  return kept_parallel;
}

// Rows of raw elements along which no index varies are moved in units of up to 16 bytes.
void widen(IndexMove& move) {
  if (move.mode != StoreMode::kCopy || move.sizes.empty() || move.out.strides[0] != 1 ||
      move.in.strides[0] != 1) {
    return;
  }
  const uint32_t bytes = info(move.out.dtype).bytes;
  int64_t factor = 16 / bytes;
  auto divides = [&](int64_t value) { return value % factor == 0; };
  auto fits = [&] {
    bool ok = divides(move.sizes[0]);
    for (MoveOperand* operand : {static_cast<MoveOperand*>(&move.out), &move.in}) {
      ok &= operand->begin % (factor * bytes) == 0;
      for (size_t d = 1; d < move.sizes.size(); ++d) {
        ok &= divides(operand->strides[d]);
      }
    }
    for (const MoveIndex& index : move.indices) {
      ok &= index.tensor.strides[0] == 0 && divides(index.out_stride) && divides(index.in_stride);
    }
    return ok;
  };
  while (factor > 1 && !fits()) {
    factor /= 2;
  }
  move.sizes[0] /= factor;
  for (MoveOperand* operand : {static_cast<MoveOperand*>(&move.out), &move.in}) {
    operand->dtype = bits_dtype(static_cast<uint32_t>(bytes * factor));
    for (size_t d = 1; d < move.sizes.size(); ++d) {
      operand->strides[d] /= factor;
    }
  }
  for (MoveIndex& index : move.indices) {
    index.out_stride /= factor;
    index.in_stride /= factor;
  }
}

void check_dtypes(const IndexMove& move) {
  const auto check = [&](const MoveOperand& operand, const char* name) {
    check_operand_dtype(move.name, name, operand.type, operand.dtype);
  };
  check(move.out, "out");
  if (move.mode != StoreMode::kFill) {
    check(move.in, "in");
    TORCH_INTERNAL_ASSERT(move.in.dtype == move.out.dtype, move.name,
                          "(): elements move between different dtypes");
  }
  for (const MoveIndex& index : move.indices) {
    check(index.tensor, "index");
  }
}

// The code of the move's error text. Cached by the addresses of the literals, so that an op does
// not build a string on every call.
uint32_t error_code_of(const IndexMove& move) {
  struct Known {
    const Context* context;
    const char* name;
    const char* message;
    uint32_t code;
  };
  Context& ctx = *move.out.buffer->context;
  std::lock_guard<std::recursive_mutex> lock(ctx.mutex);
  static std::vector<Known> all;
  for (const Known& known : all) {
    if (known.context == &ctx && known.name == move.name && known.message == move.message) {
      return known.code;
    }
  }
  const std::string text = std::string(move.name) + "(): " + move.message;
  all.push_back({&ctx, move.name, move.message, ctx.stream.error_code(text, move.error)});
  return all.back().code;
}

// Binds the index tensors and runs the kernel. `Params` and `Launch` are one kernel's; the kernels
// of walk.wgsl have these fields in common.
template <typename Params, typename Launch>
void launch_walk(const IndexMove& move, uint32_t parallel, Launch& launch) {
  using Bind = Launch& (Launch::*)(const Buffer&, uint64_t, uint64_t, DType);
  constexpr std::array<Bind, kMaxMoveIndices> binds = {&Launch::index0_range, &Launch::index1_range,
                                                       &Launch::index2_range, &Launch::index3_range,
                                                       &Launch::index4_range};
  Params params;
  for (size_t k = 0; k < move.indices.size(); ++k) {
    const MoveIndex& index = move.indices[k];
    const MoveOperand& tensor = index.tensor;
    (launch.*binds[k])(*tensor.buffer, tensor.begin, tensor.buffer->size, tensor.dtype);
    params.indices[k] = {static_cast<uint32_t>(index.size), static_cast<uint32_t>(index.out_stride),
                         static_cast<uint32_t>(index.in_stride), 0};
  }
  for (size_t d = 0; d < move.sizes.size(); ++d) {
    const auto word = [&](size_t w) -> uint32_t& { return params.dims[2 * d + w / 4][w % 4]; };
    word(0) = static_cast<uint32_t>(move.sizes[d]);
    word(1) = static_cast<uint32_t>(move.out.strides[d]);
    word(2) = move.mode == StoreMode::kFill ? 0 : static_cast<uint32_t>(move.in.strides[d]);
    for (size_t k = 0; k < move.indices.size(); ++k) {
      word(3 + k) = static_cast<uint32_t>(move.indices[k].tensor.strides[d]);
    }
  }
  const auto product = [&](size_t from, size_t to) {
    return static_cast<uint32_t>(std::accumulate(move.sizes.begin() + from, move.sizes.begin() + to,
                                                 int64_t{1}, std::multiplies<>()));
  };
  params.rank = parallel;
  params.serial_rank = static_cast<uint32_t>(move.sizes.size()) - parallel;
  params.count = product(0, parallel);
  params.serial_count = product(parallel, move.sizes.size());
  params.wrap_negative = move.wrap_negative ? 1 : 0;
  params.dim = static_cast<uint32_t>(move.dim);
  params.error = error_code_of(move);
  params.value = move.value;
  const auto bytes = static_cast<uint32_t>(offsetof(Params, dims) +
                                           2 * move.sizes.size() * sizeof(params.dims[0]));
  launch.run(params, bytes);
}

void launch_copy(const IndexMove& move, uint32_t parallel, bool ordered) {
  kernels::index_copy::Launch launch(move.name);
  const DType dtype = bits_dtype(info(move.out.dtype).bytes);
  launch.in_range(*move.in.buffer, move.in.begin, move.in.buffer->size, dtype);
  const MoveTarget& out = move.out;
  if (!ordered && info(dtype).bytes < 4) {
    launch.shared_range(out.written, out.begin, out.buffer->size, dtype);
  } else {
    launch.out_range(out.written, out.begin, out.buffer->size, dtype);
  }
  launch_walk<kernels::index_copy::Params>(move, parallel, launch);
}

void launch_fill(const IndexMove& move, uint32_t parallel) {
  kernels::index_fill::Launch launch(move.name);
  launch.out_range(move.out.written, move.out.begin, move.out.buffer->size,
                   bits_dtype(info(move.out.dtype).bytes));
  launch_walk<kernels::index_fill::Params>(move, parallel, launch);
}

void launch_combine(const IndexMove& move, uint32_t parallel, bool ordered) {
  using How = kernels::index_combine::How;
  kernels::index_combine::Launch launch(move.name);
  launch.how(move.mode == StoreMode::kAdd        ? How::add
             : move.mode == StoreMode::kMultiply ? How::multiply
             : move.mode == StoreMode::kMinimum  ? How::minimum
                                                 : How::maximum);
  const MoveTarget& out = move.out;
  launch.in_range(*move.in.buffer, move.in.begin, move.in.buffer->size, move.in.dtype);
  if (ordered) {
    launch.out_range(out.written, out.begin, out.buffer->size, out.dtype);
  } else if (move.mode == StoreMode::kAdd) {
    launch.sum_range(out.written, out.begin, out.buffer->size, out.dtype);
  } else {
    launch.result_range(out.written, out.begin, out.buffer->size, out.dtype);
  }
  launch_walk<kernels::index_combine::Params>(move, parallel, launch);
}

} // namespace

MoveOperand move_operand(const at::TensorBase& tensor, DType dtype, at::IntArrayRef strides) {
  return {&buffer_of(tensor),
          byte_offset(tensor),
          tensor.scalar_type(),
          dtype,
          {strides.begin(), strides.end()}};
}

MoveOperand move_operand(const at::TensorIteratorBase& iter, int operand, DType dtype) {
  MoveOperand result;
  result.buffer = &buffer_of(iter.tensor_base(operand));
  result.begin = start_of(iter, operand, *result.buffer);
  result.type = iter.dtype(operand);
  result.dtype = dtype;
  for (const int64_t stride : iter.strides(operand)) {
    result.strides.push_back(stride / iter.element_size(operand));
  }
  return result;
}

MoveTarget move_target(const at::TensorBase& tensor, DType dtype, at::IntArrayRef strides) {
  const WrittenBuffer written(tensor);
  return {move_operand(tensor, dtype, strides), written};
}

MoveTarget move_target(const at::TensorIteratorBase& iter, int operand, DType dtype) {
  const WrittenBuffer written(iter.tensor_base(operand));
  return {move_operand(iter, operand, dtype), written};
}

MoveIndex move_index(const at::TensorBase& tensor, at::IntArrayRef strides, int64_t size) {
  const DType dtype = tensor.scalar_type() == at::kInt ? DType::kI32 : DType::kI64;
  return {move_operand(tensor, dtype, strides), size, 0, 0};
}

uint64_t indexed_dims(const IndexMove& move) {
  uint64_t dims = 0;
  for (const MoveIndex& index : move.indices) {
    for (size_t d = 0; d < move.sizes.size(); ++d) {
      dims |= static_cast<uint64_t>(index.tensor.strides[d] != 0) << d;
    }
  }
  return dims;
}

void keep_order_if_deterministic(IndexMove& move) {
  if (at::globalContext().deterministicAlgorithms()) {
    move.serial_dims = indexed_dims(move);
  }
}

std::array<uint32_t, 4> element_bits(const c10::Scalar& value, at::ScalarType type) {
  std::array<uint32_t, 4> words{};
  AT_DISPATCH_ALL_TYPES_AND_COMPLEX_AND3(at::kHalf, at::kBFloat16, at::kBool, type, "element_bits",
                                         [&] {
                                           const auto element = value.to<scalar_t>();
                                           std::memcpy(words.data(), &element, sizeof(element));
                                         });
  return words;
}

bool combines_atomically(StoreMode mode, DType dtype) {
  return mode <= StoreMode::kFill || mode == StoreMode::kAdd || info(dtype).bytes <= 4;
}

void run_index_move(IndexMove&& move) {
  int64_t total = 1;
  for (const int64_t size : move.sizes) {
    total *= size;
  }
  if (total == 0) {
    return;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(total < int64_t{1} << 31, move.name, "(): more than 2^31 elements");
  TORCH_INTERNAL_ASSERT(move.indices.size() <= kMaxMoveIndices); // IndexList::fold
  check_dtypes(move);
  const bool ordered = move.serial_dims != 0; // even if those dimensions have size 1
  const uint32_t parallel = simplify(move);
  TORCH_CHECK_NOT_IMPLEMENTED(move.sizes.size() <= kMaxDims, move.name,
                              "(): the tensors have more than 12 dimensions that cannot be merged");
  if (parallel > 0) {
    widen(move);
  }

  switch (move.mode) {
  case StoreMode::kCopy:
    return launch_copy(move, parallel, ordered);
  case StoreMode::kFill:
    return launch_fill(move, parallel);
  default:
    return launch_combine(move, parallel, ordered);
  }
}

} // namespace torch_webgpu
