// What flex_attention does to scores: score_mod, mask_mod and the block mask.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <string>

namespace torch_webgpu {

/// WGSL statements for the regions of attention/score.wgsl. They read their function's parameters,
/// captured tensors by captured_32() and the like, and p.captured_strides and p.numbers.
struct ScoreTexts {
  std::string score, mask, gradient; // empty: the score, all keys, the given gradient
};

struct ScoreProgram {
  static constexpr size_t kCaptured = 3; // tensors
  static constexpr size_t kNumbers = 8;
  static constexpr int64_t kMostDims = 4; // of a captured tensor
  static constexpr uint32_t kPage = 256;  // texts of one `score_page` in score.wgsl

  uint32_t text = 0; // number_of() its texts; 0: all are empty
  // Gradients of scores may exceed what those of weights and values allow: there is a text for
  // them, or the logarithms have gradients.
  bool changes_gradients = false;
  std::array<at::Tensor, kCaptured> captured; // undefined behind the last
  // int32 [batches or 1, heads or 1, blocks of queries, blocks of keys], contiguous in the last
  // two; undefined: none.
  at::Tensor blocks;
  int64_t block_queries = 1, block_keys = 1; // of a block
  std::array<int32_t, kNumbers> numbers{};

  /// Whether scores stay as they are, and each query sees all keys.
  bool is_trivial() const { return text == 0 && !blocks.defined(); }
  /// The storage buffers that these take.
  uint32_t buffers() const;
  /// Whether no tile of scores, which start at multiples of their sizes, reaches over the edge of a
  /// block.
  bool holds_tiles(int64_t queries, int64_t keys) const {
    return blocks.defined() && block_queries % queries == 0 && block_keys % keys == 0;
  }

  /// 0 if all are empty.
  static uint32_t number_of(const ScoreTexts& texts);
  static ScoreTexts texts_of(uint32_t number);
};

} // namespace torch_webgpu
