#include "ops/conv/conv_rows.h"

#include <ATen/ceil_div.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "backend/empty.h"
#include "kernels/conv_rows.h"
#include "kernels/conv_weights.h"
#include "launch/binding_list.h"
#include "launch/dtypes.h"
#include "launch/target_scope.h"
#include "ops/conv/conv_gemm.h"
#include "ops/conv/conv_pack.h"
#include "ops/matmul/product_launch.h"

namespace torch_webgpu::conv_rows {
namespace {

using at::ceil_div;
using at::Tensor;
using product_launch::processors;
using product_launch::u32;
using Form = kernels::conv_product::Form;
using ConvParams = kernels::conv_product::Params;

// Of conv_rows.wgsl.
constexpr int64_t kRows = 64; // of C in a tile
constexpr int64_t kMostTaps = 9;
constexpr int64_t kBlock = 16; // channels that are staged at a time
// Invocations of a workgroup, and how long a product takes an invocation, in percent of its time in
// the largest workgroup (H200). Workgroup memory has room for one on a processor, so that four
// subgroups alone wait for their loads.
struct Size {
  int64_t invocations, slowness;
};
constexpr std::array<Size, 3> kSizes{{{128, 160}, {224, 100}, {256, 100}}};
constexpr uint32_t kStorage = (256 / 2 * 3 + 9 * 64) * 3 * 16 + 256 * 8; // bytes, of the last one

// A dimension of the images, with its taps.
struct Dimension {
  Dimension(const Convolution& conv, int64_t size_of_b, int64_t positions, int64_t taps, size_t d)
      : last((taps - 1) * conv.params.dilation[d]) {
    const int64_t padding = conv.params.padding[d];
    before = conv.form == Form::input ? last - padding : padding;
    const int64_t after = positions + last - before - size_of_b;
    const int64_t places = size_of_b + std::max({before, after, int64_t{0}});
    extent = {.positions = positions, .numbers = std::max(places, positions)};
  }

  Extent extent{};
  int64_t last;   // the distance of the last tap from the first
  int64_t before; // how far the place that the first one meets lies before a position
};

// How a product is divided, and the numbers of its places.
struct Plan {
  int64_t invocations = 0, columns = 0; // of a workgroup, and of C in its tile
  int64_t pieces = 1;                   // of K
  int64_t line = 0, plane = 0, lead = 0, reach = 0, to_next_line = 0;
};

int64_t tiles_of(const Gemm& g, int64_t columns) {
  return g.batch * ceil_div(g.m, kRows) * ceil_div(g.n, columns);
}

int64_t channels_of(const Gemm& g) { return g.k / g.conv->params.tap_volume[0]; }

int64_t blocks_of(const Gemm& g) { return ceil_div(channels_of(g), kBlock); }

std::optional<Plan> new_plan(const Gemm& g, const ShaderTarget& target) {
  const ConvParams& conv = g.conv->params;
  const int64_t width = conv.position_row[0];
  const int64_t area = conv.position_plane[0];
  const bool is_flat = conv.position_volume[0] == area && conv.tap_volume[0] == conv.tap_plane[0] &&
                       conv.b_sizes[0] == 1 && conv.padding[0] == 0;
  if (g.conv->form == Form::weight || g.conv->strided || !is_flat || g.n == 0 || g.k == 0 ||
      conv.tap_volume[0] > kMostTaps) {
    return std::nullopt;
  }
  const Dimension across(*g.conv, conv.b_sizes[2], width, conv.tap_row[0], 2);
  const Dimension down(*g.conv, conv.b_sizes[1], area / width, conv.tap_plane[0] / conv.tap_row[0],
                       1);
  if (across.before < 0 || down.before < 0) {
    return std::nullopt; // some positions would meet no place, not even one of padding
  }
  Plan plan;
  plan.line = across.extent.numbers;
  plan.plane = down.extent.numbers * plan.line;
  plan.lead = down.before * plan.line + across.before;
  plan.reach = down.last * plan.line + across.last;
  plan.to_next_line = conv.dilation[1] * plan.line - across.last;
  if (g.n / area * plan.plane >= int64_t{1} << 31) {
    return std::nullopt;
  }
  // The unit of durations is a block of channels of an invocation. A processor of an H200 computes
  // 128 of them in a microsecond.
  constexpr int64_t kMostPieces = 4;
  constexpr int64_t kOfDispatch = 800; // the second dispatch, which adds up the pieces of K
  constexpr int64_t kOfSums = 6000;    // as many sums are stored, or loaded, in a unit
  // Groups of four neighbours are stored as words where images consist of such.
  const int64_t unit = area % 4 == 0 ? 4 : 1;
  int64_t shortest = std::numeric_limits<int64_t>::max();
  for (const auto [invocations, slowness] : kSizes) {
    const int64_t columns = columns_within(invocations, unit, down.extent, across.extent);
    if (columns < 4 || plan.reach > invocations / 2) {
      continue;
    }
    for (int64_t pieces = 1; pieces <= std::min(kMostPieces, blocks_of(g)); ++pieces) {
      const int64_t workgroups = tiles_of(g, columns) * pieces;
      const int64_t of_sums =
          pieces > 1 ? kOfDispatch + (pieces + 1) * g.batch * g.m * g.n / kOfSums : 0;
      const int64_t duration = ceil_div(workgroups, processors(target)) * invocations * slowness /
                                   100 * ceil_div(blocks_of(g), pieces) +
                               of_sums;
      if (duration <= shortest) {
        shortest = duration;
        plan.invocations = invocations;
        plan.columns = columns;
        plan.pieces = pieces;
      }
    }
  }
  return plan.columns != 0 ? std::optional(plan) : std::nullopt;
}

// The last plan is kept: the choice of a row asks for it several times, and then the launch.
const std::optional<Plan>& plan_for(const Gemm& g, const ShaderTarget& target) {
  struct Key {
    Form form{};
    bool strided = false;
    int64_t m = -1, n = 0, k = 0, batch = 0, at_once = 0;
    std::array<uint32_t, 6> counts{};
    std::array<uint32_t, 4> sizes{}, padding{}, dilation{};
    bool operator==(const Key&) const = default;
  };
  thread_local Key last;
  thread_local std::optional<Plan> plan;
  const ConvParams& conv = g.conv->params;
  const Key key{.form = g.conv->form,
                .strided = g.conv->strided,
                .m = g.m,
                .n = g.n,
                .k = g.k,
                .batch = g.batch,
                .at_once = processors(target),
                .counts = {conv.tap_row[0], conv.tap_plane[0], conv.tap_volume[0],
                           conv.position_row[0], conv.position_plane[0], conv.position_volume[0]},
                .sizes = conv.b_sizes,
                .padding = conv.padding,
                .dilation = conv.dilation};
  if (key != last) {
    plan = new_plan(g, target);
    last = key;
  }
  return plan;
}

// Whether the operands and the copies of A and B take one binding each.
bool fits_bindings(const Gemm& g, const ShaderTarget& target) {
  const auto most = static_cast<int64_t>(BindingList::safe_reach(target)) / 2; // halves
  const Tensor& images = *g.b.tensor;
  const int64_t places = images.numel() / images.size(1);
  return lie_in_bindings(g, target) && places * in_groups(images, images.size(1)) <= most &&
         g.batch * g.m * blocks_of(g) * kBlock * g.conv->params.tap_volume[0] <= most;
}

// Whether groups of channels are whole groups of 16 bytes.
bool has_channel_groups(const Gemm& g) {
  return g.batch == 1 || channels_of(g) % group_size(*g.b.tensor) == 0;
}

// The weights as conv_rows.wgsl wants them. A row of the product is a filter, in form `input` a
// channel of each.
Tensor copy_of_weight(const Gemm& g) {
  const Tensor& given = *g.a.tensor;
  const Tensor weight = has_position_stride(given) ? given : given.contiguous();
  const bool is_input = g.conv->form == Form::input;
  kernels::conv_weights::Params p;
  p.groups = u32(g.batch);
  p.rows = u32(g.m);
  p.channels = u32(channels_of(g));
  p.blocks = u32(blocks_of(g));
  p.taps = g.conv->params.tap_volume[0];
  p.group_stride = u32(weight.size(0) / g.batch * weight.stride(0));
  p.row_stride = u32(weight.stride(is_input ? 1 : 0));
  p.channel_stride = u32(weight.stride(is_input ? 0 : 1));
  p.tap_stride = u32(position_stride(weight));
  const int64_t taps = p.taps;
  Tensor out = empty_webgpu({g.batch, blocks_of(g), taps, g.m, kBlock}, weight.scalar_type(),
                            weight.device());
  kernels::conv_weights::Launch launch(g.op);
  launch.out_as(DType::kBits32, out);
  const MatrixView::Range range = range_of(weight);
  launch.in_range(range.buffer, range.begin, range.end, DType::kBits16);
  launch.run(p);
  return out;
}

} // namespace

int64_t columns_within(int64_t numbers, int64_t unit, const Extent& down, const Extent& across) {
  const int64_t line = across.positions;
  const int64_t image = down.positions * line;
  const int64_t between_lines = across.numbers - line;
  const int64_t between_images = (down.numbers - down.positions) * across.numbers;
  // A tile may begin right before the end of a line and of an image.
  const auto fits = [&](int64_t columns) {
    return columns + ceil_div(columns - 1, line) * between_lines +
               ceil_div(columns - 1, image) * between_images <=
           numbers;
  };
  int64_t low = 0; // in units; fits
  for (int64_t high = numbers / unit; low < high;) {
    const int64_t middle = (low + high + 1) / 2;
    if (fits(middle * unit)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  int64_t best = low * unit;
  // But if it has so many lines that each image is cut into whole tiles, it begins with a line, and
  // if it has whole images, with an image.
  const int64_t most_lines = numbers < line ? 0 : (numbers - line) / across.numbers + 1;
  for (int64_t lines = std::min(most_lines, down.positions); lines * line > best; --lines) {
    if (down.positions % lines == 0 && lines * line % unit == 0) {
      best = lines * line;
    }
  }
  const int64_t images =
      (numbers + between_lines + between_images) / (down.numbers * across.numbers);
  if (images * image % unit == 0) {
    best = std::max(best, images * image);
  }
  return best;
}

bool accepts(const Product& product, const Strategy&, const ShaderTarget& target) {
  const Gemm& g = product.gemm;
  return g.conv != nullptr && !g.conv->grouped &&
         product_launch::has_matrices(product, DType::kF16, target) &&
         target.max_workgroup_storage >= kStorage &&
         target.max_workgroup_invocations >= kSizes.back().invocations &&
         plan_for(g, target).has_value() && has_channel_groups(g) && fits_bindings(g, target);
}

int cost(const Product& product, const Strategy&, const ShaderTarget& target) {
  constexpr int64_t kFewestRows = 48;
  // With shorter sums an H200 takes longer to stage and to store than the other kernel, whose tiles
  // have no columns between lines.
  constexpr int64_t kShortestSum = 1024;
  const Gemm& g = product.gemm;
  if (!product_launch::has_matrices(product, DType::kF16, target) || g.conv == nullptr ||
      g.conv->grouped || g.m < kFewestRows || g.k < kShortestSum) {
    return kNever;
  }
  const std::optional<Plan>& plan = plan_for(g, target);
  const bool pays = plan && plan->columns * 8 >= plan->invocations * 5 &&
                    tiles_of(g, plan->columns) * plan->pieces * 2 >= processors(target);
  return pays ? 24 : kNever;
}

Strategy::Division divide(const Product& product, const Strategy& row, const ShaderTarget& target) {
  const Plan& plan = *plan_for(product.gemm, target);
  const int64_t taps = product.gemm.conv->params.tap_volume[0];
  return {.tile = {row.tile.m, plan.columns, kBlock * taps}, .pieces = plan.pieces};
}

void launch(const ProductDispatch& dispatch, const Strategy&) {
  namespace kernel = kernels::conv_rows;
  using namespace product_launch;
  const Gemm& g = dispatch.product.gemm;
  const Plan plan = *plan_for(g, plan_target(*g.a.tensor));
  const Tensor images = grouped_images(*g.b.tensor);
  const Tensor weight = copy_of_weight(g);
  kernel::Launch launch(g.op);
  bind_c(launch, dispatch, bits_of_c(dispatch));
  launch.a_as(DType::kBits128, weight);
  const MatrixView::Range range = range_of(images);
  launch.b_range(range.buffer, range.begin, range.end, DType::kBits128);
  launch.invocations(u32(plan.invocations)).c_along_m(is_along_m(dispatch));
  launch.form(static_cast<kernel::Form>(g.conv->form)).strided(false).joined(false);
  own_fours_of_c(launch, dispatch);
  kernel::Params p;
  set_places(p, g.conv->params);
  set_matrices(p, dispatch);
  // Positions of one image follow those of another in the sums of pieces of K.
  p.c_outer = dispatch.pieces ? p.position_volume[0] : g.conv->params.c_outer;
  p.a_batch = u32(weight.stride(0));
  p.b_batch = u32(channels_of(g));
  p.b_image = u32(images.stride(0));
  p.b_strides[1] = u32(spatial(images.strides().slice(2), 1, 0));
  p.b_strides[2] = u32(spatial(images.strides().slice(2), 2, 0));
  p.channels[0] = u32(in_groups(images, channels_of(g)));
  p.line = divisor_words(u32(plan.line));
  p.plane = divisor_words(u32(plan.plane));
  p.places = u32(g.n / p.position_volume[0] * plan.plane);
  p.lead = u32(plan.lead);
  p.reach = u32(plan.reach);
  p.to_next_line = u32(plan.to_next_line);
  p.columns = u32(plan.columns);
  p.taps = p.tap_volume[0];
  run<kernel::Regions>(launch, p, dispatch);
}

} // namespace torch_webgpu::conv_rows
