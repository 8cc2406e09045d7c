// Several equal GPUs under a runtime that gives the first one only, as Dawn does with Vulkan.
//
// This library is a Vulkan layer too. While a VulkanDeviceFirst lives, Vulkan instances of this
// process list another physical device first, so that the runtime gives that one. The layer is
// named in share/vulkan/torch_webgpu_layer.json of the package, and the loader finds it there by
// environment variables, which are as before when the object is gone.
#pragma once

#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

namespace torch_webgpu {

/// The names of Vulkan's physical devices, in the loader's order. Empty where there is no Vulkan
/// loader, or the layer's file is not there: then the order cannot be changed.
std::vector<std::string> vulkan_devices();

/// One at a time; a second one waits for the first to go.
class VulkanDeviceFirst {
public:
  /// `index`: in vulkan_devices().
  explicit VulkanDeviceFirst(size_t index);
  ~VulkanDeviceFirst();
  VulkanDeviceFirst(const VulkanDeviceFirst&) = delete;
  VulkanDeviceFirst& operator=(const VulkanDeviceFirst&) = delete;
  /// Whether an instance has listed the device first since then.
  bool happened() const;

private:
  struct Variable {
    const char* name;
    std::string before;
    bool was_set;
  };
  std::unique_lock<std::mutex> lock_;
  std::vector<Variable> variables_;
};

} // namespace torch_webgpu
