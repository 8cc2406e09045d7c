// Tests of csrc/launch without Python: two contexts on one adapter, and grids.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "backend/tensor.h"
#include "kernels/amp_unscale.h"
#include "kernels/reciprocal_double.h"
#include "launch/grid.h"
#include "launch/target_scope.h"
#include "ops/pointwise/pointwise.h"
#include "runtime/context.h"

using namespace torch_webgpu;

namespace {

// One adapter as two devices.
[[maybe_unused]] const bool split = [] {
  const char* chosen = std::getenv("TORCH_WEBGPU_ADAPTER");
  const std::string one = chosen == nullptr || *chosen == 0 ? "0" : chosen;
  setenv("TORCH_WEBGPU_ADAPTER", (one + "," + one).c_str(), /*overwrite=*/1);
  return true;
}();

Context& second_context() { return context(1); }

template <typename T = double>
at::Tensor tensor_in(Context& context, const std::vector<T>& values) {
  Buffer* buffer = context.allocator.allocate(values.size() * sizeof(T));
  context.stream.upload(*buffer, 0, values.data(), values.size() * sizeof(T));
  c10::DataPtr data(reinterpret_cast<void*>(buffer->address), buffer, &free_buffer,
                    device_of(context));
  const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
  c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), bytes, std::move(data), nullptr, false));
  auto tensor = at::detail::make_tensor<at::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      caffe2::TypeMeta::Make<T>());
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous({static_cast<int64_t>(values.size())});
  return tensor;
}

template <typename T = double>
std::vector<T> values_of(const at::Tensor& tensor) {
  std::vector<T> values(tensor.numel());
  context_of(tensor).stream.read(buffer_of(tensor), byte_offset(tensor), values.data(),
                                 values.size() * sizeof(T));
  return values;
}

void run_reciprocal(const at::Tensor& x, const at::Tensor& y) {
  kernels::reciprocal_double::Launch launch("reciprocal");
  launch.x(x).y(y);
  launch.run({.count = static_cast<uint32_t>(x.numel())}, launch.grid_of(x.numel()));
}

// Divides the gradients by 4.
void run_unscale(at::TensorList gradients, const at::Tensor& found_inf) {
  const at::Tensor inv_scale = tensor_in<float>(context_of(found_inf), {0.25f});
  kernels::amp_unscale::Launch launch("unscale");
  launch.gradient(gradients).inv_scale(inv_scale).found_inf(found_inf);
  launch.run({});
}

void run_copy(const at::Tensor& x, const at::Tensor& y) {
  at::TensorIteratorConfig config;
  config.resize_outputs(false).add_output(y).add_const_input(x);
  auto iter = config.build();
  pointwise(iter, PointwiseOp::copy, {DType::kBits64, {DType::kBits64, DType::kBits64}});
}

} // namespace

TEST_CASE("a launch runs in its operands' context, with that context's pipelines") {
  Context& first = context();
  Context& second = second_context();
  for (Context* where : {&first, &second}) {
    Context& other = where == &first ? second : first;
    const size_t others = other.pipelines.size();
    const uint64_t dispatches = other.stream.stats().dispatches;
    const at::Tensor x = tensor_in(*where, {1, 2, 4});
    const at::Tensor y = tensor_in(*where, {0, 0, 0});
    CHECK(&context_of(x) == where);
    run_reciprocal(x, y);
    CHECK(values_of(y) == std::vector<double>{1, 0.5, 0.25});
    CHECK(where->pipelines.size() == 1);
    CHECK(other.pipelines.size() == others);
    CHECK(other.stream.stats().dispatches == dispatches);
  }
}

TEST_CASE("slots of a context are its own") {
  struct Counter {
    explicit Counter(Context& context) : owner(&context) {}
    Context* owner;
    int value = 0;
  };
  static const ContextSlot<Counter> counters;
  ++counters.of(context()).value;
  CHECK(counters.of(context()).owner == &context());
  CHECK(counters.of(second_context()).owner == &second_context());
  CHECK(counters.of(second_context()).value == 0);
  CHECK(counters.of(context()).value == 1);
  CHECK(&context_targets.of(context()) != &context_targets.of(second_context()));
}

TEST_CASE("operands of two contexts are refused, and both stay usable") {
  const at::Tensor x = tensor_in(context(), {8});
  const at::Tensor y = tensor_in(second_context(), {0});
  CHECK_THROWS_WITH_AS(run_reciprocal(x, y),
                       doctest::Contains("at least two devices, webgpu:0 and webgpu:1! (in "
                                         "reciprocal())"),
                       c10::Error);
  const at::Tensor z = tensor_in(context(), {0});
  run_reciprocal(x, z);
  CHECK(values_of(z) == std::vector<double>{0.125});
}

TEST_CASE("a list launch runs in its tensors' context") {
  for (Context* where : {&context(), &second_context()}) {
    const uint64_t dispatches = where->stream.stats().dispatches;
    const at::Tensor found_inf = tensor_in<float>(*where, {0});
    const std::vector<at::Tensor> gradients = {tensor_in<float>(*where, {1, 2}),
                                               tensor_in<float>(*where, {4})};
    run_unscale(gradients, found_inf);
    CHECK(values_of<float>(gradients[0]) == std::vector<float>{0.25f, 0.5f});
    CHECK(values_of<float>(gradients[1]) == std::vector<float>{1});
    CHECK(where->stream.stats().dispatches == dispatches + 1);
  }
}

TEST_CASE("lists with tensors of two contexts are refused before anything is written") {
  // More tensors than one dispatch takes, of which the last is in the second context.
  std::vector<at::Tensor> gradients;
  for (int i = 0; i < 40; ++i) {
    gradients.push_back(tensor_in<float>(context(), {1}));
  }
  gradients.push_back(tensor_in<float>(second_context(), {1}));
  const at::Tensor found_inf = tensor_in<float>(context(), {0});
  CHECK_THROWS_WITH_AS(run_unscale(gradients, found_inf),
                       doctest::Contains("Expected all tensors to be on the same device"),
                       c10::Error);
  for (const at::Tensor& gradient : gradients) {
    CHECK(values_of<float>(gradient) == std::vector<float>{1});
  }
  // The same with a number that all tensors of the list share.
  gradients.pop_back();
  CHECK_THROWS_WITH_AS(run_unscale(gradients, tensor_in<float>(second_context(), {0})),
                       doctest::Contains("Expected all tensors to be on the same device"),
                       c10::Error);
  CHECK(values_of<float>(gradients[0]) == std::vector<float>{1});
}

TEST_CASE("a pointwise kernel runs in its operands' context, and takes operands of one") {
  const at::Tensor x = tensor_in(second_context(), {3, 5});
  const at::Tensor y = tensor_in(second_context(), {0, 0});
  const uint64_t others = context().stream.stats().dispatches;
  run_copy(x, y);
  CHECK(values_of(y) == std::vector<double>{3, 5});
  CHECK(context().stream.stats().dispatches == others);
  CHECK_THROWS_WITH_AS(run_copy(x, tensor_in(context(), {0, 0})),
                       doctest::Contains("at least two devices, webgpu:0 and webgpu:1!"),
                       c10::Error);
}

TEST_CASE("buffers return to the pool that they come from") {
  const uint64_t before = second_context().allocator.stats().allocated_bytes.current;
  {
    const at::Tensor x = tensor_in(second_context(), {1, 2});
    CHECK(second_context().allocator.stats().allocated_bytes.current == before + 16);
  }
  CHECK(second_context().allocator.stats().allocated_bytes.current == before);
}

TEST_CASE("a grid past the limit of one dimension folds into two and covers all") {
  ShaderTarget target;
  target.max_workgroups_per_dim = 100;
  CHECK(grid_1d(6400, 64, target) == Grid{100, 1, 1});
  const Grid grid = grid_1d(64 * 300 + 1, 64, target);
  CHECK(grid[0] <= 100);
  CHECK(grid[1] <= 100);
  CHECK(grid[0] * grid[1] >= 301);
  CHECK_THROWS_AS(grid_1d(64 * 10'000 + 1, 64, target), c10::NotImplementedError);
}

TEST_CASE("a device that was not asked for does not exist") {
  CHECK(num_devices() == 2);
  for (const uint32_t index : {2u, kMostDevices}) {
    CHECK_THROWS_WITH_AS(context(index), doctest::Contains("webgpu error: invalid device ordinal"),
                         c10::Error);
    CHECK(context_if_initialized(index) == nullptr);
  }
}

TEST_CASE("adapters are chosen by index, by name, several of them, and GPUs come first") {
  using Chosen = std::vector<size_t>;
  AdapterInfo discrete, integrated, software;
  discrete.name = "Big GPU";
  integrated.name = "Small, GPU";
  software.name = "llvmpipe (LLVM 15.0.6, 256 bits)";
  software.software = true;
  const std::vector<AdapterInfo> all = {discrete, integrated, software};
  CHECK(choose_adapters(all, "") == Chosen{0, 1});
  CHECK(choose_adapters({software, software}, "") == Chosen{0});
  CHECK(choose_adapters({software, discrete, software}, "") == Chosen{1});
  const std::vector<AdapterInfo> too_many(kMostDevices + 2, discrete);
  CHECK(choose_adapters(too_many, "").size() == kMostDevices);
  CHECK(choose_adapters(too_many, "9") == Chosen{9});
  CHECK(choose_adapters(all, "1") == Chosen{1});
  CHECK(choose_adapters(all, "2, big,2") == Chosen{2, 0, 2});
  CHECK(choose_adapters(all, "small, gpu") == Chosen{1}); // a name with a comma
  CHECK(choose_adapters(all, software.name) == Chosen{2});
  CHECK(most_named("") == kMostDevices);
  CHECK(most_named("0,0") == 2);
  CHECK(most_named("0,0,0,0,0,0,0,0,0") == kMostDevices);
  CHECK_THROWS_WITH_AS(choose_adapters({}, ""), doctest::Contains("no WebGPU adapter was found"),
                       c10::Error);
  for (const char* wrong : {"3", "0,9", "0,", "radeon", "0,0,0,0,0,0,0,0,0"}) {
    CHECK_THROWS_WITH_AS(choose_adapters(all, wrong), doctest::Contains("TORCH_WEBGPU_ADAPTER"),
                         c10::Error);
  }
}
