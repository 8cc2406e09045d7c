// How a Fourier transform of some length is divided into passes, and the tables of factors it
// needs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace torch_webgpu {

class Context;
struct ShaderTarget;

/// Elements that fft.wgsl holds in workgroup memory: the longest transform of one pass.
uint32_t fft_capacity(const ShaderTarget& target);

/// Rows that a workgroup of fft.wgsl takes at most.
inline constexpr uint32_t kFftMaxRows = 128;

/// The radices of fft.wgsl's stages for a transform of `length`, which must be a product of them.
std::vector<uint32_t> fft_radices(uint32_t length);

struct FftPlan {
  uint32_t capacity;      // fft_capacity() of the target
  uint32_t length = 0;    // what the passes transform: the sequence's, or a convolution's
  bool convolves = false; // Bluestein: the sequence's length has a prime factor with no radix
  std::vector<uint32_t> factors; // one pass each, their product is `length`

  FftPlan(uint32_t points, const ShaderTarget& target);
};

// Tables of complex64 on the device of the context, made in double precision on the host and kept
// for later calls.

/// The `length` powers of exp(-2 pi i / length).
at::Tensor fft_roots(Context& context, uint32_t length);

/// The same powers as products of elements of two tables, of about sqrt(length) elements each.
/// Power (high << shift) + low is table[(1 << shift) + high] * table[low].
struct FftSplitRoots {
  uint32_t shift;
  at::Tensor table;
};
FftSplitRoots fft_split_roots(Context& context, uint32_t length);

/// exp(-pi i k^2 / points).
at::Tensor fft_chirp(Context& context, uint32_t points);

/// The transform of the chirp's conjugate, that a transform of `points` is convolved with, divided
/// by `length`.
at::Tensor fft_filter_spectrum(Context& context, uint32_t points, uint32_t length);

} // namespace torch_webgpu
