#include "runtime/adapter_choice.h"

#include <algorithm>
#include <cctype>

#include "runtime/error.h"

namespace torch_webgpu {
namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

} // namespace

size_t choose_adapter(const std::vector<AdapterInfo>& adapters, const std::string& wanted) {
  if (adapters.empty()) {
    raise(ErrorKind::kRuntime,
          "no WebGPU adapter was found. Install a Vulkan (or Metal, D3D12) driver for your GPU, or "
          "a software one: on Debian and Ubuntu `apt install libvulkan1 mesa-vulkan-drivers` "
          "(Mesa 23.1 or newer; on Debian 12 from bookworm-backports).");
  }
  if (wanted.empty()) {
    return 0;
  }
  std::string names;
  const bool is_index = std::all_of(wanted.begin(), wanted.end(),
                                    [](unsigned char c) { return std::isdigit(c) != 0; });
  for (size_t i = 0; i < adapters.size(); ++i) {
    const std::string& name = adapters[i].name;
    if (is_index ? std::to_string(i) == wanted
                 : lower(name).find(lower(wanted)) != std::string::npos) {
      return i;
    }
    names += (i == 0 ? "" : ", ") + std::to_string(i) + ": " + name;
  }
  raise(ErrorKind::kRuntime,
        "TORCH_WEBGPU_ADAPTER='" + wanted + "' names no adapter; there are: " + names);
}

} // namespace torch_webgpu
