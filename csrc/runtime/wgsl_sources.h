// The text of the WGSL library, embedded at build time by tools/embed_wgsl.py.
#pragma once

#include <span>
#include <string_view>

namespace torch_webgpu {

struct WgslSource {
  std::string_view name; // file name without the suffix, behind "lib/" if it is in that folder
  std::string_view text;
};

// nullptr where no such shader exists.
const WgslSource* find_wgsl(std::string_view name);

// Sorted by name.
std::span<const WgslSource> all_wgsl();

} // namespace torch_webgpu
