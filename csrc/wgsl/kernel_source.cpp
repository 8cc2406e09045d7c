#include "wgsl/kernel_source.h"

#include <algorithm>
#include <bit>

#include "runtime/error.h"
#include "wgsl/wgsl_library.h"

namespace torch_webgpu {
namespace {

std::string str(uint32_t value) { return std::to_string(value); }
std::string str(std::string_view value) { return std::string(value); }

struct Slot {
  bool writable = false;
  bool atomic = false;
  bool wide = true;     // every operand has 16 bytes: the binding is an array of vec4<u32>
  uint32_t binding = 0; // the first
  uint32_t windows = 1;
  uint32_t operands = 0;
  std::string element = "u32"; // of the binding's array

  std::string array() const { return "array<" + (atomic ? "atomic<u32>" : element) + ">"; }
};

// Where an accessor finds its words: the name of a binding, and a suffix for the accessor's own
// name.
struct Place {
  std::string buffer;
  std::string suffix;
};

Place place_of(uint32_t slot, const Slot& layout, uint32_t window) {
  if (layout.windows == 1) {
    return {"b" + str(slot), ""};
  }
  const std::string suffix = "_" + str(window);
  return {"b" + str(slot) + suffix, suffix};
}

// The type of the elements of the operand's binding.
std::string element_type(const Operand& operand) {
  if (!operand.element.empty()) {
    return str(operand.element);
  }
  return operand.vector_words > 1 ? "vec" + str(operand.vector_words) + "<u32>" : "u32";
}

std::vector<Slot> slots_of(const std::vector<Operand>& operands, const SlotWindows& windows) {
  std::vector<Slot> slots;
  for (const Operand& operand : operands) {
    if (operand.slot >= slots.size()) {
      slots.resize(operand.slot + 1);
    }
    Slot& slot = slots[operand.slot];
    const std::string element = element_type(operand);
    if (++slot.operands > 1 && (element != slot.element || !operand.element.empty())) {
      raise(ErrorKind::kRuntime, "an operand of " + element + " shares its slot");
    }
    slot.element = element;
    slot.writable |= operand.writable;
    slot.wide &= info(operand.dtype).bytes == 16;
    // A sub-word store shares its word with elements that other invocations may write.
    slot.atomic |= operand.writable && !operand.owns_words && operand.element.empty() &&
                   (info(operand.dtype).bytes < 4 || operand.atomic_add || operand.atomic_update);
  }
  for (Slot& slot : slots) {
    slot.element = slot.wide && !slot.atomic ? "vec4<u32>" : slot.element;
  }
  // The bit after the last slot's bindings marks its end.
  uint32_t rest = windows.firsts;
  for (uint32_t s = 0; s < slots.size(); ++s) {
    slots[s].binding = rest == 0 ? s : static_cast<uint32_t>(std::countr_zero(rest));
    rest &= rest - 1;
    if (rest != 0) {
      slots[s].windows = static_cast<uint32_t>(std::countr_zero(rest)) - slots[s].binding;
    }
  }
  return slots;
}

// One element of `bytes` < 4: its word, and the shift of its bits in it.
std::string word_index(uint32_t bytes, const std::string& i = "i") {
  return i + (bytes == 1 ? " >> 2u" : " >> 1u");
}
std::string bit_shift(uint32_t bytes, const std::string& i = "i") {
  return "(" + i + (bytes == 1 ? " & 3u) << 3u" : " & 1u) << 4u");
}
std::string bit_mask(uint32_t bytes) { return bytes == 1 ? "0xffu" : "0xffffu"; }

std::string read_word_text(const std::string& buffer, bool atomic, const std::string& index) {
  return atomic ? "atomicLoad(&" + buffer + "[" + index + "])" : buffer + "[" + index + "]";
}

std::string write_word_text(const std::string& buffer, bool atomic, const std::string& index,
                            const std::string& value) {
  return atomic ? "atomicStore(&" + buffer + "[" + index + "], " + value + ");"
                : buffer + "[" + index + "] = " + value + ";";
}

std::string load_function(const Operand& operand, const Place& place, bool atomic, bool wide) {
  auto read = [&](const std::string& index) { return read_word_text(place.buffer, atomic, index); };
  const std::string value =
      wide ? from_word(operand.dtype, read("i")) : from_words(operand.dtype, "i", read);
  return "fn load_" + str(operand.name) + place.suffix + "(i: u32) -> " + str(operand.name) +
         "_t { return " + value + "; }\n";
}

// Access to an operand that is bound as vectors.
std::string vector_functions(const Operand& operand, const std::string& buffer) {
  const std::string name = str(operand.name);
  const std::string lanes = str(16 / info(operand.dtype).bytes) + "u";
  return "const " + name + "_lanes = " + lanes + ";\nfn load_vector_" + name +
         "(i: u32) -> vec4<u32> { return " + buffer + "[i]; }\nfn " + name +
         "_in_vector(v: vec4<u32>, lane: u32) -> " + name + "_t { return " +
         from_vector(operand.dtype, "v", "lane") + "; }\nfn load_" + name + "(i: u32) -> " + name +
         "_t { return " + name + "_in_vector(" + buffer + "[i / " + lanes + "], i % " + lanes +
         "); }\n";
}

// Access to an operand whose elements have a type of the kernel's.
std::string element_functions(const Operand& operand, const std::string& buffer) {
  const std::string name = str(operand.name);
  const std::string type = str(operand.element);
  return operand.writable
             ? "fn store_" + name + "(i: u32, v: " + type + ") { " + buffer + "[i] = v; }\n"
             : "fn load_" + name + "(i: u32) -> " + type + " { return " + buffer + "[i]; }\n";
}

// load2_NAME(i). Of 2-byte types a word holds both elements.
std::string load_pair_function(const Operand& operand, const Place& place, bool windows,
                               bool atomic) {
  const std::string name = str(operand.name);
  std::string body;
  if (info(operand.dtype).bytes == 2 && !windows) {
    body = "let word = " + read_word_text(place.buffer, atomic, "i >> 1u") + "; return vec2<" +
           name + "_t>(" + from_word(operand.dtype, "(word & 0xffffu)") + ", " +
           from_word(operand.dtype, "(word >> 16u)") + ");";
  } else {
    body = "return vec2<" + name + "_t>(load_" + name + "(i), load_" + name + "(i + 1u));";
  }
  return "fn load2_" + name + "(i: u32) -> vec2<" + name + "_t> { " + body + " }\n";
}

std::string store_function(const Operand& operand, const Place& place, bool atomic, bool wide) {
  const uint32_t bytes = info(operand.dtype).bytes;
  const std::string& buffer = place.buffer;
  const std::string name = str(operand.name);
  std::string body;
  if (bytes < 4) {
    // Only one invocation writes each lane of the word, so clearing and setting it need not be one
    // atomic operation.
    body = "let shift = " + bit_shift(bytes) + "; let word = &" + buffer + "[" + word_index(bytes) +
           "]; atomicAnd(word, ~(" + bit_mask(bytes) + " << shift)); atomicOr(word, (" +
           to_word(operand.dtype, "v") + ") << shift);";
  } else if (bytes == 4 || wide) {
    body = write_word_text(buffer, atomic, "i", to_word(operand.dtype, "v"));
  } else {
    const uint32_t words = bytes / 4;
    body = "let words = " + to_word(operand.dtype, "v") + "; ";
    for (uint32_t w = 0; w < words; ++w) {
      body += write_word_text(buffer, atomic, "i * " + str(words) + "u + " + str(w) + "u",
                              "words[" + str(w) + "]");
    }
  }
  return "fn store_" + name + place.suffix + "(i: u32, v: " + name + "_t) { " + body + " }\n";
}

// The text of a word of elements named v0, v1, ... from `first` up to `end`.
std::string word_of_neighbours(DType dtype, uint32_t first, uint32_t end) {
  std::string word;
  for (uint32_t e = first; e < end; ++e) {
    word += (e > first ? " | (" : "(") + to_word(dtype, "v" + str(e)) + " << " +
            str((e - first) * 8 * info(dtype).bytes) + "u)";
  }
  return word;
}

// Stores neighbours of 2 bytes that may start in the middle of a word. A word whose two elements
// are both stored here is written by no other invocation, so it is stored as a whole. At each end,
// another invocation may own the other half.
std::string store_across_words(const Operand& operand, const Place& place, uint32_t count) {
  const std::string name = str(operand.name);
  const auto from = [&](uint32_t first) { // the rest in whole words, and the last one alone
    std::string text;
    uint32_t e = first;
    for (; e + 2 <= count; e += 2) {
      text += write_word_text(place.buffer, true, "((i + " + str(e) + "u) >> 1u)",
                              word_of_neighbours(operand.dtype, e, e + 2)) +
              " ";
    }
    return e < count ? text + "store_" + name + "(i + " + str(e) + "u, v" + str(e) + "); " : text;
  };
  return "if ((i & 1u) == 0u) { " + from(0) + "} else { store_" + name + "(i, v0); " + from(1) +
         "} ";
}

// Stores `count` neighbours: as whole words where the operand owns them, or where elements of 2
// bytes fill words; else one by one.
std::string store_neighbours_function(const Operand& operand, const Place& place, uint32_t count,
                                      bool windows) {
  const std::string name = str(operand.name);
  const uint32_t bytes = info(operand.dtype).bytes;
  const bool packs = operand.owns_words && bytes < 4;
  const bool may_fill = !packs && bytes == 2 && !windows;
  std::string parameters;
  std::string body;
  for (uint32_t e = 0; e < count; ++e) {
    const std::string value = "v" + str(e);
    parameters += ", " + value + ": " + name + "_t";
    if (!packs && !may_fill) {
      body += "store_" + name + "(i + " + str(e) + "u, " + value + "); ";
    }
  }
  const uint32_t per_word = packs ? 4 / bytes : 1;
  for (uint32_t first = 0; packs && first < count; first += per_word) {
    body += place.buffer + "[i / " + str(per_word) + "u + " + str(first / per_word) +
            "u] = " + word_of_neighbours(operand.dtype, first, std::min(first + per_word, count)) +
            "; ";
  }
  if (may_fill) {
    body += store_across_words(operand, place, count);
  }
  return "fn store" + str(count) + "_" + name + "(i: u32" + parameters + ") { " + body + "}\n";
}

std::string atomic_add_function(const Operand& operand, const Place& place) {
  const DTypeInfo& dtype = info(operand.dtype);
  const std::string& buffer = place.buffer;
  const std::string name = str(operand.name);
  std::string body;
  if (operand.dtype == DType::kI32) {
    body = "atomicAdd(&" + buffer + "[i], bitcast<u32>(v));";
  } else if (operand.dtype == DType::kI64) {
    // The carries of all adders end up in the high word, whatever their order.
    body = "let old = atomicAdd(&" + buffer +
           "[i * 2u], v.x); let carry = select(0u, 1u, old + v.x < old);" + " atomicAdd(&" +
           buffer + "[i * 2u + 1u], v.y + carry);";
  } else {
    // WGSL has integer atomics only. Tries to replace the word until no other invocation has
    // changed it in between.
    const bool narrow = dtype.bytes < 4;
    auto add = [&](const std::string& index, const std::string& value, DType type) {
      const std::string word = narrow ? "((old >> shift) & " + bit_mask(dtype.bytes) + ")" : "old";
      std::string sum = "(" + from_word(type, word) + " + " + value + ")";
      std::string fresh = to_word(type, sum);
      if (narrow) {
        fresh = "(old & ~(" + bit_mask(dtype.bytes) + " << shift)) | ((" + fresh + ") << shift)";
      }
      return "{ let word = &" + buffer + "[" + index + "]; var old = atomicLoad(word); loop { " +
             "let swap = atomicCompareExchangeWeak(word, old, " + fresh +
             "); if (swap.exchanged) { break; } old = swap.old_value; } }";
    };
    if (narrow) {
      body = "let shift = " + bit_shift(dtype.bytes) + "; " +
             add(word_index(dtype.bytes), "v", operand.dtype);
    } else if (operand.dtype == DType::kC64) {
      body = add("i * 2u", "v.x", DType::kF32) + " " + add("i * 2u + 1u", "v.y", DType::kF32);
    } else {
      body = add("i", "v", operand.dtype);
    }
  }
  return "fn atomic_add_" + name + place.suffix + "(i: u32, v: " + name + "_t) { " + body + " }\n";
}

// WGSL has integer atomics only. Tries to replace the word until no other invocation has changed it
// in between.
std::string atomic_update_function(const Operand& operand, const Place& place) {
  const uint32_t bytes = info(operand.dtype).bytes;
  const bool narrow = bytes < 4;
  const std::string name = str(operand.name);
  const std::string old = narrow ? "((old >> shift) & " + bit_mask(bytes) + ")" : "old";
  std::string fresh =
      to_word(operand.dtype, "combine_" + name + "(" + from_word(operand.dtype, old) + ", v)");
  if (narrow) {
    fresh = "(old & ~(" + bit_mask(bytes) + " << shift)) | ((" + fresh + ") << shift)";
  }
  return "fn atomic_update_" + name + place.suffix + "(i: u32, v: " + name + "_t) { " +
         (narrow ? "let shift = " + bit_shift(bytes) + "; " : "") + "let word = &" + place.buffer +
         "[" + (narrow ? word_index(bytes) : "i") +
         "]; var old = atomicLoad(word); loop { let fresh = " + fresh +
         "; if (fresh == old) { break; } let swap = atomicCompareExchangeWeak(word, old, fresh); " +
         "if (swap.exchanged) { break; } old = swap.old_value; } }\n";
}

// The accessor that calls the accessor of the window which holds the element.
std::string across_windows(const std::string& accessor, const Operand& operand, uint32_t windows,
                           uint64_t window_bytes) {
  const bool loads = accessor.starts_with("load");
  const std::string type = str(operand.name) + "_t";
  const uint64_t elements = window_bytes / info(operand.dtype).bytes;
  std::string text =
      "fn " + accessor + (loads ? "(i: u32) -> " + type : "(i: u32, v: " + type + ")");
  text += " {\n";
  for (uint32_t w = 0; w < windows; ++w) {
    const std::string call = accessor + "_" + str(w) + "(i - " + std::to_string(w * elements) +
                             "u" + (loads ? ")" : ", v)");
    // Elements are counted in 32 bits, so later windows are never reached.
    const bool last = w + 1 == windows || (w + 1) * elements >= uint64_t{1} << 32;
    text += last ? "  " : "  if (i < " + std::to_string((w + 1) * elements) + "u) { ";
    text += loads ? "return " + call + ";" : call + ";" + (last ? "" : " return;");
    text += last ? "\n" : " }\n";
    if (last) {
      break;
    }
  }
  return text + "}\n";
}

} // namespace

std::string from_words(DType dtype, const std::string& i,
                       const std::function<std::string(const std::string&)>& word_at) {
  const uint32_t bytes = info(dtype).bytes;
  if (bytes < 4) {
    return from_word(dtype, "((" + word_at(word_index(bytes, i)) + " >> (" + bit_shift(bytes, i) +
                                ")) & " + bit_mask(bytes) + ")");
  }
  if (bytes == 4) {
    return from_word(dtype, word_at(i));
  }
  const uint32_t words = bytes / 4;
  std::string value = "vec" + str(words) + "<u32>(";
  for (uint32_t w = 0; w < words; ++w) {
    value += (w != 0 ? ", " : "") + word_at(i + " * " + str(words) + "u + " + str(w) + "u");
  }
  return from_word(dtype, value + ")");
}

std::string from_vector(DType dtype, const std::string& vector, const std::string& lane,
                        uint32_t words) {
  if (info(dtype).bytes == 16) {
    return from_word(dtype, vector);
  }
  return from_words(dtype, lane, [&](const std::string& index) {
    return words == 1 ? vector : vector + "[" + index + "]";
  });
}

std::string to_vector(DType dtype, const std::string& vector, const std::string& lane,
                      const std::string& value) {
  const uint32_t bytes = info(dtype).bytes;
  const std::string bits = to_word(dtype, value);
  if (bytes == 16) {
    return vector + " = " + bits + ";";
  }
  if (bytes == 8) {
    return "{ let bits = " + bits + "; " + vector + "[2u * " + lane + "] = bits.x; " + vector +
           "[2u * " + lane + " + 1u] = bits.y; }";
  }
  if (bytes == 4) {
    return vector + "[" + lane + "] = " + bits + ";";
  }
  const std::string per_word = str(4 / bytes) + "u";
  return vector + "[" + lane + " / " + per_word + "] |= (" + bits + ") << (" + lane + " % " +
         per_word + " * " + str(bytes * 8) + "u);";
}

std::string from_word(DType dtype, const std::string& word) {
  const DTypeInfo& type = info(dtype);
  if (!type.load.empty()) {
    return str(type.load) + "(" + word + ")";
  }
  return type.kind == Kind::kRaw || type.kind == Kind::kLong || type.kind == Kind::kDouble
             ? word
             : "bitcast<" + str(type.wgsl) + ">(" + word + ")";
}

std::string to_word(DType dtype, const std::string& value) {
  const DTypeInfo& type = info(dtype);
  if (dtype == DType::kBool) {
    return "select(0u, 1u, (" + value + ") != 0)";
  }
  if (type.bytes < 4) {
    return "(" + str(type.store) + "(" + value + ") & " + bit_mask(type.bytes) + ")";
  }
  if (!type.store.empty()) {
    return str(type.store) + "(" + value + ")";
  }
  if (type.kind == Kind::kRaw || type.kind == Kind::kLong || type.kind == Kind::kDouble) {
    return value;
  }
  return type.bytes == 4 ? "bitcast<u32>(" + value + ")" : "bitcast<vec2<u32>>(" + value + ")";
}

std::string convert(Kind from, Kind to, const std::string& value) {
  if (from == to) {
    return value;
  }
  return std::string(1, kind_letter(to)) + "_from_" + kind_letter(from) + "(" + value + ")";
}

std::string operand_names(const std::vector<Operand>& operands) {
  std::string text;
  for (const Operand& operand : operands) {
    text += (text.empty() ? "" : ", ") + str(operand.name) + ": " + str(info(operand.dtype).name);
  }
  return text;
}

BindingLayout binding_layout(const std::vector<Operand>& operands, bool checks_indices,
                             const SlotWindows& windows) {
  BindingLayout layout;
  layout.checks_indices = checks_indices;
  for (const Slot& slot : slots_of(operands, windows)) {
    const uint32_t mask = (1u << slot.windows) - 1;
    layout.num_buffers += slot.windows;
    layout.writable |= slot.writable ? mask << slot.binding : 0u;
  }
  return layout;
}

std::string binding_declarations(const std::vector<Operand>& operands, const SlotWindows& windows) {
  const std::vector<Slot> slots = slots_of(operands, windows);
  std::string text;
  for (uint32_t i = 0; i < slots.size(); ++i) {
    // Slots without operands are those of lists, which declare their own.
    for (uint32_t w = 0; slots[i].operands > 0 && w < slots[i].windows; ++w) {
      text += "@group(0) @binding(" + str(slots[i].binding + w) + ") var<storage, " +
              (slots[i].writable ? "read_write" : "read") + "> " + place_of(i, slots[i], w).buffer +
              ": " + slots[i].array() + ";\n";
    }
  }
  return text;
}

std::string operand_declarations(const std::vector<Operand>& operands, const SlotWindows& windows) {
  const std::vector<Slot> slots = slots_of(operands, windows);
  std::string text = binding_declarations(operands, windows);
  for (const Operand& operand : operands) {
    const Slot& slot = slots[operand.slot];
    const std::string name = str(operand.name);
    if (!operand.element.empty()) {
      text += element_functions(operand, place_of(operand.slot, slot, 0).buffer);
      continue;
    }
    text += "alias " + name + "_t = " + str(info(operand.dtype).wgsl) + ";\n";
    if (operand.vector_words != 0) {
      text += vector_functions(operand, place_of(operand.slot, slot, 0).buffer);
      continue;
    }
    auto add = [&](const std::string& accessor, auto&& function) {
      for (uint32_t w = 0; w < slot.windows; ++w) {
        text += function(place_of(operand.slot, slot, w));
      }
      if (slot.windows > 1) {
        text += across_windows(accessor + name, operand, slot.windows, windows.bytes);
      }
    };
    add("load_",
        [&](const Place& place) { return load_function(operand, place, slot.atomic, slot.wide); });
    if (operand.loads_pairs) {
      text += load_pair_function(operand, place_of(operand.slot, slot, 0), slot.windows > 1,
                                 slot.atomic);
    }
    const bool words_only = operand.owns_words && info(operand.dtype).bytes < 4;
    if (operand.writable && (!operand.owns_words || (operand.stores_neighbours && !words_only))) {
      add("store_", [&](const Place& place) {
        return store_function(operand, place, slot.atomic, slot.wide);
      });
    }
    if (operand.stores_neighbours) {
      // Of 1-byte types, two neighbours are half a word.
      for (uint32_t count : {2u, 4u}) {
        if (!operand.owns_words || info(operand.dtype).bytes * count >= 4) {
          text += store_neighbours_function(operand, place_of(operand.slot, slot, 0), count,
                                            slot.windows > 1);
        }
      }
    }
    if (operand.atomic_add) {
      add("atomic_add_", [&](const Place& place) { return atomic_add_function(operand, place); });
    }
    if (operand.atomic_update) {
      add("atomic_update_",
          [&](const Place& place) { return atomic_update_function(operand, place); });
    }
  }
  return text;
}

} // namespace torch_webgpu
