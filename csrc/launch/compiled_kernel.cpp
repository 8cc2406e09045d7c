#include "launch/compiled_kernel.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <unordered_map>
#include <utility>

#include "backend/tensor.h"
#include "launch/dtypes.h"
#include "launch/grid.h"
#include "launch/pipelines.h"
#include "runtime/context.h"
#include "runtime/pipeline_build.h"
#include "wgsl/assemble.h"
#include "wgsl/kernel_source.h"

namespace torch_webgpu {
namespace {

constexpr uint32_t kMaxWords = kParamsWindow / 4;

// Kernels with the same text share a pipeline, also across graphs. Pipelines are never released,
// because commands that were not executed yet may use them. (PipelineCache keeps its own, too.)
class CompiledPipelines {
public:
  explicit CompiledPipelines(Context& context) : context_(context) {}

  const Pipeline& get(const PipelineSpec& spec) {
    std::lock_guard<std::recursive_mutex> lock(context_.mutex);
    Entry& entry = made_[key(spec)];
    if (entry.pipeline == nullptr && entry.build != nullptr) {
      entry.pipeline = std::exchange(entry.build, nullptr)->finish();
    }
    if (entry.pipeline == nullptr) {
      entry.pipeline = context_.pipelines.create(spec);
    }
    return *entry.pipeline;
  }

  /// Builds it on this thread or, where the runtime can, on one of the runtime's. Other threads can
  /// dispatch meanwhile. Returns when it is built, or cannot be: get() raises the error, and this
  /// may raise it too.
  void prepare(const PipelineSpec& spec) {
    std::shared_ptr<PipelineBuild> build;
    {
      std::lock_guard<std::recursive_mutex> lock(context_.mutex);
      Entry& entry = made_[key(spec)];
      if (entry.pipeline != nullptr || entry.build != nullptr) {
        return;
      }
      build = entry.build = PipelineBuild::start(context_.device, context_.pipelines, spec);
    }
    if (build != nullptr) {
      build->wait();
    } else {
      get(spec);
    }
  }

private:
  struct Entry {
    std::unique_ptr<Pipeline> pipeline;
    std::shared_ptr<PipelineBuild> build; // until it is asked for
  };

  static std::string key(const PipelineSpec& spec) { return spec.label + "\n" + spec.source; }

  Context& context_;
  std::unordered_map<std::string, Entry> made_;
};

const ContextSlot<CompiledPipelines> compiled_pipelines;

bool is_host_number(const at::TensorBase& tensor, const CompiledOperand& operand) {
  return tensor.is_cpu() && tensor.numel() == 1 && !operand.writable;
}

} // namespace

CompiledKernel::CompiledKernel(std::string label, std::vector<CompiledOperand> operands,
                               uint32_t num_integers, std::vector<CompiledCheck> checks,
                               MakeText make_text)
    : label_(std::move(label)), operands_(std::move(operands)), num_integers_(num_integers),
      checks_(std::move(checks)), make_text_(std::move(make_text)) {
  TORCH_CHECK_VALUE(operands_.size() <= kMaxOperands &&
                        num_integers_ + 3 * operands_.size() + checks_.size() <= kMaxWords,
                    label_, ": too many operands and parameters for one kernel");
}

CompiledKernel CompiledKernel::by_elements(const std::vector<uint32_t>& operands) const {
  CompiledKernel made(label_, operands_, num_integers_, checks_, make_text_);
  for (uint32_t k : operands) {
    TORCH_CHECK_INDEX(k < made.operands_.size(), label_, " has no operand ", k);
    made.operands_[k].vector_bytes = 0;
  }
  return made;
}

// Such stores are atomic, so the slot is declared as atomic words.
bool CompiledKernel::stores_parts_of_words(uint32_t k) const {
  const CompiledOperand& operand = operands_[k];
  return operand.atomic_add ||
         (operand.writable && operand.vector_bytes == 0 && info(operand.dtype).bytes < 4);
}

// The words of the vectors that the operand is moved in; 0 if it is moved by elements.
uint32_t CompiledKernel::binding_width(uint32_t k) const {
  return stores_parts_of_words(k) ? 0 : std::min(operands_[k].vector_bytes / 4, 4u);
}

void CompiledKernel::place(const at::TensorBase* const* tensors, Places& places,
                           BindingList& bindings) const {
  const uint32_t count = num_operands();
  std::array<const Buffer*, kMaxOperands> buffers{};
  std::array<uint32_t, kMaxOperands> widths{};
  bool windowed = false;
  for (uint32_t k = 0; k < count; ++k) {
    const at::TensorBase& tensor = *tensors[k];
    check_operand_dtype(label_, operands_[k].name, tensor.scalar_type(), operands_[k].dtype);
    if (is_host_number(tensor, operands_[k])) {
      places[k].host = true;
      continue;
    }
    TORCH_CHECK(is_webgpu(tensor), label_, ": operand ", operands_[k].name, " is on ",
                tensor.device(), ", not on webgpu");
    const bool written = operands_[k].writable || operands_[k].atomic_add;
    buffers[k] = &buffer_of(tensor, written ? Use::kWrite : Use::kRead);
    windowed |= buffers[k]->size > bindings.target_with(*buffers[k]).max_storage_binding_size;
    TORCH_CHECK_NOT_IMPLEMENTED(
        buffers[k]->size / tensor.itemsize() <= std::numeric_limits<int32_t>::max(), label_,
        ": operand ", operands_[k].name, " lies in a storage of more than 2^31 elements");
    widths[k] = binding_width(k);
    if (widths[k] != 0 && byte_offset(tensor) % (widths[k] * 4) != 0) {
      widths[k] = 0;
    }
  }
  for (uint32_t k = 0; k < count; ++k) {
    bool wide = !windowed;
    for (uint32_t other = 0; wide && other < count; ++other) {
      wide = buffers[other] != buffers[k] || widths[other] == widths[k];
    }
    places[k].wide = wide && widths[k] != 0;
  }
  for (bool wide : {false, true}) {
    for (uint32_t k = 0; k < count; ++k) {
      if (buffers[k] != nullptr && places[k].wide == wide) {
        places[k].slot = static_cast<uint8_t>(bindings.add(*buffers[k], tensors[k]->itemsize()));
      }
    }
  }
}

std::vector<CompiledPlace> CompiledKernel::usual_places() const {
  std::vector<CompiledPlace> places(operands_.size());
  uint8_t slot = 0;
  for (bool wide : {false, true}) {
    for (uint32_t k = 0; k < operands_.size(); ++k) {
      if ((binding_width(k) != 0) == wide) {
        places[k] = {slot++, wide, false};
      }
    }
  }
  return places;
}

PipelineSpec CompiledKernel::spec(const std::vector<CompiledPlace>& places,
                                  const SlotWindows& windows, const ShaderTarget& target) const {
  std::vector<Operand> plain;
  std::vector<Operand> all;
  for (uint32_t k = 0; k < operands_.size(); ++k) {
    if (places[k].host) {
      continue;
    }
    Operand operand;
    operand.name = operands_[k].name;
    operand.dtype = operands_[k].dtype;
    operand.slot = places[k].slot;
    operand.writable = operands_[k].writable;
    operand.atomic_add = operands_[k].atomic_add;
    all.push_back(operand);
    if (!places[k].wide) {
      plain.push_back(operand);
    }
  }
  PipelineSpec spec;
  spec.label = label_;
  spec.source =
      assemble_text(label_, make_text_(places, operand_declarations(plain, windows)), target);
  spec.binding = binding_layout(all, !checks_.empty(), windows);
  check_limits(spec, target);
  return spec;
}

const Pipeline& CompiledKernel::pipeline(const Places& places, const BindingList& bindings) {
  const SlotWindows windows = bindings.windows();
  const ShaderTarget& target = bindings.target();
  Context* context = &bindings.owner();
  const auto begin = places.begin();
  const auto end = begin + operands_.size();
  for (const Variant& variant : variants_) {
    if (variant.context == context && variant.target == target.number &&
        variant.windows == windows.key() && std::equal(begin, end, variant.places.begin())) {
      return *variant.pipeline;
    }
  }
  const std::vector<CompiledPlace> own(begin, end);
  const Pipeline& made = compiled_pipelines.of(*context).get(spec(own, windows, target));
  variants_.push_back({own, context, target.number, windows.key(), &made});
  return made;
}

void CompiledKernel::launch(const at::TensorBase* const* tensors, const int64_t* integers,
                            int64_t groups) {
  if (groups == 0) {
    return;
  }
  std::array<uint32_t, kMaxWords> words;
  uint32_t used = 0;
  for (uint32_t k = 0; k < num_integers_; ++k) {
    TORCH_CHECK_NOT_IMPLEMENTED(integers[k] == static_cast<int32_t>(integers[k]), label_,
                                ": a size of ", integers[k], " needs more than 31 bits");
    words[used++] = static_cast<uint32_t>(integers[k]);
  }
  BindingList bindings(label_.c_str());
  Places places{};
  place(tensors, places, bindings);
  for (uint32_t k = 0; k < operands_.size(); ++k) {
    words[used++] = places[k].host
                        ? 0
                        : static_cast<uint32_t>(byte_offset(*tensors[k]) / tensors[k]->itemsize());
  }
  Context& owner = bindings.owner();
  if (check_owner_ != &owner) {
    check_codes_.clear();
    check_owner_ = &owner;
  }
  while (check_codes_.size() < checks_.size()) {
    const CompiledCheck& check = checks_[check_codes_.size()];
    check_codes_.push_back(owner.stream.error_code(check.message, check.kind));
  }
  for (uint32_t code : check_codes_) {
    words[used++] = code;
  }
  for (uint32_t k = 0; k < operands_.size(); ++k) {
    if (places[k].host) {
      words[used] = words[used + 1] = 0;
      std::memcpy(&words[used], tensors[k]->const_data_ptr(), tensors[k]->itemsize());
      used += 2;
    }
  }
  owner.stream.dispatch(pipeline(places, bindings), bindings.data(), bindings.size(), words.data(),
                        used * 4, grid_1d(groups, 1, bindings.target()));
}

void CompiledKernel::prepare() {
  Context& device = current_context();
  compiled_pipelines.of(device).prepare(
      spec(usual_places(), {}, context_targets.of(device).device()));
}

std::string CompiledKernel::source() const {
  return spec(usual_places(), {}, plan_target(current_context())).source;
}

} // namespace torch_webgpu
