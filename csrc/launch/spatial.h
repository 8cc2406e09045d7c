// Tensors of up to three spatial dimensions behind optional batch and channel dimensions, as
// csrc/wgsl/lib/spatial.wgsl sees them.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

#include "backend/tensor.h"

namespace torch_webgpu {

/// A vec3<u32> of a uniform struct; `extra` is a scalar member that follows it.
struct Triple {
  uint32_t depth = 1;
  uint32_t row = 1;
  uint32_t column = 1;
  uint32_t extra = 0;
};

/// `Layout` of lib/spatial.wgsl.
struct SpatialLayout {
  Triple step; // extra: offset
  uint32_t batch = 0;
  uint32_t channel = 0;
  uint32_t unused[2] = {};
};

class Spatial {
public:
  /// A view of the tensor's last `dims` dimensions, the channels before and the batch before those.
  Spatial(const at::TensorBase& tensor, int64_t dims) : itemsize_(tensor.itemsize()) {
    const int64_t rank = tensor.dim();
    for (int64_t k = 0; k < dims + 2 && k < rank; ++k) {
      const int64_t from = rank - 1 - k;
      const int64_t to = k < dims ? 4 - k : (k == dims ? 1 : 0);
      size_[to] = tensor.size(from);
      stride_[to] = tensor.stride(from);
    }
    offset_ = byte_offset(tensor) / itemsize_;
  }

  uint32_t batch() const { return static_cast<uint32_t>(size_[0]); }
  uint32_t channels() const { return static_cast<uint32_t>(size_[1]); }
  int64_t size(int64_t spatial_dim) const { return size_[2 + spatial_dim]; }
  Triple sizes(uint32_t extra = 0) const { return triple(size_, extra); }
  uint64_t numel() const {
    return static_cast<uint64_t>(size_[0] * size_[1] * size_[2] * size_[3] * size_[4]);
  }
  bool channels_last() const { return size_[1] > 1 && stride_[1] == 1; }
  SpatialLayout layout() const {
    return {triple(stride_, static_cast<uint32_t>(offset_)), static_cast<uint32_t>(stride_[0]),
            static_cast<uint32_t>(stride_[1])};
  }

private:
  static Triple triple(const std::array<int64_t, 5>& of, uint32_t extra) {
    return {static_cast<uint32_t>(of[2]), static_cast<uint32_t>(of[3]),
            static_cast<uint32_t>(of[4]), extra};
  }

  // Batch, channels, depth, rows, columns.
  std::array<int64_t, 5> size_ = {1, 1, 1, 1, 1};
  std::array<int64_t, 5> stride_ = {};
  uint64_t offset_;
  uint64_t itemsize_;
};

} // namespace torch_webgpu
