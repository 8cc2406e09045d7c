#include "runtime/graph/program.h"

#include <string>

#include "runtime/context.h"
#include "runtime/error.h"

namespace torch_webgpu {
namespace {

[[noreturn]] void refuse(const std::string& what) { raise(ErrorKind::kRuntime, what); }

// Attaches a recorder to the stream while it lives.
class Recording {
public:
  Recording(Stream& stream, Recorder& recorder) : stream_(stream) {
    stream_.set_recorder(&recorder);
  }
  ~Recording() { stream_.set_recorder(nullptr); }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

private:
  Stream& stream_;
};

bool overlap(const Binding& a, const Binding& b) {
  return a.offset < b.offset + b.size && b.offset < a.offset + a.size;
}

} // namespace

Program::Program(Context& context) : context_(context) {}

Program::~Program() {
  if (in_bad_fork()) {
    return;
  }
  std::lock_guard<std::recursive_mutex> lock(context_.mutex);
  functions_.clear();
  for (Buffer* buffer : buffers_) {
    context_.allocator.free(buffer);
  }
  if (errors_ != nullptr) {
    context_.allocator.free(errors_);
  }
  for (const auto& pipeline : pipelines_) {
    context_.device.api().ComputePipelineRelease(pipeline->handle);
  }
  if (&context_ != context_if_initialized(context_.index) && !context_.device.lost()) {
    context_.allocator.empty_cache(); // nothing else frees this device's cached buffers
  }
}

void Program::add_buffer(uint64_t bytes) {
  std::lock_guard<std::recursive_mutex> lock(context_.mutex);
  Buffer* buffer = context_.allocator.allocate(bytes);
  buffers_.push_back(buffer);
  context_.stream.clear(*buffer, 0, buffer->size);
}

void Program::add_pipeline(const PipelineSpec& spec) {
  pipelines_.push_back(context_.pipelines.create(spec));
  has_checks_ |= spec.binding.checks_indices;
}

void Program::add_function() {
  functions_.push_back({std::make_unique<Graph>(context_, nullptr), {}});
}

Program::Function& Program::current() {
  if (functions_.empty()) {
    refuse("a command is part of no function");
  }
  return functions_.back();
}

Program::Function& Program::function(uint32_t number) {
  if (number >= functions_.size()) {
    refuse("there is no function " + std::to_string(number));
  }
  return functions_[number];
}

const Buffer& Program::buffer(const Range& range) const {
  if (range.buffer >= buffers_.size()) {
    refuse("there is no buffer " + std::to_string(range.buffer));
  }
  const Buffer& buffer = *buffers_[range.buffer];
  if (range.offset > buffer.requested || range.bytes > buffer.requested - range.offset ||
      range.offset % 4 != 0) {
    refuse("bytes " + std::to_string(range.offset) + " to " +
           std::to_string(range.offset + range.bytes) + " of buffer " +
           std::to_string(range.buffer) + ", which has " + std::to_string(buffer.requested));
  }
  return buffer;
}

void Program::check_grid(Grid grid) const {
  const uint32_t limit = context_.device.caps().max_workgroups_per_dim;
  for (const uint32_t workgroups : grid) {
    if (workgroups > limit) {
      refuse(std::to_string(workgroups) + " workgroups in a dimension, and the device allows " +
             std::to_string(limit));
    }
  }
}

void Program::dispatch(uint32_t pipeline, std::span<const Range> bindings,
                       std::span<const uint8_t> params, Grid grid, bool varies) {
  if (pipeline >= pipelines_.size()) {
    refuse("there is no shader " + std::to_string(pipeline));
  }
  const Pipeline& kernel = *pipelines_[pipeline];
  std::vector<Binding> bound;
  for (const Range& range : bindings) {
    const Binding binding{&buffer(range), range.offset, range.bytes};
    if (range.bytes == 0 || range.bytes % 4 != 0) {
      refuse("a binding has " + std::to_string(range.bytes) + " bytes");
    }
    const bool writable = (kernel.layout->binding.writable >> bound.size() & 1) != 0;
    for (size_t k = 0; k < bound.size(); ++k) {
      const bool other = (kernel.layout->binding.writable >> k & 1) != 0;
      if (bound[k].buffer == binding.buffer &&
          (writable != other || (writable && overlap(bound[k], binding)))) {
        refuse("a dispatch of " + kernel.label + " writes a buffer that it binds twice");
      }
    }
    bound.push_back(binding);
  }
  check_grid(grid);
  Function& to = current();
  std::lock_guard<std::recursive_mutex> lock(context_.mutex);
  Recording recording(context_.stream, *to.graph);
  // The stream leaves out dispatches with an empty grid. A grid that may change starts non-empty.
  context_.stream.dispatch(kernel, bound.data(), static_cast<uint32_t>(bound.size()), params.data(),
                           static_cast<uint32_t>(params.size()), varies ? Grid{1, 1, 1} : grid);
  const bool is_recorded = varies || (grid[0] != 0 && grid[1] != 0 && grid[2] != 0);
  if (varies) {
    to.graph->expect_changes();
  }
  if (is_recorded) {
    to.params_bytes.push_back(static_cast<uint32_t>(params.size()));
  }
}

void Program::copy(Range source, Range target) {
  target.bytes = source.bytes;
  const Buffer& from = buffer(source);
  const Buffer& to = buffer(target);
  std::lock_guard<std::recursive_mutex> lock(context_.mutex);
  Recording recording(context_.stream, *current().graph);
  context_.stream.copy(from, source.offset, to, target.offset, source.bytes);
}

void Program::clear(Range target) {
  const Buffer& to = buffer(target);
  std::lock_guard<std::recursive_mutex> lock(context_.mutex);
  Recording recording(context_.stream, *current().graph);
  context_.stream.clear(to, target.offset, target.bytes);
}

void Program::finish() {
  std::lock_guard<std::recursive_mutex> lock(context_.mutex);
  if (has_checks_) {
    errors_ = context_.allocator.allocate(kErrorWords * sizeof(uint32_t));
    context_.stream.clear(*errors_, 0, errors_->size);
  }
  for (const Function& function : functions_) {
    function.graph->instantiate(errors_ != nullptr ? errors_->handle : nullptr);
    if (const std::string error = function.graph->validation_error(); !error.empty()) {
      refuse("the commands are not valid: " + error);
    }
  }
  finished_ = true;
}

void Program::set_dispatch(uint32_t function_number, uint32_t number,
                           std::span<const uint8_t> params, Grid grid) {
  const Function& of = function(function_number);
  if (number >= of.params_bytes.size() || params.size() != of.params_bytes[number]) {
    refuse("dispatch " + std::to_string(number) + " does not take " +
           std::to_string(params.size()) + " bytes of parameters");
  }
  check_grid(grid);
  std::lock_guard<std::recursive_mutex> lock(context_.mutex);
  of.graph->set_dispatch(number, params, grid);
}

void Program::replay(uint32_t number) {
  if (!finished_) {
    refuse("the program was not finished");
  }
  function(number).graph->replay({});
}

KernelErrors::Words Program::take_errors() {
  KernelErrors::Words words{};
  if (errors_ != nullptr) {
    std::lock_guard<std::recursive_mutex> lock(context_.mutex);
    context_.stream.read(*errors_, 0, words.data(), sizeof(words));
    if (words[0] != 0) {
      context_.stream.clear(*errors_, 0, sizeof(words));
    }
  }
  return words;
}

} // namespace torch_webgpu
