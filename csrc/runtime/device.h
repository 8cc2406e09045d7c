// One WebGPU device: instance, chosen adapter, capabilities, queue, and the errors it reports.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/handles.h"

namespace torch_webgpu {

struct Api;
struct RuntimeSource;

/// What an adapter is, as WebGPU tells it.
struct AdapterInfo {
  std::string name; // for example "NVIDIA H200"
  std::string vendor;
  std::string architecture;
  std::string driver;    // driver name and version
  std::string backend;   // "vulkan", "metal", "d3d12", ...
  bool software = false; // a CPU implementation
  bool discrete = false;
  uint32_t memory_mib = 0; // MiB of its largest memory heap, as the driver says; 0: not told
};

/// Component types of subgroup matrices, numbered as WGPUSubgroupMatrixComponentType.
enum class MatrixType : uint32_t { kF32 = 1, kF16, kU32, kI32, kU8, kI8 };

/// A product that a subgroup computes at once: m x k times k x n.
struct MatrixShape {
  MatrixType type;   // of the factors
  MatrixType result; // of the sums
  uint32_t m = 0, n = 0, k = 0;
  uint32_t min_subgroup_size = 0;
  uint32_t max_subgroup_size = 0;
  bool operator==(const MatrixShape&) const = default;
};

/// The language features of WGSL that the runtime may be asked for, by the names that `requires`
/// takes.
std::vector<std::string> known_language_features();

/// The optional features that shaders may use.
struct ShaderFeatures {
  bool shader_f16 = false;
  bool f16_bitcast = false; // u32 to vec2<f16>: WGSL has it, naga does not yet
  bool subgroups = false;   // and `enable subgroups`, which naga does not know yet
  uint32_t subgroup_min_size = 0;
  uint32_t subgroup_max_size = 0;
  bool subgroup_matrix = false; // chromium-experimental-subgroup-matrix
  std::vector<MatrixShape> matrix_shapes;
  // Of WGSL, sorted names as `requires` takes them. wgpu-native does not list them.
  std::vector<std::string> language_features;
  bool operator==(const ShaderFeatures&) const = default;
};

/// What the device was granted. Sizes in bytes.
struct Capabilities : ShaderFeatures {
  bool timestamps = false;
  bool host_memory = false; // buffers over memory of the host, see create_buffer_over
  uint32_t max_immediate_size = 0;
  uint64_t max_buffer_size = 0;
  uint64_t max_storage_binding_size = 0;
  uint64_t max_uniform_binding_size = 0;
  uint32_t max_storage_buffers = 0; // per shader stage
  uint32_t max_workgroup_storage = 0;
  uint32_t max_workgroup_invocations = 0;
  uint32_t max_workgroups_per_dim = 0;
  uint32_t uniform_offset_alignment = 256;
  uint32_t storage_offset_alignment = 256;
};

/// Raises kRuntime, with PyTorch's words: there is no device of that index.
[[noreturn]] void raise_invalid_ordinal(int64_t index, uint32_t num_devices);

/// A WebGPU future and a flag that its callback sets. The flag tells completion, because
/// wgpu-native's futures are all 0. Only the way of waiting differs between the runtimes.
struct Completion {
  uint64_t future = 0;
  std::atomic<bool> done{false};
};

class Device {
public:
  /// On the adapter at `position` of those that `adapters` names, see choose_adapters. Raises
  /// kRuntime if there is none; where there is no adapter at all, it says how to get one.
  Device(const RuntimeSource& source, const std::string& adapters, uint32_t position, bool debug);
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device();

  const Api& api() const { return *api_; }
  WGPUDevice handle() const { return device_; }
  WGPUQueue queue() const { return queue_; }
  const AdapterInfo& info() const { return info_; }
  const Capabilities& caps() const { return caps_; }
  bool debug() const { return debug_; }
  /// How many devices there are: the adapters that were chosen from.
  uint32_t num_devices() const { return num_devices_; }

  /// Every adapter of the runtime, best first, in the order that indices refer to.
  static std::vector<AdapterInfo> list_adapters(const RuntimeSource& source);

  /// Runs callbacks that are due.
  void process_events() const;
  /// Blocks until completion.done. The one place that knows how each runtime waits.
  void wait(Completion& completion) const;

  /// Raises the first error reported since the last call (validation, lost device), if any.
  /// A single atomic load when there is none.
  void throw_pending_error() {
    if (has_error_.load(std::memory_order_acquire)) {
      raise_pending_error();
    }
  }
  void record_error(const std::string& message);
  bool lost() const { return lost_.load(std::memory_order_acquire); }

  /// A buffer for the runtime's own use. Raises kOutOfMemory or kRuntime, with the label.
  WGPUBuffer create_buffer(uint64_t size, uint64_t usage, const char* label) const;
  /// A buffer over memory of the host, which is kept until the device needs it no more. Null where
  /// the device cannot have one. Address and size are multiples of HostBlock::kAlignment.
  WGPUBuffer create_buffer_over(const std::shared_ptr<void>& memory, uint64_t size,
                                uint64_t usage) const;

  /// Runs `create` inside error scopes; returns the error's text, empty if none, and whether it was
  /// out of memory.
  struct ScopedError {
    std::string message;
    bool out_of_memory = false;
  };
  ScopedError with_error_scopes(const std::function<void()>& create) const;

private:
  [[noreturn]] void raise_pending_error();
  void create_device(WGPUAdapter adapter);

  std::unique_ptr<Api> api_;
  WGPUInstance instance_ = nullptr;
  WGPUDevice device_ = nullptr;
  WGPUQueue queue_ = nullptr;
  AdapterInfo info_;
  Capabilities caps_;
  bool debug_ = false;
  uint32_t num_devices_ = 1;
  std::atomic<bool> has_error_{false};
  std::atomic<bool> lost_{false};
  std::mutex error_mutex_;
  std::string error_;
};

} // namespace torch_webgpu
