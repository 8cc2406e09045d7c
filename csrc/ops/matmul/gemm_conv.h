// Convolutions as matrix products: the hooks of gemm.wgsl that find elements of A, B and C.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace torch_webgpu {

// A convolution computes an output y from an input x and a weight w. Each of the three can be
// computed from the other two; the one that is indexed by taps and positions together becomes B.
enum class ConvForm : uint8_t {
  kNone,   // a plain product
  kOutput, // y: A = w, B = x
  kInput,  // x: A = w, B = y; also the output of a transposed convolution
  kWeight, // w: A = y, B = x
};

/// n / d by a multiplication, for n < 2^31; the words of divide_by_u.
std::array<uint32_t, 4> divisor_words(uint32_t d);

/// Params::extra of gemm.wgsl. Vectors are (depth, height, width).
struct ConvParams {
  using Words = std::array<uint32_t, 4>;
  Words taps, tap_plane, tap_row;                // divisors
  Words positions, position_plane, position_row; // divisors; positions of C's or A's columns
  Words b_strides;                               // [3]: of an image
  Words b_sizes;                                 // [3]: stride of a channel
  Words stride;                                  // [3]: outer stride of A's columns
  Words padding;                                 // [3]: outer stride of C's columns
  Words dilation;
};

using KernelHooks = std::vector<std::pair<std::string_view, std::string>>;
KernelHooks conv_hooks(ConvForm form, bool strided);

} // namespace torch_webgpu
