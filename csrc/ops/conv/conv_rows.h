// The row of the table of products for float16 convolutions of stride 1 and few taps, which stages
// the images of a tile once for all taps: see conv_rows.wgsl.
#pragma once

#include "ops/matmul/strategies.h"

namespace torch_webgpu::conv_rows {

/// A dimension of C's images, and how many numbers of conv_rows.wgsl it has.
struct Extent {
  int64_t positions, numbers;
};

/// The most columns that a tile can have, a multiple of `unit`, if its positions have `numbers`
/// numbers at most from the first to the last, wherever a tile begins. 0: none.
int64_t columns_within(int64_t numbers, int64_t unit, const Extent& down, const Extent& across);

bool accepts(const Product& product, const Strategy& row, const ShaderTarget& target);
int cost(const Product& product, const Strategy& row, const ShaderTarget& target);
Strategy::Division divide(const Product& product, const Strategy& row, const ShaderTarget& target);
void launch(const ProductDispatch& dispatch, const Strategy& row);

} // namespace torch_webgpu::conv_rows
