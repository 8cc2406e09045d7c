// Graphs as PyTorch has them: captured from tensor operators, replayed as they are.
#pragma once

#include <ATen/core/TensorBase.h>
#include <c10/core/Allocator.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/generator.h"
#include "runtime/graph/graph.h"

namespace torch_webgpu {

/// From capture_begin() to capture_end(), operators record what they would have the device do, and
/// the device does nothing. Results have their shapes, and hold values from the first replay on.
/// A graph is of the device that is current when its capture begins; operators on other devices are
/// executed, and make the capture fail at its end. One graph at a time, on whichever device;
/// operators of all threads are recorded.
class CapturedGraph {
public:
  explicit CapturedGraph(bool keep_graph = false) : keep_graph_(keep_graph) {}
  ~CapturedGraph();
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;

  /// The graph shares its memory with graphs of the same pool, which must be replayed in the order
  /// of their captures; {0, 0}: a pool of its own. Raises RuntimeError if something is being
  /// captured or recorded, or if this graph was captured already.
  void capture_begin(c10::MempoolId_t pool = {0, 0});
  /// Instantiates the graph as well, unless it was made with keep_graph. Raises RuntimeError, and
  /// leaves the graph empty, if an operator was refused during the capture or ran on another
  /// device.
  void capture_end();
  /// Ends a capture that failed; the graph is empty again. Does nothing if there is no capture.
  void abandon() noexcept;
  void instantiate();
  /// Has the device do what was captured, on the values that the captured tensors have now.
  void replay();
  /// Takes the numbers (learning rates, dropout probabilities ...) of another capture of the same
  /// program. Raises RuntimeError if it differs in anything else.
  void update(const CapturedGraph& capture);
  /// Frees what the graph holds. Tensors that it wrote stay as they are.
  void reset();
  c10::MempoolId_t pool() const;
  /// What debug_dump needs; here it is always kept.
  void enable_debug_mode() {}
  /// Writes a list of the commands, one a line.
  void debug_dump(const std::string& path) const;
  /// The context of the device that the graph is of; before the capture, the current one's.
  Context& owner() const;
  /// What was recorded. The caller holds the context's lock.
  const Graph& graph() const { return captured(); }
  /// Expires when the graph is reset.
  std::weak_ptr<const Graph> weak_graph() const { return graph_; }
  /// A generator that the graph draws from, where it is, and what a replay moves it by, in steps of
  /// the kernels' counter. In dispatches that draw, the key is the number of one of these.
  struct Stream {
    RandomPlace place;
    uint64_t increment = 0;
  };
  std::vector<Stream> random_streams() const;
  /// Whether a command reads or writes the tensor's memory.
  bool names(const at::TensorBase& tensor) const;
  /// Dispatches, copies and clears of a replay.
  size_t num_commands() const;

  static bool is_capturing();
  /// A pool for capture_begin() that no graph has yet.
  static c10::MempoolId_t new_pool();
  /// Says that a draw from a generator with this state follows.
  static void note_draw(GeneratorState& generator);
  /// Says that `op` cannot be captured. Nothing if there is no capture.
  static void note_refusal(std::string_view op);
  /// Says that the capture has what this device would execute wrongly: it can be saved only.
  static void note_other_device();

private:
  struct Draws {
    std::shared_ptr<GeneratorState> generator;
    uint64_t increment = 0; // of its offset, for each replay
  };

  // Its callers hold the context's lock, which keeps other threads from resetting the graph.
  const Graph& captured() const;
  // The graph, to be executed.
  Graph& playable() const;
  void stop();
  void clear();
  // Gives the generator the next number if it has none in this capture.
  void take_generator(GeneratorState& generator);
  void check_draw_was_recorded() const;

  Context* context_ = nullptr;                   // of the capture
  std::map<const Context*, uint64_t> elsewhere_; // dispatches of other devices when it began
  bool keep_graph_;
  bool capturing_ = false;
  c10::MempoolId_t pool_id_{0, 0};
  std::shared_ptr<MemoryPool> pool_;
  std::shared_ptr<Graph> graph_; // nobody else keeps it
  std::vector<Draws> draws_;
  bool draw_is_due_ = false;  // a generator was advanced
  uint32_t draws_before_ = 0; // dispatches that can draw, recorded until then
  std::string refused_;       // the operator that could not be captured
  bool is_for_other_device_ = false;
};

/// While it lives, commands are executed and memory comes from the general pool, though a graph is
/// captured: for a cache that fills itself with constants. Holds the context's lock, so that other
/// threads wait.
class Uncaptured {
public:
  explicit Uncaptured(Context& context);
  ~Uncaptured();
  Uncaptured(const Uncaptured&) = delete;
  Uncaptured& operator=(const Uncaptured&) = delete;

private:
  Context& context_;
  Recorder* recorder_ = nullptr;
  MemoryPool* pool_ = nullptr;
};

/// Raises RuntimeError, naming the operator and saying why, while a graph is captured.
void check_not_capturing(std::string_view op, const char* why);

} // namespace torch_webgpu
