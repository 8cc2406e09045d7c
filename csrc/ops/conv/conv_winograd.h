// The row of the table of products for convolutions of 3 x 3 taps by Winograd's algorithm: see
// winograd.wgsl.
#pragma once

#include "ops/matmul/strategies.h"

namespace torch_webgpu::winograd {

bool accepts(const Product& product, const Strategy& row, const ShaderTarget& target);
int cost(const Product& product, const Strategy& row, const ShaderTarget& target);
Strategy::Division divide(const Product& product, const Strategy& row, const ShaderTarget& target);
void launch(const ProductDispatch& dispatch, const Strategy& row);

} // namespace torch_webgpu::winograd
