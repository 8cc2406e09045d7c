#include "ops/conv/conv_winograd.h"

#include <ATen/ceil_div.h>

#include <algorithm>
#include <array>

#include "backend/empty.h"
#include "backend/tensor.h"
#include "kernels/conv_points.h"
#include "kernels/conv_winograd.h"
#include "launch/binding_list.h"
#include "launch/dtypes.h"
#include "launch/target_scope.h"
#include "ops/conv/conv_gemm.h"
#include "ops/matmul/product_launch.h"

namespace torch_webgpu::winograd {
namespace {

using at::ceil_div;
using at::Tensor;
using product_launch::in_units;
using product_launch::u32;
using Form = kernels::conv_product::Form;
using Source = kernels::conv_points::Source;

constexpr int64_t kPoints = 36;
constexpr int64_t kTaps = 9;
constexpr int64_t kApart = 4;            // between tiles, in each dimension
constexpr uint32_t kChannelsAtOnce = 32; // channels_at_once of conv_winograd.wgsl
constexpr int64_t kColumns = 128;        // of a tile of the largest product kernel
// Up to so many channels times columns a software adapter evaluates by the short text of
// conv_points.wgsl. It runs longer than the others, but a few hundred runs take less time than
// compiling those.
constexpr int64_t kFewValues = 1 << 14;

// ---- The algorithm's matrices, as winograd.wgsl has them

// The values where polynomials are evaluated. The last point is infinity.
constexpr std::array<float, 5> kFinite = {0, 0.625, -0.625, 1.5, -1.5};
constexpr size_t kOfLine = kFinite.size() + 1;
// A value for each pair of an element and a point.
using Factors = std::array<std::array<float, kOfLine>, kOfLine>;

// The coefficients of the product of x - a for all finite points but one.
std::array<float, kOfLine> product_without(size_t point) {
  std::array<float, kOfLine> product{1};
  for (size_t other = 0; other < kFinite.size(); ++other) {
    if (other != point) {
      for (size_t power = kOfLine - 1; power > 0; --power) {
        product[power] = product[power - 1] - kFinite[other] * product[power];
      }
      product[0] *= -kFinite[other];
    }
  }
  return product;
}

float power(float base, size_t exponent) {
  return exponent == 0 ? 1.0F : base * power(base, exponent - 1);
}

// A polynomial's value at a point is a sum of its coefficients with these factors. Results of the
// algorithm are sums over the points with the same factors: [coefficient or result][point].
Factors powers(size_t elements) {
  Factors factors{};
  for (size_t k = 0; k < elements; ++k) {
    for (size_t point = 0; point < kFinite.size(); ++point) {
      factors[k][point] = power(kFinite[point], k);
    }
  }
  factors[elements - 1].back() = 1;
  return factors;
}

// The factors that evaluate a tile: see image_points() and values_of_three() of winograd.wgsl.
Factors factors_of(Source source) {
  Factors factors = powers(source == Source::filters ? 3 : 4);
  for (size_t point = 0; point < kFinite.size(); ++point) {
    const std::array<float, kOfLine> others = product_without(point);
    float slope = 0;
    for (size_t k = 0; k < kOfLine; ++k) {
      slope += others[k] * power(kFinite[point], k);
    }
    for (size_t k = 0; k < kOfLine; ++k) {
      factors[k][point] = source == Source::images ? others[k] : factors[k][point] / slope;
    }
  }
  if (source == Source::images) {
    const std::array<float, kOfLine> all = product_without(kFinite.size());
    for (size_t k = 0; k < kOfLine; ++k) {
      factors[k].back() = all[k];
    }
  }
  return factors;
}

// ---- Sizes

// The sizes of a convolution as the algorithm sees them.
struct Plan {
  explicit Plan(const Gemm& g)
      : form(g.conv->form), is_weight(form == Form::weight), rows(g.m),
        channels((is_weight ? g.n : g.k) / kTaps), width(g.conv->params.position_row[0]),
        height(g.conv->params.position_plane[0] / width),
        images((is_weight ? g.k : g.n) / g.conv->params.position_volume[0]),
        tiles_of_line(ceil_div(width, kApart)),
        tiles_of_image(tiles_of_line * ceil_div(height, kApart)), tiles(images * tiles_of_image) {}

  Form form;
  bool is_weight;
  int64_t rows;          // of C: channels of y in forms `output` and `weight`, of x in form `input`
  int64_t channels;      // of B, the others
  int64_t width, height; // of the images whose positions are counted
  int64_t images, tiles_of_line, tiles_of_image, tiles;
};

// Which tiles a kernel computes: so many from `first` on.
template <class Params>
void set_tiles(Params& p, const Plan& plan, int64_t first, int64_t tiles) {
  p.tiles = u32(tiles);
  p.first = u32(first);
  p.tiles_of_line = u32(plan.tiles_of_line);
  p.tiles_of_image = u32(plan.tiles_of_image);
  p.height = u32(plan.height);
  p.width = u32(plan.width);
}

// The columns of so many tiles.
int64_t in_fours(int64_t tiles) { return ceil_div<int64_t>(tiles, 4) * 4; }

// Tiles whose points are stored at a time. Columns are whole groups of four.
int64_t tiles_at_once(const Plan& plan, const ShaderTarget& target) {
  // Of the points of images and their products, which take 4.5 times as much as the images.
  constexpr int64_t kMostBytes = int64_t{128} << 20;
  constexpr int64_t kColumn = kPoints * 4;
  const int64_t together = kMostBytes / (kColumn * (plan.rows + plan.channels));
  const auto bound = static_cast<int64_t>(BindingList::safe_reach(target)) /
                     (kColumn * std::max(plan.rows, plan.channels));
  const int64_t most = std::max(std::min(together, bound) / kColumns * kColumns, kColumns);
  return std::min(most, in_fours(plan.tiles));
}

// The values at all points, [point][channel][column] or [point][column][channel].
struct Points {
  Tensor values;
  int64_t channels, columns;
  bool channels_inner;

  int64_t point() const { return channels * columns; }
  // As a batch of matrices with channels as rows.
  MatrixView view() const {
    return {.tensor = &values,
            .batch = point(),
            .row = channels_inner ? 1 : columns,
            .column = channels_inner ? channels : 1};
  }
};

Points empty_points(const Tensor& like, int64_t channels, int64_t columns, bool channels_inner) {
  return {empty_webgpu({kPoints, channels, columns}, at::kFloat, like.device()), channels, columns,
          channels_inner};
}

// Evaluates. `p` has the sizes and strides of what is read. On a software adapter the callers
// choose `channels_inner` such that the products of all forms have the same layouts, and so the
// same shader.
Points evaluate(const Gemm& g, const MatrixView& from, int64_t rows, int64_t columns_of_from,
                Source source, bool channels_inner, int64_t columns,
                kernels::conv_points::Params p) {
  Points to = empty_points(*from.tensor, p.channels, columns, channels_inner);
  const bool software = is_software(plan_target(*from.tensor));
  const bool any = software && to.point() <= kFewValues;
  if (any) {
    const Factors factors = factors_of(source);
    p.size = source == Source::images ? 6 : source == Source::gradients ? 4 : 3;
    p.points = kOfLine;
    for (size_t k = 0; k < kOfLine; ++k) {
      std::copy_n(factors[k].begin(), 3, p.factors[2 * k].begin());
      std::copy_n(factors[k].begin() + 3, 3, p.factors[2 * k + 1].begin());
    }
  }
  p.columns = u32(columns);
  p.column_step = channels_inner ? p.channels : 1;
  p.channel_step = channels_inner ? 1 : p.columns;
  p.out_point = u32(to.point());
  p.out_channel = u32(to.view().row);
  p.out_column = u32(to.view().column);
  kernels::conv_points::Launch launch(g.op);
  launch.out(to.values);
  const auto range = from.range(g.batch, rows, columns_of_from);
  launch.in_range(range.buffer, range.begin, range.end, DType::kF32);
  launch.source(any ? Source::any : source).clamped(software).run(p);
  return to;
}

// The weight, which is A: a row of C is a filter in form `output`, a channel of each in `input`.
Points points_of_weight(const Gemm& g, const Plan& plan) {
  const bool is_input = plan.form == Form::input;
  const int64_t filters = is_input ? plan.channels : plan.rows;
  const int64_t channels = is_input ? plan.rows : plan.channels;
  kernels::conv_points::Params p{};
  p.tiles = u32(filters);
  p.channels = u32(channels);
  p.tiles_of_line = p.tiles_of_image = 1;
  p.height = p.width = 3;
  p.image_stride = u32(channels * kTaps);
  p.channel_stride = kTaps;
  p.row_stride = 3;
  p.column_stride = 1;
  if (is_input) { // mirrored
    p.start = kTaps - 1;
    p.row_stride = -p.row_stride;
    p.column_stride = -p.column_stride;
  }
  const bool channels_inner = !is_input || !is_software(plan_target(*g.a.tensor));
  return evaluate(g, g.a, g.m, g.k, Source::filters, channels_inner, filters, p);
}

// So many tiles of the images that are B, from `first` on.
Points points_of_images(const Gemm& g, const Plan& plan, int64_t first, int64_t tiles) {
  const kernels::conv_product::Params& conv = g.conv->params;
  kernels::conv_points::Params p{};
  set_tiles(p, plan, first, tiles);
  p.channels = u32(plan.channels);
  p.height = conv.b_sizes[1];
  p.width = conv.b_sizes[2];
  // The taps of form `input` are mirrored: the first one meets the last.
  const auto start = [&](uint32_t padding) {
    const auto size = static_cast<int32_t>(padding);
    return plan.form == Form::input ? size - 2 : -size;
  };
  p.top = start(conv.padding[1]);
  p.left = start(conv.padding[2]);
  p.image_stride = conv.b_image;
  p.channel_stride = conv.b_channel;
  p.row_stride = conv.b_strides[1];
  p.column_stride = conv.b_strides[2];
  const bool software = is_software(plan_target(*g.b.tensor));
  const bool channels_inner = software ? plan.is_weight : conv.b_channel == 1;
  return evaluate(g, g.b, g.k, g.n, Source::images, channels_inner, in_fours(tiles), p);
}

// The same for the gradients that are A in form `weight`.
Points points_of_gradients(const Gemm& g, const Plan& plan, int64_t first, int64_t tiles) {
  kernels::conv_points::Params p{};
  set_tiles(p, plan, first, tiles);
  p.channels = u32(plan.rows);
  p.image_stride = g.conv->params.a_outer;
  p.channel_stride = u32(g.a.row);
  p.row_stride = u32(plan.width * g.a.column);
  p.column_stride = u32(g.a.column);
  const bool channels_inner = !is_software(plan_target(*g.a.tensor)) && g.a.row == 1;
  return evaluate(g, g.a, g.m, g.k, Source::gradients, channels_inner, in_fours(tiles), p);
}

// The products at all points: `to` = a @ b, or `to` += a @ b.
void multiply(const Gemm& g, const MatrixView& a, const MatrixView& b, const Points& to, int64_t k,
              bool adds) {
  Gemm product;
  product.op = g.op;
  product.is_part = true;
  product.batch = kPoints;
  product.m = to.channels;
  product.n = to.columns;
  product.k = k;
  product.a = a;
  product.b = b;
  product.c = to.view();
  if (adds) {
    product.d = product.c;
  }
  gemm(product);
}

// Whether lines of four results are whole groups of 16 bytes in C.
bool has_lines(const Gemm& g, const Plan& plan) {
  return !plan.is_weight && g.c.column == 1 &&
         in_units(4, {plan.width, g.c.offset, g.c.row, g.conv->params.c_outer});
}

// Stores what follows from the sums of so many tiles from `first` on, or of all channels.
void finish(const ProductDispatch& dispatch, const Plan& plan, const Points& sums, int64_t first,
            int64_t tiles) {
  namespace kernel = kernels::conv_winograd;
  const Gemm& g = dispatch.product.gemm;
  const bool lines = has_lines(g, plan) && !sums.channels_inner;
  kernel::Launch launch(g.op);
  product_launch::bind_operands(launch, dispatch, lines ? DType::kBits128 : DType::kF32);
  launch.sums(sums.values);
  launch.form(static_cast<kernel::Form>(plan.form)).strided(false);
  launch.rows_inner(sums.channels_inner);
  const bool rolled = is_software(plan_target(*g.a.tensor));
  launch.rolled(rolled);
  kernel::Params p{};
  if (rolled) {
    p.points = kOfLine;
    p.results = plan.is_weight ? 3 : 4;
    const Factors factors = powers(p.results);
    for (size_t point = 0; point < kOfLine; ++point) {
      for (size_t k = 0; k < p.results; ++k) {
        p.factors[point][k] = factors[k][point];
      }
    }
  }
  product_launch::set_places(p, g.conv->params);
  product_launch::set_matrices(p, dispatch);
  p.a_outer = g.conv->params.a_outer;
  p.c_outer = g.conv->params.c_outer;
  set_tiles(p, plan, first, tiles);
  p.sums_point = u32(sums.point());
  p.sums_row = u32(sums.view().row);
  p.sums_column = u32(sums.view().column);
  p.at_once = plan.is_weight ? kChannelsAtOnce : kernel::kWorkgroup;
  product_launch::run<kernel::Regions>(launch, p, dispatch, {.in_fours = lines});
}

// Whether the operands, and what is stored of the points, take one binding each. The points of
// weights, and the sums in form `weight`, are never computed in parts; others are, of kColumns at
// least.
bool fits_bindings(const Gemm& g, const Plan& plan, const ShaderTarget& target) {
  const int64_t most = static_cast<int64_t>(BindingList::safe_reach(target)) / 4; // elements
  return lie_in_bindings(g, target) && kPoints * plan.rows * plan.channels <= most &&
         kPoints * kColumns * std::max(plan.rows, plan.channels) <= most;
}

bool has_taps(const kernels::conv_product::Params& conv) {
  return conv.tap_volume[0] == kTaps && conv.tap_plane[0] == kTaps && conv.tap_row[0] == 3;
}

} // namespace

bool accepts(const Product& product, const Strategy&, const ShaderTarget& target) {
  const Gemm& g = product.gemm;
  if (g.conv == nullptr || g.conv->grouped || g.conv->strided || g.batch != 1 ||
      product.dtype != DType::kF32 || g.c.tensor->scalar_type() != at::kFloat) {
    return false;
  }
  const kernels::conv_product::Params& conv = g.conv->params;
  const bool is_flat = conv.position_volume[0] == conv.position_plane[0] && conv.b_sizes[0] == 1 &&
                       conv.padding[0] == 0;
  if (!has_taps(conv) || !is_flat || conv.dilation[1] != 1 || conv.dilation[2] != 1 ||
      conv.position_volume[0] == 0) {
    return false;
  }
  const Plan plan(g);
  uint32_t buffers = g.d.tensor != nullptr ? 5 : 4;
  if (g.fusion != nullptr) {
    buffers += g.fusion->buffers();
  }
  return plan.tiles > 0 && in_units(4, {plan.rows, plan.channels}) &&
         fits_bindings(g, plan, target) && buffers <= target.max_storage_buffers;
}

// Products and elements that are stored and loaded again are compared with the products of the
// other kernels. Called for products that the algorithm does not take, too.
int cost(const Product& product, const Strategy&, const ShaderTarget& target) {
  const bool software = is_software(target);
  // Below so many products several dispatches in place of one do not pay.
  const int64_t fewest = software ? int64_t{1} << 22 : int64_t{1} << 24;
  const Gemm& g = product.gemm;
  if (g.conv == nullptr || g.conv->grouped || g.m * g.n * g.k < fewest ||
      !has_taps(g.conv->params)) {
    return kNever;
  }
  const Plan plan(g);
  // How many products take as long as an element that is stored and loaded again. The other kernels
  // for the gradients of weights are slower.
  const int64_t of_element = software ? 8 : plan.is_weight ? 12 : 32;
  const int64_t pairs = plan.rows * plan.channels;
  const int64_t elements = kPoints * ((plan.rows + plan.channels) * plan.tiles + pairs);
  const int64_t products = kPoints * pairs * plan.tiles;
  return products + elements * of_element < g.m * g.n * g.k ? 24 : kNever;
}

// K is not cut here: the products at the points are products of their own.
Strategy::Division divide(const Product&, const Strategy& row, const ShaderTarget&) {
  return {.tile = row.tile, .enough_workgroups = 1};
}

void launch(const ProductDispatch& dispatch, const Strategy&) {
  const Gemm& g = dispatch.product.gemm;
  const Plan plan(g);
  const int64_t most = tiles_at_once(plan, plan_target(*g.a.tensor));
  const bool is_input = plan.form == Form::input;
  Points weight;
  Points sums;
  if (plan.is_weight) {
    sums = empty_points(*g.a.tensor, plan.rows, plan.channels, false);
  } else {
    weight = points_of_weight(g, plan);
  }
  for (int64_t first = 0; first < plan.tiles; first += most) {
    const int64_t tiles = std::min(most, plan.tiles - first);
    const Points images = points_of_images(g, plan, first, tiles);
    if (plan.is_weight) {
      const Points gradients = points_of_gradients(g, plan, first, tiles);
      multiply(g, gradients.view(), images.view().transposed(), sums, images.columns, first != 0);
      continue;
    }
    sums = empty_points(*g.a.tensor, plan.rows, images.columns, images.channels_inner);
    // Of the weight's points the rows are channels and the columns filters. The product's rows are
    // those of C: filters in form `output`, channels in form `input`.
    const MatrixView rows = is_input ? weight.view() : weight.view().transposed();
    multiply(g, rows, images.view(), sums, plan.channels, false);
    finish(dispatch, plan, sums, first, tiles);
  }
  if (plan.is_weight) {
    finish(dispatch, plan, sums, 0, plan.channels);
  }
}

} // namespace torch_webgpu::winograd
