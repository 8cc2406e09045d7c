#include "launch/region_texts.h"

#include <c10/util/Exception.h>

namespace torch_webgpu {

uint32_t RegionTexts::number_of(const std::string& text) {
  const std::lock_guard lock(mutex_);
  const auto known = numbers_.find(text);
  if (known != numbers_.end()) {
    return known->second;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(texts_.size() < most_, "more than ", most_,
                              " different texts for one family of kernels");
  texts_.push_back(text); // which moves none of the others
  const auto number = static_cast<uint32_t>(texts_.size());
  numbers_.emplace(texts_.back(), number);
  return number;
}

std::string RegionTexts::text_of(uint32_t number) {
  if (number == 0) {
    return "";
  }
  const std::lock_guard lock(mutex_);
  return texts_.at(number - 1);
}

} // namespace torch_webgpu
