// Recorded commands.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "runtime/commands/command_sink.h"

namespace torch_webgpu {

/// A recorder that keeps copies of what it is given. The buffers must live as long as the list is
/// replayed.
class CommandList final : public Recorder {
public:
  struct Dispatch {
    const Pipeline* pipeline = nullptr;
    std::vector<Binding> bindings; // sizes are explicit, also for whole buffers
    std::vector<uint8_t> params;
    Grid grid{};
  };
  struct Copy {
    const Buffer* source = nullptr;
    uint64_t source_offset = 0;
    const Buffer* target = nullptr;
    uint64_t target_offset = 0;
    uint64_t bytes = 0;
  };
  struct Clear {
    const Buffer* target = nullptr;
    uint64_t offset = 0;
    uint64_t bytes = 0;
  };
  struct Upload {
    const Buffer* target = nullptr;
    uint64_t offset = 0;
    std::vector<uint8_t> data;
  };
  using Command = std::variant<Dispatch, Copy, Clear, Upload>;

  explicit CommandList(bool executes = false) : executes_(executes) {}

  void dispatch(const Pipeline& pipeline, const Binding* bindings, uint32_t num_bindings,
                const void* params, uint32_t params_bytes, Grid grid) override;
  void copy(const Buffer& source, uint64_t source_offset, const Buffer& target,
            uint64_t target_offset, uint64_t bytes) override;
  void clear(const Buffer& target, uint64_t offset, uint64_t bytes) override;
  void upload(const Buffer& target, uint64_t offset, const void* data, uint64_t bytes) override;
  bool executes() const override { return executes_; }

  const std::vector<Command>& commands() const { return commands_; }
  std::vector<Command>& commands() { return commands_; }
  /// Gives all commands to `sink`, in their order.
  void replay(CommandSink& sink) const;

private:
  bool executes_;
  std::vector<Command> commands_;
};

} // namespace torch_webgpu
