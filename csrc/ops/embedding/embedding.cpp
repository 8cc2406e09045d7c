// Gradient of embedding. Its forward is a composite of index_select.
#include <ATen/Context.h>
#include <ATen/OpMathType.h>
#include <ATen/ops/embedding_dense_backward_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "backend/fallback.h"
#include "backend/registration.h"
#include "launch/common.h"
#include "launch/dtypes.h"
#include "ops/index/index_move.h"

namespace torch_webgpu {
namespace {

using at::Tensor;

// rows[indices[i]] += values[i], for contiguous matrices and a contiguous index.
void add_rows(const char* name, const Tensor& rows, const Tensor& indices, const Tensor& values) {
  const DType dtype = *native_dtype(rows.scalar_type());
  IndexMove move(name, StoreMode::kAdd);
  move.message = kOutOfSelf;
  move.sizes.assign({values.size(0), values.size(1)});
  move.out = move_target(rows, dtype, {0, 1});
  move.in = move_operand(values, dtype, {values.stride(0), values.stride(1)});
  move.indices.push_back(move_index(indices, {1, 0}, rows.size(0)));
  move.indices[0].out_stride = rows.size(1);
  if (at::globalContext().deterministicAlgorithms()) {
    move.serial_dims = 1;
  }
  run_index_move(std::move(move));
}

Tensor embedding_dense_backward(const Tensor& grad_output, const Tensor& indices,
                                int64_t num_weights, int64_t padding_idx, bool scale_grad_by_freq) {
  check_same_device("embedding_dense_backward",
                    {{grad_output, "grad_output"}, {indices, "indices"}});
  TORCH_CHECK(indices.scalar_type() == at::kLong || indices.scalar_type() == at::kInt,
              "Expected tensor for argument #2 'indices' to have one of the following scalar types:"
              " Long, Int; but got ",
              indices.toString(), " instead (while checking arguments for embedding_backward)");
  const at::ScalarType type = grad_output.scalar_type();
  if (!native_dtype(type)) {
    return call_cpu_fallback_symint<at::_ops::embedding_dense_backward>::call(
        grad_output, indices, num_weights, padding_idx, scale_grad_by_freq);
  }
  const int64_t width = grad_output.size(-1);
  // Many gradients may be added to one row, so sums of half types are kept in float32.
  const at::ScalarType sum_type = at::toOpMathType(type);
  const Tensor index = indices.reshape({-1}).contiguous();
  Tensor grad = grad_output.reshape({-1, width}).to(sum_type);
  Tensor rows = at::zeros({num_weights, width}, grad.options());
  if (scale_grad_by_freq) {
    const Tensor counts = at::zeros({num_weights, 1}, grad.options());
    add_rows("embedding_dense_backward", counts, index,
             at::ones({1, 1}, grad.options()).expand({index.numel(), 1}));
    grad = grad.div(counts.index_select(0, index));
  }
  add_rows("embedding_dense_backward", rows, index, grad);
  if (padding_idx >= 0 && padding_idx < num_weights) {
    rows.select(0, padding_idx).zero_();
  }
  return rows.to(type);
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("embedding_dense_backward", TORCH_FN(embedding_dense_backward));
}

} // namespace
} // namespace torch_webgpu
