// Operations on marked text that methods and filters share. Results carry the marks of what they were made of.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/interpreter.h"
#include "text/tokenizer/unicode.h"

namespace shoal::jinja {

// Replaces every code point by what f(out, c, index) appends.
template <typename F>
MarkedText map_chars(const MarkedText& s, F&& f) {
  Rewriter out(s);
  std::string mapped;
  size_t index = 0;
  for (size_t at = 0, bytes = 0; at < s.text.size(); at += bytes) {
    const char32_t c = unicode::decode(s.text, at, &bytes);
    mapped.clear();
    f(mapped, c, index++);
    out.put(mapped, at, at + bytes);
  }
  return out.take();
}

struct TextRange {
  size_t begin, end;
};
enum class Align { kLeft, kRight, kCenter };

size_t offset_of(std::string_view s, size_t index);  // bytes before the code point `index`
MarkedText capitalize(const MarkedText& s);
// `chars` null: white space.
MarkedText strip(const MarkedText& s, bool left, bool right, const std::string* chars);
// limit < 0: no limit. str.split() with and without a separator; REQUIRES: separator is not empty.
std::vector<TextRange> split_on(std::string_view s, std::string_view separator, int64_t limit, bool from_right);
std::vector<TextRange> split_spaces(std::string_view s, int64_t limit, bool from_right);
// A list of the ranges of `s`.
Value texts(Interpreter& in, const MarkedText& s, const std::vector<TextRange>& ranges);
Value replace_text(Interpreter& in, const MarkedText& s, std::string_view from, const MarkedText& to, int64_t limit);
// `fill` is one code point. Centered text leans as Python's does.
MarkedText pad(Interpreter& in, const MarkedText& s, int64_t width, const MarkedText& fill, Align align);

}  // namespace shoal::jinja
