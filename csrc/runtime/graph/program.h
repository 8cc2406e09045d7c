// Graphs whose commands come from a file.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/commands/kernel_errors.h"
#include "runtime/graph/graph.h"
#include "runtime/pipeline.h"

namespace torch_webgpu {

class Context;

/// Trusts nothing in the file: each part is checked when it is added, and the whole in finish(),
/// before anything runs. Every function raises kRuntime for what is not allowed, and kOutOfMemory
/// if there is not enough memory. Buffers, pipelines and functions are numbered in the order in
/// which they were added. All functions use the same buffers.
class Program {
public:
  /// A part of a buffer, in bytes.
  struct Range {
    uint32_t buffer = 0;
    uint64_t offset = 0;
    uint64_t bytes = 0;
  };

  explicit Program(Context& context);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  Context& context() const { return context_; }

  /// A buffer of zeros.
  void add_buffer(uint64_t bytes);
  /// Compiles the shader. Its bindings are those of every kernel (runtime/pipeline.h).
  void add_pipeline(const PipelineSpec& spec);

  /// Starts a function, to which commands are appended from here on.
  void add_function();
  /// Appends a dispatch. With `varies`, set_dispatch() may change it.
  void dispatch(uint32_t pipeline, std::span<const Range> bindings, std::span<const uint8_t> params,
                Grid grid, bool varies);
  void copy(Range source, Range target);
  void clear(Range target);
  /// Has WebGPU check the commands. To be called once, after the last of them.
  void finish();

  /// Gives dispatch `number` of a function (copies and clears do not count) other parameters, as
  /// many bytes as before, and another grid.
  void set_dispatch(uint32_t function, uint32_t number, std::span<const uint8_t> params, Grid grid);
  void replay(uint32_t function);
  /// The buffer of a range that lies in it; its offset must be a multiple of 4.
  const Buffer& buffer(const Range& range) const;
  /// What kernels reported since the last call: a code (0: nothing) and details, as KernelErrors
  /// has them. Waits for the device if a kernel can report.
  KernelErrors::Words take_errors();

private:
  struct Function {
    std::unique_ptr<Graph> graph;
    std::vector<uint32_t> params_bytes; // of each dispatch
  };

  /// The function that was added last.
  Function& current();
  Function& function(uint32_t number);
  void check_grid(Grid grid) const;

  Context& context_;
  std::vector<Buffer*> buffers_;
  // Error words of its own: the codes in them are those of the file's messages, not the stream's.
  Buffer* errors_ = nullptr;
  bool has_checks_ = false;
  std::vector<std::unique_ptr<Pipeline>> pipelines_;
  std::vector<Function> functions_;
  bool finished_ = false;
};

} // namespace torch_webgpu
