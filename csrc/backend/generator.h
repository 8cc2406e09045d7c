// Random state: a seed and an offset into its Philox stream. Kernels generate the numbers from it,
// so none is copied from the host.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

namespace torch_webgpu {

/// Counter-based Philox4x32-10 state for one kernel: key `seed`, counter starting at `offset / 4`.
struct PhiloxState {
  // In a capture, a generator's number in place of its seed. The default is none: it marks launches
  // that draw no numbers though their kernel can.
  uint64_t seed = ~uint64_t{0};
  uint64_t offset = 0; // in 32-bit random numbers per invocation, a multiple of 4

  /// As parameter words, the lower one first.
  std::array<uint32_t, 2> key_words() const { return words_of(seed); }
  std::array<uint32_t, 2> counter_words() const { return words_of(offset / 4); }

private:
  static std::array<uint32_t, 2> words_of(uint64_t value) {
    return {static_cast<uint32_t>(value), static_cast<uint32_t>(value >> 32)};
  }
};

/// What generators draw from. Several may share it: graphsafe_get_state() and graphsafe_set_state()
/// hand it on. A captured graph keeps the states that it draws from, and not the generators.
class GeneratorState : public std::enable_shared_from_this<GeneratorState> {
public:
  explicit GeneratorState(c10::Device device);
  /// A copy, in no capture.
  GeneratorState(const GeneratorState& other);
  GeneratorState& operator=(const GeneratorState&) = delete;

  c10::Device device() const { return device_; }
  PhiloxState draw(uint64_t increment);

  /// While a graph is captured, draws give `number` for the seed and count from the present offset.
  /// Offsets that are read then are marked with the capture's number: only that capture can set
  /// them.
  void begin_capture(uint64_t number, uint64_t capture);
  bool is_captured() const;
  /// Whether it was made during a capture: a replay would not reset such a state.
  bool is_made_in_capture() const { return made_in_capture_; }
  /// Puts the offset back. Returns how far draws came, as an offset.
  uint64_t end_capture();

  // While a graph is captured, the seed cannot be set, nor an offset that was not read in the same
  // capture: RuntimeError. A replay could not repeat that.
  void set_seed(uint64_t seed);
  void set_offset(uint64_t offset);
  void set(PhiloxState state);
  /// The seed, and the offset with its mark.
  PhiloxState get() const;

private:
  struct Captured {
    uint64_t number = 0;
    uint64_t mark = 0;  // in the upper bits of offsets
    uint64_t begin = 0; // offset
    uint64_t end = 0;   // the largest offset that a draw ended at
  };

  // The callers of these hold the mutex.
  void put_seed(uint64_t seed);
  void check_offset(uint64_t offset) const;
  void put_offset(uint64_t offset);

  const c10::Device device_;
  const bool made_in_capture_;
  mutable std::mutex mutex_;
  std::optional<Captured> captured_;
  PhiloxState state_{c10::default_rng_seed_val, 0};
};

class GeneratorImpl final : public c10::GeneratorImpl {
public:
  explicit GeneratorImpl(std::shared_ptr<GeneratorState> state);

  /// The state for a kernel of which each invocation draws at most `increment` 32-bit numbers, and
  /// advances past them. Takes the generator's mutex: callers must not hold it.
  PhiloxState philox_state(uint64_t increment);

  GeneratorState& shared_state() const { return *state_; }

  void set_current_seed(uint64_t seed) override { state_->set_seed(seed); }
  uint64_t current_seed() const override { return state_->get().seed; }
  uint64_t seed() override;
  void set_offset(uint64_t offset) override { state_->set_offset(offset); }
  uint64_t get_offset() const override { return state_->get().offset; }
  /// 16 bytes as CUDA's: seed, then offset, both little-endian 64-bit.
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;
  void set_state(const c10::TensorImpl& state) override;
  /// A generator with the same GeneratorState: what one draws, the other does not draw again.
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override;
  /// Takes the other's GeneratorState, which both share from then on. Works in a capture.
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& other) override;

  static c10::DeviceType device_type();

private:
  GeneratorImpl* clone_impl() const override;

  std::shared_ptr<GeneratorState> state_;
};

/// The default generator of the device with that index, which is not checked beyond kMostDevices:
/// seeding loads no drivers.
const at::Generator& default_generator(c10::DeviceIndex index);
at::Generator make_generator(c10::DeviceIndex index);

/// The generator an op was given, or the default one of `device`, on which the op runs. Raises if
/// it is another device's.
GeneratorImpl& generator_of(const std::optional<at::Generator>& generator, c10::Device device);

} // namespace torch_webgpu
