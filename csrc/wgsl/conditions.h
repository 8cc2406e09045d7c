// Conditional text of kernel files, in the syntax of WESL (https://wesl-lang.dev): a declaration, a
// statement or a block behind `@if(condition)`, `@elif(condition)` or `@else`.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace torch_webgpu {

/// `text` without the attributes, and without what stands behind those that do not hold. A
/// condition is made of names, `!`, `&&`, `||` and parentheses; `holds(name)` tells the value of a
/// name. Raises kRuntime for text that does not parse.
std::string resolve_conditions(std::string_view text,
                               const std::function<bool(std::string_view)>& holds);

} // namespace torch_webgpu
