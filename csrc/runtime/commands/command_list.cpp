#include "runtime/commands/command_list.h"

#include <utility>

#include "runtime/buffer.h"

namespace torch_webgpu {
namespace {

std::vector<uint8_t> bytes_of(const void* data, uint64_t bytes) {
  const auto* begin = static_cast<const uint8_t*>(data);
  return {begin, begin + bytes};
}

struct Replay {
  CommandSink& sink;
  void operator()(const CommandList::Dispatch& command) const {
    sink.dispatch(*command.pipeline, command.bindings.data(),
                  static_cast<uint32_t>(command.bindings.size()), command.params.data(),
                  static_cast<uint32_t>(command.params.size()), command.grid);
  }
  void operator()(const CommandList::Copy& command) const {
    sink.copy(*command.source, command.source_offset, *command.target, command.target_offset,
              command.bytes);
  }
  void operator()(const CommandList::Clear& command) const {
    sink.clear(*command.target, command.offset, command.bytes);
  }
  void operator()(const CommandList::Upload& command) const {
    sink.upload(*command.target, command.offset, command.data.data(), command.data.size());
  }
};

} // namespace

void CommandList::dispatch(const Pipeline& pipeline, const Binding* bindings, uint32_t num_bindings,
                           const void* params, uint32_t params_bytes, Grid grid) {
  Dispatch command{
      &pipeline, {bindings, bindings + num_bindings}, bytes_of(params, params_bytes), grid};
  for (Binding& binding : command.bindings) {
    if (binding.size == 0) { // the whole buffer; it may be freed before the list is read
      binding.size = binding.buffer->size - binding.offset;
    }
  }
  commands_.push_back(std::move(command));
}

void CommandList::copy(const Buffer& source, uint64_t source_offset, const Buffer& target,
                       uint64_t target_offset, uint64_t bytes) {
  commands_.push_back(Copy{&source, source_offset, &target, target_offset, bytes});
}

void CommandList::clear(const Buffer& target, uint64_t offset, uint64_t bytes) {
  commands_.push_back(Clear{&target, offset, bytes});
}

void CommandList::upload(const Buffer& target, uint64_t offset, const void* data, uint64_t bytes) {
  commands_.push_back(Upload{&target, offset, bytes_of(data, bytes)});
}

void CommandList::replay(CommandSink& sink) const {
  for (const Command& command : commands_) {
    std::visit(Replay{sink}, command);
  }
}

} // namespace torch_webgpu
