#include "wgsl/workgroup_memory.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "runtime/error.h"

namespace torch_webgpu {
namespace {

constexpr uint64_t kVariableAlignment = 16; // WebGPU rounds each variable up to it

uint64_t round_up(uint64_t size, uint64_t alignment) {
  return (size + alignment - 1) / alignment * alignment;
}

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Words and numbers; any other character is a token of its own.
std::vector<std::string_view> tokens_of(std::string_view text) {
  std::vector<std::string_view> tokens;
  for (size_t i = 0; i < text.size();) {
    if (text.substr(i, 2) == "//") {
      i = std::min(text.find('\n', i), text.size());
      continue;
    }
    size_t end = i;
    while (end < text.size() && is_word(text[end])) {
      ++end;
    }
    end = std::max(end, i + 1);
    if (std::isspace(static_cast<unsigned char>(text[i])) == 0) {
      tokens.push_back(text.substr(i, end - i));
    }
    i = end;
  }
  return tokens;
}

struct Layout {
  uint64_t size;
  uint64_t alignment;
};

// The tokens of a function behind its name.
struct Body {
  size_t begin = 0;
  size_t end = 0;
};

// The declarations of a shader's module scope that types of workgroup variables may name, and which
// variables `main` uses; in a text without main all count.
class Module {
public:
  explicit Module(std::string_view shader) : tokens_(tokens_of(shader)) {
    uint32_t depth = 0;
    Body* function = nullptr; // that at_ is in
    for (at_ = 0; at_ < tokens_.size(); ++at_) {
      const std::string_view token = tokens_[at_];
      if (depth == 0 &&
          (token == "const" || token == "override" || token == "alias" || token == "struct")) {
        declarations_.emplace(tokens_.at(at_ + 1), at_ + 1);
      } else if (depth == 0 && token == "var" && peek(1) == "<" && peek(2) == "workgroup") {
        variables_.push_back(at_ + 4); // behind `>`
      } else if (depth == 0 && token == "fn") {
        function = &functions_[tokens_.at(at_ + 1)];
        function->begin = at_ + 2;
      }
      depth += token == "{" ? 1 : 0;
      depth -= token == "}" && depth != 0 ? 1 : 0;
      if (depth == 0 && token == "}" && function != nullptr) {
        function->end = at_;
        function = nullptr;
      }
    }
  }

  uint64_t workgroup_memory() {
    const std::unordered_set<std::string_view> used = reached_from("main");
    const bool all = !functions_.contains("main");
    uint64_t bytes = 0;
    for (const size_t variable : variables_) {
      if (!all && !used.contains(tokens_.at(variable))) {
        continue;
      }
      at_ = variable + 1;
      expect(":");
      bytes += round_up(type().size, kVariableAlignment);
    }
    return bytes;
  }

private:
  // Every word of that function, and of the functions that it calls.
  std::unordered_set<std::string_view> reached_from(std::string_view name) const {
    std::unordered_set<std::string_view> words = {name};
    std::vector<std::string_view> pending = {name};
    while (!pending.empty()) {
      const auto function = functions_.find(pending.back());
      pending.pop_back();
      if (function == functions_.end()) {
        continue;
      }
      for (size_t i = function->second.begin; i < function->second.end; ++i) {
        if (words.insert(tokens_[i]).second) {
          pending.push_back(tokens_[i]);
        }
      }
    }
    return words;
  }

  std::string_view peek(size_t ahead = 0) const {
    return at_ + ahead < tokens_.size() ? tokens_[at_ + ahead] : std::string_view();
  }
  std::string_view next() {
    const std::string_view token = peek();
    ++at_;
    return token;
  }
  bool accept(std::string_view token) {
    const bool found = peek() == token;
    at_ += found ? 1 : 0;
    return found;
  }
  void expect(std::string_view token) {
    if (!accept(token)) {
      fail(peek());
    }
  }
  [[noreturn]] static void fail(std::string_view token) {
    raise(ErrorKind::kRuntime, "cannot find out how much workgroup memory a shader uses: it did "
                               "not understand '" +
                                   std::string(token) + "' in the type of a workgroup variable");
  }

  // Calls read() behind the name of a declaration, then goes on where it was.
  template <typename Read>
  auto at_declaration(std::string_view name, Read&& read) {
    const auto found = declarations_.find(name);
    if (found == declarations_.end()) {
      fail(name);
    }
    const size_t behind = at_;
    at_ = found->second + 1;
    const auto result = read(tokens_[found->second - 1]);
    at_ = behind;
    return result;
  }

  Layout scalar(std::string_view name) { return name == "f16" ? Layout{2, 2} : Layout{4, 4}; }
  static bool is_scalar(std::string_view name) {
    return name == "f32" || name == "u32" || name == "i32" || name == "f16" || name == "bool";
  }

  // The element type of vec2<f32> or vec2f, behind `vec2`.
  Layout component(std::string_view suffix) {
    if (suffix == "h") {
      return {2, 2};
    }
    if (!suffix.empty()) {
      return {4, 4};
    }
    expect("<");
    const Layout layout = type();
    expect(">");
    return layout;
  }
  static Layout vector(uint64_t count, Layout of) {
    return {count * of.size, (count == 3 ? 4 : count) * of.size};
  }

  Layout type() {
    const std::string_view name = next();
    if (is_scalar(name)) {
      return scalar(name);
    }
    if (name == "atomic") {
      return component("");
    }
    if (name.size() >= 4 && name.starts_with("vec") && is_dimension(name[3])) {
      return vector(name[3] - '0', component(name.substr(4)));
    }
    if (name.size() >= 6 && name.starts_with("mat") && is_dimension(name[3]) && name[4] == 'x') {
      const Layout column = vector(name[5] - '0', component(name.substr(6)));
      return {(name[3] - '0') * round_up(column.size, column.alignment), column.alignment};
    }
    if (name == "array") {
      expect("<");
      const Layout of = type();
      expect(",");
      const uint64_t count = sum();
      accept(",");
      expect(">");
      return {count * round_up(of.size, of.alignment), of.alignment};
    }
    return at_declaration(name, [&](std::string_view keyword) {
      if (keyword == "struct") {
        return members();
      }
      expect("=");
      return type();
    });
  }
  static bool is_dimension(char c) { return c >= '2' && c <= '4'; }

  Layout members() {
    Layout layout = {0, 1};
    expect("{");
    while (!accept("}")) {
      next(); // the name; an attribute in its place is refused by what follows
      expect(":");
      const Layout member = type();
      layout.size = round_up(layout.size, member.alignment) + member.size;
      layout.alignment = std::max(layout.alignment, member.alignment);
      accept(",");
    }
    layout.size = round_up(layout.size, layout.alignment);
    return layout;
  }

  // The value of a constant integer expression, up to the token that ends it.
  uint64_t sum() {
    uint64_t value = product();
    for (;;) {
      if (accept("+")) {
        value += product();
      } else if (accept("-")) {
        value -= product();
      } else {
        return value;
      }
    }
  }
  uint64_t product() {
    uint64_t value = number();
    for (;;) {
      const std::string_view sign = peek();
      if (sign != "*" && sign != "/" && sign != "%") {
        return value;
      }
      next();
      const uint64_t by = number();
      if (sign != "*" && by == 0) {
        fail(sign);
      }
      value = sign == "*" ? value * by : sign == "/" ? value / by : value % by;
    }
  }
  uint64_t number() {
    const std::string_view token = next();
    if (token == "(") {
      const uint64_t value = sum();
      expect(")");
      return value;
    }
    if (token == "u32" || token == "i32") {
      return number(); // a conversion: its parentheses follow
    }
    if ((token == "max" || token == "min") && accept("(")) {
      const uint64_t one = sum();
      expect(",");
      const uint64_t other = sum();
      accept(",");
      expect(")");
      return token == "max" ? std::max(one, other) : std::min(one, other);
    }
    if (token.empty() || std::isdigit(static_cast<unsigned char>(token[0])) == 0) {
      return at_declaration(token, [&](std::string_view) {
        if (accept(":")) {
          next(); // the type
        }
        expect("=");
        return sum();
      });
    }
    const bool hex = token.starts_with("0x");
    const std::string_view digits = token.substr(hex ? 2 : 0);
    uint64_t value = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value, hex ? 16 : 10);
    const std::string_view suffix(end, digits.data() + digits.size() - end);
    if (error != std::errc() || !(suffix.empty() || suffix == "u" || suffix == "i")) {
      fail(token);
    }
    return value;
  }

  const std::vector<std::string_view> tokens_;
  std::unordered_map<std::string_view, size_t> declarations_; // where the name stands
  std::vector<size_t> variables_;                             // likewise
  std::unordered_map<std::string_view, Body> functions_;
  size_t at_ = 0;
};

} // namespace

uint64_t workgroup_memory(std::string_view shader) {
  if (shader.find("var<workgroup>") == std::string_view::npos) {
    return 0;
  }
  return Module(shader).workgroup_memory();
}

} // namespace torch_webgpu
