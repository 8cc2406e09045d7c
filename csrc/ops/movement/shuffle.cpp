// pixel_shuffle, pixel_unshuffle and channel_shuffle: one strided copy into a result of the input's
// memory format. ATen's composites of views, which other devices use, lose channels_last.
#include <ATen/core/Tensor.h>
#include <ATen/native/PixelShuffle.h>

#include "backend/empty.h"
#include "backend/registration.h"

namespace torch_webgpu {
namespace {

using at::Tensor;
using Sizes = c10::SmallVector<int64_t, 8>;

// (..., C, H, W) with the last dimensions replaced.
Sizes with_image(const Tensor& self, std::initializer_list<int64_t> image) {
  Sizes sizes(self.sizes().begin(), self.sizes().end() - 3);
  sizes.append(image.begin(), image.end());
  return sizes;
}

Tensor result_like(const Tensor& self, at::IntArrayRef sizes) {
  return empty_webgpu(sizes, self.options().memory_format(self.suggest_memory_format()));
}

// (..., C, r, r, H, W), whose r x r are the places in a block, viewed as (..., C, H, r, W, r).
Tensor interleaved(const Tensor& blocks) { return blocks.movedim({-2, -1}, {-4, -2}); }

// `fine` (..., C, H r, W r), as (..., C, H, r, W, r). Always a view: dimensions are only split.
Tensor split_pixels(const Tensor& fine, int64_t r) {
  return fine.unflatten(-1, {fine.size(-1) / r, r}).unflatten(-3, {fine.size(-2) / r, r});
}

// `coarse` (..., C r r, H, W), as (..., C, r, r, H, W).
Tensor split_channels(const Tensor& coarse, int64_t r) {
  return coarse.unflatten(-3, {coarse.size(-3) / (r * r), r, r});
}

Tensor pixel_shuffle(const Tensor& self, int64_t r) {
  at::native::check_pixel_shuffle_shapes(self, r);
  Tensor out = result_like(
      self, with_image(self, {self.size(-3) / (r * r), self.size(-2) * r, self.size(-1) * r}));
  if (out.numel() != 0) {
    split_pixels(out, r).copy_(interleaved(split_channels(self, r)));
  }
  return out;
}

Tensor pixel_unshuffle(const Tensor& self, int64_t r) {
  at::native::check_pixel_unshuffle_shapes(self, r);
  if (self.numel() == 0) {
    return self.clone();
  }
  Tensor out = result_like(
      self, with_image(self, {self.size(-3) * r * r, self.size(-2) / r, self.size(-1) / r}));
  interleaved(split_channels(out, r)).copy_(split_pixels(self, r));
  return out;
}

Tensor channel_shuffle(const Tensor& self, int64_t groups) {
  TORCH_CHECK(self.dim() > 2,
              "channel_shuffle expects input with > 2 dims, but got input with sizes ",
              self.sizes());
  const int64_t channels = self.size(1);
  TORCH_CHECK(groups > 0, "Number of groups to divide channels in must be positive. ",
              "Value of groups:", groups);
  TORCH_CHECK(channels % groups == 0, "Number of channels must be divisible by groups. Got ",
              channels, " channels and ", groups, " groups.");
  Tensor out = self.numel() == 0 ? self.alias() : result_like(self, self.sizes());
  if (out.numel() != 0) {
    out.unflatten(1, {channels / groups, groups})
        .copy_(self.unflatten(1, {groups, channels / groups}).transpose(1, 2));
  }
  return out;
}

TW_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("channel_shuffle", TORCH_FN(channel_shuffle));
  m.impl("pixel_shuffle", TORCH_FN(pixel_shuffle));
  m.impl("pixel_unshuffle", TORCH_FN(pixel_unshuffle));
}

} // namespace
} // namespace torch_webgpu
