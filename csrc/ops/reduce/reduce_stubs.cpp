// Gives ATen's reduction stubs their WebGPU kernels, most of them by the rows of rows.yaml.
#include <ATen/MemoryOverlap.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/ReduceAllOps.h>
#include <ATen/native/ReduceOps.h>
#include <ATen/native/ReduceOpsUtils.h>
#include <ATen/native/TensorCompare.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/sum.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "backend/fallback.h"
#include "backend/registration.h"
#include "launch/stub.h"
#include "ops/reduce/reduce.h"

namespace torch_webgpu {
namespace {

using namespace at::native;
using at::Tensor;
using at::TensorIterator;
using at::TensorIteratorBase;

// Runs `op`, or the stub's CPU kernel if there is no kernel for the dtypes.
template <class Stub, class... Args>
void run(TensorIterator& iter, ReduceOp op, const Stub& stub, c10::ArrayRef<c10::Scalar> scalars,
         Args... args) {
  if (can_reduce(iter, op)) {
    reduce(iter, op, scalars);
    return;
  }
  fallback_iterator(
      iter, std::string("aten::").append(row(op).name),
      [&](TensorIteratorBase& cpu) {
        call_on_cpu(stub, static_cast<TensorIterator&>(cpu), args...);
      },
      IteratorForm::kReduction);
}

template <auto& stub, ReduceOp op>
void run_row(TensorIterator& iter) {
  run(iter, op, stub, {});
}

// The CPU has no kernel for mean_stub: its mean is a sum, divided.
template <>
void run_row<mean_stub, ReduceOp::mean_op>(TensorIterator& iter) {
  if (can_reduce(iter, ReduceOp::mean_op)) {
    reduce(iter, ReduceOp::mean_op);
    return;
  }
  const auto count = static_cast<double>(iter.numel()) /
                     static_cast<double>(std::max<int64_t>(iter.num_output_elements(), 1));
  fallback_iterator(
      iter, "aten::mean",
      [&](TensorIteratorBase& cpu) {
        call_on_cpu(sum_stub, static_cast<TensorIterator&>(cpu));
        at::Tensor(cpu.tensor_base(0)).div_(count);
      },
      IteratorForm::kReduction);
}

#define TW_REGISTER(op, stub)                                                                      \
  const RegisterStub<decltype(stub)> register_##op(stub, &run_row<stub, ReduceOp::op>);
TW_REDUCE_STUBS(TW_REGISTER)
#undef TW_REGISTER

ReduceOp norm_op(double order) {
  if (std::isinf(order)) {
    return order > 0 ? ReduceOp::norm_max_op : ReduceOp::norm_min_op;
  }
  return order == 0   ? ReduceOp::norm_zero_op
         : order == 1 ? ReduceOp::norm_one_op
         : order == 2 ? ReduceOp::norm_two_op
                      : ReduceOp::norm_p_op;
}

void norm(TensorIterator& iter, const c10::Scalar& order) {
  run<decltype(norm_stub), const c10::Scalar&>(iter, norm_op(order.to<double>()), norm_stub,
                                               {order}, order);
}

void powsum(TensorIterator& iter, const c10::Scalar& order) {
  const double p = order.to<double>();
  const ReduceOp op = p == 0   ? ReduceOp::norm_zero_op
                      : p == 1 ? ReduceOp::norm_one_op
                      : p == 2 ? ReduceOp::power_sum_two_op
                               : ReduceOp::power_sum_p_op;
  run<decltype(powsum_stub), const c10::Scalar&>(iter, op, powsum_stub, {order}, order);
}

// Calls `reduce_into(second)`. An iterator has the same strides for both outputs of a reduction.
// Those of `out=` may differ: then a tensor with the strides of `first` takes the place of
// `second`. ATen leaves the check for shared memory to the kernels of such a pair.
template <class Reduce>
void into_pair(const Tensor& self, const Tensor& first, const Tensor& second,
               Reduce&& reduce_into) {
  at::assert_no_partial_overlap(first, self);
  at::assert_no_partial_overlap(second, self);
  if (first.strides() == second.strides()) {
    reduce_into(second);
    return;
  }
  const Tensor own = at::empty_strided(first.sizes(), first.strides(), second.options());
  reduce_into(own);
  second.copy_(own);
}

// These stubs take tensors. `cpu(...)` runs the CPU's kernel on copies.
template <class Fallback>
void reduce_with_indices(ReduceOp op, const Tensor& values, const Tensor& indices,
                         const Tensor& self, int64_t dim, bool keepdim, Fallback&& cpu) {
  TensorIterator iter =
      at::meta::make_reduction(self, values, indices, dim, keepdim, self.scalar_type(), at::kLong);
  if (can_reduce(iter, op)) {
    reduce(iter, op);
    return;
  }
  note_fallback(std::string("aten::").append(row(op).name));
  const Tensor host_values = values.cpu();
  const Tensor host_indices = indices.cpu();
  cpu(host_values, host_indices, self.cpu());
  values.copy_(host_values);
  indices.copy_(host_indices);
}

template <class Fallback>
void with_indices(ReduceOp op, const Tensor& values, const Tensor& indices, const Tensor& self,
                  int64_t dim, bool keepdim, Fallback&& cpu) {
  into_pair(self, values, indices, [&](const Tensor& own) {
    reduce_with_indices(op, values, own, self, dim, keepdim, cpu);
  });
}

void max_dim(const Tensor& values, const Tensor& indices, const Tensor& self, int64_t dim,
             bool keepdim) {
  with_indices(ReduceOp::max_with_index_op, values, indices, self, dim, keepdim,
               [&](const Tensor& v, const Tensor& i, const Tensor& x) {
                 call_on_cpu(max_stub, v, i, x, dim, keepdim);
               });
}

void min_dim(const Tensor& values, const Tensor& indices, const Tensor& self, int64_t dim,
             bool keepdim) {
  with_indices(ReduceOp::min_with_index_op, values, indices, self, dim, keepdim,
               [&](const Tensor& v, const Tensor& i, const Tensor& x) {
                 call_on_cpu(min_stub, v, i, x, dim, keepdim);
               });
}

// `result` is an out= argument, which may have another dtype.
template <class Stub>
void extreme(const char* name, ReduceOp op, Stub& stub, Tensor& result, const Tensor& self) {
  const bool casts = result.scalar_type() != self.scalar_type();
  Tensor own = casts ? at::empty({}, self.options()) : result;
  TensorIterator iter =
      make_reduction(name, own, self, at::IntArrayRef{}, false, self.scalar_type());
  run(iter, op, stub, {});
  if (casts) {
    result.copy_(own);
  }
}

void max_all(Tensor& result, const Tensor& self) {
  extreme("max_all", ReduceOp::max_values_op, max_values_stub, result, self);
}

void min_all(Tensor& result, const Tensor& self) {
  extreme("min_all", ReduceOp::min_values_op, min_values_stub, result, self);
}

void min_and_max(const Tensor& self, at::OptionalIntArrayRef dim, bool keepdim, Tensor min,
                 Tensor max) {
  TensorIterator iter = make_reduction("aminmax", min, max, self, dim, keepdim, self.scalar_type());
  if (can_reduce(iter, ReduceOp::min_and_max_op)) {
    reduce(iter, ReduceOp::min_and_max_op);
    return;
  }
  TensorIterator mins = make_reduction("aminmax", min, self, dim, keepdim, self.scalar_type());
  run(mins, ReduceOp::min_values_op, min_values_stub, {});
  TensorIterator maxs = make_reduction("aminmax", max, self, dim, keepdim, self.scalar_type());
  run(maxs, ReduceOp::max_values_op, max_values_stub, {});
}

void aminmax_dim(const Tensor& self, int64_t dim, bool keepdim, Tensor& min, Tensor& max) {
  into_pair(self, min, max,
            [&](const Tensor& own) { min_and_max(self, at::IntArrayRef(dim), keepdim, min, own); });
}

void aminmax_all(const Tensor& self, Tensor& min, Tensor& max) {
  min_and_max(self, std::nullopt, false, min, max);
}

Tensor count_nonzero(const Tensor& self, at::IntArrayRef dims) {
  return at::sum(at::ne(self, 0), dims);
}

Tensor trace(const Tensor& self) {
  TORCH_CHECK(self.dim() == 2, "trace: expected a matrix, but got tensor with dim ", self.dim());
  return self.diagonal().sum();
}

REGISTER_PRIVATEUSE1_DISPATCH(norm_stub, &norm)
REGISTER_PRIVATEUSE1_DISPATCH(powsum_stub, &powsum)
REGISTER_PRIVATEUSE1_DISPATCH(max_stub, &max_dim)
REGISTER_PRIVATEUSE1_DISPATCH(min_stub, &min_dim)
REGISTER_PRIVATEUSE1_DISPATCH(max_all_stub, &max_all)
REGISTER_PRIVATEUSE1_DISPATCH(min_all_stub, &min_all)
REGISTER_PRIVATEUSE1_DISPATCH(aminmax_stub, &aminmax_dim)
REGISTER_PRIVATEUSE1_DISPATCH(aminmax_allreduce_stub, &aminmax_all)

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("count_nonzero.dim_IntList", count_nonzero);
  m.impl("trace", trace);
}

} // namespace
} // namespace torch_webgpu
