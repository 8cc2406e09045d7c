#include "ops/conv/conv_gemm.h"

#include <ATen/ceil_div.h>
#include <ATen/ops/empty_like.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "backend/empty.h"
#include "backend/tensor.h"
#include "launch/binding_list.h"
#include "launch/target_scope.h"
#include "ops/conv/conv_pack.h"
#include "ops/matmul/matmul_gemm.h"
#include "ops/matmul/strategies.h"
#include "runtime/context.h"

namespace torch_webgpu {
namespace {

using at::Tensor;
using kernels::conv_product::Form;
using Params = kernels::conv_product::Params;
using Words = std::array<uint32_t, 4>;

void set(Words& words, at::IntArrayRef values, int64_t missing) {
  for (int64_t d = 0; d < kSpatial; ++d) {
    words[d] = static_cast<uint32_t>(spatial(values, d, missing));
  }
}

at::IntArrayRef spatial_sizes(const Tensor& tensor) { return tensor.sizes().slice(2); }

// Divisors that split a flat index over `sizes` into coordinates.
void set_divisors(at::IntArrayRef sizes, Words& volume, Words& plane, Words& row) {
  const int64_t width = spatial(sizes, 2, 1);
  const int64_t area = spatial(sizes, 1, 1) * width;
  row = divisor_words(static_cast<uint32_t>(width));
  plane = divisor_words(static_cast<uint32_t>(area));
  volume = divisor_words(static_cast<uint32_t>(spatial(sizes, 0, 1) * area));
}

Tensor collapsible(const Tensor& tensor) {
  return has_position_stride(tensor) ? tensor : tensor.contiguous();
}

int64_t numel(at::IntArrayRef sizes) { return c10::multiply_integers(sizes); }

// The matrix with channels as rows, and images and positions as columns. Groups are the batch.
MatrixView by_positions(const Tensor& tensor, int64_t groups) {
  return {.tensor = &tensor,
          .offset = tensor.storage_offset(),
          .batch = tensor.size(1) / groups * tensor.stride(1),
          .row = tensor.stride(1),
          .column = position_stride(tensor),
          .reach = reach_of(tensor),
          .image = tensor.stride(0)};
}

// The operand whose elements are addressed by tap and position together. The kernel computes the
// addresses. `row` and `column` are no real strides: the smaller one only says along which
// dimension to load.
MatrixView gathered(const Tensor& tensor, int64_t groups, bool positions_are_rows) {
  return {.tensor = &tensor,
          .offset = tensor.storage_offset(),
          .batch = tensor.size(1) / groups * tensor.stride(1),
          .row = positions_are_rows ? 0 : 1,
          .column = positions_are_rows ? 1 : 0,
          .reach = reach_of(tensor)};
}

// The address parameters that the three forms share. `positions` are the sizes of the dimensions in
// which positions are counted.
Convolution start(Form form, const Tensor& w, const Tensor& b, at::IntArrayRef positions,
                  const ConvGeometry& geometry) {
  Convolution conv;
  conv.form = form;
  for (int64_t stride : geometry.stride) {
    conv.strided |= stride != 1;
  }
  Params& params = conv.params;
  set_divisors(spatial_sizes(w), params.tap_volume, params.tap_plane, params.tap_row);
  set_divisors(positions, params.position_volume, params.position_plane, params.position_row);
  set(params.b_strides, b.strides().slice(2), 0);
  set(params.b_sizes, spatial_sizes(b), 1);
  set(params.stride, geometry.stride, 1);
  set(params.padding, geometry.padding, 0);
  set(params.dilation, geometry.dilation, 1);
  params.b_image = static_cast<uint32_t>(b.stride(0));
  params.b_channel = static_cast<uint32_t>(b.stride(1));
  return conv;
}

// What conv_few.wgsl, conv_planes.wgsl and conv_squares.wgsl take.
void set_few(Convolution& conv, const Tensor& w, const Tensor& c, at::IntArrayRef grid) {
  Convolution::Few& few = conv.few;
  set_divisors(grid, few.volume, few.plane, few.row);
  set(few.taps, spatial_sizes(w), 1);
  set(few.sizes, spatial_sizes(c), 1);
  few.columns = c.size(0) * numel(grid);
}

void add_bias(Gemm& problem, const Tensor& bias, int64_t groups) {
  if (bias.defined()) {
    problem.d = {.tensor = &bias,
                 .offset = bias.storage_offset(),
                 .batch = bias.size(0) / groups * bias.stride(0),
                 .row = bias.stride(0)};
  }
}

// Whether one of these is larger than a storage binding, so that the images must be processed in
// parts.
bool needs_split(const Tensor& x, const Tensor& y, const ConvEpilogue& epilogue = {}) {
  const ShaderTarget& target = plan_target(x);
  const auto is_large = [&](const Tensor& tensor) {
    return tensor.defined() && buffer_of(tensor).size > target.max_storage_binding_size &&
           static_cast<uint64_t>(reach_of(tensor) + 1) * tensor.itemsize() >
               BindingList::safe_reach(target);
  };
  return x.size(0) > 1 && (is_large(x) || is_large(y) || is_large(epilogue.second) ||
                           std::ranges::any_of(epilogue.operands, is_large));
}

// Calls convolve(x, y, epilogue) for each half of the images.
template <typename Convolve>
void for_halves(const Tensor& x, const Tensor& y, const ConvEpilogue& epilogue,
                Convolve&& convolve) {
  const int64_t half = x.size(0) / 2;
  const auto part = [&](int64_t begin, int64_t size) {
    const auto narrowed = [&](const Tensor& tensor) {
      return tensor.defined() ? tensor.narrow(0, begin, size) : tensor;
    };
    ConvEpilogue of_part = epilogue;
    std::ranges::transform(epilogue.operands, of_part.operands.begin(), narrowed);
    of_part.second = narrowed(epilogue.second);
    convolve(x.narrow(0, begin, size), y.narrow(0, begin, size), of_part);
  };
  part(0, half);
  part(half, x.size(0) - half);
}

// `view` tells where the elements of a tensor lie.
template <typename View>
Fusion fusion_of(const ConvEpilogue& epilogue, View&& view) {
  const auto given = [&](const Tensor& tensor) {
    return tensor.defined() ? view(tensor) : MatrixView();
  };
  Fusion fusion(epilogue.text);
  std::ranges::transform(epilogue.operands, fusion.operands.begin(), given);
  fusion.second = given(epilogue.second);
  return fusion;
}

// Index arithmetic of the kernels is exact below 2^31.
void run(Gemm& problem, const ConvEpilogue& epilogue = {}) {
  TORCH_CHECK_NOT_IMPLEMENTED(std::max(problem.n, problem.k) < int64_t{1} << 31,
                              "a convolution over 2^31 or more positions");
  const Fusion fusion = fusion_of(
      epilogue, [&](const Tensor& tensor) { return by_positions(tensor, problem.batch); });
  problem.fusion = epilogue.text != 0 ? &fusion : nullptr;
  problem.wanted = epilogue.wanted;
  gemm(problem);
}

// A product and the addresses of its elements, to which the product points.
struct ConvProduct {
  Convolution conv;
  Gemm gemm;

  ConvProduct(Convolution of, const ConvGeometry& geometry) : conv(of) {
    gemm.op = "convolution";
    gemm.batch = geometry.groups;
    gemm.conv = &conv;
  }
  ConvProduct(const ConvProduct&) = delete;
  ConvProduct& operator=(const ConvProduct&) = delete;
};

// `w` is contiguous, but for a row that lays it out.
struct OutputProduct : ConvProduct {
  OutputProduct(const Tensor& y, const Tensor& x, const Tensor& w, const ConvGeometry& geometry)
      : ConvProduct(start(Form::output, w, x, spatial_sizes(y), geometry), geometry) {
    conv.params.c_outer = static_cast<uint32_t>(y.stride(0));
    gemm.m = w.size(0) / geometry.groups;
    gemm.k = numel(w.sizes().slice(1));
    gemm.n = y.size(0) * numel(spatial_sizes(y));
    gemm.a = {.tensor = &w,
              .offset = w.storage_offset(),
              .batch = gemm.m * gemm.k,
              .row = gemm.k,
              .column = 1};
    gemm.b = gathered(x, geometry.groups, false);
    gemm.c = by_positions(y, geometry.groups);
    set_few(conv, w, y, spatial_sizes(y));
    conv.few.channels = w.size(1);
    conv.few.channel_stride = numel(spatial_sizes(w));
  }
};

struct InputProduct : ConvProduct {
  InputProduct(const Tensor& x, const Tensor& y, const Tensor& w, const ConvGeometry& geometry)
      : ConvProduct(start(Form::input, w, y, spatial_sizes(x), geometry), geometry) {
    const int64_t taps = numel(spatial_sizes(w));
    const int64_t y_channels = w.size(0) / geometry.groups;
    conv.params.c_outer = static_cast<uint32_t>(x.stride(0));
    conv.params.a_outer = static_cast<uint32_t>(w.size(1) * taps);
    gemm.m = w.size(1);
    gemm.k = y_channels * taps;
    gemm.n = x.size(0) * numel(spatial_sizes(x));
    gemm.a = {.tensor = &w,
              .offset = w.storage_offset(),
              .batch = y_channels * gemm.m * taps,
              .row = taps,
              .column = 1,
              .reach = w.numel() - 1};
    gemm.b = gathered(y, geometry.groups, false);
    gemm.c = by_positions(x, geometry.groups);
    // Pairs begin where a position and the padding add up to an even number.
    std::vector<int64_t> grid = spatial_sizes(x).vec();
    for (size_t d = 0; d < grid.size(); ++d) {
      const int64_t stride = geometry.stride[d];
      grid[d] = (grid[d] - 1 + geometry.padding[d] % stride) / stride + 1;
    }
    set_few(conv, w, x, grid);
    conv.few.channels = y_channels;
    conv.few.channel_stride = w.size(1) * taps;
  }
};

// `w` is contiguous, and positions of y have one stride.
struct WeightProduct : ConvProduct {
  WeightProduct(const Tensor& w, const Tensor& x, const Tensor& y, const ConvGeometry& geometry)
      : ConvProduct(start(Form::weight, w, x, spatial_sizes(y), geometry), geometry) {
    conv.params.a_outer = static_cast<uint32_t>(y.stride(0));
    gemm.m = w.size(0) / geometry.groups;
    gemm.n = numel(w.sizes().slice(1));
    gemm.k = y.size(0) * numel(spatial_sizes(y));
    gemm.a = by_positions(y, geometry.groups);
    gemm.b = gathered(x, geometry.groups, true);
    gemm.c = {.tensor = &w,
              .offset = w.storage_offset(),
              .batch = gemm.m * gemm.n,
              .row = gemm.n,
              .column = 1};
  }
};

// ---- Convolutions with one tap at every position: products of matrices with strides

// A stride or dilation of 1 in each dimension.
at::IntArrayRef ones(int64_t dims) {
  static constexpr std::array<int64_t, 3> kOnes{1, 1, 1};
  return at::IntArrayRef(kOnes).slice(0, dims);
}

ConvGeometry without_stride(const ConvGeometry& geometry) {
  return {ones(static_cast<int64_t>(geometry.stride.size())), geometry.padding, geometry.dilation,
          geometry.groups};
}

bool is_pointwise(const Tensor& w, const ConvGeometry& geometry) {
  const auto all = [](at::IntArrayRef values, int64_t wanted) {
    return std::ranges::all_of(values, [=](int64_t value) { return value == wanted; });
  };
  return geometry.groups == 1 && all(spatial_sizes(w), 1) && all(geometry.stride, 1) &&
         all(geometry.padding, 0);
}

// The matrix with channels as rows and positions as columns. Images are further columns if they
// are `joined`, else the batch.
MatrixView by_channels(const Tensor& tensor, bool joined) {
  const bool by_images = joined && numel(spatial_sizes(tensor)) == 1;
  return {.tensor = &tensor,
          .offset = tensor.storage_offset(),
          .batch = joined ? 0 : tensor.stride(0),
          .row = tensor.stride(1),
          .column = by_images ? tensor.stride(0) : position_stride(tensor)};
}

struct Pointwise {
  Gemm gemm;
  bool joined; // images are columns
};

// `to` [images, channels, positions...] = A @ `from` as a plain product, without what follows it;
// nothing if they do not lie so, or if that does not suit.
std::optional<Pointwise> pointwise(const Tensor& to, const Tensor& from, const MatrixView& a,
                                   const ConvEpilogue& epilogue) {
  constexpr int64_t kLeastColumns = 32; // fewer fill too little of a tile
  const int64_t positions = numel(spatial_sizes(to));
  if (!has_position_stride(from) || spatial_sizes(to) != spatial_sizes(from)) {
    return std::nullopt;
  }
  const auto fits = [](const Tensor& tensor) {
    return !tensor.defined() || has_one_stride(tensor);
  };
  const bool joined = fits(to) && fits(from) && fits(epilogue.second) &&
                      std::ranges::all_of(epilogue.operands, fits);
  if (!joined && positions < kLeastColumns) {
    return std::nullopt;
  }
  Gemm gemm;
  gemm.op = "convolution";
  gemm.batch = joined ? 1 : to.size(0);
  gemm.m = to.size(1);
  gemm.k = from.size(1);
  gemm.n = joined ? to.size(0) * positions : positions;
  gemm.a = a;
  gemm.b = by_channels(from, joined);
  gemm.c = by_channels(to, joined);
  gemm.wanted = epilogue.wanted;
  return Pointwise{gemm, joined};
}

void run(Pointwise product, const Tensor& bias, const ConvEpilogue& epilogue) {
  if (bias.defined()) {
    product.gemm.d = {.tensor = &bias, .offset = bias.storage_offset(), .row = bias.stride(0)};
  }
  const Fusion fusion = fusion_of(
      epilogue, [&](const Tensor& tensor) { return by_channels(tensor, product.joined); });
  product.gemm.fusion = epilogue.text != 0 ? &fusion : nullptr;
  gemm(product.gemm);
}

std::optional<Pointwise> pointwise_output(const Tensor& y, const Tensor& x, const Tensor& w,
                                          const ConvGeometry& geometry,
                                          const ConvEpilogue& epilogue) {
  if (!is_pointwise(w, geometry)) {
    return std::nullopt;
  }
  const MatrixView a{
      .tensor = &w, .offset = w.storage_offset(), .row = w.stride(0), .column = w.stride(1)};
  return pointwise(y, x, a, epilogue);
}

std::optional<Pointwise> pointwise_input(const Tensor& x, const Tensor& y, const Tensor& w,
                                         const ConvGeometry& geometry,
                                         const ConvEpilogue& epilogue) {
  if (!is_pointwise(w, geometry)) {
    return std::nullopt;
  }
  const MatrixView a{
      .tensor = &w, .offset = w.storage_offset(), .row = w.stride(1), .column = w.stride(0)};
  return pointwise(x, y, a, epilogue);
}

// The gradient of the weight: K are the positions of all images. Images that lie apart are its
// blocks. Each is counted as whole steps of K, so few positions waste much of a step.
std::optional<Gemm> pointwise_weight(const Tensor& w, const Tensor& x, const Tensor& y,
                                     const ConvGeometry& geometry) {
  constexpr int64_t kLeast = 32;
  if (!is_pointwise(w, geometry) || spatial_sizes(x) != spatial_sizes(y) ||
      !has_position_stride(x) || !has_position_stride(y)) {
    return std::nullopt;
  }
  const bool joined = has_one_stride(x) && has_one_stride(y);
  const int64_t positions = numel(spatial_sizes(y));
  if (!joined && std::min({w.size(0), w.size(1), positions}) < kLeast) {
    return std::nullopt;
  }
  Gemm gemm;
  gemm.op = "convolution";
  gemm.m = w.size(0);
  gemm.n = w.size(1);
  gemm.k = joined ? y.size(0) * positions : positions;
  gemm.blocks = joined ? 1 : y.size(0);
  gemm.a = by_channels(y, joined);
  gemm.b = by_channels(x, joined).transposed();
  gemm.c = {.tensor = &w, .offset = w.storage_offset(), .row = w.stride(0), .column = w.stride(1)};
  if (!joined) {
    for (auto [view, tensor] : {std::pair(&gemm.a, &y), std::pair(&gemm.b, &x)}) {
      view->image = std::exchange(view->batch, 0);
      view->reach = reach_of(*tensor);
    }
  }
  return gemm;
}

// ---- Convolutions with groups of channels: copies of the tensors whose channels are innermost

// Whether such copies describe the convolution, if a row of the table takes it.
bool has_channel_groups(const Tensor& x, const Tensor& y, const Tensor& w,
                        const ConvGeometry& geometry, Form form) {
  constexpr int64_t kMost = int64_t{1} << 31; // that kernels count
  const bool is_taken = x.scalar_type() == at::kFloat || x.scalar_type() == at::kHalf ||
                        x.scalar_type() == at::kBFloat16;
  if (!is_taken || x.numel() == 0 || y.numel() == 0) {
    return false;
  }
  const int64_t unit = group_size(x);
  const int64_t y_channels = w.size(0) / geometry.groups;
  const bool in_groups_of_units =
      geometry.groups == 1 || (w.size(1) % unit == 0 && y_channels % unit == 0);
  const auto fits = [](const Tensor& tensor) {
    return tensor.numel() / tensor.size(1) * in_groups(tensor, tensor.size(1)) < kMost;
  };
  return in_groups_of_units && (form != Form::weight || y_channels % unit == 0) && fits(x) &&
         fits(y);
}

// A product that takes over copies of its operands. Without `copies` it serves to ask what it
// costs.
struct GroupedProduct : ConvProduct {
  GroupedProduct(Tensor of_a, Tensor of_b, Form form, const Tensor& w, int64_t channels,
                 at::IntArrayRef positions, const ConvGeometry& geometry)
      : ConvProduct(start(form, w, of_b, positions, geometry), geometry), a(std::move(of_a)),
        b(std::move(of_b)) {
    conv.grouped = true;
    set(conv.phases.taps, spatial_sizes(w), 1); // conv_steps.wgsl reads them without phases, too
    conv.params.channels = divisor_words(static_cast<uint32_t>(in_groups(w, channels)));
    gemm.b = gathered(b, geometry.groups, form != Form::weight); // along its channels
  }

  void set_weight(int64_t channels) {
    gemm.k = numel_of_taps * in_groups(b, channels);
    gemm.a = {.tensor = &a,
              .offset = a.storage_offset(),
              .batch = gemm.m * gemm.k,
              .row = gemm.k,
              .column = 1};
  }

  Tensor a, b;
  int64_t numel_of_taps = 1;
};

struct GroupedOutput : GroupedProduct {
  GroupedOutput(const Tensor& y, const Tensor& x, const Tensor& w, const ConvGeometry& geometry,
                bool copies)
      : GroupedProduct(copies ? grouped_weight(w, geometry.groups, false) : w,
                       copies ? grouped_images(x) : x, Form::output, w, w.size(1), spatial_sizes(y),
                       geometry) {
    conv.params.c_outer = static_cast<uint32_t>(y.stride(0));
    numel_of_taps = numel(spatial_sizes(w));
    gemm.m = w.size(0) / geometry.groups;
    gemm.n = y.size(0) * numel(spatial_sizes(y));
    gemm.c = by_positions(y, geometry.groups);
    set_weight(w.size(1));
  }
};

// The phases of conv_groups.wgsl, where there are several and they pay.
class Phases {
public:
  Phases(const Tensor& x, const Tensor& w, const ConvGeometry& geometry)
      : sizes_(spatial_sizes(x).vec()) {
    constexpr int64_t kMostTaps = int64_t{1} << 16; // see tap_in_phase
    constexpr int64_t kLeastColumns = 64;           // fewer waste most of a tile in each phase
    const at::IntArrayRef taps = spatial_sizes(w);
    Convolution::Phases found;
    for (int64_t d = 0; d < kSpatial; ++d) {
      const int64_t stride = spatial(geometry.stride, d, 1);
      const int64_t dilation = spatial(geometry.dilation, d, 1);
      const int64_t common = std::gcd(stride, dilation);
      const int64_t step = stride / common;
      found.count *= stride;
      found.step[d] = static_cast<uint32_t>(step);
      found.inverse[d] = static_cast<uint32_t>(inverse(dilation / common, step));
      taps_ *= at::ceil_div(spatial(taps, d, 1), step);
      // A phase without positions would have no last one.
      if (spatial(spatial_sizes(x), d, 1) < stride) {
        return;
      }
    }
    std::vector<int64_t> largest = sizes_;
    for (size_t d = 0; d < largest.size(); ++d) {
      largest[d] = at::ceil_div(largest[d], geometry.stride[d]);
    }
    if (found.count == 1 || numel(taps) > kMostTaps || x.size(0) * numel(largest) < kLeastColumns) {
      return;
    }
    set(found.taps, taps, 1);
    set(found.sizes, spatial_sizes(x), 1);
    phases_ = found;
    sizes_ = largest;
  }

  bool are_several() const { return phases_.count > 1; }
  const Convolution::Phases& words() const { return phases_; }
  /// Of the largest phase: its positions in each dimension, and its taps.
  const std::vector<int64_t>& sizes() const { return sizes_; }
  int64_t taps() const { return taps_; }

private:
  // The number whose product with `n`, which has no factor in common with `modulus`, leaves 1.
  static int64_t inverse(int64_t n, int64_t modulus) {
    int64_t found = 0, next = 1, rest = modulus, divisor = n % modulus;
    while (divisor != 0) {
      const int64_t quotient = rest / divisor;
      found = std::exchange(next, found - quotient * next);
      rest = std::exchange(divisor, rest - quotient * divisor);
    }
    return modulus == 1 ? 0 : (found % modulus + modulus) % modulus;
  }

  Convolution::Phases phases_;
  std::vector<int64_t> sizes_;
  int64_t taps_ = 1;
};

struct GroupedInput : GroupedProduct {
  GroupedInput(const Tensor& x, const Tensor& y, const Tensor& w, const ConvGeometry& geometry,
               bool copies)
      : GroupedInput(x, y, w, geometry, Phases(x, w, geometry), copies) {}

  GroupedInput(const Tensor& x, const Tensor& y, const Tensor& w, const ConvGeometry& geometry,
               const Phases& phases, bool copies)
      : GroupedProduct(copies ? grouped_weight(w, geometry.groups, true) : w,
                       copies ? grouped_images(y) : y, Form::input, w, w.size(0) / geometry.groups,
                       phases.sizes(), geometry) {
    conv.params.c_outer = static_cast<uint32_t>(x.stride(0));
    if (phases.are_several()) {
      conv.phases = phases.words();
    }
    gemm.m = w.size(1);
    gemm.n = x.size(0) * numel(phases.sizes());
    gemm.c = by_positions(x, geometry.groups);
    numel_of_taps = numel(spatial_sizes(w));
    set_weight(w.size(0) / geometry.groups);
    if (phases.are_several()) {
      gemm.k = phases.taps() * in_groups(b, w.size(0) / geometry.groups);
    }
  }
};

// Whether the result of a product in phases is computed with its channels innermost, and copied
// then. Elsewhere phases would share the words of neighbours.
bool is_copied(const GroupedInput& product, const Tensor& x) {
  return product.conv.phases.count > 1 && x.element_size() < 4 && x.stride(1) != 1;
}

// Its result has the columns (tap, channel).
struct GroupedWeight : GroupedProduct {
  GroupedWeight(const Tensor& w, const Tensor& x, const Tensor& y, const ConvGeometry& geometry,
                bool copies)
      : GroupedProduct(copies ? grouped_images(y, true) : y, copies ? grouped_images(x) : x,
                       Form::weight, w, w.size(1), spatial_sizes(y), geometry) {
    const int64_t taps = numel(spatial_sizes(w));
    const int64_t padded = in_groups(w, w.size(1));
    const int64_t positions = numel(spatial_sizes(y));
    gemm.m = w.size(0) / geometry.groups;
    gemm.n = taps * padded;
    gemm.k = y.size(0) * positions;
    gemm.a = {.tensor = &a,
              .offset = a.storage_offset(),
              .batch = gemm.m,
              .row = 1,
              .column = positions == 1 ? a.stride(0) : position_stride(a)};
    if (copies) {
      const bool is_result = padded == w.size(1) && w.is_contiguous() && taps == 1;
      result = is_result ? w : empty_webgpu({w.size(0), taps, padded}, w.scalar_type(), w.device());
    } else {
      result = w;
    }
    gemm.c = {.tensor = &result,
              .offset = result.storage_offset(),
              .batch = gemm.m * gemm.n,
              .row = gemm.n,
              .column = 1};
  }

  void store(const Tensor& w) const {
    if (result.is_same(w)) {
      return;
    }
    std::vector<int64_t> sizes = w.sizes().vec();
    sizes.erase(sizes.begin() + 1);
    sizes.push_back(result.size(2));
    w.copy_(result.view(sizes).movedim(-1, 1).narrow(1, 0, w.size(1)));
  }

  Tensor result;
};

// ---- The choice

// laid_out: in general, by a row that lays out its operands itself. lines: in general, from a copy
// of the images whose lines are contiguous.
enum class Way : uint8_t { pointwise, grouped, general, laid_out, lines };

// By the costs of their rows of the table. Plain products need no copies. `lines` is null where
// contiguous lines are out of the question.
Way choose_way(const Gemm* pointwise, const Gemm* grouped, const Gemm& general, const Gemm* lines,
               const ShaderTarget& target) {
  constexpr int kCopies = 10;
  // Between the costs of conv_few.wgsl, 0, and of cost_of_direct(), 4.
  constexpr int kCopyOfImages = 3;
  const auto cost = [&](const Gemm* gemm) {
    return gemm == nullptr ? kNoCost : gemm_choice(*gemm, target).cost;
  };
  const int of_pointwise = cost(pointwise);
  const int of_grouped = cost(grouped);
  const StrategyChoice choice = gemm_choice(general, target);
  const int of_general = choice.cost;
  if (of_pointwise != kNoCost &&
      (of_pointwise <= 0 || of_pointwise - kCopies <= std::min(of_grouped, of_general))) {
    return Way::pointwise;
  }
  const int of_lines = cost(lines);
  if (of_lines != kNoCost && of_lines + kCopyOfImages < std::min(of_grouped, of_general)) {
    return Way::lines;
  }
  if (of_grouped != kNoCost && of_grouped <= of_general) {
    return Way::grouped;
  }
  return choice.row != nullptr && choice.row->lays_out ? Way::laid_out : Way::general;
}

// The images with the strides of a contiguous copy, to ask what it would cost. Undefined if they
// have such strides or hold gaps.
Tensor with_lines(const Tensor& images) {
  if (images.is_contiguous() || !images.is_non_overlapping_and_dense()) {
    return {};
  }
  return images.as_strided(images.sizes(), c10::contiguous_strides(images.sizes()));
}

template <typename Grouped, typename General>
Way way_of(const std::optional<Pointwise>& plain, Form form, const Tensor& to, const Tensor& from,
           const Tensor& w, const ConvGeometry& geometry, const Strategy* wanted,
           const ShaderTarget& target) {
  std::optional<Grouped> grouped;
  if (has_channel_groups(from, to, w, geometry, form)) {
    grouped.emplace(to, from, w, geometry, false);
    grouped->gemm.wanted = wanted;
  }
  General general(to, from, w, geometry);
  general.gemm.wanted = wanted;
  std::optional<General> lines;
  constexpr int64_t kFewRows = 16; // products with more take tiles, which need no such copy
  const Tensor images = general.gemm.m <= kFewRows ? with_lines(from) : Tensor();
  if (images.defined()) {
    lines.emplace(to, images, w, geometry);
    lines->gemm.wanted = wanted;
  }
  return choose_way(plain ? &plain->gemm : nullptr, grouped ? &grouped->gemm : nullptr,
                    general.gemm, lines ? &lines->gemm : nullptr, target);
}

Way way_of_output(const std::optional<Pointwise>& plain, const Tensor& y, const Tensor& x,
                  const Tensor& w, const ConvGeometry& geometry, const Strategy* wanted,
                  const ShaderTarget& target) {
  return way_of<GroupedOutput, OutputProduct>(plain, Form::output, y, x, w, geometry, wanted,
                                              target);
}

Way way_of_input(const std::optional<Pointwise>& plain, const Tensor& x, const Tensor& y,
                 const Tensor& w, const ConvGeometry& geometry, const Strategy* wanted,
                 const ShaderTarget& target) {
  return way_of<GroupedInput, InputProduct>(plain, Form::input, x, y, w, geometry, wanted, target);
}

Way way_of_weight(const std::optional<Gemm>& plain, const WeightProduct& general, const Tensor& w,
                  const Tensor& x, const Tensor& y, const ConvGeometry& geometry) {
  std::optional<GroupedWeight> grouped;
  if (has_channel_groups(x, y, w, geometry, Form::weight)) {
    grouped.emplace(w, x, y, geometry, false);
  }
  return choose_way(plain ? &*plain : nullptr, grouped ? &grouped->gemm : nullptr, general.gemm,
                    nullptr, plan_target(x));
}

} // namespace

std::array<uint32_t, 4> divisor_words(uint32_t d) {
  // Granlund and Montgomery's round-up multiplier.
  const uint32_t shift = d <= 1 ? 0 : static_cast<uint32_t>(std::bit_width(d - 1));
  const uint64_t multiplier = ((uint64_t{1} << 32) * ((uint64_t{1} << shift) - d)) / d + 1;
  return {d, static_cast<uint32_t>(multiplier), shift, 0};
}

int64_t spatial(at::IntArrayRef values, int64_t d, int64_t missing) {
  const int64_t index = d - (kSpatial - static_cast<int64_t>(values.size()));
  return index < 0 ? missing : values[index];
}

int64_t position_stride(const Tensor& tensor) {
  for (int64_t d = tensor.dim() - 1; d >= 2; --d) {
    if (tensor.size(d) != 1) {
      return tensor.stride(d);
    }
  }
  return tensor.stride(-1);
}

bool has_one_stride(const Tensor& tensor) {
  const int64_t positions = numel(spatial_sizes(tensor));
  return tensor.size(0) == 1 || positions == 1 ||
         tensor.stride(0) == positions * position_stride(tensor);
}

int64_t reach_of(const Tensor& tensor) {
  int64_t last = 0;
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    last += (tensor.size(d) - 1) * tensor.stride(d);
  }
  return last;
}

MatrixView::Range range_of(const Tensor& tensor) {
  const MatrixView view{
      .tensor = &tensor, .offset = tensor.storage_offset(), .reach = reach_of(tensor)};
  return view.range(1, 1, 1);
}

bool lie_in_bindings(const Gemm& g, const ShaderTarget& target) {
  const auto fits = [&](const MatrixView& view) {
    return view.tensor == nullptr ||
           static_cast<uint64_t>(reach_of(*view.tensor) + 1) * view.tensor->itemsize() <=
               BindingList::safe_reach(target);
  };
  const auto fits_all = [&](const Fusion& fusion) {
    return std::ranges::all_of(fusion.operands, fits) && fits(fusion.second);
  };
  return fits(g.a) && fits(g.b) && fits(g.c) && fits(g.d) &&
         (g.fusion == nullptr || fits_all(*g.fusion));
}

bool has_position_stride(const Tensor& tensor) {
  int64_t expected = position_stride(tensor);
  for (int64_t d = tensor.dim() - 1; d >= 2; --d) {
    if (tensor.size(d) != 1 && tensor.stride(d) != expected) {
      return false;
    }
    expected *= tensor.size(d);
  }
  return true;
}

namespace {

// Whether the weight has one tap, which meets some positions of x only, and it pays to copy these,
// so that the product is one without stride.
bool meets_some_positions(const Tensor& x, const Tensor& w, const ConvGeometry& geometry) {
  constexpr int64_t kLeast = int64_t{1}
                             << 16; // elements: with fewer, further dispatches do not pay
  return std::ranges::any_of(geometry.stride, [](int64_t stride) { return stride != 1; }) &&
         is_pointwise(w, without_stride(geometry)) && x.numel() >= kLeast;
}

// A view of the positions of x that such a tap meets: as many as y has.
Tensor positions_met(const Tensor& x, const Tensor& y, const ConvGeometry& geometry) {
  Tensor met = x;
  for (size_t d = 0; d < geometry.stride.size(); ++d) {
    const auto dim = static_cast<int64_t>(d) + 2;
    const int64_t stride = geometry.stride[d];
    met = met.slice(dim, 0, (y.size(dim) - 1) * stride + 1, stride);
  }
  return met;
}

Tensor copy_of_positions_met(const Tensor& x, const Tensor& y, const ConvGeometry& geometry) {
  return positions_met(x, y, geometry).contiguous(x.suggest_memory_format());
}

} // namespace

void conv_output(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias,
                 const ConvGeometry& geometry, const ConvEpilogue& epilogue) {
  if (needs_split(x, y, epilogue)) {
    for_halves(x, y, epilogue,
               [&](const Tensor& x_half, const Tensor& y_half, const ConvEpilogue& half) {
                 conv_output(y_half, x_half, w, bias, geometry, half);
               });
    return;
  }
  if (meets_some_positions(x, w, geometry) && epilogue.wanted == nullptr) {
    conv_output(y, copy_of_positions_met(x, y, geometry), w, bias, without_stride(geometry),
                epilogue);
    return;
  }
  const auto plain = pointwise_output(y, x, w, geometry, epilogue);
  const Way way = way_of_output(plain, y, x, w, geometry, epilogue.wanted, plan_target(x));
  if (way == Way::pointwise) {
    run(*plain, bias, epilogue);
    return;
  }
  if (way == Way::grouped) {
    GroupedOutput product(y, x, w, geometry, true);
    add_bias(product.gemm, bias, geometry.groups);
    run(product.gemm, epilogue);
    return;
  }
  const Tensor weight = way == Way::laid_out ? w : w.contiguous();
  const Tensor images = way == Way::lines ? x.contiguous() : x;
  OutputProduct product(y, images, weight, geometry);
  add_bias(product.gemm, bias, geometry.groups);
  run(product.gemm, epilogue);
}

namespace {

void conv_input_spread(const Tensor& x, const Tensor& y, const Tensor& w,
                       const ConvGeometry& geometry) {
  std::vector<int64_t> sizes = y.sizes().vec();
  sizes[1] = x.size(1);
  const Tensor dense = empty_webgpu(sizes, x.options().memory_format(x.suggest_memory_format()));
  conv_input(dense, y, w, {}, without_stride(geometry));
  if (!spread_images(x, dense, geometry.stride)) {
    x.zero_();
    positions_met(x, y, geometry).copy_(dense);
  }
}

} // namespace

void conv_input(const Tensor& x, const Tensor& y, const Tensor& w, const Tensor& bias,
                const ConvGeometry& geometry, const ConvEpilogue& epilogue) {
  if (needs_split(x, y, epilogue)) {
    for_halves(x, y, epilogue,
               [&](const Tensor& x_half, const Tensor& y_half, const ConvEpilogue& half) {
                 conv_input(x_half, y_half, w, bias, geometry, half);
               });
    return;
  }
  if (meets_some_positions(x, w, geometry) && !bias.defined() && epilogue.text == 0 &&
      epilogue.wanted == nullptr) {
    conv_input_spread(x, y, w, geometry);
    return;
  }
  const auto plain = pointwise_input(x, y, w, geometry, epilogue);
  const Way way = way_of_input(plain, x, y, w, geometry, epilogue.wanted, plan_target(x));
  if (way == Way::pointwise) {
    run(*plain, bias, epilogue);
    return;
  }
  if (way == Way::grouped) {
    GroupedInput product(x, y, w, geometry, true);
    add_bias(product.gemm, bias, geometry.groups);
    if (!is_copied(product, x)) {
      run(product.gemm, epilogue);
      return;
    }
    const Tensor result = empty_with_channels_last(x);
    product.conv.params.c_outer = static_cast<uint32_t>(result.stride(0));
    product.gemm.c = by_positions(result, geometry.groups);
    run(product.gemm, epilogue);
    copy_channels_first(x, result);
    return;
  }
  const Tensor weight = way == Way::laid_out ? w : w.contiguous();
  const Tensor images = way == Way::lines ? y.contiguous() : y;
  InputProduct product(x, images, weight, geometry);
  add_bias(product.gemm, bias, geometry.groups);
  run(product.gemm, epilogue);
}

const Strategy& conv_output_strategy(const Tensor& y, const Tensor& x, const Tensor& w,
                                     const ConvGeometry& geometry, const Strategy* wanted,
                                     const ShaderTarget& target) {
  const auto plain =
      pointwise_output(y, x, w, geometry, {.operands = {}, .second = {}, .wanted = wanted});
  const Way way = way_of_output(plain, y, x, w, geometry, wanted, target);
  if (way == Way::pointwise) {
    return gemm_strategy(plain->gemm, target);
  }
  if (way == Way::grouped) {
    GroupedOutput product(y, x, w, geometry, false);
    product.gemm.wanted = wanted;
    return gemm_strategy(product.gemm, target);
  }
  const Tensor images = way == Way::lines ? with_lines(x) : x;
  OutputProduct product(y, images, w, geometry);
  product.gemm.wanted = wanted;
  return gemm_strategy(product.gemm, target);
}

const Strategy& conv_input_strategy(const Tensor& x, const Tensor& y, const Tensor& w,
                                    const ConvGeometry& geometry, const Strategy* wanted,
                                    const ShaderTarget& target) {
  const auto plain =
      pointwise_input(x, y, w, geometry, {.operands = {}, .second = {}, .wanted = wanted});
  const Way way = way_of_input(plain, x, y, w, geometry, wanted, target);
  if (way == Way::pointwise) {
    return gemm_strategy(plain->gemm, target);
  }
  if (way == Way::grouped) {
    GroupedInput product(x, y, w, geometry, false);
    product.gemm.wanted = wanted;
    return gemm_strategy(product.gemm, target);
  }
  const Tensor images = way == Way::lines ? with_lines(y) : y;
  InputProduct product(x, images, w, geometry);
  product.gemm.wanted = wanted;
  return gemm_strategy(product.gemm, target);
}

Tensor conv_shared_gradient(const Tensor& y, const Tensor& x, const Tensor& w,
                            const ConvGeometry& geometry) {
  if (meets_some_positions(x, w, geometry) ||
      !has_channel_groups(x, y, w, geometry, Form::weight) || y.size(1) % group_size(y) != 0 ||
      !has_position_stride(y) || needs_split(x, y)) {
    return y;
  }
  const auto input = pointwise_input(x, y, w, geometry, {});
  const auto weight = pointwise_weight(w, x, y, geometry);
  const WeightProduct general(w, x, y, geometry);
  const Way way = way_of_input(input, x, y, w, geometry, nullptr, plan_target(x));
  const bool is_shared = (way == Way::grouped || way == Way::laid_out) &&
                         way_of_weight(weight, general, w, x, y, geometry) == Way::grouped;
  return is_shared ? grouped_images(y, true) : y;
}

void conv_weight(const Tensor& w, const Tensor& x, const Tensor& y, const ConvGeometry& geometry) {
  if (needs_split(x, y)) {
    Tensor sum = w; // w for the first half of the images, a new tensor for the second
    for_halves(x, y, {}, [&](const Tensor& x_half, const Tensor& y_half, const ConvEpilogue&) {
      conv_weight(sum, x_half, y_half, geometry);
      if (!sum.is_same(w)) {
        w.add_(sum);
      }
      sum = at::empty_like(w);
    });
    return;
  }
  if (meets_some_positions(x, w, geometry)) {
    conv_weight(w, copy_of_positions_met(x, y, geometry), y, without_stride(geometry));
    return;
  }
  const Tensor gradient = collapsible(y);
  const auto plain = pointwise_weight(w, x, gradient, geometry);
  WeightProduct general(w, x, gradient, geometry);
  switch (way_of_weight(plain, general, w, x, gradient, geometry)) {
  case Way::pointwise:
    gemm(*plain);
    return;
  case Way::grouped: {
    GroupedWeight product(w, x, gradient, geometry, true);
    run(product.gemm);
    product.store(w);
    return;
  }
  case Way::general:
  case Way::laid_out:
  case Way::lines:
    if (!w.is_contiguous()) {
      const Tensor contiguous = at::empty_like(w, at::MemoryFormat::Contiguous);
      WeightProduct product(contiguous, x, gradient, geometry);
      run(product.gemm);
      w.copy_(contiguous);
      return;
    }
    run(general.gemm);
  }
}

} // namespace torch_webgpu
