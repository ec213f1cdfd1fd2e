// Values as Python prints them.
#include <charconv>
#include <cmath>

#include "absl/strings/str_format.h"
#include "text/jinja/value.h"
#include "text/tokenizer/unicode.h"

namespace shoal::jinja {
namespace {

// Exponents from here on (and below -4) are written out, as in CPython's repr.
constexpr int kScientificFrom = 16;

// repr of a string: single quotes unless it holds some and no double ones.
void append_string_repr(MarkedText& out, const MarkedText& s) {
  const bool has_single = s.text.find('\'') != std::string::npos;
  const char quote = has_single && s.text.find('"') == std::string::npos ? '"' : '\'';
  const bool all_untrusted = !s.marks.empty();
  append(out, std::string_view(&quote, 1), all_untrusted && s.untrusted(0, s.text.size()));
  for (size_t at = 0, bytes = 0; at < s.text.size(); at += bytes) {
    const char32_t c = unicode::decode(s.text, at, &bytes);
    const bool untrusted = s.untrusted(at, at + bytes);
    if (c == '\\' || c == static_cast<char32_t>(quote)) {
      append(out, std::string("\\") + static_cast<char>(c), untrusted);
    } else if (c == '\n') {
      append(out, "\\n", untrusted);
    } else if (c == '\r') {
      append(out, "\\r", untrusted);
    } else if (c == '\t') {
      append(out, "\\t", untrusted);
    } else if (unicode::is_printable(c)) {
      append(out, std::string_view(s.text).substr(at, bytes), untrusted);
    } else if (c < 0x100) {
      append(out, absl::StrFormat("\\x%02x", static_cast<uint32_t>(c)), untrusted);
    } else if (c < 0x10000) {
      append(out, absl::StrFormat("\\u%04x", static_cast<uint32_t>(c)), untrusted);
    } else {
      append(out, absl::StrFormat("\\U%08x", static_cast<uint32_t>(c)), untrusted);
    }
  }
  append(out, std::string_view(&quote, 1), all_untrusted && s.untrusted(0, s.text.size()));
}

void append_items(MarkedText& out, const Value& v, std::string_view open, std::string_view close) {
  const ListObject& list = v.items();
  append(out, open, list.untrusted);
  for (size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) append(out, ", ", list.untrusted);
    append_repr(out, list.items[i]);
  }
  if (v.is(Kind::kTuple) && list.items.size() == 1) append(out, ",", list.untrusted);
  append(out, close, list.untrusted);
}

void append_dict(MarkedText& out, const DictObject& dict) {
  append(out, "{", dict.untrusted);
  bool first = true;
  for (const auto& entry : dict.entries) {
    if (!std::exchange(first, false)) append(out, ", ", dict.untrusted);
    append_repr(out, entry.key);
    append(out, ": ", dict.untrusted);
    append_repr(out, entry.value);
  }
  append(out, "}", dict.untrusted);
}

void append_view(MarkedText& out, const Value& v) {
  const ListObject& list = v.items();
  if (std::string_view(list.view) != "range") return append_items(out, v, absl::StrCat(list.view, "(["), "])");
  const size_t n = list.items.size();
  const int64_t begin = n > 0 ? list.items[0].as_int() : 0;
  const int64_t step = n > 1 ? list.items[1].as_int() - begin : 1;
  const int64_t end = begin + step * static_cast<int64_t>(n);
  append(out, step == 1 ? absl::StrCat("range(", begin, ", ", end, ")") : absl::StrCat("range(", begin, ", ", end, ", ", step, ")"),
         false);
}

}  // namespace

void append(MarkedText& to, const MarkedText& more) {
  if (!more.marks.empty()) {
    to.marks.resize(to.text.size(), MarkedText::kTrusted);
    to.marks += more.marks;
  } else if (!to.marks.empty()) {
    to.marks.append(more.text.size(), MarkedText::kTrusted);
  }
  to.text += more.text;
}

void append(MarkedText& to, std::string_view more, bool untrusted) {
  if (untrusted || !to.marks.empty()) {
    to.marks.resize(to.text.size(), MarkedText::kTrusted);
    to.marks.append(more.size(), untrusted ? MarkedText::kUntrusted : MarkedText::kTrusted);
  }
  to.text += more;
}

std::string float_repr(double f) {
  if (std::isnan(f)) return "nan";
  if (std::isinf(f)) return f > 0 ? "inf" : "-inf";
  char digits[64];
  const auto end = std::to_chars(digits, digits + sizeof(digits), f, std::chars_format::scientific).ptr;
  const std::string scientific(digits, end);
  const size_t e = scientific.find('e');
  const int exponent = std::atoi(scientific.c_str() + e + 1);
  if (exponent >= -4 && exponent < kScientificFrom) {
    const auto fixed_end = std::to_chars(digits, digits + sizeof(digits), f, std::chars_format::fixed).ptr;
    std::string fixed(digits, fixed_end);
    return fixed.find('.') == std::string::npos ? fixed + ".0" : fixed;
  }
  return scientific.substr(0, e) + absl::StrFormat("e%+03d", exponent);
}

MarkedText to_text(const Value& v) {
  if (v.is(Kind::kString)) return v.text();
  MarkedText out;
  if (!v.is(Kind::kUndefined)) append_repr(out, v);
  return out;
}

void append_repr(MarkedText& out, const Value& v) {
  switch (v.kind()) {
    case Kind::kUndefined: return append(out, "Undefined", false);
    case Kind::kNone: return append(out, "None", false);
    case Kind::kBool: return append(out, v.as_bool() ? "True" : "False", false);
    case Kind::kInt: return append(out, absl::StrCat(v.as_int()), v.untrusted());
    case Kind::kFloat: return append(out, float_repr(v.as_double()), v.untrusted());
    case Kind::kString:
      if (v.markup()) append(out, "Markup(", false);
      append_string_repr(out, v.text());
      if (v.markup()) append(out, ")", false);
      return;
    case Kind::kList: return append_items(out, v, "[", "]");
    case Kind::kTuple: return append_items(out, v, "(", ")");
    case Kind::kDict: return append_dict(out, v.entries());
    case Kind::kView: return append_view(out, v);
    case Kind::kGenerator: return append(out, "<generator object>", false);
    case Kind::kNamespace: return append(out, "<Namespace>", false);
    case Kind::kLoop: return append(out, "<LoopContext>", false);
    case Kind::kCallable: return append(out, absl::StrCat("<function ", std::string(v.function().name()), ">"), false);
  }
}

}  // namespace shoal::jinja
