#include "runtime/adapter_choice.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "runtime/error.h"

namespace torch_webgpu {
namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(' ');
  return begin == std::string::npos ? ""
                                    : text.substr(begin, text.find_last_not_of(' ') + 1 - begin);
}

// The parts between commas.
std::vector<std::string> parts_of(const std::string& list) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t end = list.find(','); end != std::string::npos; end = list.find(',', begin)) {
    parts.push_back(trimmed(list.substr(begin, end - begin)));
    begin = end + 1;
  }
  parts.push_back(trimmed(list.substr(begin)));
  return parts;
}

// The first adapter with that index or name.
std::optional<size_t> find_adapter(const std::vector<AdapterInfo>& adapters,
                                   const std::string& wanted) {
  const bool is_index = std::all_of(wanted.begin(), wanted.end(),
                                    [](unsigned char c) { return std::isdigit(c) != 0; });
  for (size_t i = 0; i < adapters.size(); ++i) {
    if (is_index ? std::to_string(i) == wanted
                 : lower(adapters[i].name).find(lower(wanted)) != std::string::npos) {
      return i;
    }
  }
  return std::nullopt;
}

[[noreturn]] void raise_unknown(const std::vector<AdapterInfo>& adapters, const std::string& wanted,
                                const std::string& part) {
  std::string names;
  for (size_t i = 0; i < adapters.size(); ++i) {
    names += (i == 0 ? "" : ", ") + std::to_string(i) + ": " + adapters[i].name;
  }
  raise(ErrorKind::kRuntime, "TORCH_WEBGPU_ADAPTER='" + wanted + "'" +
                                 (part == wanted ? "" : ": '" + part + "'") +
                                 " names no adapter; there are: " + names);
}

} // namespace

std::vector<size_t> choose_adapters(const std::vector<AdapterInfo>& adapters,
                                    const std::string& wanted) {
  if (adapters.empty()) {
    raise(ErrorKind::kRuntime,
          "no WebGPU adapter was found. Install a Vulkan (or Metal, D3D12) driver for your GPU, or "
          "a software one: on Debian and Ubuntu `apt install libvulkan1 mesa-vulkan-drivers` "
          "(Mesa 23.1 or newer; on Debian 12 from bookworm-backports).");
  }
  std::vector<size_t> chosen;
  if (wanted.empty()) {
    for (size_t i = 0; i < adapters.size() && chosen.size() < kMostDevices; ++i) {
      if (!adapters[i].software) {
        chosen.push_back(i);
      }
    }
    return chosen.empty() ? std::vector<size_t>{0} : chosen;
  }
  if (const auto whole = find_adapter(adapters, wanted)) { // a name may have commas in it
    return {*whole};
  }
  for (const std::string& part : parts_of(wanted)) {
    const auto found = part.empty() ? std::nullopt : find_adapter(adapters, part);
    if (!found) {
      raise_unknown(adapters, wanted, part);
    }
    chosen.push_back(*found);
  }
  if (chosen.size() > kMostDevices) {
    raise(ErrorKind::kRuntime, "TORCH_WEBGPU_ADAPTER='" + wanted + "' names " +
                                   std::to_string(chosen.size()) + " devices, of which a process " +
                                   "can have " + std::to_string(kMostDevices));
  }
  return chosen;
}

uint32_t most_named(const std::string& wanted) {
  const size_t parts = wanted.empty() ? kMostDevices : parts_of(wanted).size();
  return static_cast<uint32_t>(std::min<size_t>(parts, kMostDevices));
}

} // namespace torch_webgpu
