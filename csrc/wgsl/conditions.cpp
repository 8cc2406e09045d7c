#include "wgsl/conditions.h"

#include <cctype>

#include "runtime/error.h"

namespace torch_webgpu {
namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

using Holds = std::function<bool(std::string_view)>;

class Resolver {
public:
  Resolver(std::string_view text, const Holds& holds) : text_(text), holds_(holds) {}

  std::string resolve() {
    std::string out;
    size_t copied = 0;
    size_t at = 0;
    while (at < text_.size()) {
      if (skip_comment(at)) {
        continue;
      }
      if (text_[at] != '@' || attribute(at) != "if") {
        ++at;
        continue;
      }
      out.append(text_.substr(copied, at - copied));
      at = chain(at, out);
      copied = at;
    }
    return out.append(text_.substr(copied));
  }

private:
  [[noreturn]] void fail(const std::string& why, size_t at) const {
    raise(ErrorKind::kRuntime,
          "conditional WGSL: " + why + " before: " + std::string(text_.substr(at, 60)));
  }

  // The name of the attribute at `at`, which is an @.
  std::string_view attribute(size_t at) const {
    size_t end = at + 1;
    while (end < text_.size() && is_word(text_[end])) {
      ++end;
    }
    return text_.substr(at + 1, end - at - 1);
  }

  bool skip_comment(size_t& at) const {
    if (text_.substr(at, 2) == "//") {
      at = std::min(text_.find('\n', at), text_.size());
      return true;
    }
    if (text_.substr(at, 2) == "/*") {
      const size_t end = text_.find("*/", at);
      at = end == std::string_view::npos ? text_.size() : end + 2;
      return true;
    }
    return false;
  }

  void skip_space(size_t& at) const {
    while (at < text_.size() &&
           (std::isspace(static_cast<unsigned char>(text_[at])) != 0 || skip_comment(at))) {
      if (at < text_.size() && std::isspace(static_cast<unsigned char>(text_[at])) != 0) {
        ++at;
      }
    }
  }

  // From an @if to the end of its last branch; appends the branch that holds.
  size_t chain(size_t at, std::string& out) {
    bool taken = false;
    for (std::string_view name = "if";;) {
      at += 1 + name.size();
      bool wanted = !taken;
      if (name != "else") {
        const bool value = condition(at);
        wanted = wanted && value;
      }
      skip_space(at);
      const size_t end = end_of_decorated(at);
      if (wanted) {
        taken = true;
        out.append(Resolver(text_.substr(at, end - at), holds_).resolve());
      }
      size_t next = end;
      skip_space(next);
      if (name == "else" || next >= text_.size() || text_[next] != '@') {
        return end;
      }
      name = attribute(next);
      if (name != "elif" && name != "else") {
        return end;
      }
      at = next;
    }
  }

  // Behind the declaration, statement or block at `at`.
  size_t end_of_decorated(size_t at) const {
    const size_t start = at;
    int depth = 0;
    while (at < text_.size()) {
      if (skip_comment(at)) {
        continue;
      }
      const char c = text_[at++];
      depth += c == '(' || c == '[' || c == '{' ? 1 : 0;
      depth -= c == ')' || c == ']' || c == '}' ? 1 : 0;
      if (depth < 0) {
        fail("nothing to decorate", start);
      }
      if (depth != 0 || (c != ';' && c != '}')) {
        continue;
      }
      size_t next = at;
      skip_space(next);
      const bool goes_on = text_.substr(next, 4) == "else" &&
                           (next + 4 >= text_.size() || !is_word(text_[next + 4]));
      if (c == ';' || !goes_on) {
        return at;
      }
    }
    fail("a decorated part has no end", start);
  }

  bool condition(size_t& at) {
    skip_space(at);
    if (at >= text_.size() || text_[at] != '(') {
      fail("a condition stands in parentheses", at);
    }
    ++at;
    const bool value = disjunction(at);
    close(at);
    return value;
  }

  void close(size_t& at) {
    skip_space(at);
    if (at >= text_.size() || text_[at] != ')') {
      fail("expected )", at);
    }
    ++at;
  }

  bool accept(size_t& at, std::string_view sign) {
    skip_space(at);
    if (text_.substr(at, sign.size()) != sign) {
      return false;
    }
    at += sign.size();
    return true;
  }

  bool disjunction(size_t& at) {
    bool value = conjunction(at);
    while (accept(at, "||")) {
      const bool right = conjunction(at);
      value = value || right;
    }
    return value;
  }

  bool conjunction(size_t& at) {
    bool value = term(at);
    while (accept(at, "&&")) {
      const bool right = term(at);
      value = value && right;
    }
    return value;
  }

  bool term(size_t& at) {
    if (accept(at, "!")) {
      return !term(at);
    }
    if (accept(at, "(")) {
      const bool value = disjunction(at);
      close(at);
      return value;
    }
    skip_space(at);
    size_t end = at;
    while (end < text_.size() && is_word(text_[end])) {
      ++end;
    }
    if (end == at) {
      fail("expected a name", at);
    }
    const std::string_view name = text_.substr(at, end - at);
    at = end;
    return name == "true" || (name != "false" && holds_(name));
  }

  std::string_view text_;
  const Holds& holds_;
};

} // namespace

std::string resolve_conditions(std::string_view text, const Holds& holds) {
  return Resolver(text, holds).resolve();
}

} // namespace torch_webgpu
