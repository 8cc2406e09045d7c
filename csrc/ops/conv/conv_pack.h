// Copies of a convolution's tensors whose channels are neighbours in memory, in whole groups of 16
// bytes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace torch_webgpu {

/// Elements of 16 bytes.
inline int64_t group_size(const at::Tensor& tensor) { return 16 / tensor.element_size(); }
/// `count` up to whole groups of the tensor's elements.
int64_t in_groups(const at::Tensor& tensor, int64_t count);

/// [images, channels, positions...] in the order images, positions, channels. Channels beyond
/// the tensor's own are zero. The tensor itself if it lies so,
/// and positions and images have one stride or need not be `joined`.
at::Tensor grouped_images(const at::Tensor& images, bool joined = false);
/// A new tensor of an image's sizes in that order, and its copy into one of another.
at::Tensor empty_with_channels_last(const at::Tensor& images);
void copy_channels_first(const at::Tensor& to, const at::Tensor& from);
/// Images whose elements `stride` apart are those of `from`, and whose others are zero. Stores
/// nothing and returns false unless both are contiguous in one memory format, and lines are whole
/// groups of 16 bytes.
bool spread_images(const at::Tensor& to, const at::Tensor& from, at::IntArrayRef stride);
/// A weight [groups * rows, channels, taps...] as matrices of `rows` rows and (tap, channel)
/// columns, or with rows and channels exchanged if `by_channel`.
at::Tensor grouped_weight(const at::Tensor& weight, int64_t groups, bool by_channel);

} // namespace torch_webgpu
