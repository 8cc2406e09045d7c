// How the invocations of a workgroup share rows.
#pragma once

#include <cstdint>

namespace torch_webgpu {

/// A kernel in which `lanes` invocations of a workgroup of 256 work on a row together.
struct RowLanes {
  uint32_t lanes_log2 = 0;
  uint32_t lanes_first =
      0; // 1: neighbouring invocations share a row; 0: they have neighbouring rows

  /// For rows of `length` elements, `inner` of which lie interleaved.
  RowLanes(uint32_t length, uint32_t inner, uint32_t elements_per_lane);
  uint32_t lanes() const { return 1u << lanes_log2; }
  uint64_t workgroups(uint64_t rows) const {
    return ((rows << lanes_log2) + kWorkgroup - 1) / kWorkgroup;
  }
  static constexpr uint32_t kWorkgroup = 256;
};

} // namespace torch_webgpu
