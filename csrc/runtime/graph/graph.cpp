#include "runtime/graph/graph.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <unordered_map>
#include <utility>

#include "runtime/api.h"
#include "runtime/context.h"
#include "runtime/error.h"

namespace torch_webgpu {
namespace {

constexpr uint32_t kRandomBytes = 16; // a key and a counter

// What a bind group is made of.
using GroupKey = std::pair<const PipelineLayout*, std::vector<std::array<uint64_t, 3>>>;

GroupKey key_of(const CommandList::Dispatch& dispatch) {
  GroupKey key{dispatch.pipeline->layout, {}};
  for (const Binding& binding : dispatch.bindings) {
    key.second.push_back(
        {reinterpret_cast<uintptr_t>(binding.buffer), binding.offset, binding.size});
  }
  return key;
}

// Pairs the allocations of two recordings, one to one.
class Pairs {
public:
  bool match(uint64_t mine, uint64_t other) {
    return forward_.try_emplace(mine, other).first->second == other &&
           backward_.try_emplace(other, mine).first->second == mine;
  }

private:
  std::unordered_map<uint64_t, uint64_t> forward_;
  std::unordered_map<uint64_t, uint64_t> backward_;
};

std::string name_of(const CommandList::Command& command) {
  if (const auto* dispatch = std::get_if<CommandList::Dispatch>(&command)) {
    return dispatch->pipeline->label;
  }
  return std::holds_alternative<CommandList::Copy>(command) ? "a copy" : "a clear";
}

} // namespace

Graph::Graph(Context& context, std::shared_ptr<MemoryPool> pool)
    : context_(context), pool_(std::move(pool)), last_before_(context.allocator.last_allocation()) {
}

Graph::~Graph() {
  if (in_bad_fork()) {
    return;
  }
  const Api& api = context_.device.api();
  std::unordered_set<WGPUBindGroup> groups;
  for (const PreparedDispatch& dispatch : prepared_) {
    groups.insert(dispatch.group);
  }
  for (WGPUBindGroup group : groups) {
    api.BindGroupRelease(group);
  }
  if (params_.handle != nullptr) {
    api.BufferRelease(params_.handle); // commands that read it keep it until they are done
  }
  for (const Buffer* buffer : pinned_) {
    context_.allocator.unpin(*buffer);
  }
}

void Graph::use(const Buffer& buffer) {
  uses_.push_back({buffer.allocation, buffer.requested});
  if (buffer.pool != pool_.get() && pinned_.insert(&buffer).second) {
    context_.allocator.pin(buffer);
  }
}

void Graph::dispatch(const Pipeline& pipeline, const Binding* bindings, uint32_t num_bindings,
                     const void* params, uint32_t params_bytes, Grid grid) {
  std::for_each_n(bindings, num_bindings, [this](const Binding& binding) { use(*binding.buffer); });
  num_draws_ += pipeline.random_at >= 0 ? 1 : 0;
  dispatch_varies_.push_back(pipeline.random_at >= 0);
  recorded_.dispatch(pipeline, bindings, num_bindings, params, params_bytes, grid);
}

void Graph::copy(const Buffer& source, uint64_t source_offset, const Buffer& target,
                 uint64_t target_offset, uint64_t bytes) {
  use(source);
  use(target);
  recorded_.copy(source, source_offset, target, target_offset, bytes);
}

void Graph::clear(const Buffer& target, uint64_t offset, uint64_t bytes) {
  use(target);
  recorded_.clear(target, offset, bytes);
}

bool Graph::names(const Buffer& buffer) const {
  return std::ranges::any_of(uses_,
                             [&](const Use& use) { return use.allocation == buffer.allocation; });
}

void Graph::upload(const Buffer&, uint64_t, const void*, uint64_t) {
  raise(ErrorKind::kRuntime, "host memory cannot be copied to the WebGPU device while a graph is "
                             "captured: a replay would not read it again");
}

// Gives every dispatch its place in params_data_.
void Graph::place_parameters() {
  const uint32_t alignment = std::max(context_.device.caps().uniform_offset_alignment, 16u);
  for (const bool changing : {true, false}) {
    size_t k = 0;
    for (const CommandList::Command& command : recorded_.commands()) {
      const auto* dispatch = std::get_if<CommandList::Dispatch>(&command);
      if (dispatch == nullptr) {
        continue;
      }
      PreparedDispatch& prepared = prepared_[k];
      if (dispatch_varies_[k++] != changing) {
        continue;
      }
      prepared.params_offset = static_cast<uint32_t>(params_data_.size());
      params_data_.insert(params_data_.end(), dispatch->params.begin(), dispatch->params.end());
      params_data_.resize((params_data_.size() + alignment - 1) / alignment * alignment);
    }
    changing_bytes_ = changing ? static_cast<uint32_t>(params_data_.size()) : changing_bytes_;
  }
}

void Graph::read_recorded(Draw& draw) const {
  const uint8_t* words = params_data_.data() + draw.at;
  std::memcpy(&draw.number, words, sizeof(draw.number));
  std::memcpy(&draw.counter, words + sizeof(draw.number), sizeof(draw.counter));
}

void Graph::instantiate(WGPUBuffer errors) {
  std::lock_guard<std::recursive_mutex> lock(context_.mutex);
  if (instantiated_) {
    return;
  }
  for (const CommandList::Command& command : recorded_.commands()) {
    if (const auto* dispatch = std::get_if<CommandList::Dispatch>(&command)) {
      prepared_.push_back({dispatch->pipeline, nullptr, 0, dispatch->grid});
    }
  }
  place_parameters();
  // One window longer, because the binding at the last offset is a whole window.
  params_.size = params_data_.size() + kParamsWindow;
  params_.context = &context_;
  params_.handle = context_.device.create_buffer(
      params_.size, WGPUBufferUsage_Uniform | WGPUBufferUsage_CopyDst, "graph parameters");
  changed_bytes_ = params_data_.size();

  std::map<GroupKey, WGPUBindGroup> groups;
  size_t k = 0;
  for (const CommandList::Command& command : recorded_.commands()) {
    if (const auto* dispatch = std::get_if<CommandList::Dispatch>(&command)) {
      WGPUBindGroup& group = groups[key_of(*dispatch)];
      if (group == nullptr) {
        group = context_.stream.create_bind_group(*dispatch->pipeline->layout, dispatch->bindings,
                                                  params_.handle, errors);
      }
      PreparedDispatch& prepared = prepared_[k];
      prepared.group = group;
      if (const int32_t at = dispatch->pipeline->random_at; at >= 0) {
        Draw draw{prepared.params_offset + static_cast<uint32_t>(at), 0, 0};
        read_recorded(draw);
        draws_.push_back(draw);
      }
      ++k;
      if (!steps_.empty() && std::holds_alternative<Range>(steps_.back())) {
        std::get<Range>(steps_.back()).last = k;
      } else {
        steps_.emplace_back(Range{k - 1, k});
      }
    } else if (const auto* copied = std::get_if<CommandList::Copy>(&command)) {
      steps_.emplace_back(*copied);
    } else {
      steps_.emplace_back(std::get<CommandList::Clear>(command));
    }
  }
  context_.device.throw_pending_error();
  instantiated_ = true;
}

// The stream is ordered, so earlier replays still read the old parameters.
void Graph::write_parameters(std::span<const RandomPlace> random) {
  for (const Draw& draw : draws_) {
    if (draw.number >= random.size()) {
      continue; // not a generator's number: this variant of the kernel draws no random numbers
    }
    const RandomPlace& place = random[draw.number];
    const std::array<uint64_t, 2> words{place.key, place.counter + draw.counter};
    static_assert(sizeof(words) == kRandomBytes);
    std::memcpy(params_data_.data() + draw.at, words.data(), sizeof(words));
  }
  if (!draws_.empty()) {
    changed_bytes_ = std::max<uint64_t>(changed_bytes_, changing_bytes_);
  }
  context_.stream.upload(params_, 0, params_data_.data(), changed_bytes_);
  changed_bytes_ = 0;
}

void Graph::replay(std::span<const RandomPlace> random) {
  std::lock_guard<std::recursive_mutex> lock(context_.mutex);
  instantiate();
  context_.stream.dispatch_prepared({}); // checks that nothing is being recorded
  write_parameters(random);
  Stream& stream = context_.stream;
  for (const Step& step : steps_) {
    if (const auto* range = std::get_if<Range>(&step)) {
      stream.dispatch_prepared(
          std::span(prepared_).subspan(range->first, range->last - range->first));
    } else if (const auto* copied = std::get_if<CommandList::Copy>(&step)) {
      stream.copy(*copied->source, copied->source_offset, *copied->target, copied->target_offset,
                  copied->bytes);
    } else {
      const auto& cleared = std::get<CommandList::Clear>(step);
      stream.clear(*cleared.target, cleared.offset, cleared.bytes);
    }
  }
}

void Graph::update(const Graph& recording) {
  std::lock_guard<std::recursive_mutex> lock(context_.mutex);
  instantiate();
  Pairs pairs;
  size_t use = 0;
  // Whether the next buffers in both recordings hold the same tensor, or tensors of equal size that
  // lie in the recordings' pools and correspond to each other.
  const auto same = [&](const Buffer* mine, const Buffer* other) {
    const Use& a = uses_[use];
    const Use& b = recording.uses_[use];
    ++use;
    const bool own = !pinned_.contains(mine) && !recording.pinned_.contains(other);
    return (own ? a.requested == b.requested : a == b) && pairs.match(a.allocation, b.allocation);
  };
  const auto& mine = recorded_.commands();
  const auto& other = recording.recorded_.commands();
  for (size_t k = 0; k < std::max(mine.size(), other.size()); ++k) {
    const auto fail = [&](const std::string& what) {
      raise(ErrorKind::kRuntime, "the graph cannot be updated: command " + std::to_string(k) +
                                     ", " + name_of(k < mine.size() ? mine[k] : other[k]) + ", " +
                                     what);
    };
    if (k >= mine.size() || k >= other.size()) {
      fail(k >= mine.size() ? "is not in the graph" : "was not recorded again");
    }
    if (mine[k].index() != other[k].index()) {
      fail("became " + name_of(other[k]));
    }
    if (const auto* a = std::get_if<CommandList::Dispatch>(&mine[k])) {
      const auto& b = std::get<CommandList::Dispatch>(other[k]);
      if (a->pipeline != b.pipeline || a->bindings.size() != b.bindings.size()) {
        fail("became " + b.pipeline->label + " or takes other operands");
      }
      if (a->grid != b.grid || a->params.size() != b.params.size()) {
        fail("has another size");
      }
      for (size_t i = 0; i < a->bindings.size(); ++i) {
        const Binding& x = a->bindings[i];
        const Binding& y = b.bindings[i];
        // A pool's buffer may be larger than the request, so two whole buffers may differ in size.
        const bool whole =
            x.offset == 0 && y.offset == 0 && x.size == x.buffer->size && y.size == y.buffer->size;
        if (!same(x.buffer, y.buffer) || x.offset != y.offset || (!whole && x.size != y.size)) {
          fail("uses other tensors");
        }
      }
    } else if (const auto* copied = std::get_if<CommandList::Copy>(&mine[k])) {
      const auto& b = std::get<CommandList::Copy>(other[k]);
      if (!same(copied->source, b.source) || !same(copied->target, b.target) ||
          copied->source_offset != b.source_offset || copied->target_offset != b.target_offset ||
          copied->bytes != b.bytes) {
        fail("copies other bytes");
      }
    } else {
      const auto& a = std::get<CommandList::Clear>(mine[k]);
      const auto& b = std::get<CommandList::Clear>(other[k]);
      if (!same(a.target, b.target) || a.offset != b.offset || a.bytes != b.bytes) {
        fail("clears other bytes");
      }
    }
  }
  size_t dispatch = 0;
  size_t draw = 0;
  for (size_t k = 0; k < other.size(); ++k) {
    const auto* recorded = std::get_if<CommandList::Dispatch>(&other[k]);
    if (recorded == nullptr) {
      continue;
    }
    std::get<CommandList::Dispatch>(recorded_.commands()[k]).params = recorded->params;
    const PreparedDispatch& prepared = prepared_[dispatch++];
    std::ranges::copy(recorded->params, params_data_.begin() + prepared.params_offset);
    if (recorded->pipeline->random_at >= 0) {
      read_recorded(draws_[draw++]);
    }
  }
  changed_bytes_ = params_data_.size();
}

void Graph::set_dispatch(size_t number, std::span<const uint8_t> params, Grid grid) {
  PreparedDispatch& prepared = prepared_.at(number);
  const uint64_t end = prepared.params_offset + params.size();
  if (!dispatch_varies_[number] || end > changing_bytes_) {
    raise(ErrorKind::kRuntime, "a dispatch of a graph is given parameters that it does not expect");
  }
  prepared.grid = grid;
  std::ranges::copy(params, params_data_.begin() + prepared.params_offset);
  changed_bytes_ = std::max<uint64_t>(changed_bytes_, changing_bytes_);
}

std::string Graph::validation_error() const {
  const Api& api = context_.device.api();
  return context_.device
      .with_error_scopes([&] {
        const WGPUCommandEncoderDescriptor descriptor = WGPU_COMMAND_ENCODER_DESCRIPTOR_INIT;
        WGPUCommandEncoder encoder =
            api.DeviceCreateCommandEncoder(context_.device.handle(), &descriptor);
        for (const Step& step : steps_) {
          if (const auto* range = std::get_if<Range>(&step)) {
            WGPUComputePassEncoder pass = api.CommandEncoderBeginComputePass(encoder, nullptr);
            for (size_t k = range->first; k < range->last; ++k) {
              const PreparedDispatch& dispatch = prepared_[k];
              api.ComputePassEncoderSetPipeline(pass, dispatch.pipeline->handle);
              api.ComputePassEncoderSetBindGroup(pass, 0, dispatch.group, 1,
                                                 &dispatch.params_offset);
              const auto [x, y, z] = dispatch.grid;
              api.ComputePassEncoderDispatchWorkgroups(pass, x, y, z);
            }
            api.ComputePassEncoderEnd(pass);
            api.ComputePassEncoderRelease(pass);
          } else if (const auto* copied = std::get_if<CommandList::Copy>(&step)) {
            api.CommandEncoderCopyBufferToBuffer(encoder, copied->source->handle,
                                                 copied->source_offset, copied->target->handle,
                                                 copied->target_offset, copied->bytes);
          } else {
            const auto& cleared = std::get<CommandList::Clear>(step);
            api.CommandEncoderClearBuffer(encoder, cleared.target->handle, cleared.offset,
                                          cleared.bytes);
          }
        }
        WGPUCommandBuffer commands = api.CommandEncoderFinish(encoder, nullptr);
        api.CommandEncoderRelease(encoder);
        if (commands != nullptr) {
          api.CommandBufferRelease(commands);
        }
      })
      .message;
}

Graph::Tensors Graph::tensors() const {
  Tensors tensors;
  std::unordered_map<uint64_t, uint32_t> numbers; // by allocation
  size_t command = 0;
  const auto add = [&](const Buffer& buffer, uint64_t end) {
    const Use& use = uses_[tensors.uses.size()];
    const auto [entry, is_new] =
        numbers.try_emplace(use.allocation, static_cast<uint32_t>(tensors.list.size()));
    if (is_new) {
      // The recording's own tensors lie in the pool, so they are not pinned (constants that a cache
      // made meanwhile are), and graphs captured before did not allocate them.
      const bool own = !pinned_.contains(&buffer) && use.allocation > last_before_;
      tensors.list.push_back({&buffer, use.allocation, own, use.requested, 0, command, 0});
    }
    Tensor& tensor = tensors.list[entry->second];
    tensor.extent = std::max(tensor.extent, end);
    tensor.last_command = command;
    tensors.uses.push_back(entry->second);
  };
  for (const CommandList::Command& recorded : recorded_.commands()) {
    if (const auto* dispatch = std::get_if<CommandList::Dispatch>(&recorded)) {
      for (const Binding& binding : dispatch->bindings) {
        add(*binding.buffer, binding.offset + binding.size);
      }
    } else if (const auto* copied = std::get_if<CommandList::Copy>(&recorded)) {
      add(*copied->source, copied->source_offset + copied->bytes);
      add(*copied->target, copied->target_offset + copied->bytes);
    } else {
      const auto& cleared = std::get<CommandList::Clear>(recorded);
      add(*cleared.target, cleared.offset + cleared.bytes);
    }
    ++command;
  }
  return tensors;
}

} // namespace torch_webgpu
