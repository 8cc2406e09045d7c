#include "python/graph_files.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "backend/graph.h"
#include "backend/tensor.h"
#include "runtime/context.h"
#include "runtime/graph/program.h"

namespace torch_webgpu {
namespace {

namespace py = pybind11;

// ---- A captured graph as Python sees it

// buffer, offset and bytes
using Part = std::tuple<uint32_t, uint64_t, uint64_t>;
using Triple = std::array<uint32_t, 3>;

struct ListedShader {
  std::string label;
  std::string source;
  std::string entry;
  std::map<std::string, double> constants;
  uint32_t num_buffers = 0;
  uint32_t writable = 0;
  bool checks = false;
};

struct ListedTensor {
  uint64_t allocation = 0;
  uint64_t place = 0; // tensors of equal place lay in one buffer, one after the other
  bool own = false;
  uint64_t requested = 0;
  uint64_t extent = 0;
  size_t first_command = 0;
  size_t last_command = 0;
};

// The byte offset of a key and a counter in the parameters, the number of the random stream, and
// the counter relative to that of the stream.
struct ListedDraw {
  uint32_t at = 0;
  uint64_t stream = 0;
  uint64_t counter = 0;
};

struct ListedCommand {
  std::string kind{}; // dispatch, copy, clear
  uint32_t shader = 0;
  std::vector<Part> parts{}; // a copy has a source and a target
  std::string params{};
  Triple grid{};
  std::optional<ListedDraw> draw{};
};

struct Listing {
  std::weak_ptr<const Graph> graph;
  uint32_t context = 0;               // the index of the graph's device
  std::vector<const Buffer*> buffers; // of the tensors; they live as long as the graph
  std::vector<ListedShader> shaders;
  std::vector<ListedTensor> tensors;
  std::vector<ListedCommand> commands;
  std::vector<std::array<uint64_t, 3>> streams;                     // key, counter, increment
  std::map<uint32_t, std::pair<std::string, std::string>> messages; // by code: exception, text
};

const char* exception_name(ErrorKind kind) {
  switch (kind) {
  case ErrorKind::kIndex:
    return "IndexError";
  case ErrorKind::kNotImplemented:
    return "NotImplementedError";
  default:
    return "RuntimeError";
  }
}

class Lister {
public:
  explicit Lister(const CapturedGraph& captured) : graph_(captured.graph()) {
    listing_.graph = captured.weak_graph();
    listing_.context = captured.owner().index;
    for (const CapturedGraph::Stream& stream : captured.random_streams()) {
      listing_.streams.push_back({stream.place.key, stream.place.counter, stream.increment});
    }
    tensors_ = graph_.tensors();
    for (const Graph::Tensor& tensor : tensors_.list) {
      listing_.buffers.push_back(tensor.buffer);
      listing_.tensors.push_back({tensor.allocation, reinterpret_cast<uintptr_t>(tensor.buffer),
                                  tensor.own, tensor.requested, tensor.extent, tensor.first_command,
                                  tensor.last_command});
    }
    for (const CommandList::Command& command : graph_.commands()) {
      std::visit(*this, command);
    }
    uint32_t code = 0;
    for (const auto& [kind, text] : captured.owner().stream.error_messages()) {
      listing_.messages[++code] = {exception_name(kind), text};
    }
  }
  Listing result() && { return std::move(listing_); }

  void operator()(const CommandList::Dispatch& dispatch) {
    const Pipeline& pipeline = *dispatch.pipeline;
    ListedCommand command{.kind = "dispatch", .shader = shader(pipeline)};
    for (const Binding& binding : dispatch.bindings) {
      command.parts.push_back(part(binding.offset, binding.size));
    }
    command.params.assign(dispatch.params.begin(), dispatch.params.end());
    command.grid = dispatch.grid;
    if (pipeline.random_at >= 0) {
      std::array<uint64_t, 2> words;
      std::memcpy(words.data(), dispatch.params.data() + pipeline.random_at, sizeof(words));
      if (words[0] < listing_.streams.size()) { // else this variant draws no random numbers
        command.draw = {static_cast<uint32_t>(pipeline.random_at), words[0], words[1]};
      }
    }
    listing_.commands.push_back(std::move(command));
  }
  void operator()(const CommandList::Copy& copy) {
    ListedCommand command{.kind = "copy"};
    command.parts = {part(copy.source_offset, copy.bytes)};
    command.parts.push_back(part(copy.target_offset, copy.bytes));
    listing_.commands.push_back(std::move(command));
  }
  void operator()(const CommandList::Clear& clear) {
    ListedCommand command{.kind = "clear"};
    command.parts = {part(clear.offset, clear.bytes)};
    listing_.commands.push_back(std::move(command));
  }
  void operator()(const CommandList::Upload&) {} // a graph has none

private:
  Part part(uint64_t offset, uint64_t bytes) { return {tensors_.uses[use_++], offset, bytes}; }

  uint32_t shader(const Pipeline& pipeline) {
    const auto [entry, is_new] =
        shaders_.try_emplace(&pipeline, static_cast<uint32_t>(listing_.shaders.size()));
    if (is_new) {
      const BindingLayout& binding = pipeline.layout->binding;
      listing_.shaders.push_back({pipeline.label,
                                  pipeline.source,
                                  pipeline.entry,
                                  {pipeline.constants.begin(), pipeline.constants.end()},
                                  binding.num_buffers,
                                  binding.writable,
                                  binding.checks_indices});
    }
    return entry->second;
  }

  const Graph& graph_;
  Graph::Tensors tensors_;
  size_t use_ = 0;
  std::map<const Pipeline*, uint32_t> shaders_;
  Listing listing_;
};

Listing list(const CapturedGraph& captured) {
  std::lock_guard<std::recursive_mutex> lock(captured.owner().mutex);
  return Lister(captured).result();
}

// The bytes that a listed tensor holds now.
at::Tensor read_listed(const Listing& listing, uint32_t number) {
  TORCH_CHECK_VALUE(number < listing.tensors.size(), "there is no tensor ", number);
  Context& owner = context(listing.context);
  std::lock_guard<std::recursive_mutex> lock(owner.mutex);
  TORCH_CHECK(!listing.graph.expired(), "the graph was reset after it was listed");
  const uint64_t extent = listing.tensors[number].extent;
  at::Tensor bytes = at::empty({static_cast<int64_t>(extent)}, at::kByte);
  owner.stream.read(*listing.buffers[number], 0, bytes.mutable_data_ptr(), extent);
  return bytes;
}

// ---- A program from a file

Program::Range range_of(const Part& part) {
  return {std::get<0>(part), std::get<1>(part), std::get<2>(part)};
}

std::span<const uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

std::shared_ptr<Program> make_program(bool isolated) {
  return std::make_shared<Program>(isolated ? isolated_context() : current_context());
}

void add_pipeline(Program& program, const ListedShader& shader) {
  PipelineSpec spec;
  spec.label = shader.label;
  spec.source = shader.source;
  spec.entry = shader.entry;
  spec.constants = {shader.constants.begin(), shader.constants.end()};
  spec.binding = {shader.num_buffers, shader.writable, shader.checks};
  program.add_pipeline(spec);
}

void dispatch(Program& program, uint32_t shader, const std::vector<Part>& parts,
              const std::string& params, Triple grid, bool varies) {
  std::vector<Program::Range> ranges;
  for (const Part& part : parts) {
    ranges.push_back(range_of(part));
  }
  program.dispatch(shader, ranges, bytes_of(params), grid, varies);
}

// Whether the tensor's bytes can be copied on the device.
bool is_near(const Program& program, const at::Tensor& tensor) {
  return is_webgpu(tensor) && &program.context() == buffer_of(tensor).context;
}

uint64_t whole_words(uint64_t bytes) { return (bytes + 3) / 4 * 4; }

void check_moved(const Program& program, const at::Tensor& tensor) {
  TORCH_CHECK(tensor.is_contiguous() && (tensor.is_cpu() || is_near(program, tensor)),
              "a program moves contiguous tensors, on the CPU or on its own device");
}

void write(Program& program, uint32_t number, uint64_t offset, const at::Tensor& tensor) {
  check_moved(program, tensor);
  const Buffer& target = program.buffer({number, offset, tensor.nbytes()});
  Stream& stream = program.context().stream;
  if (tensor.is_cpu()) {
    stream.upload(target, offset, tensor.const_data_ptr(), tensor.nbytes());
  } else {
    stream.copy(buffer_of(tensor), byte_offset(tensor), target, offset,
                whole_words(tensor.nbytes()));
  }
}

void read(Program& program, uint32_t number, uint64_t offset, const at::Tensor& tensor) {
  check_moved(program, tensor);
  const Buffer& source = program.buffer({number, offset, tensor.nbytes()});
  Stream& stream = program.context().stream;
  if (tensor.is_cpu()) {
    stream.read(source, offset, tensor.mutable_data_ptr(), tensor.nbytes());
  } else {
    stream.copy(source, offset, *WrittenBuffer(tensor), byte_offset(tensor),
                whole_words(tensor.nbytes()));
  }
}

} // namespace

void register_graph_files(py::module_& m) {
  py::class_<ListedShader>(m, "ListedShader")
      .def(py::init<std::string, std::string, std::string, std::map<std::string, double>, uint32_t,
                    uint32_t, bool>())
      .def_readonly("label", &ListedShader::label)
      .def_readonly("source", &ListedShader::source)
      .def_readonly("entry", &ListedShader::entry)
      .def_readonly("constants", &ListedShader::constants)
      .def_readonly("num_buffers", &ListedShader::num_buffers)
      .def_readonly("writable", &ListedShader::writable)
      .def_readonly("checks", &ListedShader::checks);
  py::class_<ListedTensor>(m, "ListedTensor")
      .def_readonly("allocation", &ListedTensor::allocation)
      .def_readonly("place", &ListedTensor::place)
      .def_readonly("own", &ListedTensor::own)
      .def_readonly("requested", &ListedTensor::requested)
      .def_readonly("extent", &ListedTensor::extent)
      .def_readonly("first_command", &ListedTensor::first_command)
      .def_readonly("last_command", &ListedTensor::last_command);
  py::class_<ListedDraw>(m, "ListedDraw")
      .def_readonly("at", &ListedDraw::at)
      .def_readonly("stream", &ListedDraw::stream)
      .def_readonly("counter", &ListedDraw::counter);
  py::class_<ListedCommand>(m, "ListedCommand")
      .def_readonly("kind", &ListedCommand::kind)
      .def_readonly("shader", &ListedCommand::shader)
      .def_readonly("parts", &ListedCommand::parts)
      .def_property_readonly("params",
                             [](const ListedCommand& command) { return py::bytes(command.params); })
      .def_readonly("grid", &ListedCommand::grid)
      .def_readonly("draw", &ListedCommand::draw);
  py::class_<Listing>(m, "GraphListing")
      .def_readonly("shaders", &Listing::shaders)
      .def_readonly("tensors", &Listing::tensors)
      .def_readonly("commands", &Listing::commands)
      .def_readonly("streams", &Listing::streams)
      .def_readonly("messages", &Listing::messages)
      .def("read", torch::wrap_pybind_function_no_gil(&read_listed));
  m.def("list_graph", torch::wrap_pybind_function_no_gil(&list));
  m.def("allocation_of", torch::wrap_pybind_function([](const at::Tensor& tensor) {
          TORCH_CHECK_VALUE(tensor.has_storage(), "the tensor has no memory of its own");
          return buffer_of(tensor).allocation;
        }));
  m.def("byte_offset",
        torch::wrap_pybind_function([](const at::Tensor& tensor) { return byte_offset(tensor); }));

  py::class_<Program, std::shared_ptr<Program>>(m, "Program")
      .def(py::init(torch::wrap_pybind_function_no_gil(&make_program)))
      .def("add_buffer", torch::wrap_pybind_function_no_gil(
                             [](Program& program, uint64_t bytes) { program.add_buffer(bytes); }))
      .def("add_pipeline", torch::wrap_pybind_function_no_gil(&add_pipeline))
      .def("add_function",
           torch::wrap_pybind_function_no_gil([](Program& program) { program.add_function(); }))
      .def("dispatch", torch::wrap_pybind_function_no_gil(&dispatch))
      .def("copy", torch::wrap_pybind_function_no_gil(
                       [](Program& program, const Part& from, const Part& to) {
                         program.copy(range_of(from), range_of(to));
                       }))
      .def("clear", torch::wrap_pybind_function_no_gil(
                        [](Program& program, const Part& part) { program.clear(range_of(part)); }))
      .def("finish", torch::wrap_pybind_function_no_gil([](Program& program) { program.finish(); }))
      .def("set_dispatch",
           torch::wrap_pybind_function_no_gil(
               [](Program& program, uint32_t function, uint32_t number, const std::string& params,
                  Triple grid) { program.set_dispatch(function, number, bytes_of(params), grid); }))
      .def("replay", torch::wrap_pybind_function_no_gil(
                         [](Program& program, uint32_t function) { program.replay(function); }))
      .def("write", torch::wrap_pybind_function_no_gil(&write))
      .def("read", torch::wrap_pybind_function_no_gil(&read))
      .def("take_errors", torch::wrap_pybind_function_no_gil(
                              [](Program& program) { return program.take_errors(); }));
}

} // namespace torch_webgpu
