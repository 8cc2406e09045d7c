#include "runtime/vulkan_order.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "runtime/platform.h"

namespace {

// The parts of Vulkan's binary interface that are used here: vulkan_core.h, and vk_layer.h of the
// loader, "Architecture of the Vulkan Loader Interfaces".

using VkResult = int32_t;
using VkInstance = void*;
using VkPhysicalDevice = void*;
using PFN_vkVoidFunction = void (*)();
using GetInstanceProcAddr = PFN_vkVoidFunction (*)(VkInstance, const char*);
constexpr VkResult kSuccess = 0;
constexpr VkResult kIncomplete = 5;
constexpr VkResult kInitializationFailed = -3;
constexpr int32_t kStructureInstanceCreateInfo = 1;
constexpr int32_t kStructureLoaderInstanceCreateInfo = 47;
constexpr int32_t kLayerLinkInfo = 0;

struct VkInstanceCreateInfo {
  int32_t type;
  const void* next;
  uint32_t flags;
  const void* application;
  uint32_t layer_count;
  const char* const* layers;
  uint32_t extension_count;
  const char* const* extensions;
};

struct LayerLink {
  LayerLink* next;
  GetInstanceProcAddr next_proc_addr;
  void* next_physical_device_proc_addr;
};

struct LayerInstanceCreateInfo {
  int32_t type;
  const void* next;
  int32_t function;
  LayerLink* link;
};

struct NegotiateLayerInterface {
  int32_t type;
  void* next;
  uint32_t version;
  GetInstanceProcAddr instance_proc_addr;
  void* device_proc_addr;
  void* physical_device_proc_addr;
};

struct alignas(8) PhysicalDeviceProperties {
  uint32_t numbers[5]; // versions, vendor, device, type
  char name[256];
  unsigned char others[1024]; // 548 bytes in Vulkan 1.0
};

using CreateInstance = VkResult (*)(const VkInstanceCreateInfo*, const void*, VkInstance*);
using DestroyInstance = void (*)(VkInstance, const void*);
using EnumeratePhysicalDevices = VkResult (*)(VkInstance, uint32_t*, VkPhysicalDevice*);
using GetPhysicalDeviceProperties = void (*)(VkPhysicalDevice, PhysicalDeviceProperties*);

template <typename Function>
Function function_of(GetInstanceProcAddr find, VkInstance instance, const char* name) {
  return reinterpret_cast<Function>(find(instance, name));
}

// All physical devices in the order that `enumerate` gives them.
std::vector<VkPhysicalDevice> all_devices(EnumeratePhysicalDevices enumerate, VkInstance instance) {
  uint32_t count = 0;
  if (enumerate(instance, &count, nullptr) != kSuccess) {
    return {};
  }
  std::vector<VkPhysicalDevice> devices(count);
  const VkResult result = enumerate(instance, &count, devices.data());
  devices.resize(result == kSuccess || result == kIncomplete ? count : 0);
  return devices;
}

// ---- The layer

std::atomic<size_t> first_device = 0;
std::atomic<bool> was_listed_first = false;

// Functions of the next layer, or of the loader. They are asked for while the instance is made:
// later the loader answers with those of the first layer.
struct Next {
  GetInstanceProcAddr proc_addr = nullptr;
  DestroyInstance destroy = nullptr;
  EnumeratePhysicalDevices enumerate = nullptr;
};

std::mutex instances_lock;

std::unordered_map<VkInstance, Next>& instances() {
  static std::unordered_map<VkInstance, Next> map;
  return map;
}

Next next_of(VkInstance instance) {
  const std::lock_guard lock(instances_lock);
  const auto found = instances().find(instance);
  return found == instances().end() ? Next() : found->second;
}

VkResult create_instance(const VkInstanceCreateInfo* info, const void* allocator,
                         VkInstance* instance) {
  auto* link = static_cast<LayerInstanceCreateInfo*>(const_cast<void*>(info->next));
  while (link != nullptr &&
         !(link->type == kStructureLoaderInstanceCreateInfo && link->function == kLayerLinkInfo)) {
    link = static_cast<LayerInstanceCreateInfo*>(const_cast<void*>(link->next));
  }
  if (link == nullptr || link->link == nullptr) {
    return kInitializationFailed;
  }
  const GetInstanceProcAddr next = link->link->next_proc_addr;
  link->link = link->link->next; // for the layer below
  const auto create = function_of<CreateInstance>(next, nullptr, "vkCreateInstance");
  if (create == nullptr) {
    return kInitializationFailed;
  }
  const VkResult result = create(info, allocator, instance);
  if (result == kSuccess) {
    const std::lock_guard lock(instances_lock);
    instances()[*instance] = {
        next, function_of<DestroyInstance>(next, *instance, "vkDestroyInstance"),
        function_of<EnumeratePhysicalDevices>(next, *instance, "vkEnumeratePhysicalDevices")};
  }
  return result;
}

void destroy_instance(VkInstance instance, const void* allocator) {
  const Next next = next_of(instance);
  if (next.destroy == nullptr) {
    return;
  }
  {
    const std::lock_guard lock(instances_lock);
    instances().erase(instance);
  }
  next.destroy(instance, allocator);
}

VkResult enumerate_physical_devices(VkInstance instance, uint32_t* count,
                                    VkPhysicalDevice* devices) {
  const Next next = next_of(instance);
  if (next.enumerate == nullptr) {
    return kInitializationFailed;
  }
  if (devices == nullptr) {
    return next.enumerate(instance, count, nullptr);
  }
  std::vector<VkPhysicalDevice> all = all_devices(next.enumerate, instance);
  const size_t first = first_device.load();
  if (first < all.size()) {
    const auto begin = all.begin();
    std::rotate(begin, begin + static_cast<std::ptrdiff_t>(first),
                begin + static_cast<std::ptrdiff_t>(first) + 1);
    was_listed_first = true;
  }
  const bool fits = all.size() <= *count;
  *count = std::min(*count, static_cast<uint32_t>(all.size()));
  std::copy_n(all.begin(), *count, devices);
  return fits ? kSuccess : kIncomplete;
}

PFN_vkVoidFunction get_instance_proc_addr(VkInstance instance, const char* name) {
  const std::pair<const char*, PFN_vkVoidFunction> own[] = {
      {"vkGetInstanceProcAddr", reinterpret_cast<PFN_vkVoidFunction>(&get_instance_proc_addr)},
      {"vkCreateInstance", reinterpret_cast<PFN_vkVoidFunction>(&create_instance)},
      {"vkDestroyInstance", reinterpret_cast<PFN_vkVoidFunction>(&destroy_instance)},
      {"vkEnumeratePhysicalDevices",
       reinterpret_cast<PFN_vkVoidFunction>(&enumerate_physical_devices)},
  };
  for (const auto& [own_name, function] : own) {
    if (std::strcmp(own_name, name) == 0) {
      return function;
    }
  }
  const GetInstanceProcAddr next = next_of(instance).proc_addr;
  return next == nullptr ? nullptr : next(instance, name);
}

// ---- The process's side

constexpr const char* kLayer = "VK_LAYER_TORCH_WEBGPU_device_order";

// The folder of the layer's file; empty if there is none.
std::string layer_folder() {
  const std::string library =
      torch_webgpu::platform::library_of(reinterpret_cast<const void*>(&get_instance_proc_addr));
  const size_t folder = library.rfind("/lib/");
  if (folder == std::string::npos) {
    return {};
  }
  std::string path = library.substr(0, folder) + "/share/vulkan";
  return std::ifstream(path + "/torch_webgpu_layer.json").good() ? path : std::string();
}

std::mutex order_lock;

} // namespace

// Called by the Vulkan loader.
extern "C" VkResult vkNegotiateLoaderLayerInterfaceVersion(NegotiateLayerInterface* interface) {
  constexpr uint32_t kVersion = 2;
  if (interface == nullptr || interface->version < kVersion) {
    return kInitializationFailed;
  }
  interface->version = kVersion;
  interface->instance_proc_addr = &get_instance_proc_addr;
  interface->device_proc_addr = nullptr;
  interface->physical_device_proc_addr = nullptr;
  return kSuccess;
}

namespace torch_webgpu {

std::vector<std::string> vulkan_devices() {
  if (layer_folder().empty()) {
    return {};
  }
  std::string why;
  void* loader = platform::load_library("libvulkan.so.1", why);
  if (loader == nullptr) {
    return {};
  }
  const auto find =
      reinterpret_cast<GetInstanceProcAddr>(platform::find_symbol(loader, "vkGetInstanceProcAddr"));
  const auto create =
      find == nullptr ? nullptr : function_of<CreateInstance>(find, nullptr, "vkCreateInstance");
  VkInstanceCreateInfo info{};
  info.type = kStructureInstanceCreateInfo;
  VkInstance instance = nullptr;
  if (create == nullptr || create(&info, nullptr, &instance) != kSuccess) {
    return {};
  }
  const auto properties_of =
      function_of<GetPhysicalDeviceProperties>(find, instance, "vkGetPhysicalDeviceProperties");
  std::vector<std::string> names;
  for (VkPhysicalDevice device : all_devices(
           function_of<EnumeratePhysicalDevices>(find, instance, "vkEnumeratePhysicalDevices"),
           instance)) {
    PhysicalDeviceProperties properties{};
    properties_of(device, &properties);
    names.emplace_back(properties.name);
  }
  function_of<DestroyInstance>(find, instance, "vkDestroyInstance")(instance, nullptr);
  return names;
}

VulkanDeviceFirst::VulkanDeviceFirst(size_t index) : lock_(order_lock) {
  first_device = index;
  was_listed_first = false;
  const auto append = [&](const char* name, const std::string& value, const char* otherwise) {
    const char* before = std::getenv(name);
    const bool was_set = before != nullptr && *before != 0;
    variables_.push_back({name, was_set ? before : "", was_set});
    platform::set_environment(name, value + (was_set ? std::string(":") + before : otherwise));
  };
  // A path that is set takes the place of the usual ones, where layers may lie that the user wants.
  append("VK_LAYER_PATH", layer_folder(),
         ":/etc/vulkan/explicit_layer.d:/usr/local/share/vulkan/explicit_layer.d"
         ":/usr/share/vulkan/explicit_layer.d");
  append("VK_INSTANCE_LAYERS", kLayer, "");
}

VulkanDeviceFirst::~VulkanDeviceFirst() {
  for (const Variable& variable : variables_) {
    if (variable.was_set) {
      platform::set_environment(variable.name, variable.before);
    } else {
      platform::unset_environment(variable.name);
    }
  }
  first_device = 0;
}

bool VulkanDeviceFirst::happened() const { return was_listed_first; }

} // namespace torch_webgpu
