#include "ops/fft/fft_plan.h"

#include <ATen/ops/_fft_c2c.h>
#include <ATen/ops/zeros.h>
#include <c10/util/complex.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <mutex>
#include <numbers>
#include <utility>

#include "backend/empty.h"
#include "backend/graph.h"
#include "backend/tensor.h"
#include "runtime/context.h"
#include "wgsl/target.h"

namespace torch_webgpu {
namespace {

using at::Tensor;

constexpr std::array<uint32_t, 8> kRadices = {8, 5, 4, 3, 2, 7, 11, 13};
// Workgroup memory in addition to the elements: `rows` and the gaps of `work` in fft.wgsl.
constexpr uint32_t kRowBytes = kFftMaxRows * 20;
constexpr uint32_t kGap = 16;
constexpr uint32_t kCapacity = 2048;
constexpr uint64_t kMaxTableBytes = 64 << 20; // of all tables

uint64_t without_radices(uint64_t length) {
  for (uint32_t prime : {2, 3, 5, 7, 11, 13}) {
    while (length % prime == 0) {
      length /= prime;
    }
  }
  return length;
}

// The length of a convolution: at least `least`, and a product of powers of 2, 3 and 5. It is a
// power of two if that fits workgroup memory, else the shortest such length.
uint64_t convolution_length(uint64_t least, uint32_t capacity) {
  uint64_t best = std::bit_ceil(least);
  if (best <= capacity) {
    return best;
  }
  for (uint64_t fives = 1; fives < best; fives *= 5) {
    for (uint64_t odd = fives; odd < best; odd *= 3) {
      best = std::min(best, odd * std::bit_ceil((least + odd - 1) / odd));
    }
  }
  return best;
}

// Adds `count` factors of at most `capacity` to the list, as equal as possible. Returns false
// if there are none.
bool split(uint32_t length, uint32_t count, uint32_t capacity, std::vector<uint32_t>& factors) {
  if (count == 1) {
    if (length <= capacity) {
      factors.push_back(length);
    }
    return length <= capacity;
  }
  std::vector<std::pair<double, uint32_t>> divisors; // by distance from the ideal
  const double ideal = std::log(length) / count;
  for (uint32_t divisor = 2; divisor <= std::min(capacity, length); ++divisor) {
    if (length % divisor == 0) {
      divisors.emplace_back(std::abs(std::log(divisor) - ideal), divisor);
    }
  }
  std::sort(divisors.begin(), divisors.end());
  for (const auto& [distance, divisor] : divisors) {
    factors.push_back(divisor);
    if (split(length / divisor, count - 1, capacity, factors)) {
      return true;
    }
    factors.pop_back();
  }
  return false;
}

// exp(-2 pi i k / n)
c10::complex<double> root(uint64_t k, uint64_t n) {
  const double angle = -2.0 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(n);
  return {std::cos(angle), std::sin(angle)};
}

// exp(-pi i k^2 / n), the exponent reduced exactly.
c10::complex<double> chirp(uint64_t k, uint64_t n) { return root(k * k % (2 * n), 2 * n); }

enum class Table : uint32_t { kRoots, kSplitRoots, kChirp, kFilterSpectrum };

class TableCache {
public:
  explicit TableCache(Context& context) : context_(context) {}

  /// The table; `value(k)` is called for each of its elements if it is not there yet.
  template <class Value>
  Tensor get(Table kind, uint32_t of, uint64_t size, Value&& value) {
    std::lock_guard<std::mutex> lock(mutex_);
    Tensor& table = tables_[{kind, of}];
    if (!table.defined()) {
      std::vector<c10::complex<float>> host(size);
      for (uint64_t k = 0; k < size; ++k) {
        host[k] = static_cast<c10::complex<float>>(value(k));
      }
      const uint64_t bytes = size * sizeof(host[0]);
      const Uncaptured scope(context_);
      table = empty_webgpu({static_cast<int64_t>(size)}, at::kComplexFloat, device_of(context_));
      context_.stream.upload(buffer_of(table), byte_offset(table), host.data(), bytes);
      bytes_ += bytes;
    }
    const Tensor result = table;
    if (bytes_ > kMaxTableBytes) { // drops all tables instead of tracking their use
      tables_.clear();
      bytes_ = 0;
    }
    return result;
  }

private:
  Context& context_;
  std::mutex mutex_;
  std::map<std::pair<Table, uint32_t>, Tensor> tables_;
  uint64_t bytes_ = 0;
};

const ContextSlot<TableCache> tables;

} // namespace

uint32_t fft_capacity(const ShaderTarget& target) {
  uint32_t capacity = kCapacity;
  while ((capacity + capacity / kGap) * 8 + kRowBytes > target.max_workgroup_storage) {
    capacity /= 2;
  }
  return capacity;
}

std::vector<uint32_t> fft_radices(uint32_t length) {
  std::vector<uint32_t> radices;
  for (uint32_t radix : kRadices) {
    while (length % radix == 0) {
      radices.push_back(radix);
      length /= radix;
    }
  }
  // Replaces 8 and 2 by 4 and 4, which is as many stages and less work.
  const auto eight = std::find(radices.begin(), radices.end(), 8u);
  const auto two = std::find(radices.begin(), radices.end(), 2u);
  if (eight != radices.end() && two != radices.end()) {
    *eight = *two = 4;
  }
  return radices;
}

FftPlan::FftPlan(uint32_t points, const ShaderTarget& target)
    : capacity(fft_capacity(target)), length(points) {
  if (without_radices(points) != 1) {
    convolves = true;
    const uint64_t padded = convolution_length(2 * static_cast<uint64_t>(points) - 1, capacity);
    TORCH_CHECK_NOT_IMPLEMENTED(padded < uint64_t{1} << 31, "fft(): a transform of ", points,
                                " points is too long");
    length = static_cast<uint32_t>(padded);
  }
  uint32_t count = 1;
  while (!split(length, count, capacity, factors)) {
    ++count;
  }
}

Tensor fft_roots(Context& context, uint32_t length) {
  return tables.of(context).get(Table::kRoots, length, length,
                                [&](uint64_t k) { return root(k, length); });
}

FftSplitRoots fft_split_roots(Context& context, uint32_t length) {
  const uint32_t shift = static_cast<uint32_t>(std::bit_width(length)) / 2;
  const uint32_t low = 1u << shift;
  const uint32_t high = (length >> shift) + 1;
  return {shift, tables.of(context).get(Table::kSplitRoots, length, low + high, [&](uint64_t k) {
            return root(k < low ? k : (k - low) << shift, length);
          })};
}

Tensor fft_chirp(Context& context, uint32_t points) {
  return tables.of(context).get(Table::kChirp, points, points,
                                [&](uint64_t k) { return chirp(k, points); });
}

Tensor fft_filter_spectrum(Context& context, uint32_t points, uint32_t length) {
  Tensor host; // computed when the first element is asked for
  const c10::complex<double>* values = nullptr;
  return tables.of(context).get(Table::kFilterSpectrum, points, length, [&](uint64_t k) {
    if (values == nullptr) {
      host = at::zeros({static_cast<int64_t>(length)}, at::kComplexDouble);
      auto* conjugate = host.mutable_data_ptr<c10::complex<double>>();
      for (uint64_t i = 0; i < points; ++i) {
        conjugate[i] = conjugate[(length - i) % length] =
            std::conj(chirp(i, points)) / static_cast<double>(length);
      }
      host = at::_fft_c2c(host, {0}, 0, true);
      values = host.const_data_ptr<c10::complex<double>>();
    }
    return values[k];
  });
}

} // namespace torch_webgpu
