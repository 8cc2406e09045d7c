// Trains a small network to tell two intertwined spirals apart, through LibTorch on a WebGPU
// device: there is no Python in this process.
//
//   TORCH_WEBGPU_RUNTIME=/path/to/libwgpu_native.so ./spirals [device]

#include <cmath>
#include <exception>
#include <iostream>
#include <numbers>
#include <string>
#include <torch/torch.h>
#include <torch_webgpu/runtime/context.h>
#include <vector>

#include "module_to.h"

namespace {

constexpr int64_t points_per_class = 256;
constexpr int steps = 400;
constexpr int report_every = 100;
constexpr double required_accuracy = 0.98;

struct Spirals {
  torch::Tensor points; // float32 (2 * points_per_class, 2)
  torch::Tensor labels; // int64 (2 * points_per_class)
};

// The second spiral is the first turned by half a turn; nothing is random. The test set takes the
// points halfway between those of the training set.
Spirals make_spirals(double offset) {
  std::vector<float> points;
  std::vector<int64_t> labels;
  for (int64_t label : {0, 1}) {
    for (int64_t i = 0; i < points_per_class; ++i) {
      double t = (static_cast<double>(i) + offset) / points_per_class;
      double radius = 0.1 + 0.9 * t;
      double angle = std::numbers::pi * (3.0 * t + static_cast<double>(label));
      points.push_back(static_cast<float>(radius * std::cos(angle)));
      points.push_back(static_cast<float>(radius * std::sin(angle)));
      labels.push_back(label);
    }
  }
  return {torch::tensor(points).view({-1, 2}), torch::tensor(labels)};
}

double accuracy(torch::nn::Sequential& model, const Spirals& data, torch::Device device) {
  torch::NoGradGuard no_grad;
  torch::Tensor predicted = model->forward(data.points.to(device)).argmax(1).cpu();
  return predicted.eq(data.labels).to(torch::kFloat64).mean().item<double>();
}

double train(torch::nn::Sequential& model, const Spirals& data, torch::Device device) {
  torch::Tensor points = data.points.to(device);
  torch::Tensor labels = data.labels.to(device);
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(1e-2));
  double last = 0;
  for (int step = 1; step <= steps; ++step) {
    optimizer.zero_grad();
    torch::Tensor loss = torch::nn::functional::cross_entropy(model->forward(points), labels);
    loss.backward();
    optimizer.step();
    // Reading the loss waits for the device, so it is not read at every step.
    if (step % report_every == 0) {
      last = loss.item<double>();
      std::cout << "step " << step << "  loss " << last << "\n";
    }
  }
  return last;
}

int run(const std::string& device_name) {
  torch::Device device(device_name);
  torch::manual_seed(0);
  // Built on the CPU, so that every device starts from the same weights.
  torch::nn::Sequential model(torch::nn::Linear(2, 64), torch::nn::Tanh(),
                              torch::nn::Linear(64, 64), torch::nn::Tanh(),
                              torch::nn::Linear(64, 2));
  move_module(*model, device);
  std::cout << "device " << model->parameters().front().device();
  if (device.is_privateuseone()) {
    const torch_webgpu::AdapterInfo& adapter = torch_webgpu::context().device.info();
    std::cout << ": " << adapter.name << " (" << adapter.backend << ")";
  }
  std::cout << "\n";

  double loss = train(model, make_spirals(0.0), device);
  double reached = accuracy(model, make_spirals(0.5), device);
  std::cout << "final loss " << loss << ", test accuracy " << 100 * reached << " %\n";
  if (!(reached >= required_accuracy)) {
    std::cerr << "error: the network did not learn the spirals\n";
    return 1;
  }
  return 0;
}

} // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? argv[1] : "webgpu");
  } catch (const c10::Error& error) {
    // what() would add a backtrace, which helps nobody whose machine has no adapter.
    std::cerr << "error: " << error.what_without_backtrace() << "\n";
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 2;
  }
}
