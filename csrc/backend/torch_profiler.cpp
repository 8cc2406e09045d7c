// torch.profiler: kernels with their device time under the operators that launched them (Kineto),
// and the device time of operators without Kineto (`use_kineto=False`).
#include <c10/util/ApproximateClock.h>
#include <c10/util/Exception.h>
#include <torch/csrc/profiler/stubs/base.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

// Kineto's headers format with fmt, whose functions torch's libraries keep to themselves.
#define FMT_HEADER_ONLY
#include <kineto/libkineto.h>

#include "backend/tensor.h"
#include "runtime/context.h"

namespace torch_webgpu {
namespace {

using libkineto::ActivityType;

// ---- Kineto: a session per trace

std::atomic<uint64_t> trace_number{0}; // of the trace that was started last

// Correlation ids of the operators that run on a thread, the innermost last. Those of an older
// trace, which may have ended within them, mean nothing.
struct OpenOperators {
  uint64_t trace = 0;
  std::vector<uint64_t> ids;

  std::vector<uint64_t>& current() {
    const uint64_t now = trace_number.load(std::memory_order_acquire);
    if (trace != now) {
      ids.clear();
      trace = now;
    }
    return ids;
  }
};
thread_local OpenOperators open_operators;

uint64_t innermost_operator() {
  const std::vector<uint64_t>& ids = open_operators.current();
  return ids.empty() ? 0 : ids.back();
}

// Nanoseconds to add to a device time for one of the clock that Kineto uses. Waits for the device.
int64_t clock_offset(Stream& stream) {
  const auto now = [] {
    const auto since = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
  };
  int64_t offset = 0;
  int64_t shortest = std::numeric_limits<int64_t>::max();
  // The device took the time at some moment between two of the host's: the narrower, the better.
  for (int attempt = 0; attempt < 4; ++attempt) {
    stream.drain();
    const int64_t before = now();
    const auto on_device = static_cast<int64_t>(stream.record_timestamp()->nanoseconds());
    const int64_t after = now();
    if (after - before < shortest) {
      shortest = after - before;
      offset = before + shortest / 2 - on_device;
    }
  }
  return offset;
}

// What one trace records. Only one session is started at a time, which Kineto sees to.
class Session final : public libkineto::IActivityProfilerSession {
public:
  // Devices may be started later, by the program that is traced.
  void start() override {
    status_ = libkineto::TraceStatus::RECORDING;
    trace_number.fetch_add(1, std::memory_order_acq_rel);
    started_ = this;
    set_context_watcher([](Context& made) { started_->attach(made); });
  }

  void stop() override {
    set_context_watcher(nullptr);
    started_ = nullptr;
    status_ = libkineto::TraceStatus::PROCESSING;
    for (Attached& device : attached_) {
      try {
        device.entries = device.context->profiler.stop();
      } catch (const c10::Error& error) {
        fail(error);
      }
    }
  }

  ~Session() override {
    if (started_ == this) {
      stop();
    }
  }

  std::vector<std::string> errors() override { return errors_; }

  void processTrace(libkineto::ActivityLogger& logger) override {
    processTrace(logger, [](int32_t) { return nullptr; }, 0, 0);
  }

  void processTrace(libkineto::ActivityLogger& logger,
                    libkineto::getLinkedActivityCallback operator_of, int64_t start,
                    int64_t end) override {
    buffer_->span = libkineto::TraceSpan(start, end, "WebGPU");
    for (Attached& device : attached_) {
      for (const ProfileEntry& entry : device.entries) {
        buffer_->emplace_activity(buffer_->span, ActivityType::CONCURRENT_KERNEL, entry.label);
        libkineto::GenericTraceActivity& kernel = *buffer_->activities.back();
        kernel.startTime = static_cast<int64_t>(entry.start_ns) + device.offset;
        kernel.endTime = static_cast<int64_t>(entry.end_ns) + device.offset;
        kernel.id = static_cast<int32_t>(entry.tag);
        kernel.device = static_cast<int32_t>(device.context->index);
        kernel.linked = entry.tag != 0 ? operator_of(kernel.id) : nullptr;
        kernel.flow.id = static_cast<uint32_t>(entry.tag);
        kernel.flow.type = libkineto::kLinkAsyncCpuGpu;
        kernel.addMetadata("stream", 0);
        kernel.addMetadata("correlation", entry.tag);
        kernel.log(logger);
      }
      device.entries.clear();
    }
  }

  // Kineto takes one: the first that was used.
  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override {
    constexpr int64_t kAfterTheHost = 5'000'000; // where the view sorts GPUs
    const Context* first = attached_.empty() ? nullptr : attached_[0].context;
    const uint32_t index = first == nullptr ? 0 : first->index;
    return std::make_unique<libkineto::DeviceInfo>(libkineto::DeviceInfo{
        index, kAfterTheHost, first == nullptr ? "webgpu" : first->device.info().name,
        "webgpu:" + std::to_string(index)});
  }
  std::vector<libkineto::ResourceInfo> getResourceInfos() override {
    std::vector<libkineto::ResourceInfo> streams;
    for (const Attached& device : attached_) {
      streams.push_back(
          {/*id=*/0, /*sortIndex=*/0, /*deviceId=*/device.context->index, "stream 0"});
    }
    return streams;
  }
  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override {
    return std::exchange(buffer_, std::make_unique<libkineto::CpuTraceBuffer>());
  }

  void pushCorrelationId(uint64_t id) override { open_operators.current().push_back(id); }
  void popCorrelationId() override {
    std::vector<uint64_t>& ids = open_operators.current();
    if (!ids.empty()) { // the operator may be older than the trace
      ids.pop_back();
    }
  }

private:
  void attach(Context& context) {
    try {
      const int64_t offset = clock_offset(context.stream);
      context.profiler.start(&innermost_operator);
      attached_.push_back({&context, offset, {}});
    } catch (const c10::Error& error) { // as which the backend has all errors of the runtime raised
      fail(error);
    }
  }

  // An exception would end the program's trace of the host too.
  void fail(const c10::Error& error) {
    const std::string why = error.what_without_backtrace();
    TORCH_WARN("torch.profiler records no kernels of the webgpu device: ", why);
    errors_.push_back(why);
  }

  // A device whose profiler runs for this session.
  struct Attached {
    Context* context = nullptr;
    int64_t offset = 0; // from its time, in nanoseconds
    std::vector<ProfileEntry> entries;
  };

  static inline Session* started_ = nullptr;
  std::vector<Attached> attached_;
  std::vector<std::string> errors_;
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer_ =
      std::make_unique<libkineto::CpuTraceBuffer>();
};

class KernelProfiler final : public libkineto::IActivityProfiler {
public:
  const std::string& name() const override { return name_; }
  const std::set<ActivityType>& availableActivities() const override { return types_; }

  std::unique_ptr<libkineto::IActivityProfilerSession>
  configure(const std::set<ActivityType>& types, const libkineto::Config&) override {
    return types.count(ActivityType::CONCURRENT_KERNEL) != 0 ? std::make_unique<Session>()
                                                             : nullptr;
  }
  std::unique_ptr<libkineto::IActivityProfilerSession>
  configure(int64_t, int64_t, const std::set<ActivityType>& types,
            const libkineto::Config& config) override {
    return configure(types, config);
  }

private:
  const std::string name_ = "webgpu";
  const std::set<ActivityType> types_ = {ActivityType::CONCURRENT_KERNEL};
};

// ---- Without Kineto: timestamps around each operator

using Point = std::shared_ptr<Timestamp>; // null: no time could be taken

class OperatorTimes final : public torch::profiler::impl::ProfilerStubs {
public:
  void record(c10::DeviceIndex* device, torch::profiler::impl::ProfilerVoidEventStub* event,
              int64_t* cpu_ns) const override {
    if (device != nullptr) {
      *device = current_device();
    }
    if (cpu_ns != nullptr) {
      *cpu_ns = c10::getTime();
    }
    // A device that was not used yet has done nothing, and a graph that is captured does nothing.
    Context* context = context_if_initialized(static_cast<uint32_t>(current_device()));
    const bool executes = context != nullptr && context->stream.recorder() == nullptr;
    *event = std::make_shared<Point>(executes ? context->stream.record_timestamp() : nullptr);
  }

  // In microseconds.
  float elapsed(const torch::profiler::impl::ProfilerVoidEventStub* event,
                const torch::profiler::impl::ProfilerVoidEventStub* event2) const override {
    const auto& from = *static_cast<const Point*>(event->get());
    const auto& to = *static_cast<const Point*>(event2->get());
    if (from == nullptr || to == nullptr) {
      return 0;
    }
    const auto nanoseconds = static_cast<int64_t>(to->nanoseconds() - from->nanoseconds());
    return static_cast<float>(static_cast<double>(nanoseconds) * 1e-3);
  }

  void synchronize() const override {
    for (Context* context : initialized_contexts()) {
      context->stream.drain();
    }
  }
  void onEachDevice(std::function<void(int)> operation) const override {
    const c10::DeviceIndex before = current_device();
    const std::vector<Context*> contexts = initialized_contexts();
    if (contexts.empty()) {
      operation(before);
    }
    for (const Context* context : contexts) {
      exchange_device(static_cast<c10::DeviceIndex>(context->index));
      operation(static_cast<int>(context->index));
    }
    exchange_device(before);
  }
  bool enabled() const override { return true; }

  // Marks for a vendor's own tools, which WebGPU does not have.
  void mark(const char*) const override {}
  void rangePush(const char*) const override {}
  void rangePop() const override {}
};

[[maybe_unused]] const bool registered = [] {
  libkineto::api().registerProfilerFactory([] { return std::make_unique<KernelProfiler>(); });
  torch::profiler::impl::registerPrivateUse1Methods(new OperatorTimes); // PyTorch keeps it
  return true;
}();

} // namespace
} // namespace torch_webgpu
