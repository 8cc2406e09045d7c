// The WGSL function library (lib/*.wgsl) as a set of declarations that kernels draw from by name.
#pragma once

#include <string>
#include <string_view>

namespace torch_webgpu {

struct ShaderTarget;

/// The library declarations that `text` needs, directly or through others, in library order. A name
/// that `text` declares itself is not taken from the library.
std::string library_for(std::string_view text);

/// `text` with what it needs of the library: a complete shader. For a target with shader-f16 half
/// floats are converted by the hardware.
std::string complete_shader(std::string_view text, const ShaderTarget& target);

} // namespace torch_webgpu
