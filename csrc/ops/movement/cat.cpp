// Concatenation.
#include <ATen/core/IListRef.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "backend/tensor.h"
#include "kernels/cat.h"
#include "launch/target_scope.h"
#include "structured_ops.h"

namespace torch_webgpu {
namespace {

using at::Tensor;

namespace kernel = kernels::cat;

constexpr uint32_t kMaxInputs = 13; // the most operands of a kernel, less the output
constexpr uint32_t kMaxDims = std::tuple_size_v<decltype(kernel::Params::dims)>;
static_assert(std::tuple_size_v<decltype(kernel::Params::inputs)> == 3 * kMaxInputs);

struct Part {
  int64_t size = 0;                     // along the concatenated dimension; unused for the output
  uint64_t begin = 0;                   // bytes
  c10::SmallVector<int64_t, 8> strides; // elements, innermost first
};

// Some inputs and the part of the output that they fill.
struct Piece {
  c10::SmallVector<int64_t, 8> sizes; // of the output; the concatenated one is the sum of the parts
  size_t cat_dim = 0;
  uint32_t element_bytes = 1;
  Part out;
  c10::SmallVector<Part, kMaxInputs> inputs;

  template <typename Visit>
  void for_each_part(Visit&& visit) {
    visit(out);
    for (Part& input : inputs) {
      visit(input);
    }
  }

  void erase_dim(size_t d);
  void merge_dims();
  void widen();
};

void Piece::erase_dim(size_t d) {
  cat_dim -= d <= cat_dim ? 1 : 0;
  sizes.erase(sizes.begin() + d);
  for_each_part([&](Part& part) { part.strides.erase(part.strides.begin() + d); });
}

// Merges dimension d with the next inner one if the strides of all tensors allow it.
void Piece::merge_dims() {
  for (size_t d = sizes.size(); d-- > 0;) {
    if (sizes[d] == 1 && d != cat_dim) {
      erase_dim(d);
    }
  }
  for (size_t d = 1; d < sizes.size();) {
    bool merges = d - 1 != cat_dim;
    for_each_part([&](const Part& part) {
      merges = merges && part.strides[d] == part.strides[d - 1] * sizes[d - 1];
    });
    if (!merges) {
      ++d;
      continue;
    }
    if (d == cat_dim) {
      for_each_part([&](Part& part) { part.size *= sizes[d - 1]; });
    }
    sizes[d - 1] *= sizes[d];
    erase_dim(d);
  }
}

// Moves up to 16 bytes at a time where the innermost dimension of every tensor is dense.
void Piece::widen() {
  int64_t factor = 16 / element_bytes;
  auto fits = [&] {
    bool ok = true;
    for_each_part([&](const Part& part) {
      ok = ok && part.strides[0] == 1 && part.begin % (factor * element_bytes) == 0;
      for (size_t d = 1; d < sizes.size(); ++d) {
        ok = ok && part.strides[d] % factor == 0;
      }
      ok = ok && (cat_dim == 0 ? part.size : sizes[0]) % factor == 0;
    });
    return ok;
  };
  while (factor > 1 && !fits()) {
    factor /= 2;
  }
  element_bytes *= factor;
  sizes[0] /= factor;
  for_each_part([&](Part& part) {
    part.size /= cat_dim == 0 ? factor : 1;
    for (size_t d = 1; d < sizes.size(); ++d) {
      part.strides[d] /= factor;
    }
  });
}

kernel::Params make_params(const Piece& piece) {
  kernel::Params params;
  params.count = 1;
  params.cat_inner = 1;
  params.rank = static_cast<uint32_t>(piece.sizes.size());
  params.cat_size = static_cast<uint32_t>(piece.sizes[piece.cat_dim]);
  for (size_t d = 0; d < piece.sizes.size(); ++d) {
    params.dims[d][0] = static_cast<uint32_t>(piece.sizes[d]);
    params.dims[d][1] = static_cast<uint32_t>(piece.out.strides[d]);
    params.count *= params.dims[d][0];
    params.cat_inner *= d < piece.cat_dim ? params.dims[d][0] : 1;
  }
  uint32_t start = 0;
  for (size_t k = 0; k < piece.inputs.size(); ++k) {
    const Part& part = piece.inputs[k];
    auto* words = &params.inputs[3 * k];
    for (size_t d = 0; d < piece.sizes.size(); ++d) {
      words[1 + d / 4][d % 4] = static_cast<uint32_t>(part.strides[d]);
    }
    // The offset is that of coordinate 0 of the piece, so that the kernel need not shift
    // coordinates.
    words[0][1] = 0u - start * static_cast<uint32_t>(part.strides[piece.cat_dim]);
    start += static_cast<uint32_t>(part.size);
    words[0][0] = start;
  }
  return params;
}

// Adds input `number`, as elements of `dtype`.
void bind_input(kernel::Launch& launch, size_t number, DType dtype, const Tensor& tensor) {
  using Bind = kernel::Launch& (kernel::Launch::*)(DType, const at::TensorBase&);
  static constexpr std::array<Bind, kMaxInputs> binds = {
      &kernel::Launch::in0_as, &kernel::Launch::in1_as,  &kernel::Launch::in2_as,
      &kernel::Launch::in3_as, &kernel::Launch::in4_as,  &kernel::Launch::in5_as,
      &kernel::Launch::in6_as, &kernel::Launch::in7_as,  &kernel::Launch::in8_as,
      &kernel::Launch::in9_as, &kernel::Launch::in10_as, &kernel::Launch::in11_as,
      &kernel::Launch::in12_as};
  (launch.*binds[number])(dtype, tensor);
}

Part part_of(const Tensor& tensor, c10::ArrayRef<size_t> order, int64_t dim) {
  Part part;
  part.size = tensor.size(dim);
  part.begin = byte_offset(tensor);
  for (const size_t d : order) {
    part.strides.push_back(tensor.stride(static_cast<int64_t>(d)));
  }
  return part;
}

// One dispatch: `inputs` into the part of `out` that starts at `start` along `dim`.
void cat_piece(c10::ArrayRef<Tensor> inputs, const Tensor& out, int64_t dim, int64_t start) {
  c10::SmallVector<size_t, 8> order(out.dim());
  for (size_t d = 0; d < order.size(); ++d) {
    order[d] = order.size() - 1 - d;
  }
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return out.stride(static_cast<int64_t>(a)) < out.stride(static_cast<int64_t>(b));
  });
  Piece piece;
  piece.element_bytes = static_cast<uint32_t>(out.element_size());
  int64_t length = 0;
  for (const Tensor& input : inputs) {
    piece.inputs.push_back(part_of(input, order, dim));
    length += input.size(dim);
  }
  const Tensor written = out.narrow(dim, start, length);
  piece.out = part_of(written, order, dim);
  for (size_t d = 0; d < order.size(); ++d) {
    const bool is_cat = order[d] == static_cast<size_t>(dim);
    piece.sizes.push_back(is_cat ? length : out.size(static_cast<int64_t>(order[d])));
    piece.cat_dim = is_cat ? d : piece.cat_dim;
  }
  piece.merge_dims();
  if (piece.sizes.size() > kMaxDims) { // a copy takes any number of dimensions
    for (const Tensor& input : inputs) {
      out.narrow(dim, start, input.size(dim)).copy_(input);
      start += input.size(dim);
    }
    return;
  }
  piece.widen();

  const kernel::Params params = make_params(piece);
  const DType dtype = bits_dtype(piece.element_bytes);
  kernel::Launch launch("cat");
  launch.out_as(dtype, written);
  for (size_t k = 0; k < inputs.size(); ++k) {
    bind_input(launch, k, dtype, inputs[k]);
  }
  launch.run(params, launch.grid_of(params.count),
             kernel::params_bytes(3 * static_cast<uint32_t>(inputs.size())));
}

} // namespace

void structured_cat_out::impl(const at::ITensorListRef& tensors, int64_t dim, int64_t /*valid*/,
                              bool /*all_contiguous*/, bool /*all_same_dtype*/,
                              bool /*all_same_sizes_and_stride*/, at::MemoryFormat /*format*/,
                              const Tensor& out) {
  if (out.numel() == 0) {
    return;
  }
  const ShaderTarget& target = plan_target(out);
  const uint32_t max_inputs = std::min(kMaxInputs, target.max_storage_buffers - 1);
  const bool splits =
      buffer_of(out).size > target.max_storage_binding_size || out.numel() >= int64_t{1} << 31;
  c10::SmallVector<Tensor, kMaxInputs> inputs;
  int64_t start = 0;
  auto flush = [&] {
    if (!inputs.empty()) {
      cat_piece(inputs, out, dim, start);
    }
    for (const Tensor& input : inputs) {
      start += input.size(dim);
    }
    inputs.clear();
  };
  for (const Tensor& tensor : tensors) {
    if (tensor.numel() == 0) { // also the empty vectors that go with any shape
      continue;
    }
    if (splits || buffer_of(tensor).size > target.max_storage_binding_size) {
      flush();
      out.narrow(dim, start, tensor.size(dim)).copy_(tensor); // copy_ splits large tensors
      start += tensor.size(dim);
      continue;
    }
    inputs.push_back(tensor.scalar_type() == out.scalar_type() ? tensor
                                                               : tensor.to(out.scalar_type()));
    if (inputs.size() == max_inputs) {
      flush();
    }
  }
  flush();
}

} // namespace torch_webgpu
