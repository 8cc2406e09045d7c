// The WebGPU state of the process, created at first use.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <vector>

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
  explicit Context(const RuntimeSource& source);

  // One lock for all of them: an op touches pool, cache and stream, and the stream's order is the
  // program's order. Recursive, since releasing a buffer forgets its bind groups.
  std::recursive_mutex mutex;
  Device device;
  PipelineCache pipelines;
  Stream stream;
  Allocator allocator;
  Profiler profiler;
};

/// The context; creates it at first use. Raises kRuntime if there is no adapter, or in a forked
/// child of a process that used the device.
Context& context();
/// The context if it exists, else null. Never creates it.
Context* context_if_initialized();
/// Whether an adapter can be had; false, never an error. Does not create the device.
bool is_available();
/// Whether this is the child of a fork after the device was in use.
bool in_bad_fork();
std::vector<AdapterInfo> list_adapters();

inline Stream& stream() { return context().stream; }

} // namespace torch_webgpu
