// index_put_ where several elements may go to one place: accumulating, or deterministic. Also the
// sums of put_ and index_put_ in types that have no kernels.
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/native/TensorAdvancedIndexing.h>
#include <ATen/native/TensorAdvancedIndexingUtils.h>
#include <ATen/ops/_index_put_impl_native.h>
#include <ATen/ops/_index_put_impl_ops.h>
#include <ATen/ops/put_native.h>
#include <ATen/ops/put_ops.h>

#include "backend/fallback.h"
#include "backend/registration.h"
#include "launch/common.h"
#include "launch/dtypes.h"
#include "ops/index/index_move.h"

namespace torch_webgpu {
namespace {

using at::Tensor;

// The target with its indexed dimensions adjacent, and one index tensor for each of them.
struct Target {
  Tensor self;
  std::vector<Tensor> indices; // undefined for dimensions that are not indexed
};

Target resolve_indices(const Tensor& self, const c10::List<std::optional<Tensor>>& original) {
  at::native::checkIndexTensorTypes(original, /*allow_int=*/true);
  auto indices = at::native::expandTensors(self, original, /*ensure_same_device=*/true);
  try {
    indices = at::expand_outplace(indices);
  } catch (const std::exception&) {
    TORCH_CHECK_INDEX(false,
                      "shape mismatch: indexing tensors could not be broadcast together"
                      " with shapes ",
                      at::native::shapes_as_str(indices));
  }
  indices.resize(self.dim());
  if (at::native::hasContiguousSubspace(indices)) {
    return {self, std::move(indices)};
  }
  auto [front, moved] = at::native::transposeToFront(self, indices);
  return {std::move(front), std::move(moved)};
}

// The kernel of index_put_with_sort_stub, which ATen calls for the accumulating and for the
// deterministic form. (CUDA sorts the indices there.) Here sums are atomic; if the result must be
// deterministic, one invocation walks the indices in order.
void index_put_in_order(Tensor& self, const c10::List<std::optional<Tensor>>& original,
                        const Tensor& value, bool accumulate, bool /*unsafe*/) {
  const Target target = resolve_indices(self, original);
  const Tensor& out = target.self;
  const DType dtype =
      accumulate ? *native_dtype(self.scalar_type()) : raw_dtype(self.scalar_type());
  IndexMove move("index_put_", accumulate ? StoreMode::kAdd : StoreMode::kCopy);
  c10::SmallVector<int64_t, 8> out_strides;
  int64_t first = -1; // the first dimension of the move along which the indices vary
  int64_t index_rank = 0;
  for (int64_t d = 0; d < out.dim(); ++d) {
    const Tensor& index = target.indices[d];
    if (!index.defined()) {
      move.sizes.push_back(out.size(d));
      out_strides.push_back(out.stride(d));
    } else if (first < 0) {
      first = d;
      index_rank = index.dim();
      move.sizes.append(index.sizes().begin(), index.sizes().end());
      out_strides.append(index_rank, 0);
    }
  }
  IndexList list;
  for (int64_t d = 0; d < out.dim(); ++d) {
    if (target.indices[d].defined()) {
      list.tensors.push_back(target.indices[d]);
      list.sizes.push_back(out.size(d));
      list.strides.push_back(out.stride(d));
    }
  }
  list.fold();
  for (size_t k = 0; k < list.tensors.size(); ++k) {
    const Tensor& index = list.tensors[k];
    c10::SmallVector<int64_t, 8> strides(move.sizes.size(), 0);
    std::copy(index.strides().begin(), index.strides().end(), strides.begin() + first);
    move.indices.push_back(move_index(index, strides, list.sizes[k]));
    move.indices.back().out_stride = list.strides[k];
  }
  TORCH_CHECK(at::is_expandable_to(value.sizes(), move.sizes),
              "shape mismatch: value tensor of shape ", value.sizes(),
              " cannot be broadcast to indexing result of shape ", at::IntArrayRef(move.sizes));
  const Tensor in = value.expand(move.sizes);
  move.out = move_target(out, dtype, out_strides);
  move.in = move_operand(in, dtype, in.strides());
  move.wrap_negative = true;
  keep_order_if_deterministic(move);
  run_index_move(std::move(move));
}

Tensor& index_put_impl(Tensor& self, const c10::List<std::optional<Tensor>>& indices,
                       const Tensor& values, bool accumulate, bool unsafe) {
  if (accumulate && !native_dtype(self.scalar_type())) {
    return call_cpu_fallback<at::_ops::_index_put_impl_>::call(self, indices, values, accumulate,
                                                               unsafe);
  }
  const bool same = values.scalar_type() == self.scalar_type(); // else ATen's implementation raises
  if (accumulate && same && at::isReducedFloatingType(self.scalar_type())) {
    at::assert_no_overlap(self, values);
    // A sum in a half type stops growing once it is large compared with its terms. It is kept in
    // float32, as on CUDA.
    Tensor sums = self.to(at::kFloat);
    at::native::_index_put_impl_(sums, indices, values.to(at::kFloat), accumulate, unsafe);
    return self.copy_(sums);
  }
  return at::native::_index_put_impl_(self, indices, values, accumulate, unsafe);
}

Tensor& put(Tensor& self, const Tensor& index, const Tensor& source, bool accumulate) {
  check_same_device("put_", {{self, "self"}, {index, "index"}, {source, "source"}});
  if (accumulate && !native_dtype(self.scalar_type())) {
    return call_cpu_fallback<at::_ops::put_>::call(self, index, source, accumulate);
  }
  return at::native::put_(self, index, source, accumulate);
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_index_put_impl_", TORCH_FN(index_put_impl));
  m.impl("put_", TORCH_FN(put));
}

} // namespace
} // namespace torch_webgpu

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(index_put_with_sort_stub, &torch_webgpu::index_put_in_order)
} // namespace at::native
