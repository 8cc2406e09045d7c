// What fused products compute besides.
#include <algorithm>

#include "launch/region_texts.h"
#include "ops/matmul/matmul_gemm.h"

namespace torch_webgpu {
namespace {

RegionTexts& known_texts() {
  static RegionTexts all(Fusion::kPage * Fusion::kPage - 1);
  return all;
}

} // namespace

uint32_t Fusion::buffers() const {
  const auto is_given = [](const MatrixView& view) { return view.tensor != nullptr; };
  return std::ranges::count_if(operands, is_given) + (is_given(second) ? 1 : 0) +
         (seed != nullptr ? 1 : 0);
}

uint32_t Fusion::number_of(const std::string& statements) {
  return known_texts().number_of(statements);
}

std::string Fusion::text_of(uint32_t number) { return known_texts().text_of(number); }

} // namespace torch_webgpu
