#include "formats/python_json.h"

#include <string>

#include "nlohmann/json.hpp"

namespace shoal {
namespace {

struct Word {
  std::string_view python, json;
};
constexpr Word kWords[] = {{"Infinity", "1.7976931348623157e308"}, {"NaN", "null"}};

// The word that begins at `at`, outside of strings.
const Word* word_at(std::string_view text, size_t at) {
  for (const Word& word : kWords) {
    if (text.substr(at, word.python.size()) == word.python) return &word;
  }
  return nullptr;
}

std::string in_strict_json(std::string_view text) {
  std::string out;
  bool quoted = false;
  for (size_t i = 0; i < text.size();) {
    if (const Word* word = quoted ? nullptr : word_at(text, i)) {
      out += word->json;
      i += word->python.size();
      continue;
    }
    const size_t bytes = quoted && text[i] == '\\' ? 2 : 1;
    quoted ^= text[i] == '"';
    out += text.substr(i, bytes);
    i += bytes;
  }
  return out;
}

}  // namespace

StatusOr<Json> parse_python_json(std::string_view text, const JsonLimits& limits) {
  for (const Word& word : kWords) {
    if (text.size() <= limits.bytes_max && text.find(word.python) != text.npos) return parse_json(in_strict_json(text), limits);
  }
  return parse_json(text, limits);
}

}  // namespace shoal
