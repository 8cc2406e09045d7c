// The expressions of fused products, each with a number for pipeline keys.
#include <deque>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "ops/matmul/matmul_gemm.h"

namespace torch_webgpu {
namespace {

struct Expressions {
  std::mutex mutex;
  std::deque<std::string> texts; // number 1 is the first
  std::unordered_map<std::string_view, uint32_t> numbers;
};

Expressions& expressions() {
  static Expressions all;
  return all;
}

} // namespace

uint32_t Fusion::number_of(const std::string& expression) {
  Expressions& all = expressions();
  std::lock_guard<std::mutex> lock(all.mutex);
  const auto known = all.numbers.find(expression);
  if (known != all.numbers.end()) {
    return known->second;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(all.texts.size() + 1 < Fusion::kPage * Fusion::kPage,
                              "more than 65535 different fused expressions");
  all.texts.push_back(expression); // which moves none of the others
  const auto number = static_cast<uint32_t>(all.texts.size());
  all.numbers.emplace(all.texts.back(), number);
  return number;
}

std::string Fusion::text_of(uint32_t number) {
  if (number == 0) {
    return "";
  }
  Expressions& all = expressions();
  std::lock_guard<std::mutex> lock(all.mutex);
  return all.texts.at(number - 1);
}

} // namespace torch_webgpu
