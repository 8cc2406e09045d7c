// Texts of kernels' regions that programs supply, each with a number for pipeline keys.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

namespace torch_webgpu {

/// Texts are kept for the process, as are pipelines. Any thread may call.
class RegionTexts {
public:
  /// Numbers up to `most`, which the kernels' constants hold.
  explicit RegionTexts(uint32_t most) : most_(most) {}

  /// The number of a text, from 1. Raises NotImplementedError if there are no more numbers.
  uint32_t number_of(const std::string& text);
  /// The text of a number; the empty text for 0.
  std::string text_of(uint32_t number);

private:
  const uint32_t most_;
  std::mutex mutex_;              // guards the others
  std::deque<std::string> texts_; // number 1 is the first
  std::unordered_map<std::string_view, uint32_t> numbers_;
};

} // namespace torch_webgpu
