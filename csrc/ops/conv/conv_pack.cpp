#include "ops/conv/conv_pack.h"

#include <ATen/ceil_div.h>
#include <c10/util/accumulate.h>

#include <utility>
#include <vector>

#include "backend/empty.h"
#include "kernels/conv_pack.h"
#include "kernels/conv_spread.h"
#include "launch/common.h"
#include "ops/conv/conv_gemm.h"
#include "ops/matmul/matmul_gemm.h"

namespace torch_webgpu {
namespace {

using at::Tensor;
namespace kernel = kernels::conv_pack;

uint32_t u32(int64_t value) { return static_cast<uint32_t>(value); }

// Sizes and strides of what is copied; see conv_pack.wgsl.
struct Source {
  int64_t images, positions, channels;
  int64_t group_images, group_stride, image_stride, position_stride, channel_stride;
};

// `out` has rows of `padded` elements.
void pack(const Tensor& out, const Tensor& tensor, const Source& from, int64_t padded) {
  const bool narrow = tensor.element_size() == 2;
  const MatrixView::Range bytes = range_of(tensor);
  kernel::Params params;
  params.images = u32(from.images);
  params.positions = u32(from.positions);
  params.channels = u32(from.channels);
  params.padded = u32(padded);
  const bool few = padded <= 8 && from.positions > 64;
  params.channel_tiles = u32(at::ceil_div<int64_t>(padded, few ? 8 : 32));
  params.group_images = u32(from.group_images);
  params.group_stride = u32(from.group_stride);
  params.image_stride = u32(from.image_stride);
  params.position_stride = u32(from.position_stride);
  params.channel_stride = u32(from.channel_stride);
  kernel::Launch launch("convolution");
  launch.out_as(DType::kBits32, out);
  launch.in_range(bytes.buffer, bytes.begin, bytes.end, narrow ? DType::kBits16 : DType::kBits32);
  launch.wide(from.positions > 32).few(few);
  launch.run(params);
}

Tensor packed(const Tensor& tensor, const Source& from) {
  const int64_t padded = in_groups(tensor, from.channels);
  Tensor out =
      empty_webgpu({from.images, from.positions, padded}, tensor.scalar_type(), tensor.device());
  pack(out, tensor, from, padded);
  return out;
}

// Whether the tensor's channels lie in whole groups already.
bool is_grouped(const Tensor& tensor) {
  const int64_t unit = group_size(tensor);
  if (tensor.stride(1) != 1 || tensor.size(1) % unit != 0 || tensor.storage_offset() % unit != 0) {
    return false;
  }
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    if (d != 1 && tensor.size(d) != 1 && tensor.stride(d) % unit != 0) {
      return false;
    }
  }
  return true;
}

int64_t spatial_numel(const Tensor& tensor) {
  return c10::multiply_integers(tensor.sizes().slice(2));
}

} // namespace

int64_t in_groups(const Tensor& tensor, int64_t count) {
  const int64_t unit = group_size(tensor);
  return at::ceil_div(count, unit) * unit;
}

Tensor grouped_images(const Tensor& images, bool joined) {
  if (is_grouped(images) && (!joined || (has_position_stride(images) && has_one_stride(images)))) {
    return images;
  }
  const Tensor from = has_position_stride(images) ? images : images.contiguous();
  const Tensor copy = packed(from, {.images = from.size(0),
                                    .positions = spatial_numel(from),
                                    .channels = from.size(1),
                                    .group_images = from.size(0),
                                    .group_stride = 0,
                                    .image_stride = from.stride(0),
                                    .position_stride = position_stride(from),
                                    .channel_stride = from.stride(1)});
  std::vector<int64_t> sizes = images.sizes().vec();
  sizes.erase(sizes.begin() + 1);
  sizes.push_back(copy.size(2));
  return copy.view(sizes).movedim(-1, 1);
}

Tensor empty_with_channels_last(const Tensor& images) {
  std::vector<int64_t> sizes = images.sizes().vec();
  sizes.push_back(sizes[1]);
  sizes.erase(sizes.begin() + 1);
  return empty_webgpu(sizes, images.scalar_type(), images.device()).movedim(-1, 1);
}

void copy_channels_first(const Tensor& to, const Tensor& from) {
  const int64_t positions = spatial_numel(to);
  const int64_t per_word = 4 / to.element_size();
  if (!to.is_contiguous() || positions % per_word != 0 || to.storage_offset() % per_word != 0) {
    to.copy_(from);
    return;
  }
  // Positions take the part of channels.
  pack(to, from,
       {.images = to.size(0),
        .positions = to.size(1),
        .channels = positions,
        .group_images = to.size(0),
        .group_stride = 0,
        .image_stride = from.stride(0),
        .position_stride = 1,
        .channel_stride = position_stride(from)},
       positions);
}

bool spread_images(const Tensor& to, const Tensor& from, at::IntArrayRef stride) {
  namespace spread = kernels::conv_spread;
  const at::MemoryFormat format = to.suggest_memory_format();
  const bool channels_inner = format != at::MemoryFormat::Contiguous;
  const auto bytes = static_cast<int64_t>(to.element_size());
  const int64_t unit = 16 / bytes;
  const int64_t line = channels_inner ? to.size(1) : to.size(-1);
  if ((bytes != 2 && bytes != 4) || !to.is_contiguous(format) || !from.is_contiguous(format) ||
      line % unit != 0 || to.storage_offset() % unit != 0) {
    return false;
  }
  const auto size = [](const Tensor& tensor, int64_t d) {
    return u32(spatial(tensor.sizes().slice(2), d, 1));
  };
  spread::Params params{};
  params.groups = divisor_words(u32(line / unit));
  params.columns = divisor_words(channels_inner ? size(to, 2) : 1);
  params.rows = divisor_words(size(to, 1));
  params.planes = divisor_words(size(to, 0));
  params.stride_depth = divisor_words(u32(spatial(stride, 0, 1)));
  params.stride_row = divisor_words(u32(spatial(stride, 1, 1)));
  params.stride_column = divisor_words(u32(spatial(stride, 2, 1)));
  params.count = u32(to.numel() / unit);
  params.in_planes = size(from, 0);
  params.in_rows = size(from, 1);
  params.in_columns = size(from, 2);
  spread::Launch launch("convolution");
  launch.out_as(DType::kBits128, to);
  launch.in_as(bytes == 2 ? DType::kBits16 : DType::kBits32, from);
  launch.channels_inner(channels_inner);
  launch.run(params);
  return true;
}

Tensor grouped_weight(const Tensor& weight, int64_t groups, bool by_channel) {
  const Tensor from = has_position_stride(weight) ? weight : weight.contiguous();
  const int64_t rows = from.size(0) / groups;
  Source source{.images = from.size(0),
                .positions = spatial_numel(from),
                .channels = from.size(1),
                .group_images = rows,
                .group_stride = rows * from.stride(0),
                .image_stride = from.stride(0),
                .position_stride = position_stride(from),
                .channel_stride = from.stride(1)};
  if (by_channel) {
    source.images = groups * from.size(1);
    source.group_images = from.size(1);
    source.channels = rows;
    std::swap(source.image_stride, source.channel_stride);
  } else {
    const int64_t taps = source.positions;
    const bool lies_so = from.stride(1) == 1 && from.size(1) % group_size(from) == 0 &&
                         from.storage_offset() % group_size(from) == 0 &&
                         (taps == 1 || source.position_stride == from.size(1)) &&
                         from.stride(0) == taps * from.size(1);
    if (lies_so) {
      return from;
    }
  }
  return packed(from, source);
}

} // namespace torch_webgpu
