// Scans: cumsum, cumprod, logcumsumexp, cummax and cummin, one row of rows.yaml each.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/ReduceOps.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_cummax_helper_ops.h>
#include <ATen/ops/_cummin_helper_ops.h>
#include <ATen/ops/ge.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/le.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/where.h>
#include <c10/core/WrapDimMinimal.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "backend/empty.h"
#include "backend/fallback.h"
#include "backend/registration.h"
#include "kernels/scan.h"
#include "launch/common.h"
#include "launch/dtypes.h"
#include "launch/halves.h"
#include "launch/row_lanes.h"
#include "launch/stub.h"
#include "ops/scan/scan_table.h"

namespace torch_webgpu {
namespace {

using at::Tensor;
using namespace at::native;
namespace kernel = kernels::scan;

constexpr uint32_t kPerLane = 4; // elements of a tile, as in scan.wgsl
constexpr uint32_t kTilesPerSegment = 8;
constexpr uint32_t kMaxSegments = 1024;

bool can_scan(ScanOp op, const Tensor& tensor) {
  const auto dtype = native_dtype(tensor.scalar_type());
  return dtype && !row(op).texts[static_cast<size_t>(info(*dtype).kind)].combine.empty();
}

at::ScalarType accumulator_type(Kind kind) {
  switch (kind) {
  case Kind::kFloat:
    return at::kFloat;
  case Kind::kInt:
    return at::kInt;
  case Kind::kLong:
    return at::kLong;
  default:
    return at::kComplexFloat;
  }
}

struct Totals {
  Tensor values;
  Tensor indices;
};

// Two dispatches for rows of several segments: the first writes their totals, the second reads them
// and writes the results. One dispatch, without totals, for others.
enum class Stage : uint8_t { kWhole, kTotals, kSegments };

void dispatch(ScanOp op, Stage stage, const kernel::Params& params, uint64_t workgroups,
              const Tensor& y, const Tensor& z, const Tensor& x, const Totals& totals) {
  const bool indexed = row(op).indexed;
  kernel::Launch launch(row(op).name);
  launch.x(x).table_row(static_cast<uint32_t>(op)).indexed(indexed);
  if (stage != Stage::kTotals) {
    launch.y(y);
    if (indexed) {
      launch.z(z);
    }
  } else {
    launch.new_totals(totals.values);
    if (indexed) {
      launch.new_total_indices(totals.indices);
    }
  }
  if (stage == Stage::kSegments) {
    launch.totals(totals.values);
    if (indexed) {
      launch.total_indices(totals.indices);
    }
  }
  launch.run(params, launch.grid_of_groups(workgroups), [&] {
    const Kind kind = info(*native_dtype(x.scalar_type())).kind;
    const ScanTexts& texts = row(op).texts[static_cast<size_t>(kind)];
    return kernel::Regions{.identity = std::string(texts.identity),
                           .combine = std::string(texts.combine)};
  });
}

// Combines the second half of each row with the last element of the first half.
void join_halves(ScanOp op, const Tensor& y, const Tensor& z, int64_t d) {
  const int64_t half = y.size(d) / 2;
  const Tensor last = y.narrow(d, half - 1, 1);
  Tensor rest = y.narrow(d, half, y.size(d) - half);
  switch (op) {
  case ScanOp::cumsum:
    rest.add_(last);
    return;
  case ScanOp::cumprod:
    rest.mul_(last);
    return;
  case ScanOp::logcumsumexp:
    rest.copy_(at::logaddexp(last, rest));
    return;
  default:
    break;
  }
  // NaN counts as the extreme. Of equal elements the later one is taken.
  Tensor places = z.narrow(d, half, y.size(d) - half);
  const Tensor beyond = op == ScanOp::cummax ? at::ge(rest, last) : at::le(rest, last);
  const Tensor taken = beyond.__or__(at::isnan(rest));
  places.copy_(at::where(taken, places + half, z.narrow(d, half - 1, 1)));
  rest.copy_(at::where(taken, rest, last));
}

// Writes y and, if the op gives indices, z. y has the dtype of `self`.
void scan(ScanOp op, const Tensor& y, const Tensor& z, const Tensor& self, int64_t dim) {
  check_dtype(y, self.scalar_type());
  if (z.defined()) {
    check_dtype(z, at::kLong);
  }
  if (self.numel() == 0) {
    return;
  }
  if (!y.is_contiguous() || (z.defined() && !z.is_contiguous())) {
    const Tensor packed_y = empty_webgpu(y.sizes(), y.scalar_type(), y.device());
    const Tensor packed_z =
        z.defined() ? empty_webgpu(z.sizes(), z.scalar_type(), z.device()) : Tensor();
    scan(op, packed_y, packed_z, self, dim);
    y.copy_(packed_y);
    if (z.defined()) {
      z.copy_(packed_z);
    }
    return;
  }
  const int64_t d = c10::maybe_wrap_dim(dim, self.dim());
  if (!is_countable(self)) {
    const auto part = [&](int64_t along, int64_t begin, int64_t size) {
      scan(op, y.narrow(along, begin, size), z.defined() ? z.narrow(along, begin, size) : Tensor(),
           self.narrow(along, begin, size), dim);
    };
    if (!in_halves(self.sizes(), d, part)) {
      in_halves(self.sizes(), -1, part);
      join_halves(op, y, z, d);
    }
    return;
  }
  const Tensor x = self.contiguous();
  kernel::Params params;
  params.length = x.dim() == 0 ? 1 : static_cast<uint32_t>(x.size(d));
  params.inner =
      x.dim() == 0 ? 1 : static_cast<uint32_t>(c10::multiply_integers(x.sizes().slice(d + 1)));
  params.rows = static_cast<uint32_t>(x.numel()) / params.length;
  const RowLanes lanes(params.length, params.inner, kPerLane);
  params.lanes_log2 = lanes.lanes_log2;
  params.lanes_first = lanes.lanes_first;

  const uint64_t blocks = lanes.workgroups(params.rows);
  const uint32_t tile = lanes.lanes() * kPerLane;
  params.segments = static_cast<uint32_t>(std::clamp<uint64_t>(
      std::min<uint64_t>(kMaxSegments / blocks, params.length / (tile * kTilesPerSegment)), 1,
      kMaxSegments));
  params.segment = (params.length + params.segments - 1) / params.segments;
  if (params.segments == 1) {
    dispatch(op, Stage::kWhole, params, blocks, y, z, x, {});
    return;
  }
  const Kind kind = info(*native_dtype(x.scalar_type())).kind;
  const std::array<int64_t, 1> count = {static_cast<int64_t>(params.rows) * params.segments};
  const Totals totals = {empty_webgpu(count, accumulator_type(kind), x.device()),
                         row(op).indexed ? empty_webgpu(count, at::kInt, x.device()) : Tensor()};
  dispatch(op, Stage::kTotals, params, blocks * params.segments, y, z, x, totals);
  dispatch(op, Stage::kSegments, params, blocks * params.segments, y, z, x, totals);
}

template <auto& stub, ScanOp op, class Result>
void run_row(Result result, const Tensor& self, int64_t dim) {
  dim = at::maybe_wrap_dim(dim, self.dim()); // logcumsumexp passes the caller's, not wrapped
  if (result.sizes() != self.sizes()) { // logcumsumexp's out=, which no meta function has resized
    at::native::resize_output(result, self.sizes());
  }
  if (can_scan(op, self)) {
    scan(op, result, {}, self, dim);
    return;
  }
  note_fallback(std::string("aten::").append(row(op).name));
  Tensor host = result.cpu();
  call_on_cpu(stub, host, self.cpu(), dim);
  result.copy_(host);
}

// The stubs differ in whether the result is const.
template <class Function>
struct ResultOf;
template <class Result, class... Rest>
struct ResultOf<void (*)(Result, Rest...)> {
  using type = Result;
};

#define TW_REGISTER(op, stub)                                                                      \
  const RegisterStub<decltype(stub)> register_##op(                                                \
      stub, &run_row<stub, ScanOp::op, typename ResultOf<decltype(stub_function(stub))>::type>);
TW_SCAN_STUBS(TW_REGISTER)
#undef TW_REGISTER

void cummax_helper(const Tensor& self, Tensor& values, Tensor& indices, int64_t dim) {
  if (!can_scan(ScanOp::cummax, self)) {
    call_cpu_fallback<at::_ops::_cummax_helper>::call(self, values, indices, dim);
    return;
  }
  scan(ScanOp::cummax, values, indices, self, dim);
}

void cummin_helper(const Tensor& self, Tensor& values, Tensor& indices, int64_t dim) {
  if (!can_scan(ScanOp::cummin, self)) {
    call_cpu_fallback<at::_ops::_cummin_helper>::call(self, values, indices, dim);
    return;
  }
  scan(ScanOp::cummin, values, indices, self, dim);
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_cummax_helper", cummax_helper);
  m.impl("_cummin_helper", cummin_helper);
}

} // namespace
} // namespace torch_webgpu
