#include "launch/target_scope.h"

#include <c10/util/Exception.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <string_view>
#include <utility>

#include "backend/graph.h"
#include "backend/torch_versions.h"

namespace torch_webgpu {
namespace {

// c10 hands the entries of a thread on to the threads that run its backward passes.
constexpr std::string_view kName = "torch_webgpu shader target";

constexpr auto kKind = debug_info_kind(&kName);

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
  if (entry == nullptr) {
    return known.device();
  }
  const ShaderTarget& wanted = entry->target;
  const ShaderTarget& device = known.device();
  const bool fits = device.subgroup_min_size >= wanted.subgroup_min_size &&
                    device.subgroup_max_size <= wanted.subgroup_max_size;
  if (!wanted.subgroups || !device.subgroups || fits) {
    return known.get(wanted);
  }
  TORCH_CHECK(CapturedGraph::is_capturing(), "what is planned for subgroups of ",
              wanted.subgroup_min_size, " to ", wanted.subgroup_max_size,
              " invocations can be captured in a graph, and not executed here: the device's have ",
              device.subgroup_min_size, " to ", device.subgroup_max_size);
  if (context.stream.recorder() != nullptr) {
    CapturedGraph::note_other_device();
    return known.get(wanted);
  }
  // What fills a cache of constants is executed (Uncaptured).
  ShaderTarget here = wanted;
  here.subgroup_min_size = device.subgroup_min_size;
  here.subgroup_max_size = device.subgroup_max_size;
  return known.get(here);
}

} // namespace torch_webgpu
