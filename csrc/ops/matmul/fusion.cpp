// What fused products compute besides, each text with a number for pipeline keys.
#include <algorithm>
#include <deque>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "ops/matmul/matmul_gemm.h"

namespace torch_webgpu {
namespace {

struct Texts {
  std::mutex mutex;
  std::deque<std::string> texts; // number 1 is the first
  std::unordered_map<std::string_view, uint32_t> numbers;
};

Texts& known_texts() {
  static Texts all;
  return all;
}

} // namespace

uint32_t Fusion::buffers() const {
  const auto is_given = [](const MatrixView& view) { return view.tensor != nullptr; };
  return std::ranges::count_if(operands, is_given) + (is_given(second) ? 1 : 0) +
         (seed != nullptr ? 1 : 0);
}

uint32_t Fusion::number_of(const std::string& statements) {
  Texts& all = known_texts();
  std::lock_guard<std::mutex> lock(all.mutex);
  const auto known = all.numbers.find(statements);
  if (known != all.numbers.end()) {
    return known->second;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(all.texts.size() + 1 < Fusion::kPage * Fusion::kPage,
                              "more than 65535 different fused texts");
  all.texts.push_back(statements); // which moves none of the others
  const auto number = static_cast<uint32_t>(all.texts.size());
  all.numbers.emplace(all.texts.back(), number);
  return number;
}

std::string Fusion::text_of(uint32_t number) {
  if (number == 0) {
    return "";
  }
  Texts& all = known_texts();
  std::lock_guard<std::mutex> lock(all.mutex);
  return all.texts.at(number - 1);
}

} // namespace torch_webgpu
