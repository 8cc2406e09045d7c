// A program of commands that is recorded once and replayed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_set>
#include <variant>
#include <vector>

#include "runtime/allocator.h"
#include "runtime/buffer.h"
#include "runtime/commands/command_list.h"
#include "runtime/commands/command_sink.h"
#include "runtime/stream.h"

namespace torch_webgpu {

class Context;

/// Where a stream of random numbers is when a replay starts.
struct RandomPlace {
  uint64_t key = 0;
  uint64_t counter = 0; // in steps of the kernels' counter
};

/// Records commands instead of executing them: attach it with Stream::set_recorder. Then
/// instantiate() and replay(), any number of times.
///
/// Buffers of `pool` belong to the graph as long as the pool is not dissolved. Every other buffer
/// that a command uses is pinned: the graph's commands stay valid after the tensor in it is freed.
///
/// In a dispatch that draws random numbers (Pipeline::random_at), the recorded key is the number of
/// a RandomPlace, and the recorded counter is relative to that place's. replay() writes the place's
/// key and the sum of both counters instead.
class Graph final : public Recorder {
public:
  Graph(Context& context, std::shared_ptr<MemoryPool> pool);
  ~Graph() override;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void dispatch(const Pipeline& pipeline, const Binding* bindings, uint32_t num_bindings,
                const void* params, uint32_t params_bytes, Grid grid) override;
  void copy(const Buffer& source, uint64_t source_offset, const Buffer& target,
            uint64_t target_offset, uint64_t bytes) override;
  void clear(const Buffer& target, uint64_t offset, uint64_t bytes) override;
  /// Raises kRuntime: the host memory may hold other values at a replay.
  void upload(const Buffer& target, uint64_t offset, const void* data, uint64_t bytes) override;
  bool executes() const override { return false; }

  /// What was recorded, in its order. Sizes of bindings are in bytes, never 0.
  const std::vector<CommandList::Command>& commands() const { return recorded_.commands(); }
  /// Says that set_dispatch() may change the dispatch that was recorded last.
  void expect_changes() { dispatch_varies_.back() = true; }

  /// What a command names: the tensor that lay in a buffer when the command was recorded. The
  /// allocator may have had several tensors in one buffer, one after the other.
  struct Tensor {
    const Buffer* buffer = nullptr;
    uint64_t allocation = 0; // Buffer::allocation
    bool own = false;        // allocated in the recording: it holds nothing before a replay
    uint64_t requested = 0;  // bytes
    uint64_t extent = 0;     // bytes that commands use, from the buffer's start
    size_t first_command = 0;
    size_t last_command = 0;
  };
  struct Tensors {
    std::vector<Tensor> list;
    // For each buffer that a command names, in the order of commands and their buffers (source
    // before target): its number in the list.
    std::vector<uint32_t> uses;
  };
  Tensors tensors() const;

  /// Dispatches of kernels that can draw random numbers.
  uint32_t num_draws() const { return num_draws_; }
  /// Whether a command names the buffer.
  bool names(const Buffer& buffer) const;

  /// Makes the bind groups and writes the parameters to the device. Once, after the recording.
  /// `errors`: see Stream::create_bind_group.
  void instantiate(WGPUBuffer errors = nullptr);
  /// What WebGPU's validation says of the commands, empty if they are valid. Executes nothing.
  std::string validation_error() const;
  /// Gives dispatch `number` (copies and clears do not count) other parameters, as many bytes as
  /// were recorded, and another grid. expect_changes() must have been called for it.
  void set_dispatch(size_t number, std::span<const uint8_t> params, Grid grid);
  /// Appends all commands to the stream. `random` has a place for each number that was recorded.
  void replay(std::span<const RandomPlace> random);
  /// Takes the parameters of a recording that is equal otherwise. Its pool may have other buffers,
  /// if they correspond one to one to this graph's. Raises kRuntime, naming the first command that
  /// differs; the graph is then unchanged.
  void update(const Graph& recording);

private:
  // Dispatches [first, last) of prepared_, or a command to be given to the stream as it is.
  struct Range {
    size_t first = 0;
    size_t last = 0;
  };
  using Step = std::variant<Range, CommandList::Copy, CommandList::Clear>;

  void use(const Buffer& buffer);
  void place_parameters();
  void write_parameters(std::span<const RandomPlace> random);
  struct Draw {
    uint32_t at = 0; // of the key, in params_data_
    uint64_t number = 0;
    uint64_t counter = 0;
  };
  // Takes number and counter from params_data_.
  void read_recorded(Draw& draw) const;

  Context& context_;
  std::shared_ptr<MemoryPool> pool_;
  uint64_t last_before_; // Buffer::allocation of what was allocated last before the recording
  CommandList recorded_;
  uint32_t num_draws_ = 0;
  // For each buffer that a command names, in order: the allocation, and its size in bytes. The
  // allocator may give two recordings different buffers, but their allocations correspond.
  struct Use {
    uint64_t allocation = 0;
    uint64_t requested = 0;
    bool operator==(const Use&) const = default;
  };
  std::vector<Use> uses_;
  std::unordered_set<const Buffer*> pinned_;
  std::vector<bool> dispatch_varies_; // of each dispatch: whether it draws, or expect_changes()

  bool instantiated_ = false;
  std::vector<PreparedDispatch> prepared_;
  std::vector<Step> steps_;
  // Parameters of all dispatches as the device has them; those that change come first.
  Buffer params_;
  std::vector<uint8_t> params_data_;
  uint32_t changing_bytes_ = 0; // of params_data_, from its start
  std::vector<Draw> draws_;
  // How many bytes of params_data_, from its start, are newer than what the device has.
  uint64_t changed_bytes_ = 0;
};

} // namespace torch_webgpu
