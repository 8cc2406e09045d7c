// Which rows of the table of products are the fastest on this adapter, by measurement, for
// torch.webgpu.tunable. Off at first.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "ops/matmul/strategies.h"

namespace torch_webgpu::tuning {

/// What a choice is remembered for: products with equal keys take the same kernels.
struct Key {
  int64_t device = 0;
  at::ScalarType type = at::kFloat, out_type = at::kFloat;
  int64_t batch = 0, m = 0, n = 0, k = 0;
  int64_t traits = 0; // of strides, alignments and the epilogue, as bits
  bool operator==(const Key&) const = default;
};

struct Result {
  Key key;
  const Strategy* row; // null: the one of the lowest cost
  double milliseconds; // 0: unknown
};

struct Settings {
  bool tunes = true;        // Products that are not known yet are measured.
  double milliseconds = 30; // for each row, about
  int64_t iterations = 100; // for each row, at most
};

namespace detail {
inline std::atomic<bool> enabled{false};
} // namespace detail

/// Whether products take remembered rows.
inline bool is_enabled() { return detail::enabled.load(std::memory_order_relaxed); }
void enable(bool value);
Settings settings();
void set_settings(const Settings& settings);

/// The row that is remembered for this product on the device of its operands; null if none is.
const Strategy* chosen(const Product& product);

/// Measures the rows that take a product without a remembered one, with `run`, and remembers the
/// fastest. Left alone are parts of other products, convolutions, sums of no products, those of few
/// rows, with a wanted or forced row, a fusion with a second result, or a C that is spread wide,
/// and all while a graph is captured or for another target.
void measure(const Gemm& problem, const ShaderTarget& target,
             const std::function<void(const Gemm&, const Strategy&)>& run);

std::vector<Result> results();
void add(const Result& result);

} // namespace torch_webgpu::tuning
