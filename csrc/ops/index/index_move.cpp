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
#include "launch/binding_list.h"
#include "launch/dtypes.h"
#include "runtime/context.h"
#include "wgsl/kernel_source.h"

namespace torch_webgpu {
namespace {

constexpr PipelineFamily kFamily = PipelineFamily::kIndexMove;
constexpr uint32_t kMaxDims = 12;
constexpr uint32_t kWorkgroup = 256;

// Mirrors Params of index_move.wgsl.
struct Params {
  uint32_t count;
  uint32_t rank;
  uint32_t serial_count;
  uint32_t serial_rank;
  uint32_t out_offset;
  uint32_t in_offset;
  uint32_t flags;
  uint32_t error;
  uint32_t value[4];
  uint32_t indices[kMaxMoveIndices][4];
  uint32_t dims[2 * kMaxDims][4];
};

constexpr std::array<std::string_view, 2 + kMaxMoveIndices> kNames = {
    "out", "in", "index0", "index1", "index2", "index3", "index4"};

// What the kernel's text depends on.
struct Variant {
  Placing placing;
  bool serial;
  uint32_t num_indices;
  std::array<Operand, 2 + kMaxMoveIndices> operands; // out, in, indices; `in` unused by kFill

  PipelineKey key() const {
    OperandKey key;
    for (const Operand& operand : operands) {
      key.add(operand.dtype, operand.slot);
    }
    return key.in(
        {kFamily, static_cast<uint64_t>(placing) | (serial ? 8u : 0u) | num_indices << 4});
  }
};

// The expression of `old` and `value` that is stored.
std::string combined(Placing placing, Kind kind) {
  const bool is_long = kind == Kind::kLong;
  switch (placing) {
  case Placing::kAdd:
    return is_long ? "add_l(old, value)" : "old + value";
  case Placing::kMultiply:
    return is_long                  ? "mul_l(old, value)"
           : kind == Kind::kComplex ? "mul_c(old, value)"
                                    : "old * value";
  case Placing::kMinimum:
    return is_long ? "min_l(old, value)"
                   : (kind == Kind::kFloat ? "min_f(old, value)" : "min(old, value)");
  case Placing::kMaximum:
    return is_long ? "max_l(old, value)"
                   : (kind == Kind::kFloat ? "max_f(old, value)" : "max(old, value)");
  default:
    return "value";
  }
}

std::string place_hook(const Variant& variant) {
  const DType dtype = variant.operands[0].dtype;
  const std::string signature = "fn place_element(out: u32, in: u32) { ";
  if (variant.placing == Placing::kFill) {
    const uint32_t bytes = info(dtype).bytes;
    return signature + "store_out(out, p.value" +
           (bytes == 16  ? ""
            : bytes == 8 ? ".xy"
                         : ".x") +
           "); }";
  }
  std::string text;
  const bool atomic = variant.operands[0].atomic_update;
  const bool combines = variant.placing != Placing::kCopy;
  if (combines || atomic) {
    text = "fn combine_out(old: out_t, value: out_t) -> out_t { return " +
           combined(variant.placing, info(dtype).kind) + "; }\n";
  }
  text += signature;
  if (variant.operands[0].atomic_add) {
    text += "atomic_add_out(out, load_in(in)); }";
  } else if (atomic) {
    text += "atomic_update_out(out, load_in(in)); }";
  } else if (combines) {
    text += "store_out(out, combine_out(load_out(out), load_in(in))); }";
  } else {
    text += "store_out(out, load_in(in)); }";
  }
  return text;
}

std::string follow_hook(const Variant& variant) {
  std::string text = "fn follow_indices(place: ptr<function, Place>) -> bool {\n  return true";
  for (uint32_t k = 0; k < variant.num_indices; ++k) {
    const std::string number = std::to_string(k);
    const std::string at =
        k == 0 ? "(*place).index0" : "(*place).index[" + std::to_string(k - 1) + "]";
    const Kind kind = info(variant.operands[2 + k].dtype).kind;
    text += "\n      && steer(place, " + number + "u, " +
            convert(kind, Kind::kLong, "load_index" + number + "(" + at + ")") + ")";
  }
  return text + ";\n}";
}

PipelineSpec make_spec(const IndexMove& move, const Variant& variant, const SlotWindows& windows) {
  KernelSource source;
  source.file = "index_move";
  for (uint32_t k = 0; k < 2 + variant.num_indices; ++k) {
    if (k == 1 && variant.placing == Placing::kFill) {
      continue;
    }
    source.operands.push_back(variant.operands[k]);
    source.operands.back().name = kNames[k];
  }
  source.hooks = {{"follow_indices", follow_hook(variant)}, {"place", place_hook(variant)}};
  source.checks_indices = true;
  source.windows = windows;
  return build_kernel(move.name, source);
}

// Calls visit(strides, steps) for the strides of every operand.
template <typename Visit>
void for_each_strides(IndexMove& move, Visit&& visit) {
  visit(move.out.strides);
  if (move.placing != Placing::kFill) {
    visit(move.in.strides);
  }
  for (MoveIndex& index : move.indices) {
    visit(index.tensor.strides);
  }
}

// Sorts the dimensions by their strides in the output, the smallest first and serial ones last.
// Merges neighbouring dimensions where the strides of every operand allow it. Returns the number of
// parallel dimensions.
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
      return false; // merging would change the order of visits
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
  if (move.placing != Placing::kCopy || move.sizes.empty() || move.out.strides[0] != 1 ||
      move.in.strides[0] != 1) {
    return;
  }
  const uint32_t bytes = info(move.out.dtype).bytes;
  int64_t factor = 16 / bytes;
  auto divides = [&](int64_t value) { return value % factor == 0; };
  auto fits = [&] {
    bool ok = divides(move.sizes[0]);
    for (MoveOperand* operand : {&move.out, &move.in}) {
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
  for (MoveOperand* operand : {&move.out, &move.in}) {
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
  const auto check = [&](const MoveOperand& operand, size_t k) {
    check_operand_dtype(move.name, kNames[k], operand.type, operand.dtype);
  };
  check(move.out, 0);
  if (move.placing != Placing::kFill) {
    check(move.in, 1);
    TORCH_INTERNAL_ASSERT(move.in.dtype == move.out.dtype, move.name,
                          "(): elements move between different dtypes");
  }
  for (size_t k = 0; k < move.indices.size(); ++k) {
    check(move.indices[k].tensor, 2 + k);
  }
}

// Cached by the addresses of the literals, so that an op does not build a string on every call.
uint32_t error_code_of(const IndexMove& move) {
  struct Known {
    const char* name;
    const char* complaint;
    uint32_t code;
  };
  Context& ctx = context();
  std::lock_guard<std::recursive_mutex> lock(ctx.mutex);
  static std::vector<Known> all;
  for (const Known& known : all) {
    if (known.name == move.name && known.complaint == move.complaint) {
      return known.code;
    }
  }
  const std::string text = std::string(move.name) + "(): " + move.complaint;
  all.push_back({move.name, move.complaint, ctx.stream.error_code(text, move.error)});
  return all.back().code;
}

uint32_t element_begin(const MoveOperand& operand) {
  return static_cast<uint32_t>(operand.begin / info(operand.dtype).bytes);
}

void fill_params(const IndexMove& move, uint32_t parallel, Params& params) {
  params.rank = parallel;
  params.serial_rank = static_cast<uint32_t>(move.sizes.size()) - parallel;
  const auto product = [&](size_t from, size_t to) {
    return std::accumulate(move.sizes.begin() + from, move.sizes.begin() + to, int64_t{1},
                           std::multiplies<>());
  };
  params.count = static_cast<uint32_t>(product(0, parallel));
  params.serial_count = static_cast<uint32_t>(product(parallel, move.sizes.size()));
  params.out_offset = element_begin(move.out);
  params.flags = (move.wrap_negative ? 1u : 0u) | static_cast<uint32_t>(move.dim) << 1;
  const bool has_in = move.placing != Placing::kFill;
  if (has_in) {
    params.in_offset = element_begin(move.in);
  }
  for (size_t k = 0; k < move.indices.size(); ++k) {
    const MoveIndex& index = move.indices[k];
    uint32_t* words = params.indices[k];
    words[0] = element_begin(index.tensor);
    words[1] = static_cast<uint32_t>(index.size);
    words[2] = static_cast<uint32_t>(index.out_stride);
    words[3] = static_cast<uint32_t>(index.in_stride);
  }
  for (size_t d = 0; d < move.sizes.size(); ++d) {
    uint32_t* words = params.dims[2 * d];
    words[0] = static_cast<uint32_t>(move.sizes[d]);
    words[1] = static_cast<uint32_t>(move.out.strides[d]);
    words[2] = has_in ? static_cast<uint32_t>(move.in.strides[d]) : 0;
    for (size_t k = 0; k < move.indices.size(); ++k) {
      words[3 + k] = static_cast<uint32_t>(move.indices[k].tensor.strides[d]);
    }
  }
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
  result.begin = reinterpret_cast<uintptr_t>(iter.data_ptr(operand)) - result.buffer->address;
  result.type = iter.dtype(operand);
  result.dtype = dtype;
  for (const int64_t stride : iter.strides(operand)) {
    result.strides.push_back(stride / iter.element_size(operand));
  }
  return result;
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

bool combines_atomically(Placing placing, DType dtype) {
  return placing <= Placing::kFill || placing == Placing::kAdd || info(dtype).bytes <= 4;
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
  const bool ordered = move.serial_dims != 0; // even where those dimensions have one element each
  const uint32_t parallel = simplify(move);
  TORCH_CHECK_NOT_IMPLEMENTED(move.sizes.size() <= kMaxDims, move.name,
                              "(): more than twelve dimensions that cannot be merged");
  if (parallel > 0) {
    widen(move);
  }

  Variant variant{move.placing, ordered, static_cast<uint32_t>(move.indices.size()), {}};
  BindingList bindings(move.name);
  auto bind = [&](uint32_t k, const MoveOperand& operand) {
    variant.operands[k].dtype = operand.dtype;
    variant.operands[k].slot = bindings.add(*operand.buffer, info(operand.dtype).bytes);
  };
  bind(0, move.out);
  if (move.placing != Placing::kFill) {
    bind(1, move.in);
  }
  for (uint32_t k = 0; k < variant.num_indices; ++k) {
    bind(2 + k, move.indices[k].tensor);
  }
  Operand& out = variant.operands[0];
  out.writable = true;
  if (!variant.serial) {
    // Two invocations that store to the same part of a word at once would mix their bits.
    const bool mixes = move.placing == Placing::kCopy && info(out.dtype).bytes < 4;
    out.atomic_add = move.placing == Placing::kAdd;
    out.atomic_update = mixes || move.placing >= Placing::kMultiply;
  }

  Params params{};
  fill_params(move, parallel, params);
  if (move.placing == Placing::kFill) {
    std::copy(move.value.begin(), move.value.end(), params.value);
  }
  Context& ctx = context();
  params.error = error_code_of(move);
  const Pipeline& pipeline = ctx.pipelines.get(
      bindings.key(variant.key()), [&] { return make_spec(move, variant, bindings.windows()); });
  bindings.dispatch(pipeline, params, ctx.stream.grid_1d(params.count, kWorkgroup));
}

} // namespace torch_webgpu
