#include "ops/attention/score_program.h"

#include <algorithm>

#include "launch/region_texts.h"

namespace torch_webgpu {
namespace {

constexpr char kSeparator = '\x1e'; // WGSL has no such character

RegionTexts& known_texts() {
  static RegionTexts all(16 * ScoreProgram::kPage - 1);
  return all;
}

} // namespace

uint32_t ScoreProgram::buffers() const {
  return std::ranges::count_if(captured, &at::Tensor::defined) + (blocks.defined() ? 1 : 0);
}

uint32_t ScoreProgram::number_of(const ScoreTexts& texts) {
  if (texts.score.empty() && texts.mask.empty() && texts.gradient.empty()) {
    return 0;
  }
  return known_texts().number_of(texts.score + kSeparator + texts.mask + kSeparator +
                                 texts.gradient);
}

ScoreTexts ScoreProgram::texts_of(uint32_t number) {
  if (number == 0) {
    return {};
  }
  const std::string text = known_texts().text_of(number);
  const size_t first = text.find(kSeparator);
  const size_t second = text.find(kSeparator, first + 1);
  return {.score = text.substr(0, first),
          .mask = text.substr(first + 1, second - first - 1),
          .gradient = text.substr(second + 1)};
}

} // namespace torch_webgpu
