// Tests of csrc/runtime without PyTorch or Python. The WebGPU library is named by
// TORCH_WEBGPU_RUNTIME.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include <unistd.h>

#include <cstring>
#include <fstream>
#include <numeric>
#include <thread>

#include "device.h"
#include "runtime/api.h"
#include "runtime/context.h"
#include "runtime/error.h"

using namespace torch_webgpu;

namespace {

// out[i] = out[i] * 3 + value: not commutative, so a wrong order shows.
const Pipeline& step_pipeline() {
  return test_pipeline(1, "step", {1, 1, false}, R"(
struct Params { count: u32, value: u32 }
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@group(0) @binding(31) var<uniform> params: Params;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x < params.count) { out[id.x] = out[id.x] * 3u + params.value; }
}
)");
}

const Pipeline& checked_pipeline() {
  return test_pipeline(2, "checked", {1, 1, true}, R"(
struct Params { code: u32, bad: u32 }
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@group(0) @binding(30) var<storage, read_write> errors: array<atomic<u32>>;
@group(0) @binding(31) var<uniform> params: Params;
@compute @workgroup_size(1)
fn main() {
  if (params.bad != 0u) { atomicMax(&errors[0], params.code); }
  out[0] = 7u;
}
)");
}

uint32_t read_word(const Buffer& buffer, uint64_t offset = 0) {
  uint32_t word = 0;
  stream().read(buffer, offset, &word, sizeof(word));
  return word;
}

size_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  size_t total = 0;
  size_t resident = 0;
  statm >> total >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

} // namespace

TEST_CASE("uploads keep their place among dispatches of an open pass") {
  Owned buffer(4);
  uint32_t expected = 0;
  for (uint32_t round = 0; round < 40; ++round) {
    const uint32_t start = round * 11;
    stream().upload(*buffer, 0, &start, 4);
    stream().dispatch(step_pipeline(), {{buffer.buffer}}, CountParams{1, round}, {1, 1, 1});
    expected = start * 3 + round;
    if (round % 7 == 0) {
      CHECK(read_word(*buffer) == expected);
    }
  }
  CHECK(read_word(*buffer) == expected);
}

TEST_CASE("a large upload stays behind the dispatches before it and ahead of those after") {
  const uint32_t count = 100'000;
  Owned buffer(count * 4);
  std::vector<uint32_t> data(count);
  std::iota(data.begin(), data.end(), 0u);
  stream().dispatch(step_pipeline(), {{buffer.buffer}}, CountParams{count, 5},
                    {(count + 63) / 64, 1, 1});
  stream().upload(*buffer, 0, data.data(), count * 4);
  stream().dispatch(step_pipeline(), {{buffer.buffer}}, CountParams{count, 5},
                    {(count + 63) / 64, 1, 1});
  std::vector<uint32_t> result(count);
  stream().read(*buffer, 0, result.data(), count * 4);
  for (uint32_t i = 0; i < count; i += 997) {
    CHECK(result[i] == i * 3 + 5);
  }
}

TEST_CASE("reads of odd offsets and sizes cut out exactly their bytes") {
  Owned buffer(64);
  std::vector<uint8_t> data(64);
  std::iota(data.begin(), data.end(), uint8_t{1});
  stream().upload(*buffer, 0, data.data(), 64);
  for (uint64_t offset = 0; offset < 9; ++offset) {
    for (uint64_t size = 1; size < 10; ++size) {
      std::vector<uint8_t> out(size + 1, 0xee);
      stream().read(*buffer, offset, out.data(), size);
      CHECK(std::memcmp(out.data(), data.data() + offset, size) == 0);
      CHECK(out[size] == 0xee);
    }
  }
}

TEST_CASE("several readbacks may be under way at once") {
  Owned buffer(4);
  std::vector<std::unique_ptr<Stream::Readback>> readbacks;
  for (uint32_t i = 0; i < 20; ++i) {
    stream().upload(*buffer, 0, &i, 4);
    readbacks.push_back(stream().read_async(*buffer, 0, 4));
  }
  for (uint32_t i = 0; i < 20; ++i) {
    uint32_t word = 99;
    readbacks[19 - i]->wait(&word);
    CHECK(word == 19 - i);
  }
}

TEST_CASE("the pool reuses, rounds little and counts exactly") {
  Allocator& pool = context().allocator;
  for (uint64_t bytes :
       {1ull, 255ull, 257ull, 5000ull, 1ull << 20, (1ull << 20) + 1, 123456789ull}) {
    CHECK(Allocator::round_size(bytes) >= bytes);
    if (bytes > 4096) {
      CHECK(Allocator::round_size(bytes) <= bytes + bytes / 8);
    }
  }
  pool.empty_cache();
  const MemoryStats before = pool.stats();
  Buffer* first = pool.allocate(10'000);
  CHECK(pool.stats().allocated_bytes.current == before.allocated_bytes.current + 10'000);
  CHECK(pool.stats().reserved_bytes.current >= before.reserved_bytes.current + 10'000);
  const uintptr_t address = first->address;
  pool.free(first);
  CHECK(pool.stats().allocated_bytes.current == before.allocated_bytes.current);
  Buffer* second = pool.allocate(10'001);
  CHECK(second->address == address); // same size class, so the same buffer
  CHECK(pool.stats().segment.allocated == before.segment.allocated + 1);
  pool.free(second);
  pool.empty_cache();
  CHECK(pool.stats().reserved_bytes.current == before.reserved_bytes.current);
}

TEST_CASE("addresses of live buffers do not overlap and hold no readable memory") {
  Owned a(100);
  Owned b(1 << 20);
  CHECK((a.buffer->address + a.buffer->size <= b.buffer->address ||
         b.buffer->address + b.buffer->size <= a.buffer->address));
}

TEST_CASE("out of memory is reported with sizes and leaves the device usable") {
  const uint64_t too_much = context().device.caps().max_buffer_size + 4096;
  try {
    context().allocator.allocate(too_much);
    FAIL("the allocation should have failed");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kOutOfMemory);
    CHECK(std::string(error.what()).find("MiB") != std::string::npos);
  }
  Owned buffer(4);
  const uint32_t value = 42;
  stream().upload(*buffer, 0, &value, 4);
  CHECK(read_word(*buffer) == 42);
}

TEST_CASE("invalid WGSL is an error with the compiler's text, not a crash") {
  PipelineSpec spec;
  spec.label = "broken";
  spec.source = "@compute @workgroup_size(1) fn main() { let x: u32 = 1.5; }";
  try {
    context().pipelines.create(spec);
    FAIL("the pipeline should not build");
  } catch (const Error& error) {
    CHECK(std::string(error.what()).find("broken") != std::string::npos);
  }
  // Where the operands are known, they are what the error starts with.
  spec.operands = "x: u8";
  try {
    context().pipelines.create(spec);
    FAIL("the pipeline should not build");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kNotImplemented);
    CHECK(std::string(error.what()).starts_with("broken(): not implemented for these operands"));
    CHECK(std::string(error.what()).find("(x: u8)") != std::string::npos);
  }
  Owned buffer(4);
  const uint32_t value = 1;
  stream().upload(*buffer, 0, &value, 4);
  stream().dispatch(step_pipeline(), {{buffer.buffer}}, CountParams{1, 1}, {1, 1, 1});
  CHECK(read_word(*buffer) == 4);
}

TEST_CASE("copies, clears, uploads and reads outside a buffer raise at once") {
  Owned a(256);
  Owned b(256);
  uint32_t word = 0;
  CHECK_THROWS_AS(stream().copy(*a, 0, *b, 0, 1 << 30), Error);
  CHECK_THROWS_AS(stream().copy(*a, 0, *a, 128, 4), Error);
  CHECK_THROWS_AS(stream().copy(*a, 2, *b, 0, 4), Error);
  CHECK_THROWS_AS(stream().clear(*a, 252, 8), Error);
  CHECK_THROWS_AS(stream().upload(*a, 256, &word, 4), Error);
  CHECK_THROWS_AS(stream().read(*a, 256, &word, 4), Error);
  CHECK_NOTHROW(stream().synchronize());
}

TEST_CASE("a validation error surfaces at the next synchronize and then is gone") {
  const Device& device = context().device;
  WGPUBufferDescriptor invalid = WGPU_BUFFER_DESCRIPTOR_INIT;
  invalid.usage = WGPUBufferUsage_MapRead | WGPUBufferUsage_Storage;
  invalid.size = 16;
  WGPUBuffer buffer = device.api().DeviceCreateBuffer(device.handle(), &invalid);
  CHECK_THROWS_AS(stream().synchronize(), Error);
  CHECK_NOTHROW(stream().synchronize());
  if (buffer != nullptr) {
    device.api().BufferRelease(buffer);
  }
  Owned good(256);
  const uint32_t value = 9;
  stream().upload(*good, 0, &value, 4);
  CHECK(read_word(*good) == 9);
}

TEST_CASE("an index error names its message once, at the next synchronize or read") {
  Owned buffer(4);
  const uint32_t code = stream().error_code("checked(): index out of range");
  CHECK(stream().error_code("checked(): index out of range") == code);
  struct {
    uint32_t code;
    uint32_t bad;
  } params{code, 0};
  stream().dispatch(checked_pipeline(), {{buffer.buffer}}, params, {1, 1, 1});
  CHECK_NOTHROW(stream().synchronize());
  params.bad = 1;
  stream().dispatch(checked_pipeline(), {{buffer.buffer}}, params, {1, 1, 1});
  try {
    stream().synchronize();
    FAIL("the index error should have been raised");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kIndex);
    CHECK(std::string(error.what()) == "checked(): index out of range");
  }
  CHECK(read_word(*buffer) == 7);
}

TEST_CASE("batches are submitted without being asked, but not one by one") {
  Owned buffer(4);
  stream().synchronize();
  const StreamStats before = stream().stats();
  for (uint32_t i = 0; i < 640; ++i) {
    stream().dispatch(step_pipeline(), {{buffer.buffer}}, CountParams{1, i}, {1, 1, 1});
  }
  const StreamStats after = stream().stats();
  CHECK(after.dispatches - before.dispatches == 640);
  CHECK(after.submits - before.submits >= 10);
  CHECK(after.submits - before.submits <= 41);
  CHECK(after.bind_groups - before.bind_groups <= 1);
}

TEST_CASE("timestamps grow along the stream") {
  if (!context().device.caps().timestamps) {
    return;
  }
  Owned buffer(4);
  auto first = stream().record_timestamp();
  for (uint32_t i = 0; i < 100; ++i) {
    stream().dispatch(step_pipeline(), {{buffer.buffer}}, CountParams{1, i}, {1, 1, 1});
  }
  auto second = stream().record_timestamp();
  CHECK(second->nanoseconds() > first->nanoseconds());

  context().profiler.start();
  stream().dispatch(step_pipeline(), {{buffer.buffer}}, CountParams{1, 1}, {1, 1, 1});
  const auto entries = context().profiler.stop();
  REQUIRE(entries.size() == 1);
  CHECK(entries[0].label == "step");
  CHECK(entries[0].end_ns >= entries[0].start_ns);
}

TEST_CASE("threads share the stream") {
  constexpr uint32_t kThreads = 4;
  std::vector<std::unique_ptr<Owned>> buffers;
  for (uint32_t t = 0; t < kThreads; ++t) {
    buffers.push_back(std::make_unique<Owned>(4));
  }
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      stream().clear(**buffers[t], 0, 4);
      for (uint32_t i = 0; i < 200; ++i) {
        stream().dispatch(step_pipeline(), {{buffers[t]->buffer}}, CountParams{1, t}, {1, 1, 1});
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  for (uint32_t t = 0; t < kThreads; ++t) {
    uint32_t expected = 0;
    for (uint32_t i = 0; i < 200; ++i) {
      expected = expected * 3 + t;
    }
    CHECK(read_word(**buffers[t]) == expected);
  }
}

TEST_CASE("200,000 dispatches do not grow memory") {
  Owned buffer(4);
  auto run = [&](uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
      stream().dispatch(step_pipeline(), {{buffer.buffer}}, CountParams{1, i}, {1, 1, 1});
    }
    stream().synchronize();
  };
  run(20'000); // the library's own pools fill
  const size_t before = resident_bytes();
  run(200'000);
  const size_t after = resident_bytes();
  CHECK(after < before + (16u << 20));
}

TEST_CASE("every device of the machine computes, with a pool of its own") {
  const std::vector<ChosenAdapter>& adapters = chosen_adapters();
  CHECK(adapters.size() == num_devices());
  CHECK(most_devices() == num_devices());
  for (uint32_t index = 0; index < num_devices(); ++index) {
    Context& own = context(index);
    CHECK(own.index == index);
    CHECK(&own == &context(index));
    CHECK(own.device.info().name == adapters[index].info.name);
    MESSAGE("webgpu:", index, " is adapter ", adapters[index].position, ", ",
            own.device.info().name, " (", own.device.info().backend, ")");
    PipelineSpec spec;
    spec.label = "twice";
    spec.source = "@group(0) @binding(0) var<storage, read_write> out: array<u32>;\n"
                  "@compute @workgroup_size(1) fn main() { out[0] = out[0] * 2u; }";
    spec.binding = {1, 1, false};
    const Pipeline& twice = own.pipelines.get({PipelineFamily{1}, 77}, [&] { return spec; });
    const uint64_t allocated = own.allocator.stats().allocated_bytes.current;
    Buffer* buffer = own.allocator.allocate(4);
    CHECK(buffer->context == &own);
    const uint32_t number = 21 + index;
    own.stream.upload(*buffer, 0, &number, sizeof(number));
    const Binding binding = {buffer, 0, 0};
    own.stream.dispatch(twice, &binding, 1, nullptr, 0, {1, 1, 1});
    uint32_t result = 0;
    own.stream.read(*buffer, 0, &result, sizeof(result));
    CHECK(result == 2 * number);
    own.allocator.free(buffer);
    CHECK(own.allocator.stats().allocated_bytes.current == allocated);
  }
  CHECK(initialized_contexts().size() == num_devices());
  CHECK_THROWS_WITH_AS(context(num_devices()),
                       doctest::Contains("webgpu error: invalid device ordinal"), Error);
}
