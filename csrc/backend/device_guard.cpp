// Device, stream and event management as c10 asks for it. Each device has one stream; events are
// points in a stream.
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/thread_name.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>

#include "backend/device.h"
#include "backend/graph.h"
#include "runtime/context.h"

namespace torch_webgpu {
namespace {

thread_local c10::DeviceIndex current = 0;

// What deviceCount() answers.
std::atomic<uint32_t> promised{0};
uint32_t promised_devices() noexcept {
  const uint32_t most = most_devices();
  uint32_t before = promised.load();
  while (before < most && !promised.compare_exchange_weak(before, most)) {
  }
  return std::max(before, most);
}

// autograd has a thread for each device that it was promised, also for those that turned out not
// to exist. Each makes its device the current one, and must not get an error. The names are
// PyTorch's. Where threads have none, any thread may be autograd's.
bool is_autograd_thread() {
  const std::string name = c10::getThreadName();
  return name.empty() || name.starts_with("pt_autograd");
}

struct Event {
  Context* context = nullptr;           // whose stream it is a point of
  uint64_t serial = 0;                  // of the submission that ends at the event
  std::shared_ptr<Timestamp> timestamp; // null without timing
};

Event* as_event(void* event) { return static_cast<Event*>(event); }

c10::Device checked(c10::Device device) {
  TORCH_CHECK(device.type() == kWebGPU, "expected a webgpu device, got ", device);
  return device;
}

// Of a device that was used already, else null.
Context* known_context(c10::Device device) {
  return context_if_initialized(
      static_cast<uint32_t>(device.index() < 0 ? current : device.index()));
}

Context& context_of_stream(const c10::Stream& stream) {
  return context(static_cast<uint32_t>(resolve_ordinal(checked(stream.device()).index())));
}

c10::Stream stream_of(c10::Device device) {
  return c10::Stream(c10::Stream::DEFAULT,
                     webgpu_device(device.index() < 0 ? current : device.index()));
}

class DeviceGuardImpl final : public c10::impl::DeviceGuardImplInterface {
public:
  c10::DeviceType type() const override { return kWebGPU; }

  c10::Device exchangeDevice(c10::Device device) const override {
    return webgpu_device(exchange_device(checked(device).index()));
  }
  c10::Device getDevice() const override { return webgpu_device(); }
  void setDevice(c10::Device device) const override { exchange_device(checked(device).index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    current = device.index() < 0 ? current : device.index();
  }

  // autograd asks for it in the first backward(), even of CPU tensors, to size its thread pool: a
  // thread for each device. That must not load drivers, so before the number of adapters is known
  // this is the most there can be, and stays so, since autograd counts on it in every backward().
  // torch.accelerator.device_count() does not ask here.
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(promised_devices());
  }

  c10::Stream getStream(c10::Device device) const override { return stream_of(device); }
  c10::Stream getDefaultStream(c10::Device device) const override { return stream_of(device); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return stream_of(device);
  }
  c10::Stream getNewStream(c10::Device device, int) const override { return stream_of(device); }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return stream_of(stream.device());
  }

  bool queryStream(const c10::Stream& stream) const override {
    Context* ctx = known_context(stream.device());
    return ctx == nullptr || ctx->stream.is_complete(ctx->stream.flush());
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    synchronizeDevice(stream.device_index());
  }
  void synchronizeDevice(const c10::DeviceIndex index) const override {
    const c10::DeviceIndex meant = resolve_ordinal(index);
    // A forked child must get the error of context(). A device that was never used has no work.
    if (in_bad_fork() || known_context(webgpu_device(meant)) != nullptr) {
      context(static_cast<uint32_t>(meant)).stream.synchronize();
    }
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex,
              const c10::EventFlag flag) const override {
    Context& ctx = context_of_stream(stream);
    auto recorded = std::make_unique<Event>();
    recorded->context = &ctx;
    if (flag == c10::EventFlag::BACKEND_DEFAULT) { // with timing
      check_not_capturing("an Event with enable_timing=True", "a replay would not record it");
      recorded->timestamp = ctx.stream.record_timestamp();
    }
    recorded->serial = ctx.stream.flush();
    delete as_event(*event);
    *event = recorded.release();
  }
  // A stream is in order. That of another device cannot be told to wait, so the host does.
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr && as_event(event)->context != known_context(stream.device())) {
      synchronizeEvent(event);
    }
  }
  bool queryEvent(void* event) const override {
    return event == nullptr || usable(*as_event(event)).stream.is_complete(as_event(event)->serial);
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) {
      usable(*as_event(event)).stream.wait(as_event(event)->serial);
    }
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete as_event(event);
  }
  double elapsedTime(void* start, void* end, const c10::DeviceIndex) const override {
    TORCH_CHECK(start != nullptr && end != nullptr,
                "Both events must be recorded before calculating elapsed time.");
    TORCH_CHECK(as_event(start)->context == as_event(end)->context,
                "Both events must be recorded on the same device to calculate elapsed time.");
    const auto& from = as_event(start)->timestamp;
    const auto& to = as_event(end)->timestamp;
    TORCH_CHECK(from != nullptr && to != nullptr,
                usable(*as_event(start)).device.caps().timestamps
                    ? "Both events must be created with argument 'enable_timing=True'."
                    : "elapsed_time needs timestamp queries, which this WebGPU device lacks.");
    const double nanoseconds =
        static_cast<double>(static_cast<int64_t>(to->nanoseconds() - from->nanoseconds()));
    return nanoseconds * 1e-6;
  }

  c10::DeviceCapability getDeviceCapability(c10::Device) const override {
    c10::DeviceCapability capability;
    auto& types = capability.capability_data.supported_scalar_types;
    capability.capability_data.capability_bits = 0;
    types.has_Float = types.has_Half = types.has_BFloat16 = types.has_Long = types.has_Int = 1;
    types.has_Short = types.has_Char = types.has_Byte = types.has_Bool = types.has_ComplexFloat = 1;
    return capability;
  }

private:
  // Raises in a forked child, which has no device.
  static Context& usable(const Event& event) { return context(event.context->index); }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, DeviceGuardImpl);

} // namespace

c10::DeviceIndex current_device() { return current; }

c10::DeviceIndex exchange_device(c10::DeviceIndex index) {
  if (index > 0 && static_cast<uint32_t>(index) >= known_devices() &&
      !(static_cast<uint32_t>(index) < promised_devices() && is_autograd_thread())) {
    check_ordinal(index);
  }
  const c10::DeviceIndex before = current;
  current = index < 0 ? current : index;
  return before;
}

void check_ordinal(c10::DeviceIndex index) {
  if (index > 0 && static_cast<uint32_t>(index) >= num_devices()) {
    raise_invalid_ordinal(index, num_devices());
  }
}

c10::DeviceIndex resolve_ordinal(c10::DeviceIndex index) {
  const c10::DeviceIndex meant = index < 0 ? current : index;
  check_ordinal(meant);
  return meant;
}

} // namespace torch_webgpu
