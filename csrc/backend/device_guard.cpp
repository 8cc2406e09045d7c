// Device, stream and event management as c10 asks for it. There is one device with one stream, so
// guards only check indices; events are points in the stream.
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <memory>

#include "backend/graph.h"
#include "backend/tensor.h"
#include "runtime/context.h"

namespace torch_webgpu {
namespace {

struct Event {
  uint64_t serial = 0;                  // of the submission that ends at the event
  std::shared_ptr<Timestamp> timestamp; // null without timing
};

Event* as_event(void* event) { return static_cast<Event*>(event); }

void check_index(c10::Device device) {
  TORCH_CHECK(device.type() == kWebGPU, "expected a webgpu device, got ", device);
  TORCH_CHECK(device.index() <= 0, "webgpu error: invalid device ordinal ",
              static_cast<int>(device.index()), ", there is one device, webgpu:0");
}

c10::Stream the_stream() { return c10::Stream(c10::Stream::DEFAULT, webgpu_device()); }

class DeviceGuardImpl final : public c10::impl::DeviceGuardImplInterface {
public:
  c10::DeviceType type() const override { return kWebGPU; }

  c10::Device exchangeDevice(c10::Device device) const override {
    check_index(device);
    return webgpu_device();
  }
  c10::Device getDevice() const override { return webgpu_device(); }
  void setDevice(c10::Device device) const override { check_index(device); }
  void uncheckedSetDevice(c10::Device) const noexcept override {}

  // autograd asks for it in the first backward(), even of CPU tensors, to size its thread pool.
  // That must not load drivers, so this does not check whether there is an adapter.
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }

  c10::Stream getStream(c10::Device) const override { return the_stream(); }
  c10::Stream getDefaultStream(c10::Device) const override { return the_stream(); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override { return the_stream(); }
  c10::Stream getNewStream(c10::Device, int) const override { return the_stream(); }
  c10::Stream exchangeStream(c10::Stream) const override { return the_stream(); }

  bool queryStream(const c10::Stream&) const override {
    Context* ctx = context_if_initialized();
    return ctx == nullptr || ctx->stream.is_complete(ctx->stream.flush());
  }
  void synchronizeStream(const c10::Stream&) const override { synchronizeDevice(0); }
  void synchronizeDevice(const c10::DeviceIndex) const override {
    // A forked child must get the error of context(). A device that was never used has no work.
    if (in_bad_fork() || context_if_initialized() != nullptr) {
      context().stream.synchronize();
    }
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex,
              const c10::EventFlag flag) const override {
    check_index(stream.device());
    auto recorded = std::make_unique<Event>();
    if (flag == c10::EventFlag::BACKEND_DEFAULT) { // with timing
      check_not_capturing("an Event with enable_timing=True", "a replay would not record it");
      recorded->timestamp = context().stream.record_timestamp();
    }
    recorded->serial = context().stream.flush();
    delete as_event(*event);
    *event = recorded.release();
  }
  void block(void*, const c10::Stream&) const override {} // there is one stream, which is in order
  bool queryEvent(void* event) const override {
    return event == nullptr || context().stream.is_complete(as_event(event)->serial);
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) {
      context().stream.wait(as_event(event)->serial);
    }
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete as_event(event);
  }
  double elapsedTime(void* start, void* end, const c10::DeviceIndex) const override {
    TORCH_CHECK(start != nullptr && end != nullptr,
                "Both events must be recorded before calculating elapsed time.");
    const auto& from = as_event(start)->timestamp;
    const auto& to = as_event(end)->timestamp;
    TORCH_CHECK(from != nullptr && to != nullptr,
                context().device.caps().timestamps
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
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, DeviceGuardImpl);

} // namespace
} // namespace torch_webgpu
