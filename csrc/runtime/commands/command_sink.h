// The commands of a stream as an interface.
#pragma once

#include <array>
#include <cstdint>

namespace torch_webgpu {

struct Buffer;
struct Pipeline;

/// A storage binding: the whole buffer (size 0) or a window of it. Window offsets must be multiples
/// of Capabilities::storage_offset_alignment, sizes of 4, both in bytes.
struct Binding {
  // Without initializers: every launch holds an array of these, of which it fills a few.
  const Buffer* buffer;
  uint64_t offset;
  uint64_t size;
  bool operator==(const Binding&) const = default;
};

/// Numbers of workgroups.
using Grid = std::array<uint32_t, 3>;

/// Takes commands in program order. What pointers point to is valid during the call only, except
/// pipelines, which live as long as their context.
class CommandSink {
public:
  virtual ~CommandSink() = default;

  /// A buffer that is bound writable must appear once only (WebGPU's rule): merge aliases first.
  virtual void dispatch(const Pipeline& pipeline, const Binding* bindings, uint32_t num_bindings,
                        const void* params, uint32_t params_bytes, Grid grid) = 0;
  /// A buffer-to-buffer copy; two different buffers, offsets and size multiples of 4.
  virtual void copy(const Buffer& source, uint64_t source_offset, const Buffer& target,
                    uint64_t target_offset, uint64_t bytes) = 0;
  /// A zero fill; offset and size multiples of 4.
  virtual void clear(const Buffer& target, uint64_t offset, uint64_t bytes) = 0;
  /// Host to device. offset a multiple of 4; a size that is not writes up to 3 zero bytes behind
  /// the data.
  virtual void upload(const Buffer& target, uint64_t offset, const void* data, uint64_t bytes) = 0;
};

/// Is given the commands of the stream that it is attached to (Stream::set_recorder), after their
/// checks and before the encoder.
class Recorder : public CommandSink {
public:
  /// Whether the stream executes the commands as well.
  virtual bool executes() const = 0;
};

} // namespace torch_webgpu
