#include "backend/graph.h"

#include <ATen/core/Generator.h>

#include <atomic>
#include <fstream>
#include <map>
#include <mutex>
#include <utility>

#include "backend/tensor.h"
#include "backend/torch_versions.h"
#include "runtime/context.h"

#if TORCH_WEBGPU_HAS_ACCELERATOR_GRAPH
#include <ATen/core/GraphImplInterface.h>
#endif

namespace torch_webgpu {
namespace {

std::atomic<CapturedGraph*> capturing{nullptr};

// The pools that graphs have, by their ids.
class Pools {
public:
  // Raises RuntimeError for an id that new_id() did not give, and for a pool of another device.
  std::shared_ptr<MemoryPool> get(c10::MempoolId_t id, Context& context) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto [of_graph, by_itself] = id;
    TORCH_CHECK(of_graph == 0 ? by_itself % 2 == 0 && by_itself <= last_
                              : by_itself == 0 && of_graph % 2 == 1 && of_graph <= last_,
                "(", of_graph, ", ", by_itself,
                ") is no token of a memory pool: those come from "
                "graph_pool_handle() and pool()");
    Entry& entry = pools_[id];
    std::shared_ptr<MemoryPool> pool = entry.pool.lock();
    if (pool == nullptr) {
      pool = {new MemoryPool, [&context](MemoryPool* dissolved) {
                if (!in_bad_fork()) {
                  context.allocator.dissolve(*dissolved);
                }
                delete dissolved;
              }};
      entry = {pool, &context};
    }
    TORCH_CHECK(entry.context == &context, "the memory pool (", of_graph, ", ", by_itself,
                ") belongs to graphs of ", device_of(*entry.context), ", the current device is ",
                device_of(context));
    return pool;
  }

  // Ids of graphs' own pools are {odd, 0}, of pools asked for by themselves {0, even}.
  c10::MempoolId_t new_id(bool of_graph) {
    std::lock_guard<std::mutex> lock(mutex_);
    std::erase_if(pools_, [](const auto& entry) { return entry.second.pool.expired(); });
    do {
      ++last_;
    } while ((last_ % 2 == 1) != of_graph);
    return of_graph ? c10::MempoolId_t{last_, 0} : c10::MempoolId_t{0, last_};
  }

  static Pools& instance() {
    static auto* pools = new Pools; // outlives every graph
    return *pools;
  }

private:
  struct Entry {
    std::weak_ptr<MemoryPool> pool;
    Context* context = nullptr; // that its buffers are of
  };

  std::mutex mutex_;
  std::map<c10::MempoolId_t, Entry> pools_;
  c10::CaptureId_t last_ = 0;
};

// Dispatches so far of each device but that of `context`.
std::map<const Context*, uint64_t> dispatches_elsewhere(const Context& context) {
  std::map<const Context*, uint64_t> counts;
  for (Context* other : initialized_contexts()) {
    if (other != &context) {
      counts[other] = other->stream.stats().dispatches;
    }
  }
  return counts;
}

struct Line {
  std::ostream& out;
  std::map<const Buffer*, size_t>& numbers;

  size_t number(const Buffer* buffer) const {
    return numbers.try_emplace(buffer, numbers.size()).first->second;
  }
  void operator()(const CommandList::Dispatch& dispatch) const {
    out << "dispatch " << dispatch.pipeline->label << " grid " << dispatch.grid[0] << 'x'
        << dispatch.grid[1] << 'x' << dispatch.grid[2] << " parameters " << dispatch.params.size()
        << " bytes, buffers";
    for (const Binding& binding : dispatch.bindings) {
      out << " b" << number(binding.buffer) << '[' << binding.offset << ':'
          << binding.offset + binding.size << ']';
    }
    out << '\n';
  }
  void operator()(const CommandList::Copy& copy) const {
    out << "copy b" << number(copy.source) << '[' << copy.source_offset << ':'
        << copy.source_offset + copy.bytes << "] to b" << number(copy.target) << '['
        << copy.target_offset << ':' << copy.target_offset + copy.bytes << "]\n";
  }
  void operator()(const CommandList::Clear& clear) const {
    out << "clear b" << number(clear.target) << '[' << clear.offset << ':'
        << clear.offset + clear.bytes << "]\n";
  }
  void operator()(const CommandList::Upload&) const {} // a graph has none
};

} // namespace

CapturedGraph::~CapturedGraph() { abandon(); }

Context& CapturedGraph::owner() const {
  return context_ != nullptr ? context(context_->index) : current_context(); // raises after a fork
}

bool CapturedGraph::is_capturing() { return capturing.load() != nullptr; }

c10::MempoolId_t CapturedGraph::new_pool() { return Pools::instance().new_id(false); }

void CapturedGraph::capture_begin(c10::MempoolId_t pool) {
  Context& ctx = current_context();
  auto elsewhere = dispatches_elsewhere(ctx);
  std::lock_guard<std::recursive_mutex> lock(ctx.mutex);
  TORCH_CHECK(graph_ == nullptr, "this graph has been captured already: reset() it first");
  TORCH_CHECK(!is_capturing(), "another graph is being captured");
  Pools& pools = Pools::instance();
  const c10::MempoolId_t id = pool == c10::MempoolId_t{0, 0} ? pools.new_id(true) : pool;
  pool_ = pools.get(id, ctx);
  pool_id_ = id;
  context_ = &ctx;
  elsewhere_ = std::move(elsewhere);
  auto graph = std::make_unique<Graph>(ctx, pool_);
  ctx.stream.set_recorder(graph.get());
  graph_ = std::move(graph);
  ctx.allocator.use_pool(pool_.get());
  capturing_ = true;
  capturing = this;
  draw_is_due_ = false;
  refused_.clear();
  is_for_other_device_ = false;
  try {
    // Also if it draws nothing: its state is protected.
    take_generator(generator_of(std::nullopt, device_of(ctx)).shared_state());
  } catch (...) {
    stop();
    clear();
    throw;
  }
}

void CapturedGraph::stop() {
  Context& ctx = owner();
  ctx.stream.set_recorder(nullptr);
  ctx.allocator.use_pool(nullptr);
  capturing = nullptr;
  capturing_ = false;
  for (Draws& draws : draws_) {
    draws.increment = draws.generator->end_capture();
  }
}

void CapturedGraph::clear() {
  graph_.reset();
  draws_.clear();
  pool_.reset();
  pool_id_ = {0, 0};
}

void CapturedGraph::check_draw_was_recorded() const {
  TORCH_CHECK(!draw_is_due_ || graph_->num_draws() != draws_before_,
              "an operator drew random numbers that a replay could not draw anew");
}

void CapturedGraph::capture_end() {
  const auto elsewhere = dispatches_elsewhere(owner());
  std::lock_guard<std::recursive_mutex> lock(owner().mutex);
  TORCH_CHECK(capturing_, "capture_end() was called without capture_begin()");
  stop();
  try {
    TORCH_CHECK(refused_.empty(), "the capture is invalid: ", refused_, " cannot be captured");
    check_draw_was_recorded();
    for (const auto& [other, count] : elsewhere) {
      const auto before = elsewhere_.find(other);
      TORCH_CHECK(count == (before == elsewhere_.end() ? 0 : before->second),
                  "the capture is invalid: operators ran on ", device_of(*other),
                  " while a graph of ", device_of(owner()),
                  " was captured, and a replay would not repeat them. The graph's device is the "
                  "current one when the capture begins");
    }
    if (!keep_graph_) {
      playable().instantiate();
    }
  } catch (...) {
    clear();
    throw;
  }
}

void CapturedGraph::abandon() noexcept {
  if (capturing_ && !in_bad_fork()) {
    std::lock_guard<std::recursive_mutex> lock(owner().mutex);
    stop();
    clear();
  }
}

void CapturedGraph::reset() {
  if (graph_ == nullptr) {
    return;
  }
  std::lock_guard<std::recursive_mutex> lock(owner().mutex);
  TORCH_CHECK(!capturing_, "a graph cannot be reset while it is captured");
  clear();
}

const Graph& CapturedGraph::captured() const {
  TORCH_CHECK(graph_ != nullptr && !capturing_, "this graph has not been captured");
  return *graph_;
}

Graph& CapturedGraph::playable() const {
  captured();
  TORCH_CHECK(!is_for_other_device_,
              "this graph was planned for subgroups of other sizes than the device has, so it "
              "cannot be replayed here");
  return *graph_;
}

void CapturedGraph::instantiate() {
  std::lock_guard<std::recursive_mutex> lock(owner().mutex);
  playable().instantiate();
}

void CapturedGraph::replay() {
  std::lock_guard<std::recursive_mutex> lock(owner().mutex);
  Graph& graph = playable();
  check_not_capturing("a graph's replay()", "its commands are not recorded");
  std::vector<RandomPlace> places;
  for (const Draws& draws : draws_) {
    const PhiloxState state = draws.generator->draw(draws.increment);
    places.push_back({state.seed, state.offset / 4});
  }
  graph.replay(places);
}

void CapturedGraph::update(const CapturedGraph& capture) {
  std::lock_guard<std::recursive_mutex> lock(owner().mutex);
  captured();
  capture.captured();
  TORCH_CHECK(draws_.size() == capture.draws_.size(),
              "the graph cannot be updated: it draws from other generators");
  for (size_t k = 0; k < draws_.size(); ++k) {
    TORCH_CHECK(draws_[k].generator == capture.draws_[k].generator &&
                    draws_[k].increment == capture.draws_[k].increment,
                "the graph cannot be updated: it draws other random numbers");
  }
  graph_->update(*capture.graph_);
}

std::vector<CapturedGraph::Stream> CapturedGraph::random_streams() const {
  std::vector<Stream> streams;
  for (const Draws& draws : draws_) {
    const PhiloxState state = draws.generator->draw(0);
    streams.push_back({{state.seed, state.offset / 4}, draws.increment / 4});
  }
  return streams;
}

c10::MempoolId_t CapturedGraph::pool() const {
  TORCH_CHECK(pool_ != nullptr, "this graph has not been captured");
  return pool_id_;
}

bool CapturedGraph::names(const at::TensorBase& tensor) const {
  std::lock_guard<std::recursive_mutex> lock(owner().mutex);
  return captured().names(buffer_of(tensor));
}

size_t CapturedGraph::num_commands() const {
  std::lock_guard<std::recursive_mutex> lock(owner().mutex);
  return captured().commands().size();
}

void CapturedGraph::debug_dump(const std::string& path) const {
  std::lock_guard<std::recursive_mutex> lock(owner().mutex);
  std::ofstream out(path);
  std::map<const Buffer*, size_t> numbers;
  for (const CommandList::Command& command : captured().commands()) {
    std::visit(Line{out, numbers}, command);
  }
  out.close();
  TORCH_CHECK(out.good(), "could not write '", path, "'");
}

void CapturedGraph::note_draw(GeneratorState& generator) {
  CapturedGraph* graph = capturing.load();
  // Operators on other devices are executed.
  if (graph != nullptr && generator.device() == device_of(graph->owner())) [[unlikely]] {
    std::lock_guard<std::recursive_mutex> lock(graph->owner().mutex);
    graph->check_draw_was_recorded();
    graph->draw_is_due_ = true;
    graph->draws_before_ = graph->graph_->num_draws();
    graph->take_generator(generator);
  }
}

void CapturedGraph::note_refusal(std::string_view op) {
  if (CapturedGraph* graph = capturing.load()) {
    std::lock_guard<std::recursive_mutex> lock(graph->owner().mutex);
    graph->refused_ = op;
  }
}

void CapturedGraph::note_other_device() {
  if (CapturedGraph* graph = capturing.load()) {
    std::lock_guard<std::recursive_mutex> lock(graph->owner().mutex);
    graph->is_for_other_device_ = true;
  }
}

void CapturedGraph::take_generator(GeneratorState& generator) {
  if (generator.is_captured()) {
    return;
  }
  TORCH_CHECK(
      !generator.is_made_in_capture(),
      "a generator that was made while a graph is captured cannot draw in it: replays would "
      "not start it anew");
  static uint64_t captures = 0; // guarded by the lock
  captures += draws_.empty() ? 1 : 0;
  generator.begin_capture(draws_.size(), captures);
  draws_.push_back({generator.shared_from_this(), 0});
}

Uncaptured::Uncaptured(Context& context) : context_(context) {
  context.mutex.lock();
  if (CapturedGraph::is_capturing()) {
    recorder_ = context.stream.recorder();
    context.stream.set_recorder(nullptr);
    pool_ = context.allocator.use_pool(nullptr);
  }
}

Uncaptured::~Uncaptured() {
  if (recorder_ != nullptr) {
    context_.stream.set_recorder(recorder_);
    context_.allocator.use_pool(pool_);
  }
  context_.mutex.unlock();
}

void check_not_capturing(std::string_view op, const char* why) {
  CapturedGraph::note_refusal(op);
  TORCH_CHECK(!CapturedGraph::is_capturing(), op,
              " cannot be captured in a graph of the webgpu device: ", why);
}

#if TORCH_WEBGPU_HAS_ACCELERATOR_GRAPH

namespace {

// torch.accelerator.Graph.
class AcceleratorGraph final : public at::GraphImplInterface {
public:
  explicit AcceleratorGraph(const at::GraphImplArgs& args) : graph_(args.keep_graph) {}

  // All modes are the same: operators of all threads are recorded, and no call is unsafe.
  void capture_begin(c10::MempoolId_t pool, at::GraphCaptureMode) override {
    graph_.capture_begin(pool);
  }
  void capture_end() override { graph_.capture_end(); }
  void instantiate() override { graph_.instantiate(); }
  void replay() override { graph_.replay(); }
  void reset() override { graph_.reset(); }
  c10::MempoolId_t pool() const override { return graph_.pool(); }
  void enable_debug_mode() override { graph_.enable_debug_mode(); }
  void debug_dump(const std::string& path) override { graph_.debug_dump(path); }

private:
  CapturedGraph graph_;
};

using at::GraphImplRegistry;
using at::RegistererGraphImplRegistry;
// The key is the device's name in upper case.
REGISTER_GRAPH_IMPL(WEBGPU, AcceleratorGraph)

} // namespace

#endif

} // namespace torch_webgpu
