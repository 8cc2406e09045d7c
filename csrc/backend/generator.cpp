#include "backend/generator.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/TensorBase.h>

#include <algorithm>
#include <array>
#include <cstring>
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

GeneratorImpl::GeneratorImpl(c10::DeviceIndex index)
    : c10::GeneratorImpl(c10::Device(kWebGPU, index),
                         c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      made_in_capture_(CapturedGraph::is_capturing()) {}

c10::DeviceType GeneratorImpl::device_type() { return kWebGPU; }

PhiloxState GeneratorImpl::philox_state(uint64_t increment) {
  CapturedGraph::note_draw(*this);
  std::lock_guard<std::mutex> lock(mutex_);
  PhiloxState state{seed_, offset_};
  offset_ += (increment + 3) / 4 * 4;
  if (captured_) {
    state = {captured_->number, state.offset - captured_->begin};
    captured_->end = std::max(captured_->end, offset_);
  }
  return state;
}

void GeneratorImpl::begin_capture(uint64_t number, uint64_t capture) {
  std::lock_guard<std::mutex> lock(mutex_);
  // The highest bit is set. set_offset() accepts such an offset in this capture only.
  const uint64_t mark = uint64_t{1} << 63 | capture << kOffsetBits;
  captured_ = {number, mark, offset_, offset_};
}

uint64_t GeneratorImpl::end_capture() {
  std::lock_guard<std::mutex> lock(mutex_);
  const Captured captured = *std::exchange(captured_, std::nullopt);
  offset_ = captured.begin;
  return captured.end - captured.begin;
}

void GeneratorImpl::set_current_seed(uint64_t seed) {
  TORCH_CHECK(!CapturedGraph::is_capturing(),
              "the seed of a webgpu generator cannot be set while a graph is captured");
  seed_ = seed;
  offset_ = 0;
}

uint64_t GeneratorImpl::seed() {
  set_current_seed(c10::detail::getNonDeterministicRandom(/*is_cuda=*/true));
  return seed_;
}

uint64_t GeneratorImpl::get_offset() const {
  return captured_ ? captured_->mark | offset_ : offset_;
}

void GeneratorImpl::set_offset(uint64_t offset) {
  TORCH_CHECK(offset % 4 == 0, "the offset of a webgpu generator must be a multiple of 4");
  if (CapturedGraph::is_capturing() || offset >> 63 != 0) {
    TORCH_CHECK(captured_ && (offset & ~kOffsetMask) == captured_->mark,
                "the state of a webgpu generator can be set while a graph is captured only to one "
                "that was read in the same capture, and such a state nowhere else");
    offset &= kOffsetMask;
  }
  offset_ = offset;
}

c10::intrusive_ptr<c10::TensorImpl> GeneratorImpl::get_state() const {
  at::TensorBase state = at::detail::empty_cpu({kStateBytes}, c10::ScalarType::Byte);
  auto* bytes = state.mutable_data_ptr<uint8_t>();
  std::memcpy(bytes, &seed_, sizeof(seed_));
  const uint64_t offset = get_offset();
  std::memcpy(bytes + sizeof(seed_), &offset, sizeof(offset));
  return state.getIntrusivePtr();
}

void GeneratorImpl::set_state(const c10::TensorImpl& state) {
  TORCH_CHECK_TYPE(state.device().is_cpu() && state.dtype() == c10::ScalarType::Byte &&
                       state.is_contiguous(),
                   "RNG state must be a torch.ByteTensor");
  TORCH_CHECK(state.numel() == kStateBytes, "RNG state is wrong size: expected ", kStateBytes,
              " bytes, got ", state.numel());
  const auto* bytes = static_cast<const uint8_t*>(state.data());
  uint64_t seed = 0;
  uint64_t offset = 0;
  std::memcpy(&seed, bytes, sizeof(seed));
  std::memcpy(&offset, bytes + sizeof(seed), sizeof(offset));
  if (!captured_ || seed != seed_) {
    set_current_seed(seed);
  }
  set_offset(offset);
}

GeneratorImpl* GeneratorImpl::clone_impl() const {
  auto* copy = new GeneratorImpl(device().index());
  copy->seed_ = seed_;
  copy->offset_ = offset_;
  return copy;
}

at::Generator make_generator(c10::DeviceIndex index) {
  return at::make_generator<GeneratorImpl>(index);
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
