#include "runtime/context.h"

#include <atomic>
#include <cstdlib>
#include <exception>
#include <memory>

#include "runtime/adapter_choice.h"
#include "runtime/api.h"
#include "runtime/error.h"
#include "runtime/platform.h"

namespace torch_webgpu {
namespace {

std::mutex init_mutex_;
std::array<std::atomic<Context*>, kMostDevices> contexts_{};
std::atomic<uint32_t> num_devices_{0}; // 0: not known yet
std::atomic<bool> drivers_loaded_{false};
std::atomic<bool> bad_fork_{false};
ContextWatcher watcher_ = nullptr; // guarded by init_mutex_
RuntimeResolver resolver_;
std::atomic<const RuntimeSource*> source_{nullptr}; // null: the resolver has not answered yet

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Threads and locks of the WebGPU library and of its drivers do not survive a fork, so the child
// must never call them. The destructors that they registered for the process's exit must not run
// either: NVIDIA's waits for threads that only the parent has.
void after_fork_in_child() {
  if (!drivers_loaded_.load(std::memory_order_acquire)) {
    return;
  }
  bad_fork_.store(true, std::memory_order_release);
  platform::skip_earlier_exit_handlers();
}

// Before the first call that loads a driver.
void watch_forks() {
  static const bool registered = (platform::on_fork(after_fork_in_child), true);
  (void)registered;
  drivers_loaded_.store(true, std::memory_order_release);
}

const char* const kAdapterVariable = "TORCH_WEBGPU_ADAPTER";

RuntimeSource source_of_environment() {
  RuntimeSource source;
  source.library = environment("TORCH_WEBGPU_RUNTIME");
  if (source.library.empty()) {
    raise(ErrorKind::kRuntime,
          "no WebGPU runtime: set TORCH_WEBGPU_RUNTIME to the path of a library that exports the "
          "webgpu.h functions (in Python, import torch_webgpu finds the installed one)");
  }
  return source;
}

// Asks the resolver, and raises its error. Must be called before a lock is taken, for the resolver
// may wait for Python's lock, whose holder may wait for the lock that was taken. So several threads
// may ask at a time; the first answer counts.
const RuntimeSource& find_runtime() {
  const RuntimeSource* known = source_.load(std::memory_order_acquire);
  if (known != nullptr) {
    return *known;
  }
  auto found =
      std::make_unique<const RuntimeSource>(resolver_ ? resolver_() : source_of_environment());
  if (source_.compare_exchange_strong(known, found.get(), std::memory_order_acq_rel)) {
    return *found.release(); // kept
  }
  return *known;
}

Context& create_context(uint32_t index) {
  find_runtime();
  std::lock_guard<std::mutex> lock(init_mutex_);
  if (Context* existing = contexts_[index].load(std::memory_order_acquire)) {
    return *existing;
  }
  const RuntimeSource source = resolve_runtime();
  watch_forks();
  // Never destroyed: see Device::~Device.
  auto* made = new Context(source, environment("TORCH_WEBGPU_DEBUG") == "1", index);
  num_devices_.store(made->device.num_devices(), std::memory_order_release);
  if (watcher_ != nullptr) {
    watcher_(*made);
  }
  contexts_[index].store(made, std::memory_order_release);
  return *made;
}

} // namespace

void set_context_watcher(ContextWatcher watcher) {
  std::lock_guard<std::mutex> lock(init_mutex_);
  watcher_ = watcher;
  for (Context* existing : initialized_contexts()) {
    if (watcher != nullptr) {
      watcher(*existing);
    }
  }
}

void set_runtime_resolver(RuntimeResolver resolver) { resolver_ = std::move(resolver); }

RuntimeSource resolve_runtime() { return find_runtime(); }

Context::Context(const RuntimeSource& source, bool debug, uint32_t index_of_device)
    : index(index_of_device), device(source, environment(kAdapterVariable), index_of_device, debug),
      pipelines(device, mutex), stream(device, mutex),
      allocator(
          *this, device, mutex, [this](Buffer* buffer) { stream.forget(buffer); },
          [this] { stream.drain(); }),
      profiler(stream) {}

uint32_t Context::new_slot() {
  static std::atomic<uint32_t> count{0};
  const uint32_t slot = count.fetch_add(1);
  if (slot >= kMostSlots) {
    raise(ErrorKind::kRuntime, "too many ContextSlots: raise Context::kMostSlots");
  }
  return slot;
}

void* Context::fill_slot(uint32_t slot, std::shared_ptr<void> (*make)(Context&)) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  if (void* found = slots_[slot].load(std::memory_order_acquire)) {
    return found;
  }
  owned_.push_back(make(*this));
  slots_[slot].store(owned_.back().get(), std::memory_order_release);
  return owned_.back().get();
}

Context& context(uint32_t index) {
  if (index >= kMostDevices) [[unlikely]] {
    raise_invalid_ordinal(index, num_devices());
  }
  if (bad_fork_.load(std::memory_order_acquire)) {
    raise(
        ErrorKind::kRuntime,
        "Cannot re-initialize WebGPU in forked subprocess. To use WebGPU with multiprocessing, you "
        "must use the 'spawn' start method");
  }
  Context* existing = contexts_[index].load(std::memory_order_acquire);
  return existing != nullptr ? *existing : create_context(index);
}

Context& isolated_context() {
  context(); // raises in a forked child
  std::lock_guard<std::mutex> lock(init_mutex_);
  static Context* isolated = nullptr; // never destroyed: see Device::~Device
  if (isolated == nullptr || isolated->device.lost()) {
    isolated = new Context(resolve_runtime(), true);
  }
  return *isolated;
}

Context* context_if_initialized(uint32_t index) {
  return index >= kMostDevices || in_bad_fork() ? nullptr
                                                : contexts_[index].load(std::memory_order_acquire);
}

std::vector<Context*> initialized_contexts() {
  std::vector<Context*> found;
  for (uint32_t index = 0; index < kMostDevices; ++index) {
    if (Context* existing = context_if_initialized(index)) {
      found.push_back(existing);
    }
  }
  return found;
}

bool in_bad_fork() { return bad_fork_.load(std::memory_order_acquire); }

std::vector<AdapterInfo> list_adapters() {
  const RuntimeSource source = resolve_runtime();
  watch_forks();
  return Device::list_adapters(source);
}

const std::vector<ChosenAdapter>& chosen_adapters() {
  find_runtime(); // the initialization of a static object takes a lock
  // Kept, because callers ask often and finding out loads drivers.
  static const std::vector<ChosenAdapter> chosen = [] {
    const std::vector<AdapterInfo> adapters = list_adapters();
    std::vector<ChosenAdapter> out;
    for (size_t position : choose_adapters(adapters, environment(kAdapterVariable))) {
      out.push_back({position, adapters[position]});
    }
    num_devices_.store(static_cast<uint32_t>(out.size()), std::memory_order_release);
    return out;
  }();
  return chosen;
}

uint32_t num_devices() {
  const uint32_t known = num_devices_.load(std::memory_order_acquire);
  return known != 0 ? known : static_cast<uint32_t>(chosen_adapters().size());
}

uint32_t known_devices() noexcept { return num_devices_.load(std::memory_order_acquire); }

uint32_t most_devices() noexcept {
  const uint32_t known = known_devices();
  if (known != 0) {
    return known;
  }
  static const uint32_t most = [] {
    try {
      return most_named(environment(kAdapterVariable));
    } catch (const std::exception&) { // no memory
      return kMostDevices;
    }
  }();
  return most;
}

bool is_available() {
  if (in_bad_fork()) {
    return false;
  }
  if (num_devices_.load(std::memory_order_acquire) != 0) {
    return true;
  }
  try {
    find_runtime();
  } catch (const std::exception&) {
    return false;
  }
  static const bool found = [] {
    try {
      num_devices();
      return true;
    } catch (const std::exception&) {
      return false;
    }
  }();
  return found;
}

} // namespace torch_webgpu
