// All that differs between the versions of PyTorch that this backend compiles with.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/native/Padding.h>
#include <torch/version.h>

/// Whether PyTorch has this version or a later one.
#define TORCH_WEBGPU_TORCH_AT_LEAST(major, minor)                                                  \
  (TORCH_VERSION_MAJOR > (major) ||                                                                \
   (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

/// ATen's check of an argument. A failure is a RuntimeError before this version of PyTorch. From
/// then on it is an error of `kind`: TYPE, VALUE, INDEX or NOT_IMPLEMENTED.
#define TORCH_WEBGPU_CHECK_SINCE(major, minor, kind, ...)                                          \
  do {                                                                                             \
    if constexpr (TORCH_WEBGPU_TORCH_AT_LEAST(major, minor)) {                                     \
      TORCH_CHECK_##kind(__VA_ARGS__);                                                             \
    } else {                                                                                       \
      TORCH_CHECK(__VA_ARGS__);                                                                    \
    }                                                                                              \
  } while (false)

namespace torch_webgpu {

/// ATen's check of a tensor that is padded along its last `dims` dimensions.
template <int dims>
void check_padded_input(const at::Tensor& input, at::IntArrayRef padding) {
#if TORCH_WEBGPU_TORCH_AT_LEAST(2, 15)
  at::native::padding::check_valid_input(input, padding, dims);
#else
  at::native::padding::check_valid_input<dims>(input, padding);
#endif
}

} // namespace torch_webgpu
