// Tests of graphs, and of the memory that is set apart for them.
#include <doctest/doctest.h>

#include <array>
#include <memory>
#include <vector>

#include "device.h"
#include "runtime/context.h"
#include "runtime/error.h"
#include "runtime/graph/graph.h"

using namespace torch_webgpu;

namespace {

// out[i] += value * in[i].
const Pipeline& add_pipeline() {
  return word_pipeline(20, "add", "out[id.x] += params.value * in[id.x];");
}

// Writes its key and counter.
const Pipeline& random_pipeline() {
  return context().pipelines.get({PipelineFamily{1}, 21}, [] {
    PipelineSpec spec;
    spec.label = "random";
    spec.binding = {1, 1, false};
    spec.random_at = 16;
    spec.source = R"(
struct Params { unused: vec4<u32>, philox: vec4<u32> }
@group(0) @binding(0) var<storage, read_write> out: array<vec4<u32>>;
@group(0) @binding(31) var<uniform> params: Params;
@compute @workgroup_size(1)
fn main() { out[0] = params.philox; }
)";
    return spec;
  });
}

struct Recording {
  explicit Recording(Graph& graph, MemoryPool& pool) {
    stream().set_recorder(&graph);
    context().allocator.use_pool(&pool);
  }
  ~Recording() {
    stream().set_recorder(nullptr);
    context().allocator.use_pool(nullptr);
  }
};

// A pool as the backend makes them.
std::shared_ptr<MemoryPool> make_pool() {
  return {new MemoryPool, [](MemoryPool* pool) {
            context().allocator.dissolve(*pool);
            delete pool;
          }};
}

void add(const Buffer& out, const Buffer& in, uint32_t value) {
  stream().dispatch(add_pipeline(), {{&out, 0, 0}, {&in, 0, 0}}, CountParams{kWords, value},
                    {1, 1, 1});
}

} // namespace

TEST_CASE("a graph replays dispatches, copies and clears in their order") {
  Owned out(4 * kWords);
  Owned in(4 * kWords);
  Owned other(4 * kWords);
  const auto pool = make_pool();
  Graph graph(context(), pool);
  {
    const Recording recording(graph, *pool);
    add(*out, *in, 2);
    stream().copy(*out, 0, *other, 0, 4 * kWords);
    stream().clear(*out, 0, 8);
    add(*out, *other, 1);
  }
  CHECK(graph.commands().size() == 4);
  write(*out, {1, 1, 1, 1});
  write(*in, {1, 2, 3, 4});
  graph.instantiate();
  const uint64_t groups = stream().stats().bind_groups;
  graph.replay({});
  CHECK(words_of(*other) == Words{3, 5, 7, 9});
  CHECK(words_of(*out) == Words{3, 5, 14, 18});
  graph.replay({});
  CHECK(words_of(*other) == Words{5, 9, 20, 26});
  CHECK(stream().stats().bind_groups == groups);
}

TEST_CASE("a graph refuses uploads, reads and replays while it is recorded") {
  Owned out(4 * kWords);
  const auto pool = make_pool();
  Graph other(context(), pool);
  Graph graph(context(), pool);
  const Recording recording(graph, *pool);
  CHECK_THROWS_AS(write(*out, {1, 2, 3, 4}), Error);
  CHECK_THROWS_AS(words_of(*out), Error);
  CHECK_THROWS_AS(other.replay({}), Error);
  CHECK(graph.commands().empty());
}

TEST_CASE("a replay puts keys and counters where kernels draw") {
  Owned a(16);
  Owned b(16);
  const auto pool = make_pool();
  Graph graph(context(), pool);
  {
    const Recording recording(graph, *pool);
    struct Params {
      std::array<uint32_t, 4> unused;
      std::array<uint32_t, 4> philox; // the number of a generator, and the counter from its own
    };
    stream().dispatch(random_pipeline(), {{a.buffer, 0, 0}}, Params{{}, {0, 0, 5, 0}}, {1, 1, 1});
    stream().dispatch(random_pipeline(), {{b.buffer, 0, 0}}, Params{{}, {1, 0, 3, 0}}, {1, 1, 1});
  }
  CHECK(graph.num_draws() == 2);
  graph.replay(std::vector<RandomPlace>{{7, 100}, {0x200000009, 0xfffffffe}});
  CHECK(words_of(*a) == Words{7, 0, 105, 0});
  CHECK(words_of(*b) == Words{9, 2, 1, 1});
  graph.replay(std::vector<RandomPlace>{{7, 200}, {1, 0}});
  CHECK(words_of(*a) == Words{7, 0, 205, 0});
  CHECK(words_of(*b) == Words{1, 0, 3, 0});
}

TEST_CASE("an update takes parameters, from buffers of another pool as well") {
  Owned in(4 * kWords);
  write(*in, {1, 2, 3, 4});
  Buffer* out = nullptr;
  const auto record = [&](Graph& graph, MemoryPool& pool, uint32_t value, uint32_t times) {
    const Recording recording(graph, pool);
    Buffer* result = context().allocator.allocate(4 * kWords);
    stream().clear(*result, 0, 4 * kWords);
    for (uint32_t k = 0; k < times; ++k) {
      add(*result, *in, value);
    }
    return result;
  };
  const auto pool = make_pool();
  Graph graph(context(), pool);
  out = record(graph, *pool, 2, 1);
  graph.replay({});
  CHECK(words_of(*out) == Words{2, 4, 6, 8});
  for (const uint32_t times : {1u, 2u}) {
    const auto second = make_pool();
    Graph again(context(), second);
    Buffer* unused = record(again, *second, 5, times);
    if (times == 1) {
      graph.update(again);
    } else {
      CHECK_THROWS_AS(graph.update(again), Error);
    }
    context().allocator.free(unused);
    graph.replay({});
    CHECK(words_of(*out) == Words{5, 10, 15, 20});
  }
  context().allocator.free(out);
}

TEST_CASE("a pool's buffers are used in it alone, and pinned ones by nobody") {
  Allocator& allocator = context().allocator;
  constexpr uint64_t kBytes = 777 << 10; // a size class that no other test uses
  const uint64_t held = allocator.stats().graphs;
  auto pool = make_pool();
  allocator.use_pool(pool.get());
  Buffer* first = allocator.allocate(kBytes);
  allocator.free(first);
  CHECK(allocator.allocate(kBytes) == first);
  allocator.free(first);
  allocator.use_pool(nullptr);
  CHECK(allocator.stats().graphs == held + first->size);
  Buffer* outside = allocator.allocate(kBytes);
  CHECK(outside != first);

  allocator.pin(*outside);
  allocator.free(outside);
  CHECK(allocator.stats().graphs == held + first->size + outside->size);
  Buffer* another = allocator.allocate(kBytes);
  CHECK(another != outside);
  allocator.unpin(*outside);
  CHECK(allocator.allocate(kBytes) == outside);

  pool.reset();
  CHECK(allocator.stats().graphs == held);
  CHECK(allocator.allocate(kBytes) == first);
  for (Buffer* buffer : {first, outside, another}) {
    allocator.free(buffer);
  }
  allocator.empty_cache();
}
