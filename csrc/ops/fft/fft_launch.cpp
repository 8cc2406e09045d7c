#include "ops/fft/fft_launch.h"

#include <algorithm>
#include <array>
#include <bit>
#include <tuple>
#include <utility>
#include <vector>

#include "backend/empty.h"
#include "kernels/fft.h"
#include "launch/target_scope.h"
#include "ops/fft/fft_plan.h"

namespace torch_webgpu {
namespace {

using at::Tensor;

namespace kernel = kernels::fft;

constexpr size_t kMaxDims = std::tuple_size_v<decltype(kernel::Params::dims)>;
constexpr uint32_t kAcross = 16;              // neighbouring rows that fill a memory transaction
constexpr uint32_t kElements = 1024;          // elements that keep a workgroup busy
constexpr uint64_t kScratchBytes = 128 << 20; // limit for one intermediate result

// What a pass does besides transforming; the constants of fft.wgsl.
struct Steps {
  bool hermitian = false;
  bool chirp_in = false;
  bool convolves = false;
  bool twiddles = false;
  bool filters = false; // multiplies what it stores by the filter spectrum
  bool chirp_out = false;
};

// Where sequences are stored: in a tensor, or contiguous in scratch memory.
struct Place {
  Tensor tensor;
  uint32_t stride = 1;
  uint32_t sequence = 0; // distance between sequences; 0 if the tensor's strides give it
};

class Passes {
public:
  Passes(const char* op, const FftTransform& transform, const Tensor& x, const Tensor& y,
         int64_t dim)
      : op_(op), transform_(transform), context_(context_of(x)),
        plan_(static_cast<uint32_t>(transform.points), plan_target(context_)),
        x_{x, static_cast<uint32_t>(x.stride(dim))}, y_{y, static_cast<uint32_t>(y.stride(dim))} {
    for (int64_t d = 0; d < x.dim(); ++d) {
      if (d != dim && x.size(d) != 1) {
        dims_.push_back({x.size(d), x.stride(d), y.stride(d)});
        sequences_ *= x.size(d);
      }
    }
    // Sorted so that sequences with neighbouring numbers are close together in the output.
    std::stable_sort(dims_.begin(), dims_.end(),
                     [](const Dim& a, const Dim& b) { return a.y < b.y; });
    merge_dims();
  }

  bool too_many_dims() const { return dims_.size() > kMaxDims; }

  void run() {
    const bool single = plan_.factors.size() == 1;
    if (single) {
      run_single();
      return;
    }
    const uint64_t bytes = uint64_t{8} * plan_.length;
    const auto chunk = static_cast<int64_t>(std::max<uint64_t>(kScratchBytes / bytes, 1));
    for (first_ = 0; first_ < sequences_; first_ += chunk) {
      count_ = std::min(chunk, sequences_ - first_);
      const Place scratch = new_scratch();
      if (!plan_.convolves) {
        run_factors(x_, scratch, y_, {});
        continue;
      }
      const Place spectrum = new_scratch();
      run_factors(x_, scratch, spectrum, {.chirp_in = true, .filters = true, .to_y = false});
      run_factors(spectrum, scratch, y_, {.chirp_out = true, .from_x = false});
    }
  }

private:
  struct Dim {
    int64_t size, x, y;
  };

  // What only the first or the last pass does.
  struct Ends {
    bool chirp_in = false;
    bool filters = false;
    bool chirp_out = false;
    bool from_x = true;
    bool to_y = true;
  };

  void merge_dims() {
    std::vector<Dim> merged;
    for (const Dim& dim : dims_) { // innermost first
      if (!merged.empty() && dim.x == merged.back().x * merged.back().size &&
          dim.y == merged.back().y * merged.back().size) {
        merged.back().size *= dim.size;
      } else {
        merged.push_back(dim);
      }
    }
    dims_ = std::move(merged);
  }

  Place new_scratch() const {
    return {empty_webgpu({count_ * static_cast<int64_t>(plan_.length)}, at::kComplexFloat,
                         device_of(context_)),
            1, plan_.length};
  }

  void run_single() {
    count_ = sequences_;
    kernel::Params params = base_params(x_, y_);
    params.length = plan_.length;
    params.inner = params.outer = params.store_step = 1;
    Steps steps;
    steps.chirp_in = steps.convolves = steps.chirp_out = plan_.convolves;
    set_ends(params, steps, true, true);
    run_pass(params, x_, y_, steps);
  }

  // The passes of one transform. All but the last keep every element at its position.
  void run_factors(const Place& from, const Place& scratch, const Place& to, const Ends& ends) {
    uint32_t outer = 1;
    uint32_t inner = plan_.length;
    for (size_t k = 0; k < plan_.factors.size(); ++k) {
      const bool first = k == 0;
      const bool last = k + 1 == plan_.factors.size();
      const Place& source = first ? from : scratch;
      const Place& target = last ? to : scratch;
      kernel::Params params = base_params(source, target);
      params.length = plan_.factors[k];
      inner /= params.length;
      params.inner = inner;
      params.outer = outer;
      params.root_step = outer;
      params.store_step = last ? outer : inner;
      Steps steps{.chirp_in = first && ends.chirp_in,
                  .twiddles = !last,
                  .filters = last && ends.filters,
                  .chirp_out = last && ends.chirp_out};
      if (last) {
        // The digits of an index into `outer`, the last factor's digit first. In the result, the
        // first factor's digit has weight 1.
        uint32_t weight = outer;
        for (size_t d = k; d-- > 0;) {
          weight /= plan_.factors[d];
          params.digits.at(params.num_digits++) = {plan_.factors[d], weight};
        }
      }
      set_ends(params, steps, first && ends.from_x, last && ends.to_y);
      run_pass(params, source, target, steps);
      outer *= params.length;
    }
  }

  kernel::Params base_params(const Place& from, const Place& to) const {
    kernel::Params params;
    params.points = static_cast<uint32_t>(transform_.points);
    params.stored = plan_.length;
    params.first_sequence = static_cast<uint32_t>(first_);
    params.x_stride = from.stride;
    params.x_sequence = from.sequence;
    params.y_stride = to.stride;
    params.y_sequence = to.sequence;
    params.load_sign = params.scale = params.store_sign = 1.0f;
    params.num_dims = static_cast<uint32_t>(dims_.size());
    for (size_t d = 0; d < dims_.size(); ++d) {
      params.dims.at(d) = {static_cast<uint32_t>(dims_[d].size),
                           from.sequence != 0 ? 0 : static_cast<uint32_t>(dims_[d].x),
                           to.sequence != 0 ? 0 : static_cast<uint32_t>(dims_[d].y)};
    }
    return params;
  }

  // Sets what a pass does in addition if it reads x or writes y.
  void set_ends(kernel::Params& params, Steps& steps, bool from_x, bool to_y) const {
    const float sign = transform_.forward ? 1.0f : -1.0f;
    if (from_x) {
      params.load_sign = sign;
      steps.hermitian = transform_.from == FftSide::kHalf;
    }
    if (to_y) {
      params.store_sign = sign;
      params.scale = static_cast<float>(transform_.scale);
      params.stored = transform_.to == FftSide::kHalf ? params.points / 2 + 1 : params.points;
    }
  }

  // Whether neighbouring rows lie nearer to each other than neighbouring elements of a row.
  static bool across(const kernel::Params& params, uint32_t stride, uint32_t element_step,
                     uint32_t row_step, uint32_t sequence_stride) {
    const bool has_rows = params.inner * params.outer > 1;
    const uint64_t row = has_rows ? uint64_t{row_step} * stride : sequence_stride;
    return row < uint64_t{element_step} * stride;
  }

  void run_pass(kernel::Params& params, const Place& from, const Place& to,
                const Steps& steps) const {
    const std::vector<uint32_t> radices = fft_radices(params.length);
    params.num_stages = static_cast<uint32_t>(radices.size());
    for (size_t k = 0; k < radices.size(); ++k) {
      params.radices.at(k / 8) |= radices[k] << (4 * (k % 8));
    }
    params.transforms = steps.convolves ? 2 : 1;
    params.rows = static_cast<uint32_t>(count_) * params.inner * params.outer;
    // Rows are counted along inner first, then along outer.
    const uint32_t load_row = params.inner > 1 ? 1 : params.length;
    const uint32_t store_row = params.num_digits > 0 ? params.digits[0][1] : load_row;
    const uint32_t x_sequence = neighbour(params, from.sequence, 1);
    const uint32_t y_sequence = neighbour(params, to.sequence, 2);
    params.load_across = across(params, from.stride, params.inner, load_row, x_sequence);
    params.store_across = across(params, to.stride, params.store_step, store_row, y_sequence);
    const bool any_across = params.load_across != 0 || params.store_across != 0;
    const uint32_t wanted = std::max(kElements / params.length, any_across ? kAcross : 1);
    // A power of two: the kernel divides by it.
    params.rows_per_group =
        std::min(std::bit_floor(std::clamp(plan_.capacity / params.length, 1u,
                                           std::min(std::max(wanted, 1u), kFftMaxRows))),
                 std::bit_ceil(params.rows));

    // Keeps the tables alive until the pass is dispatched.
    std::vector<Tensor> tables;
    const auto keep = [&](Tensor table) -> const Tensor& {
      return tables.emplace_back(std::move(table));
    };
    kernel::Launch launch(op_);
    launch.y(to.tensor).x(from.tensor).roots(keep(fft_roots(context_, params.length)));
    if (steps.twiddles) {
      const FftSplitRoots roots = fft_split_roots(context_, plan_.length);
      params.root_shift = roots.shift;
      launch.twiddles(keep(roots.table));
    }
    if (steps.chirp_in || steps.chirp_out) {
      launch.chirp(keep(fft_chirp(context_, params.points)));
    }
    if (steps.convolves || steps.filters) {
      launch.filter_spectrum(keep(fft_filter_spectrum(context_, params.points, plan_.length)));
    }
    const auto has_radix = [&](uint32_t least, uint32_t most) {
      return std::any_of(radices.begin(), radices.end(), [&](uint32_t radix) {
        return radix % 2 != 0 && radix >= least && radix <= most;
      });
    };
    launch.capacity(plan_.capacity).max_rows(kFftMaxRows);
    launch.hermitian(steps.hermitian).chirp_in(steps.chirp_in).chirp_out(steps.chirp_out);
    launch.convolves(steps.convolves);
    launch.radix_3_or_5(has_radix(3, 5)).radix_7_to_13(has_radix(7, 13));
    const uint64_t groups =
        (uint64_t{params.rows} + params.rows_per_group - 1) / params.rows_per_group;
    launch.run(params, launch.grid_of_groups(groups), kernel::params_bytes(params.num_dims));
  }

  // The distance between neighbouring sequences, in elements.
  static uint32_t neighbour(const kernel::Params& params, uint32_t sequence, uint32_t side) {
    return sequence != 0 ? sequence : params.num_dims > 0 ? params.dims[0][side] : ~0u;
  }

  const char* op_;
  FftTransform transform_;
  Context& context_;
  FftPlan plan_;
  Place x_;
  Place y_;
  std::vector<Dim> dims_; // of the sequences, innermost first
  int64_t sequences_ = 1;
  int64_t first_ = 0; // the range of sequences to transform now
  int64_t count_ = 0;
};

// Bytes from a tensor's first element to its last.
uint64_t extent(const Tensor& tensor) {
  uint64_t last = 0;
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    last += static_cast<uint64_t>(tensor.stride(d)) * (tensor.size(d) - 1);
  }
  return (last + 1) * tensor.itemsize();
}

// The dimension other than `dim` that extends furthest in memory; `dim` if there is no other.
int64_t longest_besides(const Tensor& tensor, int64_t dim) {
  int64_t longest = dim;
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    if (d != dim && tensor.size(d) > 1 &&
        (longest == dim || tensor.stride(d) > tensor.stride(longest))) {
      longest = d;
    }
  }
  return longest;
}

// A copy in which `dim` is the innermost dimension.
Tensor with_innermost(const Tensor& tensor, int64_t dim) {
  return tensor.movedim(dim, -1).contiguous().movedim(-1, dim);
}

} // namespace

void fft_along(const char* op, const FftTransform& transform, const Tensor& x, const Tensor& y,
               int64_t dim) {
  if (y.numel() == 0) {
    return;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(transform.points < int64_t{1} << 30, op, "(): a transform of ",
                              transform.points, " points is too long");
  Passes passes(op, transform, x, y, dim);
  // A binding may cover some bytes around the tensor as well: see Launch::bind_as.
  const uint64_t limit = plan_target(x).max_storage_binding_size - 512;
  if (!passes.too_many_dims() && std::max(extent(x), extent(y)) <= limit) {
    passes.run();
    return;
  }
  const int64_t longest = longest_besides(y, dim);
  if (longest == dim) {
    passes.run(); // raises
    return;
  }
  // Each of several interleaved sequences extends over almost the whole tensor. Splitting the
  // tensor into fewer sequences would not make it fit a binding, so they are copied first.
  for (const Tensor* side : {&x, &y}) {
    const auto last = static_cast<uint64_t>(side->stride(dim)) * (side->size(dim) - 1);
    if (side->stride(dim) > 1 && (last + 1) * side->itemsize() > limit) {
      const Tensor result =
          empty_webgpu(y.movedim(dim, -1).sizes(), y.scalar_type(), y.device()).movedim(-1, dim);
      fft_along(op, transform, with_innermost(x, dim), result, dim);
      y.copy_(result);
      return;
    }
  }
  const int64_t half = y.size(longest) / 2;
  for (const auto& [start, length] :
       {std::pair(int64_t{0}, half), std::pair(half, y.size(longest) - half)}) {
    fft_along(op, transform, x.narrow(longest, start, length), y.narrow(longest, start, length),
              dim);
  }
}

} // namespace torch_webgpu
