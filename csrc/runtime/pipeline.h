// Compute pipelines and the cache that finds them again.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/handles.h"

namespace torch_webgpu {

class Device;

// Bindings of every pipeline: storage buffers at 0, 1, ... in the order out, inputs; then, at fixed
// numbers so that kernel text needs not know how many buffers there are:
inline constexpr uint32_t kParamsBinding = 31; // uniform parameters, a window of the parameter ring
inline constexpr uint32_t kErrorsBinding = 30; // the error words that index checks report to
inline constexpr uint32_t kErrorWords = 8;     // code, index (two), dimension, size
/// Bytes of the parameter window: the largest parameter struct a kernel may declare.
inline constexpr uint32_t kParamsWindow = 1024;
/// Storage buffers a dispatch may bind. Fewer may be available: Capabilities::max_storage_buffers.
inline constexpr uint32_t kMaxBindings = 16;

/// Which buffers a pipeline binds and how. Pipelines of equal layout share bind groups.
struct BindingLayout {
  uint32_t num_buffers = 0;
  uint32_t writable = 0; // bit i: buffer i is bound read_write
  bool checks_indices = false;
  bool operator==(const BindingLayout&) const = default;
};

struct PipelineLayout {
  BindingLayout binding;
  WGPUBindGroupLayout group = nullptr;
  WGPUPipelineLayout layout = nullptr;
};

/// Everything needed to build a pipeline.
struct PipelineSpec {
  std::string label;
  std::string operands; // names and dtypes, for the error of a source that does not compile
  std::string source;   // WGSL
  std::string entry = "main";
  BindingLayout binding;
  std::vector<std::pair<std::string, double>> constants; // override values
  // Byte offset in the parameters of the Philox key and counter, two words each, the lower word
  // first. -1: the kernel draws no random numbers.
  int32_t random_at = -1;
};

struct Pipeline {
  WGPUComputePipeline handle = nullptr;
  uint64_t serial = 0; // unique, and not reused after this pipeline is destroyed
  const PipelineLayout* layout = nullptr;
  std::string label; // the op, for errors and profiles
  int32_t random_at = -1;
  // What it was made of, for graphs that are written to files.
  std::string source;
  std::string entry;
  std::vector<std::pair<std::string, double>> constants;
};

/// The users of the cache, numbered in csrc/wgsl/pipeline_family.h.
enum class PipelineFamily : uint32_t;

/// Packed description of a pipeline. `family` separates the users of the cache. Each family packs
/// the words in its own way (op, dtypes, rank class, contiguity class, aliasing: never sizes).
struct PipelineKey {
  PipelineFamily family{};
  uint64_t lo = 0;
  uint64_t hi = 0;
  uint64_t more = 0;
  uint64_t windows = 0; // how buffers larger than a binding are split; 0: none is
  uint32_t rest = 0;
  uint32_t target = 0; // what it is made for, ShaderTarget::number
  bool operator==(const PipelineKey&) const = default;
};

struct PipelineKeyHash {
  size_t operator()(const PipelineKey& key) const {
    // splitmix64 finalizer over the words.
    uint64_t h =
        (static_cast<uint64_t>(key.family) | uint64_t{key.target} << 32) * 0x9e3779b97f4a7c15ull +
        key.lo;
    h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9ull;
    h += key.hi + (key.more ^ uint64_t{key.rest} << 32) * 0xa0761d6478bd642full +
         key.windows * 0xd6e8feb86659fd93ull;
    h = (h ^ (h >> 27)) * 0x94d049bb133111ebull;
    return static_cast<size_t>(h ^ (h >> 31));
  }
};

class PipelineCache {
public:
  PipelineCache(Device& device, std::recursive_mutex& mutex) : device_(device), mutex_(mutex) {}

  /// The pipeline for `key`; `make_spec()` is called only the first time. The reference stays
  /// valid.
  template <typename MakeSpec>
  const Pipeline& get(const PipelineKey& key, MakeSpec&& make_spec) {
    std::lock_guard<std::recursive_mutex> lock(mutex_);
    auto it = pipelines_.find(key);
    if (it == pipelines_.end()) {
      it = pipelines_.emplace(key, create(make_spec())).first;
    }
    return *it->second;
  }

  /// Builds without caching. If the source is invalid, raises kNotImplemented with the operands,
  /// or kRuntime if the spec names no operands. The message ends with the compiler's text.
  std::unique_ptr<Pipeline> create(const PipelineSpec& spec);
  const PipelineLayout& layout(const BindingLayout& binding);
  size_t size() const { return pipelines_.size(); }

private:
  Device& device_;
  std::recursive_mutex& mutex_;
  std::unordered_map<PipelineKey, std::unique_ptr<Pipeline>, PipelineKeyHash> pipelines_;
  std::vector<std::unique_ptr<PipelineLayout>> layouts_;
};

} // namespace torch_webgpu
