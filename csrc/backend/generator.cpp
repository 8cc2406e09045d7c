#include "backend/generator.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/TensorBase.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>

#include "backend/graph.h"
#include "backend/tensor.h"

namespace torch_webgpu {
namespace {

constexpr size_t kStateBytes = 2 * sizeof(uint64_t);
// Bits of an offset. Those above hold the mark of a capture.
constexpr uint32_t kOffsetBits = 48;
constexpr uint64_t kOffsetMask = (uint64_t{1} << kOffsetBits) - 1;

} // namespace

GeneratorState::GeneratorState(c10::Device device)
    : device_(device), made_in_capture_(CapturedGraph::is_capturing()) {}

GeneratorState::GeneratorState(const GeneratorState& other) : GeneratorState(other.device_) {
  std::lock_guard<std::mutex> lock(other.mutex_);
  state_ = other.state_;
}

PhiloxState GeneratorState::draw(uint64_t increment) {
  CapturedGraph::note_draw(*this);
  std::lock_guard<std::mutex> lock(mutex_);
  PhiloxState state = state_;
  state_.offset += (increment + 3) / 4 * 4;
  if (captured_) {
    state = {captured_->number, state.offset - captured_->begin};
    captured_->end = std::max(captured_->end, state_.offset);
  }
  return state;
}

void GeneratorState::begin_capture(uint64_t number, uint64_t capture) {
  std::lock_guard<std::mutex> lock(mutex_);
  // The highest bit is set. set_offset() accepts such an offset in this capture only.
  const uint64_t mark = uint64_t{1} << 63 | capture << kOffsetBits;
  captured_ = {number, mark, state_.offset, state_.offset};
}

bool GeneratorState::is_captured() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return captured_.has_value();
}

uint64_t GeneratorState::end_capture() {
  std::lock_guard<std::mutex> lock(mutex_);
  const Captured captured = *std::exchange(captured_, std::nullopt);
  state_.offset = captured.begin;
  return captured.end - captured.begin;
}

void GeneratorState::put_seed(uint64_t seed) {
  TORCH_CHECK(!CapturedGraph::is_capturing(),
              "the seed of a webgpu generator cannot be set while a graph is captured");
  state_ = {seed, 0};
}

void GeneratorState::check_offset(uint64_t offset) const {
  TORCH_CHECK(offset % 4 == 0, "the offset of a webgpu generator must be a multiple of 4");
  if (CapturedGraph::is_capturing() || offset >> 63 != 0) {
    TORCH_CHECK(captured_ && (offset & ~kOffsetMask) == captured_->mark,
                "the state of a webgpu generator can be set while a graph is captured only to one "
                "that was read in the same capture, and such a state nowhere else");
  }
}

void GeneratorState::put_offset(uint64_t offset) {
  check_offset(offset);
  state_.offset = captured_ ? offset & kOffsetMask : offset;
}

void GeneratorState::set_seed(uint64_t seed) {
  std::lock_guard<std::mutex> lock(mutex_);
  put_seed(seed);
}

void GeneratorState::set_offset(uint64_t offset) {
  std::lock_guard<std::mutex> lock(mutex_);
  put_offset(offset);
}

void GeneratorState::set(PhiloxState state) {
  std::lock_guard<std::mutex> lock(mutex_);
  check_offset(state.offset); // before anything changes
  if (!captured_ || state.seed != state_.seed) {
    put_seed(state.seed);
  }
  put_offset(state.offset);
}

PhiloxState GeneratorState::get() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return {state_.seed, captured_ ? captured_->mark | state_.offset : state_.offset};
}

GeneratorImpl::GeneratorImpl(std::shared_ptr<GeneratorState> state)
    : c10::GeneratorImpl(state->device(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      state_(std::move(state)) {}

c10::DeviceType GeneratorImpl::device_type() { return kWebGPU; }

PhiloxState GeneratorImpl::philox_state(uint64_t increment) {
  std::shared_ptr<GeneratorState> state;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    state = state_;
  }
  return state->draw(increment);
}

uint64_t GeneratorImpl::seed() {
  const uint64_t seed = c10::detail::getNonDeterministicRandom(/*is_cuda=*/true);
  state_->set_seed(seed);
  return seed;
}

c10::intrusive_ptr<c10::TensorImpl> GeneratorImpl::get_state() const {
  at::TensorBase out = at::detail::empty_cpu({kStateBytes}, c10::ScalarType::Byte);
  auto* bytes = out.mutable_data_ptr<uint8_t>();
  const PhiloxState state = state_->get();
  std::memcpy(bytes, &state.seed, sizeof(state.seed));
  std::memcpy(bytes + sizeof(state.seed), &state.offset, sizeof(state.offset));
  return out.getIntrusivePtr();
}

void GeneratorImpl::set_state(const c10::TensorImpl& state) {
  TORCH_CHECK_TYPE(state.device().is_cpu() && state.dtype() == c10::ScalarType::Byte &&
                       state.is_contiguous(),
                   "RNG state must be a torch.ByteTensor");
  TORCH_CHECK(state.numel() == kStateBytes, "RNG state is wrong size: expected ", kStateBytes,
              " bytes, got ", state.numel());
  const auto* bytes = static_cast<const uint8_t*>(state.data());
  PhiloxState given;
  std::memcpy(&given.seed, bytes, sizeof(given.seed));
  std::memcpy(&given.offset, bytes + sizeof(given.seed), sizeof(given.offset));
  state_->set(given);
}

c10::intrusive_ptr<c10::GeneratorImpl> GeneratorImpl::graphsafe_get_state() const {
  return c10::make_intrusive<GeneratorImpl>(state_);
}

void GeneratorImpl::graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& other) {
  TORCH_CHECK(other.defined() && other->device() == device(),
              "graphsafe_set_state: expected a generator of ", device(), ", got ",
              other.defined() ? other->device().str() : "none");
  state_ = static_cast<const GeneratorImpl&>(*other).state_;
}

GeneratorImpl* GeneratorImpl::clone_impl() const {
  return new GeneratorImpl(std::make_shared<GeneratorState>(*state_));
}

at::Generator make_generator(c10::DeviceIndex index) {
  return at::make_generator<GeneratorImpl>(
      std::make_shared<GeneratorState>(c10::Device(kWebGPU, index)));
}

const at::Generator& default_generator(c10::DeviceIndex index) {
  static const auto* generators = [] {
    auto* all = new std::array<at::Generator, kMostDevices>; // kernels may run at exit
    for (uint32_t k = 0; k < kMostDevices; ++k) {
      (*all)[k] = make_generator(static_cast<c10::DeviceIndex>(k));
    }
    return all;
  }();
  return generators->at(static_cast<size_t>(index));
}

// Made at load: a default generator that is first asked for in a capture could not draw in it.
[[maybe_unused]] static const at::Generator& made_at_load = default_generator(0);

GeneratorImpl& generator_of(const std::optional<at::Generator>& generator, c10::Device device) {
  const at::Generator& chosen = generator.has_value() && generator->defined()
                                    ? *generator
                                    : default_generator(device.index());
  TORCH_CHECK(chosen.device().type() == kWebGPU,
              "Expected a 'webgpu' device type for generator but found '", chosen.device().type(),
              "'");
  TORCH_CHECK(chosen.device() == device, "Expected a '", device, "' generator device but found '",
              chosen.device(), "'");
  return *static_cast<GeneratorImpl*>(chosen.unsafeGetGeneratorImpl());
}

} // namespace torch_webgpu
