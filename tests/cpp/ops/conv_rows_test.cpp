#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "ops/conv/conv_rows.h"

namespace torch_webgpu::conv_rows {
namespace {

// The numbers from a tile's first position to its last, of the tile that has most.
int64_t longest_tile(int64_t columns, int64_t images, const Extent& down, const Extent& across) {
  const int64_t image = down.positions * across.positions;
  const auto number = [&](int64_t position) {
    const int64_t line = position % image / across.positions;
    return (position / image * down.numbers + line) * across.numbers + position % across.positions;
  };
  int64_t longest = 0;
  for (int64_t first = 0; first < images * image; first += columns) {
    const int64_t last = std::min(first + columns, images * image) - 1;
    longest = std::max(longest, number(last) - number(first) + 1);
  }
  return longest;
}

} // namespace

TEST_CASE("the numbers of a tile's columns are within those of a workgroup") {
  std::mt19937 random(0);
  const auto between = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (int i = 0; i < 3000; ++i) {
    const int64_t height = between(1, i % 2 ? 8 : 60);
    const int64_t width = between(1, i % 2 ? 20 : 300);
    const Extent down{height, height + between(0, 4)};
    const Extent across{width, width + between(0, 6)};
    const int64_t unit = height * width % 4 == 0 ? 4 : 1;
    for (const int64_t numbers : {128, 224, 256}) {
      const int64_t columns = columns_within(numbers, unit, down, across);
      CAPTURE(height);
      CAPTURE(width);
      CHECK(columns % unit == 0);
      CHECK(columns <= numbers);
      if (columns > 0) {
        CHECK(longest_tile(columns, 30, down, across) <= numbers);
      }
    }
  }
}

TEST_CASE("a tile takes whole images, or lines of one, where more would not fit") {
  const Extent seven{7, 8};
  const Extent fourteen{14, 15};
  const Extent many{56, 57};
  CHECK(columns_within(128, 1, seven, seven) == 98);
  CHECK(columns_within(256, 1, seven, seven) == 196);
  CHECK(columns_within(224, 4, fourteen, fourteen) == 196);
  CHECK(columns_within(256, 4, many, many) == 224);
  CHECK(columns_within(128, 4, {1, 1}, {300, 302}) == 124);
}

} // namespace torch_webgpu::conv_rows
