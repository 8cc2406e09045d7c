#include "wgsl/wgsl_library.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <unordered_map>
#include <vector>

#include "runtime/wgsl_sources.h"
#include "wgsl/target.h"

namespace torch_webgpu {
namespace {

bool is_identifier(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Calls visit(word) for each identifier outside of line comments.
template <typename Visit>
void for_each_identifier(std::string_view text, Visit&& visit) {
  size_t i = 0;
  while (i < text.size()) {
    if (text.substr(i, 2) == "//") {
      i = std::min(text.find('\n', i), text.size());
    } else if (is_identifier(text[i])) {
      const size_t start = i;
      while (i < text.size() && is_identifier(text[i])) {
        ++i;
      }
      visit(text.substr(start, i - start));
    } else {
      ++i;
    }
  }
}

// The name that a top-level declaration starting at `text` introduces, empty if it introduces none.
std::string_view declared_name(std::string_view text) {
  for (std::string_view keyword :
       {"fn ", "const ", "var<private> ", "struct ", "alias ", "override "}) {
    if (text.substr(0, keyword.size()) == keyword) {
      const size_t start = keyword.size();
      size_t end = start;
      while (end < text.size() && is_identifier(text[end])) {
        ++end;
      }
      return text.substr(start, end - start);
    }
  }
  return {};
}

struct Declaration {
  std::string_view name;
  std::string_view text;
  std::vector<size_t> needs;
};

class Library {
public:
  Library() {
    for (const WgslSource& source : all_wgsl()) {
      if (source.name.substr(0, 4) == "lib/") {
        parse(source.text);
      }
    }
    for (size_t i = 0; i < declarations_.size(); ++i) {
      by_name_.emplace(declarations_[i].name, i);
    }
    for (Declaration& declaration : declarations_) {
      for_each_identifier(declaration.text, [&](std::string_view word) {
        auto it = by_name_.find(word);
        if (it != by_name_.end() && word != declaration.name) {
          declaration.needs.push_back(it->second);
        }
      });
    }
  }

  std::string closure(std::string_view text) const {
    std::set<std::string_view> own;
    for (size_t line = 0; line < text.size(); line = text.find('\n', line) + 1) {
      const std::string_view name = declared_name(text.substr(line));
      if (!name.empty()) {
        own.insert(name);
      }
      if (text.find('\n', line) == std::string_view::npos) {
        break;
      }
    }
    std::set<size_t> wanted;
    std::vector<size_t> open;
    for_each_identifier(text, [&](std::string_view word) {
      auto it = by_name_.find(word);
      if (it != by_name_.end() && own.count(word) == 0 && wanted.insert(it->second).second) {
        open.push_back(it->second);
      }
    });
    while (!open.empty()) {
      const size_t next = open.back();
      open.pop_back();
      for (size_t need : declarations_[next].needs) {
        if (own.count(declarations_[need].name) == 0 && wanted.insert(need).second) {
          open.push_back(need);
        }
      }
    }
    std::string out;
    for (size_t index : wanted) {
      out.append(declarations_[index].text).append("\n");
    }
    return out;
  }

private:
  // Library files keep every declaration in column 0 and end it with ";" on its last line or "}" in
  // column 0, so that no WGSL parser is needed here.
  void parse(std::string_view text) {
    size_t at = 0;
    while (at < text.size()) {
      size_t end_of_line = std::min(text.find('\n', at), text.size());
      const std::string_view line = text.substr(at, end_of_line - at);
      const std::string_view name = declared_name(line);
      if (name.empty()) {
        at = end_of_line + 1;
        continue;
      }
      size_t end = end_of_line;
      const bool one_line = !line.empty() && (line.back() == ';' || line.back() == '}');
      if (!one_line) {
        const bool block = line.back() == '{';
        const size_t close = text.find(block ? "\n}" : ";\n", at);
        end = close == std::string_view::npos ? text.size() : text.find('\n', close + 1);
        end = std::min(end, text.size());
      }
      declarations_.push_back({name, text.substr(at, end - at), {}});
      at = end + 1;
    }
  }

  std::vector<Declaration> declarations_;
  std::unordered_map<std::string_view, size_t> by_name_;
};

} // namespace

std::string library_for(std::string_view text) {
  static const Library library;
  return library.closure(text);
}

std::string complete_shader(std::string_view text, const ShaderTarget& target) {
  std::string shader(text);
  shader += library_for(shader);
  const auto calls = [&](std::string_view name) { return shader.find(name) != std::string::npos; };
  if (target.shader_f16 &&
      (calls("f_from_f16(") || calls("f2_from_f16(") || calls("f16_from_f("))) {
    // First in the text: `enable` must come before declarations, and these names then hide the
    // library's.
    shader = find_wgsl(target.f16_bitcast ? "native_f16" : "portable_f16")->text;
    shader += text;
    shader += library_for(shader);
  }
  return shader;
}

} // namespace torch_webgpu
