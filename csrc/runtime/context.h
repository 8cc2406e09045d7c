// The WebGPU state of a device, created at first use.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/adapter_choice.h"
#include "runtime/allocator.h"
#include "runtime/device.h"
#include "runtime/pipeline.h"
#include "runtime/profiler.h"
#include "runtime/stream.h"

namespace torch_webgpu {

struct RuntimeSource;

/// Tells where the WebGPU functions are, when the first use of the device asks. Without one, the
/// path in TORCH_WEBGPU_RUNTIME is used. Must be set before the first use.
using RuntimeResolver = std::function<RuntimeSource()>;
void set_runtime_resolver(RuntimeResolver resolver);

class Context {
public:
  /// For the device of that index, whose adapter TORCH_WEBGPU_ADAPTER chooses. `debug`: with bounds
  /// checks in every shader, see Device.
  Context(const RuntimeSource& source, bool debug, uint32_t index = 0);

  const uint32_t index;
  // One lock for pool, cache and stream, because an op uses all three and the stream must keep the
  // program's order. Recursive, because releasing a buffer drops its bind groups under the lock.
  std::recursive_mutex mutex;
  Device device;
  PipelineCache pipelines;
  Stream stream;
  Allocator allocator;
  Profiler profiler;

private:
  template <typename T>
  friend class ContextSlot;
  static constexpr uint32_t kMostSlots = 32;
  static uint32_t new_slot();
  void* fill_slot(uint32_t slot, std::shared_ptr<void> (*make)(Context&));

  std::array<std::atomic<void*>, kMostSlots> slots_{};
  std::vector<std::shared_ptr<void>> owned_;
};

/// What an upper room keeps for each context, such as a cache of what lies on its device: a T that
/// is made from the context when it is first asked for, and lives as long as the context. Define
/// slots at namespace scope.
template <typename T>
class ContextSlot {
public:
  T& of(Context& context) const {
    void* found = context.slots_[index_].load(std::memory_order_acquire);
    if (found == nullptr) [[unlikely]] {
      found = context.fill_slot(index_, [](Context& owner) -> std::shared_ptr<void> {
        return std::make_shared<T>(owner);
      });
    }
    return *static_cast<T*>(found);
  }

private:
  const uint32_t index_ = Context::new_slot();
};

/// The context of the device with that index; creates it at first use. Raises kRuntime if there is
/// no such device, or in a forked child of a process that used a device.
/// An op reaches its operands' context through them (context_of in backend/tensor.h), not here.
Context& context(uint32_t index = 0);
/// The context if it exists, else null. Never creates it.
Context* context_if_initialized(uint32_t index = 0);
/// All contexts that exist, by their indices.
std::vector<Context*> initialized_contexts();
/// A second device on the adapter of device 0, for untrusted programs: its shaders have bounds
/// checks in every mode, and its loss does not affect device 0. Made at first use, and again after
/// a loss. Raises as context().
Context& isolated_context();
/// How many devices there are, one for each adapter that TORCH_WEBGPU_ADAPTER chooses. Creates
/// none, but loads drivers unless the number is known already; it is kept. Raises kRuntime if there
/// is none.
uint32_t num_devices();
/// num_devices() if it is known, else 0. Loads nothing.
uint32_t known_devices() noexcept;
/// num_devices() if it is known, else the most there can be, 1 to kMostDevices. Loads nothing.
uint32_t most_devices() noexcept;
/// Whether an adapter can be had; false, never an error. Does not create the device.
bool is_available();
/// Whether this is the child of a fork after the device was in use.
bool in_bad_fork();
std::vector<AdapterInfo> list_adapters();
/// The adapters of the devices, each as an index into list_adapters() and what it is. Creates no
/// device; the answer is kept. Raises kRuntime if there is none.
struct ChosenAdapter {
  size_t position = 0;
  AdapterInfo info;
};
const std::vector<ChosenAdapter>& chosen_adapters();
/// Is called with the context of every device: at once for those there are, then for each that is
/// made, before its first use; null: nobody. The calls are made under the lock that guards
/// creation, so they must not ask for contexts themselves. No call is under way once another
/// watcher is set.
using ContextWatcher = void (*)(Context& context);
void set_context_watcher(ContextWatcher watcher);
/// Where the WebGPU functions are: what the resolver says.
RuntimeSource resolve_runtime();

} // namespace torch_webgpu
