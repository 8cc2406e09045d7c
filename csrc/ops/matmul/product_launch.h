// Filling the operands, constants and parameters of a product's kernel. The kernels declare them
// alike.
#pragma once

#include <ATen/ceil_div.h>
#include <c10/core/Scalar.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>

#include "launch/dtypes.h"
#include "launch/matrix_units.h"
#include "ops/matmul/strategies.h"

namespace torch_webgpu::product_launch {

inline uint32_t u32(int64_t value) { return static_cast<uint32_t>(value); }

/// Each discrete GPU is taken to have as many processors as an H200.
inline int64_t processors(const ShaderTarget& target) {
  return std::max<int64_t>(target.workgroups_to_fill * 33 / 512, 1);
}

/// The tiles of a product with m rows and n columns in each batch. `joined`: they run across the
/// batches.
inline int64_t count_tiles(const Strategy::Tile& tile, int64_t m, int64_t n, int64_t batch,
                           bool joined) {
  const int64_t along_n =
      joined ? at::ceil_div(batch * n, tile.n) : batch * at::ceil_div(n, tile.n);
  return at::ceil_div(m, tile.m) * along_n;
}

inline bool is_one(const c10::Scalar& value) { return value.equal(1); }

inline bool in_units(int64_t unit, std::initializer_list<int64_t> values) {
  return std::ranges::all_of(values, [=](int64_t value) { return value % unit == 0; });
}

inline std::array<uint32_t, 4> strides_of(const MatrixView& view, bool flipped) {
  return {u32(view.batch), u32(flipped ? view.column : view.row),
          u32(flipped ? view.row : view.column), u32(view.image)};
}

// The part of a further operand that belongs to a part of the product.
inline MatrixView at_origin(MatrixView view, const Gemm& g) {
  view.offset += g.origin[0] * view.batch + g.origin[1] * view.row + g.origin[2] * view.column;
  return view;
}

template <class Params>
void set_c(Params& p, const ProductDispatch& dispatch) {
  const Gemm& g = dispatch.product.gemm;
  p.m = u32(g.m);
  p.n = u32(g.n);
  p.k = u32(g.k);
  p.batch = u32(g.batch);
  p.splits = u32(dispatch.splits);
  p.c_batch = u32(dispatch.c.batch);
  p.c_row = u32(dispatch.c.row);
  p.c_column = u32(dispatch.c.column);
}

template <class Params>
void set_matrices(Params& p, const ProductDispatch& dispatch) {
  set_c(p, dispatch);
  const Product& product = dispatch.product;
  const Gemm& g = product.gemm;
  p.tiles_m = u32(dispatch.tiles_m);
  p.tiles_n = u32(dispatch.tiles_n);
  p.k_piece = u32(dispatch.k_piece);
  p.k = u32(g.blocks * dispatch.k_padded);
  p.k_block = u32(g.k);
  p.k_padded = u32(dispatch.k_padded);
  p.a_block = u32(g.a.image);
  p.b_block = u32(g.b.image);
  p.a_batch = u32(g.a.batch);
  p.a_row = u32(g.a.row);
  p.a_column = u32(g.a.column);
  p.b_batch = u32(g.b.batch);
  p.b_row = u32(g.b.row);
  p.b_column = u32(g.b.column);
  p.a_along_k = product.a_along_k ? 1 : 0;
  p.b_along_k = product.b_along_k ? 1 : 0;
  if (dispatch.joined) {
    p.batch = 1;
    p.n = u32(g.batch * g.n);
    p.n_of_batch = u32(g.n);
  }
}

// Operands of the problem, in its dtypes or as raw bits.
template <class Launch>
void bind_c(Launch& launch, const ProductDispatch& dispatch, std::optional<DType> bits = {}) {
  const Gemm& g = dispatch.product.gemm;
  const auto c = dispatch.c.range(g.batch * (dispatch.pieces ? dispatch.splits : 1), g.m, g.n);
  launch.c_range(WrittenBuffer(*dispatch.c.tensor), c.begin, c.end,
                 bits ? *bits : operand_dtype(g.op, "c", dispatch.c.tensor->scalar_type()));
}

template <class Launch>
void bind_operands(Launch& launch, const ProductDispatch& dispatch,
                   std::optional<DType> c_bits = {}, std::optional<DType> a_bits = {},
                   std::optional<DType> b_bits = {}) {
  const Product& product = dispatch.product;
  const Gemm& g = product.gemm;
  bind_c(launch, dispatch, c_bits);
  const auto a = g.a.range(g.batch, g.m, g.k);
  const auto b = g.b.range(g.batch, g.k, g.n);
  launch.a_range(a.buffer, a.begin, a.end, a_bits.value_or(product.dtype));
  launch.b_range(b.buffer, b.begin, b.end, b_bits.value_or(product.dtype));
}

// Whether groups of four neighbours in C lie along its rows. Only kernels of convolutions store
// such groups; C of a plain product may look so where it has one column, or is transposed.
inline bool is_along_m(const ProductDispatch& dispatch) {
  return dispatch.product.gemm.conv != nullptr && dispatch.c.row == 1 && dispatch.c.column != 1;
}

// Whether such groups, or those along its columns, are aligned to `unit` elements and end at the
// edges.
inline bool has_groups_of_c(const ProductDispatch& dispatch, int64_t unit) {
  const Gemm& g = dispatch.product.gemm;
  const bool along_m = is_along_m(dispatch);
  const MatrixView& c = dispatch.c;
  if (g.conv != nullptr && g.conv->form != kernels::conv_product::Form::weight) {
    // C's columns have two levels.
    const int64_t outer = dispatch.pieces ? unit : g.conv->params.c_outer;
    const bool has_rows =
        g.conv->phases.count == 1 && in_units(4, {g.conv->params.position_volume[0]});
    if (!in_units(unit, {outer}) || !(along_m || has_rows)) {
      return false;
    }
  }
  return in_units(4, {along_m ? g.m : g.n}) && (along_m || c.column == 1) &&
         in_units(unit, {c.offset, along_m ? c.column : c.row, c.batch});
}

// float32 in groups of four that are stored at once; else the tensor's own type.
inline std::optional<DType> bits_of_c(const ProductDispatch& dispatch) {
  return dispatch.c.tensor->element_size() == 4 && has_groups_of_c(dispatch, 4)
             ? std::optional(DType::kBits128)
             : std::nullopt;
}

// Whether such groups of halves are whole words, or those of float32 aligned to 16 bytes, so that
// kernels store them at once.
inline bool has_fours_of_c(const ProductDispatch& dispatch) {
  switch (dispatch.c.tensor->element_size()) {
  case 2:
    return has_groups_of_c(dispatch, 2);
  case 4:
    return has_groups_of_c(dispatch, 4);
  default:
    return false;
  }
}

// The same. Of halves, the kernel gets C's words as its own. (float32 is bound as bits_of_c()
// says.)
template <class Launch>
bool own_fours_of_c(Launch& launch, const ProductDispatch& dispatch) {
  const bool in_fours = has_fours_of_c(dispatch);
  if (in_fours && dispatch.c.tensor->element_size() == 2) {
    launch.own_words_of_c();
  }
  return in_fours;
}

/// Whether subgroup matrices compute the product, in float16 from elements of this dtype.
inline bool has_matrices(const Product& product, DType dtype, const ShaderTarget& target) {
  const at::ScalarType stored = product.gemm.c.tensor->scalar_type();
  return product.dtype == dtype &&
         (stored == at::kFloat || stored == product.gemm.a.tensor->scalar_type()) &&
         has_f16_matrices(target);
}

// What run() has to know of a kernel.
struct KernelTraits {
  bool d_in_c = false;   // it reads D as C
  bool in_fours = false; // it stores four neighbours of a row of C at once
};

// Whether four neighbours along the rows of a kernel fill whole words of the second result, if C's
// do.
inline bool is_second_packed(const MatrixView& second, const Gemm& g) {
  const auto bytes = static_cast<int64_t>(second.tensor->element_size());
  if (bytes >= 4 || g.conv != nullptr) {
    return false;
  }
  const int64_t row = g.flipped ? second.column : second.row;
  const int64_t column = g.flipped ? second.row : second.column;
  return column == 1 && in_units(4 / bytes, {second.offset, row, second.batch});
}

// What the epilogue takes, and the dispatch.
template <class Regions, class Launch, class Params>
void run(Launch& launch, Params& p, const ProductDispatch& dispatch,
         const KernelTraits& kernel = {}) {
  const Gemm& g = dispatch.product.gemm;
  const bool ends = !dispatch.pieces;
  const bool has_d = ends && g.d.tensor != nullptr;
  if (has_d && !kernel.d_in_c) {
    const auto d = g.d.range(g.batch, g.m, g.n);
    launch.d_range(d.buffer, d.begin, d.end, operand_dtype(g.op, "d", g.d.tensor->scalar_type()));
    p.d_batch = u32(g.d.batch);
    p.d_row = u32(g.d.row);
    p.d_column = u32(g.d.column);
  }
  const bool scaled = ends && !(is_one(g.alpha) && (!has_d || is_one(g.beta)));
  if (scaled) {
    write_scalar(g.alpha, dispatch.product.sum, p.alpha.data());
    write_scalar(g.beta, dispatch.product.sum, p.beta.data());
  }
  const Fusion* fusion = ends ? g.fusion : nullptr;
  uint32_t text = 0;
  if (fusion != nullptr) {
    text = fusion->text();
    p.origin = {u32(g.origin[0]), u32(g.origin[1]), u32(g.origin[2]), 0};
    const int64_t rows = g.flipped ? g.n : g.m;
    const int64_t columns = g.flipped ? g.m : g.n;
    const auto bind = [&](const MatrixView& given, const char* name, auto&& range) {
      if (given.tensor == nullptr) {
        return std::array<uint32_t, 4>{};
      }
      const auto place = at_origin(given, g).range(g.batch, rows, columns);
      range(place.buffer, place.begin, place.end,
            operand_dtype(g.op, name, given.tensor->scalar_type()));
      return strides_of(given, g.flipped);
    };
    const auto& operands = fusion->operands;
    p.e_strides = bind(operands[0], "e", [&](const auto&... of) { launch.e_range(of...); });
    p.f_strides = bind(operands[1], "f", [&](const auto&... of) { launch.f_range(of...); });
    p.g_strides = bind(operands[2], "g", [&](const auto&... of) { launch.g_range(of...); });
    p.h_strides = bind(operands[3], "h", [&](const auto&... of) { launch.h_range(of...); });
    p.i_strides = bind(operands[4], "i", [&](const auto&... of) { launch.i_range(of...); });
    p.s_strides = bind(fusion->second, "s", [&](const Buffer&, const auto&... of) {
      launch.s_range(WrittenBuffer(*fusion->second.tensor), of...);
    });
    if (fusion->second.tensor != nullptr && kernel.in_fours &&
        is_second_packed(at_origin(fusion->second, g), g)) {
      launch.own_words_of_s();
    }
    if (fusion->seed != nullptr) {
      launch.seed(*fusion->seed);
    }
  }
  launch.scaled(scaled).flipped(fusion != nullptr && g.flipped);
  launch.fused_text(text % Fusion::kPage).fused_page(text / Fusion::kPage);
  uint32_t bytes = sizeof(Params);
  // A kernel's own parameters come last.
  constexpr bool has_own = offsetof(Params, s_strides) + sizeof(p.s_strides) != sizeof(Params);
  if constexpr (!has_own) {
    bytes = fusion != nullptr ? bytes : scaled ? offsetof(Params, origin) : offsetof(Params, alpha);
  }
  launch.run(p, [&] { return Regions{.fused = Fusion::text_of(text)}; }, bytes);
}

/// The parameters that conv_places.wgsl adds.
template <class Params>
void set_places(Params& p, const kernels::conv_product::Params& from) {
  p.tap_volume = from.tap_volume;
  p.tap_plane = from.tap_plane;
  p.tap_row = from.tap_row;
  p.position_volume = from.position_volume;
  p.position_plane = from.position_plane;
  p.position_row = from.position_row;
  p.b_strides = from.b_strides;
  p.b_sizes = from.b_sizes;
  p.stride = from.stride;
  p.padding = from.padding;
  p.dilation = from.dilation;
  p.channels = from.channels;
  p.b_image = from.b_image;
  p.b_channel = from.b_channel;
}

/// The same, and those that conv_groups.wgsl adds.
template <class Params>
void set_groups(Params& p, const ProductDispatch& dispatch) {
  const kernels::conv_product::Params& from = dispatch.product.gemm.conv->params;
  set_places(p, from);
  const Convolution::Phases& phases = dispatch.product.gemm.conv->phases;
  p.phase_step = phases.step;
  p.phase_inverse = phases.inverse;
  p.phase_taps = phases.taps;
  p.phase_sizes = phases.sizes;
  // Positions of one image follow those of another in the sums of pieces of K.
  p.c_outer = dispatch.pieces ? from.position_volume[0] : from.c_outer;
}

} // namespace torch_webgpu::product_launch
