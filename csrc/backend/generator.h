// Random state: a seed and an offset into its Philox stream. Kernels generate the numbers from it,
// so none is copied from the host.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

#include <array>
#include <cstdint>
#include <optional>

namespace torch_webgpu {

/// Counter-based Philox4x32-10 state for one kernel: key `seed`, counter starting at `offset / 4`.
struct PhiloxState {
  uint64_t seed = 0;
  uint64_t offset = 0; // in 32-bit random numbers per invocation, a multiple of 4

  /// As parameter words, the lower one first.
  std::array<uint32_t, 2> key_words() const { return words_of(seed); }
  std::array<uint32_t, 2> counter_words() const { return words_of(offset / 4); }

private:
  static std::array<uint32_t, 2> words_of(uint64_t value) {
    return {static_cast<uint32_t>(value), static_cast<uint32_t>(value >> 32)};
  }
};

class GeneratorImpl final : public c10::GeneratorImpl {
public:
  explicit GeneratorImpl(c10::DeviceIndex index);

  /// The state for a kernel of which each invocation draws at most `increment` 32-bit numbers, and
  /// advances past them. Takes the generator's mutex: callers must not hold it.
  PhiloxState philox_state(uint64_t increment);

  /// While a graph is captured, draws give `number` for the seed and count from the present offset.
  /// Offsets that are read then are marked with the capture's number: only that capture can set
  /// them.
  void begin_capture(uint64_t number, uint64_t capture);
  bool is_captured() const { return captured_.has_value(); }
  /// Whether it was made during a capture: a replay would not reset such a generator's state.
  bool is_made_in_capture() const { return made_in_capture_; }
  /// Puts the offset back. Returns how far draws came, as an offset.
  uint64_t end_capture();

  // While a graph is captured, the seed cannot be set, nor an offset that was not read in the same
  // capture: RuntimeError. A replay could not repeat that.
  void set_current_seed(uint64_t seed) override;
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override;
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override;
  /// 16 bytes as CUDA's: seed, then offset, both little-endian 64-bit.
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;
  void set_state(const c10::TensorImpl& state) override;

  static c10::DeviceType device_type();

private:
  GeneratorImpl* clone_impl() const override;

  struct Captured {
    uint64_t number = 0;
    uint64_t mark = 0;  // in the upper bits of offsets
    uint64_t begin = 0; // offset
    uint64_t end = 0;   // the largest offset that a draw ended at
  };

  std::optional<Captured> captured_;
  bool made_in_capture_;
  uint64_t seed_ = c10::default_rng_seed_val;
  uint64_t offset_ = 0;
};

/// The default generator of the device with that index, which is not checked beyond kMostDevices:
/// seeding loads no drivers.
const at::Generator& default_generator(c10::DeviceIndex index);
at::Generator make_generator(c10::DeviceIndex index);

/// The generator an op was given, or the default one of `device`, on which the op runs. Raises if
/// it is another device's.
GeneratorImpl& generator_of(const std::optional<at::Generator>& generator, c10::Device device);

} // namespace torch_webgpu
