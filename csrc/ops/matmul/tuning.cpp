#include "ops/matmul/tuning.h"

#include <c10/util/Exception.h>
#include <c10/util/hash.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <mutex>
#include <unordered_map>

#include "backend/empty.h"
#include "backend/graph.h"
#include "backend/tensor.h"
#include "launch/target_scope.h"

namespace torch_webgpu::tuning {
namespace {

struct Hash {
  size_t operator()(const Key& key) const {
    return c10::get_hash(key.device, static_cast<int>(key.type), static_cast<int>(key.out_type),
                         key.batch, key.m, key.n, key.k, key.traits);
  }
};

struct Choice {
  const Strategy* row;
  double milliseconds;
};

// Guarded by the mutex.
struct State {
  std::mutex mutex;
  std::unordered_map<Key, Choice, Hash> choices;
  Settings settings;
};

State& state() {
  static State instance;
  return instance;
}

int64_t traits_of(const Product& product) {
  const Gemm& g = product.gemm;
  const auto bytes = static_cast<int64_t>(g.a.tensor->element_size());
  const int64_t group = 16 / bytes;
  const MatrixView b = g.b.transposed();
  const auto aligned = [](const MatrixView& view, int64_t unit) {
    return view.offset % unit == 0 && view.batch % unit == 0 &&
           std::max(view.row, view.column) % unit == 0;
  };
  const std::array<bool, 12> bits{
      product.a_along_k,
      product.b_along_k,
      has_groups(g, g.a, g.m, product.a_along_k, group),
      has_groups(g, b, g.n, product.b_along_k, group),
      g.a.batch == 0,
      g.b.batch == 0,
      g.c.column == 1,
      g.c.row == 1,
      aligned(g.c, 4),
      g.d.tensor != nullptr,
      g.fusion != nullptr,
      allows_less_precision(product),
  };
  int64_t traits = 0;
  for (size_t i = 0; i < bits.size(); ++i) {
    traits |= int64_t{bits[i]} << i;
  }
  return traits;
}

Key key_of(const Product& product) {
  const Gemm& g = product.gemm;
  return {.device = g.a.tensor->device().index(),
          .type = g.a.tensor->scalar_type(),
          .out_type = g.c.tensor->scalar_type(),
          .batch = g.batch,
          .m = g.m,
          .n = g.n,
          .k = g.k,
          .traits = traits_of(product)};
}

// The fastest row of a product of few rows may be one for its transpose, which a Result cannot say.
bool may_flip(const Gemm& g) { return g.m <= kFewColumns && g.m < g.n; }

bool is_measurable(const Gemm& g) {
  const bool is_plain = g.conv == nullptr && g.blocks == 1 && !g.is_part && g.wanted == nullptr &&
                        (g.fusion == nullptr || g.fusion->second.tensor == nullptr);
  return is_plain && g.k > 0 && !may_flip(g) && !is_strategy_forced() &&
         !CapturedGraph::is_capturing() &&
         torch_webgpu::detail::target_scopes.load(std::memory_order_relaxed) == 0;
}

double milliseconds_of(const std::function<void()>& run, int64_t times, Context& context) {
  const auto begin = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < times; ++i) {
    run();
  }
  context.stream.drain();
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  return took.count() / static_cast<double>(times);
}

} // namespace

void enable(bool value) { detail::enabled = value; }

Settings settings() {
  const std::lock_guard lock(state().mutex);
  return state().settings;
}

void set_settings(const Settings& settings) {
  const std::lock_guard lock(state().mutex);
  state().settings = settings;
}

const Strategy* chosen(const Product& product) {
  const Gemm& g = product.gemm;
  if (g.conv != nullptr || g.blocks != 1 || g.is_part) {
    return nullptr;
  }
  const Key key = key_of(product);
  const std::lock_guard lock(state().mutex);
  const auto found = state().choices.find(key);
  return found == state().choices.end() ? nullptr : found->second.row;
}

void measure(const Gemm& problem, const ShaderTarget& target,
             const std::function<void(const Gemm&, const Strategy&)>& run) {
  if (!is_measurable(problem)) {
    return;
  }
  const Key key = key_of(Product(problem));
  Settings how;
  {
    const std::lock_guard lock(state().mutex);
    how = state().settings;
    if (!how.tunes || state().choices.contains(key)) {
      return;
    }
  }
  // The rows write to scratch memory, because C may be D and would be added several times. The
  // scratch has C's strides and alignment. A C that is spread over more than so many times its
  // elements is not measured.
  constexpr int64_t kAlignment = 8;
  constexpr int64_t kMostRoom = 4;
  Gemm g = problem;
  const MatrixView& c = problem.c;
  const int64_t reach = (g.batch - 1) * c.batch + (g.m - 1) * c.row + (g.n - 1) * c.column;
  if (reach + 1 > kMostRoom * g.batch * g.m * g.n) {
    return;
  }
  const int64_t offset = c.offset % kAlignment;
  at::Tensor scratch;
  try {
    scratch = empty_webgpu({offset + reach + 1}, c.tensor->scalar_type(), c.tensor->device());
  } catch (const c10::OutOfMemoryError&) {
    return; // The product itself may still have room.
  }
  g.c.tensor = &scratch;
  g.c.offset = offset;
  const Product judged(g);
  Context& context = context_of(scratch);
  context.stream.drain();

  // A row with an invocation for each element takes long for large products, and is not the fastest
  // there.
  constexpr int64_t kLarge = int64_t{1} << 26;
  const bool is_large = g.batch * g.m * g.n * g.k > kLarge;
  Choice best = {nullptr, std::numeric_limits<double>::max()};
  for (const Strategy& row : product_strategies()) {
    if ((is_large && row.longest_k != 0) || !row.accepts(judged, row, target)) {
      continue;
    }
    const auto once = [&] { run(g, row); };
    try {
      milliseconds_of(once, 1, context); // makes its pipelines
      const double one = milliseconds_of(once, 1, context);
      const auto wanted = static_cast<int64_t>(how.milliseconds / std::max(one, 1e-3));
      const int64_t times = std::clamp<int64_t>(wanted, 1, std::max<int64_t>(how.iterations, 1));
      const double milliseconds = times > 1 ? milliseconds_of(once, times, context) : one;
      if (milliseconds < best.milliseconds) {
        best = {&row, milliseconds};
      }
    } catch (const c10::OutOfMemoryError&) {
      continue; // a row that needs more memory than there is, is not taken
    }
  }
  if (best.row != nullptr) {
    add({key, best.row, best.milliseconds});
  }
}

std::vector<Result> results() {
  const std::lock_guard lock(state().mutex);
  std::vector<Result> all;
  for (const auto& [key, choice] : state().choices) {
    all.push_back({key, choice.row, choice.milliseconds});
  }
  return all;
}

void add(const Result& result) {
  const std::lock_guard lock(state().mutex);
  state().choices[result.key] = {result.row, result.milliseconds};
}

} // namespace torch_webgpu::tuning
