#include "launch/target_scope.h"

#include <c10/util/ThreadLocalDebugInfo.h>

#include <string_view>
#include <type_traits>
#include <utility>

namespace torch_webgpu {
namespace {

// c10 hands the entries of a thread on to the threads that run its backward passes.
constexpr std::string_view kName = "torch_webgpu shader target";

// A kind of our own. Before torch 2.13 kinds are numbers, of which c10 uses the first few.
template <typename Kind>
constexpr Kind kind_of_target() {
  if constexpr (std::is_enum_v<Kind>) {
    return static_cast<Kind>(0xd7);
  } else {
    return Kind(&kName);
  }
}
constexpr auto kKind = kind_of_target<c10::DebugInfoKind>();

struct Entry final : c10::DebugInfoBase {
  explicit Entry(ShaderTarget t) : target(std::move(t)) {}
  ShaderTarget target;
};

} // namespace

void push_target(ShaderTarget target) {
  c10::ThreadLocalDebugInfo::_push(kKind, std::make_shared<Entry>(std::move(target)));
  detail::target_scopes.fetch_add(1, std::memory_order_relaxed);
}

void pop_target() {
  c10::ThreadLocalDebugInfo::_pop(kKind);
  detail::target_scopes.fetch_sub(1, std::memory_order_relaxed);
}

const ShaderTarget& detail::scoped_target(Context& context) {
  Targets& known = context_targets.of(context);
  const auto* entry = static_cast<const Entry*>(c10::ThreadLocalDebugInfo::get(kKind));
  return entry == nullptr ? known.device() : known.get(entry->target);
}

} // namespace torch_webgpu
