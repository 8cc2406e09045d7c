// torch_webgpu._C: what the Python package needs of the backend. Functions return plain values
// (numbers, strings, dictionaries); torch_webgpu/webgpu gives them their public form. Whatever may
// wait for the device or load drivers runs without the GIL.
#include <c10/core/InferenceMode.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/version.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "backend/allocator.h"
#include "backend/device.h"
#include "backend/empty.h"
#include "backend/fallback.h"
#include "backend/generator.h"
#include "backend/registration.h"
#include "backend/tensor.h"
#include "python/compiled_kernel.h"
#include "python/distributed.h"
#include "python/graph_files.h"
#include "python/graphs.h"
#include "python/kernels.h"
#include "python/products.h"
#include "python/shaders.h"
#include "python/targets.h"
#include "python/user_kernels.h"
#include "runtime/api.h"
#include "runtime/context.h"
#include "runtime/error.h"

namespace torch_webgpu {
namespace {

namespace py = pybind11;
using Counters = std::map<std::string, uint64_t>;

// Looks the runtime up when the device is first used, for its import would take a tenth of what
// `import torch` may take here. Called without a lock of ours, as the GIL needs.
RuntimeSource runtime_of_python() {
  std::string error;
  RuntimeSource source;
  {
    py::gil_scoped_acquire gil;
    try {
      const py::object found = py::module_::import("torch_webgpu._runtime").attr("resolve")();
      source.get_proc_address =
          reinterpret_cast<void*>(found.attr("proc_address").cast<uintptr_t>());
      source.library = found.attr("library").cast<std::string>();
      error = found.attr("error").cast<std::string>();
    } catch (const std::exception& raised) { // the interpreter ends, or an import was interrupted
      error = std::string("the WebGPU runtime cannot be looked up: ") + raised.what();
    }
  }
  if (!error.empty()) {
    raise(ErrorKind::kRuntime, error);
  }
  return source;
}

std::map<std::string, std::string> describe(const AdapterInfo& info) {
  return {{"name", info.name},
          {"vendor", info.vendor},
          {"architecture", info.architecture},
          {"driver", info.driver},
          {"backend", info.backend},
          {"type", info.software   ? "software"
                   : info.discrete ? "discrete"
                                   : "integrated"}};
}

std::vector<std::map<std::string, std::string>> adapters() {
  std::vector<std::map<std::string, std::string>> out;
  for (const AdapterInfo& info : list_adapters()) {
    out.push_back(describe(info));
  }
  return out;
}

// The index that is meant: -1 is the current device.
uint32_t meant(int64_t index) {
  if (index >= static_cast<int64_t>(kMostDevices)) {
    raise_invalid_ordinal(index, num_devices());
  }
  return static_cast<uint32_t>(
      resolve_ordinal(static_cast<c10::DeviceIndex>(std::max<int64_t>(index, -1))));
}
Context& context_at(int64_t index) { return context(meant(index)); }
Context* known_context(int64_t index) { return context_if_initialized(meant(index)); }

std::map<std::string, std::string> adapter(int64_t index) {
  const uint32_t device = meant(index);
  const Context* known = context_if_initialized(device);
  return describe(known != nullptr ? known->device.info() : chosen_adapters().at(device).info);
}

// For each device, the index of its adapter in adapters().
std::vector<size_t> chosen_positions() {
  std::vector<size_t> out;
  for (const ChosenAdapter& chosen : chosen_adapters()) {
    out.push_back(chosen.position);
  }
  return out;
}

std::tuple<uint64_t, uint64_t, bool> memory_budget(int64_t index) {
  const MemoryBudget budget = context_at(index).allocator.budget();
  return {budget.free, budget.total, budget.estimated};
}

std::tuple<std::map<std::string, std::string>, std::vector<std::string>, Counters>
properties(int64_t index) {
  const Device& device = context_at(index).device;
  const Capabilities& caps = device.caps();
  std::map<std::string, std::string> text = describe(device.info());
  text["runtime"] = device.api().origin;
  std::vector<std::string> features;
  for (const auto& [name, granted] :
       {std::pair("shader-f16", caps.shader_f16), std::pair("subgroups", caps.subgroups),
        std::pair("subgroup-matrix", caps.subgroup_matrix),
        std::pair("timestamp-query", caps.timestamps),
        std::pair("host-mapped-pointer", caps.host_memory)}) {
    if (granted) {
      features.emplace_back(name);
    }
  }
  features.insert(features.end(), caps.language_features.begin(), caps.language_features.end());
  Counters limits = {{"max_buffer_size", caps.max_buffer_size},
                     {"max_storage_binding_size", caps.max_storage_binding_size},
                     {"max_uniform_binding_size", caps.max_uniform_binding_size},
                     {"max_storage_buffers", caps.max_storage_buffers},
                     {"max_workgroup_storage", caps.max_workgroup_storage},
                     {"max_workgroup_invocations", caps.max_workgroup_invocations},
                     {"max_workgroups_per_dimension", caps.max_workgroups_per_dim},
                     {"max_immediate_size", caps.max_immediate_size},
                     {"subgroup_min_size", caps.subgroup_min_size},
                     {"subgroup_max_size", caps.subgroup_max_size},
                     {"uniform_offset_alignment", caps.uniform_offset_alignment},
                     {"storage_offset_alignment", caps.storage_offset_alignment}};
  return {std::move(text), std::move(features), std::move(limits)};
}

void synchronize(int64_t index) {
  if (in_bad_fork() || known_context(index) != nullptr) {
    context_at(index).stream.synchronize();
  }
}

// At exit: all devices, so that their errors are not lost and their threads rest.
void synchronize_all() {
  for (Context* ctx : initialized_contexts()) {
    ctx->stream.synchronize();
  }
}

Counters stream_stats(int64_t index) {
  Context* ctx = known_context(index);
  const StreamStats stats = ctx == nullptr ? StreamStats{} : ctx->stream.stats();
  return {{"dispatches", stats.dispatches},
          {"copies", stats.copies},
          {"submits", stats.submits},
          {"uploads", stats.uploads},
          {"readbacks", stats.readbacks},
          {"host_copies", stats.host_copies},
          {"bind_groups", stats.bind_groups},
          {"pipelines", ctx == nullptr ? 0 : ctx->pipelines.size()}};
}

// What the pool has beyond the counters of torch.accelerator.
uint64_t graph_bytes(int64_t index) {
  Context* ctx = known_context(index);
  return ctx == nullptr ? 0 : ctx->allocator.stats().graphs;
}

// Figures of pinned memory. Times are in microseconds.
std::map<std::string, std::map<std::string, int64_t>> host_memory_stats() {
  const at::HostStats stats = pinned_allocator()->get_stats();
  std::map<std::string, std::map<std::string, int64_t>> out;
  for (const auto& [name, stat] : {std::pair("allocations", &stats.allocations),
                                   std::pair("allocated_bytes", &stats.allocated_bytes),
                                   std::pair("active_requests", &stats.active_requests),
                                   std::pair("active_bytes", &stats.active_bytes)}) {
    out[name] = {{"current", stat->current},
                 {"peak", stat->peak},
                 {"allocated", stat->allocated},
                 {"freed", stat->freed}};
  }
  for (const auto& [name, time] : {std::pair("host_alloc_time", &stats.host_alloc_time),
                                   std::pair("host_free_time", &stats.host_free_time)}) {
    out[name] = {{"total", time->total},
                 {"max", time->max},
                 {"min", time->min},
                 {"count", time->count},
                 {"avg", time->count == 0 ? 0 : time->total / time->count}};
  }
  return out;
}

// Of one device, or of all.
void empty_cache(std::optional<int64_t> index) {
  for (Context* ctx : initialized_contexts()) {
    if (!index || ctx == known_context(*index)) {
      ctx->allocator.empty_cache();
    }
  }
}

using Profile = std::vector<std::tuple<std::string, uint64_t, uint64_t>>;

void start_profiler(int64_t index) { context_at(index).profiler.start(); }

Profile stop_profiler(int64_t index) {
  Profile out;
  for (const ProfileEntry& entry : context_at(index).profiler.stop()) {
    out.emplace_back(entry.label, entry.start_ns, entry.end_ns);
  }
  return out;
}

std::string fallback_mode_name() {
  switch (fallback_mode()) {
  case FallbackMode::kError:
    return "error";
  case FallbackMode::kSilent:
    return "silent";
  case FallbackMode::kWarn:
    break;
  }
  return "warn";
}

void set_fallback_mode_name(const std::string& mode) {
  const std::map<std::string, FallbackMode> modes = {{"warn", FallbackMode::kWarn},
                                                     {"error", FallbackMode::kError},
                                                     {"silent", FallbackMode::kSilent}};
  const auto found = modes.find(mode);
  TORCH_CHECK_VALUE(found != modes.end(),
                    "fallback mode must be 'warn', 'error' or 'silent', not '", mode, "'");
  set_fallback_mode(found->second);
}

// Device threads of autograd start with the first backward(), on any device. How many there are.
size_t autograd_threads() {
  struct Access : torch::autograd::Engine {
    using torch::autograd::Engine::device_ready_queues_;
  };
  return (torch::autograd::Engine::get_default_engine().*(&Access::device_ready_queues_)).size();
}

// Returns when each of autograd's device threads has started and finished all it was given: sends a
// graph through its queue. Without elements it runs no kernel, and without Python objects the
// thread has nothing to drop under the GIL afterwards.
void drain_autograd() {
  // A forked child has none of the threads that would answer.
  if (in_bad_fork()) {
    return;
  }
  c10::InferenceMode recording(
      false); // also turns gradients on, which the program may have left off
  const size_t count = std::min<size_t>(autograd_threads(), kMostDevices);
  for (size_t index = 0; index < count; ++index) {
    // Not at::empty, which checks that there is such a device.
    const auto none = [&] {
      return empty_webgpu({0}, at::kFloat, webgpu_device(static_cast<c10::DeviceIndex>(index)));
    };
    const at::Tensor leaf = none().set_requires_grad(true);
    torch::autograd::grad({leaf.view({0})}, {leaf}, {none()});
  }
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  auto def = [&m](const char* name, auto function) {
    m.def(name, torch::wrap_pybind_function_no_gil(function));
  };
  // A function of a device's index; -1 and nothing are the current device.
  auto def_for_device = [&m](const char* name, auto function) {
    m.def(name, torch::wrap_pybind_function_no_gil(function), py::arg("device") = -1);
  };
  m.attr("torch_version") = TORCH_VERSION;
  set_runtime_resolver(&runtime_of_python);
  def("register_operators", &register_operators);
  def("is_available", &is_available);
  def("is_initialized", [] { return !initialized_contexts().empty(); });
  def_for_device("init", [](int64_t index) { context_at(index); });
  def("device_count", [] { return is_available() ? num_devices() : 0; });
  def("device_index", &meant);
  // With the GIL, which costs more to give away than these take.
  m.def("current_device", [] { return static_cast<int64_t>(current_device()); });
  m.def("exchange_device", torch::wrap_pybind_function([](int64_t index) {
          const auto wanted = static_cast<c10::DeviceIndex>(index <= 0 ? index : meant(index));
          return static_cast<int64_t>(exchange_device(wanted));
        }));
  def("in_bad_fork", &in_bad_fork);
  def("adapters", &adapters);
  def_for_device("adapter", &adapter);
  def("chosen_adapters", &chosen_positions);
  def_for_device("memory_budget", &memory_budget);
  def_for_device("properties", &properties);
  def_for_device("synchronize", &synchronize);
  def("synchronize_all", &synchronize_all);
  def_for_device("stream_stats", &stream_stats);
  def_for_device("graph_bytes", &graph_bytes);
  def("host_memory_stats", &host_memory_stats);
  def("reset_accumulated_host_memory_stats", [] { pinned_allocator()->reset_accumulated_stats(); });
  def("reset_peak_host_memory_stats", [] { pinned_allocator()->reset_peak_stats(); });
  m.def("empty_cache", torch::wrap_pybind_function_no_gil(&empty_cache),
        py::arg("device") = py::none());
  def_for_device("start_profiler", &start_profiler);
  def_for_device("stop_profiler", &stop_profiler);
  def("fallback_counts", &fallback_counts);
  def("reset_fallback_counts", &reset_fallback_counts);
  def("fallback_mode", &fallback_mode_name);
  def("set_fallback_mode", &set_fallback_mode_name);
  def("drain_autograd", &drain_autograd);
  register_kernels(m);
  register_compiled_kernel(m);
  register_products(m);
  register_shader_sources(m);
  register_user_kernels(m);
  register_targets(m);
  register_graphs(m);
  register_graph_files(m);
  register_distributed(m);
  m.attr("most_devices") = kMostDevices;
  m.def("default_generator", torch::wrap_pybind_function([](int64_t index) {
          TORCH_CHECK_INDEX(index >= 0 && index < int64_t{kMostDevices}, "no device ", index);
          return default_generator(static_cast<c10::DeviceIndex>(index));
        }));
}

} // namespace
} // namespace torch_webgpu
