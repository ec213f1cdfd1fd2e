// The methods of str. Positions and widths count code points.
#include <algorithm>

#include "text/jinja/interpreter.h"
#include "text/jinja/strings.h"
#include "text/tokenizer/string_map.h"
#include "text/tokenizer/unicode.h"

namespace shoal::jinja {
namespace {

using unicode::decode;

// ---- case ----

template <void (*Map)(std::string&, char32_t)>
Value mapped(Interpreter& in, const Value& self, Args&) {
  return in.make_string(map_chars(self.text(), [](std::string& out, char32_t c, size_t) { Map(out, c); }));
}

Value capitalize_method(Interpreter& in, const Value& self, Args&) { return in.make_string(capitalize(self.text())); }

Value title_method(Interpreter& in, const Value& self, Args&) {
  bool in_word = false;
  return in.make_string(map_chars(self.text(), [&](std::string& out, char32_t c, size_t) {
    const bool cased = unicode::is_upper(c) || unicode::is_lower(c) || unicode::is_title(c);
    in_word ? unicode::append_lower(out, c) : unicode::append_title(out, c);
    in_word = cased;
  }));
}

Value swapcase(Interpreter& in, const Value& self, Args&) {
  return in.make_string(map_chars(self.text(), [](std::string& out, char32_t c, size_t) {
    unicode::is_upper(c) ? unicode::append_lower(out, c) : unicode::append_upper(out, c);
  }));
}

// ---- tests ----

template <bool (*Holds)(char32_t)>
Value all_chars(Interpreter&, const Value& self, Args&) {
  const std::string& s = self.str();
  for (size_t at = 0, bytes = 0; at < s.size(); at += bytes) {
    if (!Holds(decode(s, at, &bytes))) return Value::boolean(false);
  }
  return Value::boolean(!s.empty());
}

template <bool (*Wanted)(char32_t), bool (*Refused)(char32_t)>
Value cased(Interpreter&, const Value& self, Args&) {
  const std::string& s = self.str();
  bool any = false;
  for (size_t at = 0, bytes = 0; at < s.size(); at += bytes) {
    const char32_t c = decode(s, at, &bytes);
    if (Refused(c) || unicode::is_title(c)) return Value::boolean(false);
    any |= Wanted(c);
  }
  return Value::boolean(any);
}

Value istitle(Interpreter&, const Value& self, Args&) {
  const std::string& s = self.str();
  bool any = false, in_word = false;
  for (size_t at = 0, bytes = 0; at < s.size(); at += bytes) {
    const char32_t c = decode(s, at, &bytes);
    const bool upper = unicode::is_upper(c) || unicode::is_title(c), lower = unicode::is_lower(c);
    if ((upper && in_word) || (lower && !in_word)) return Value::boolean(false);
    in_word = upper || lower;
    any |= in_word;
  }
  return Value::boolean(any);
}

Value isascii(Interpreter&, const Value& self, Args&) { return Value::boolean(unicode::is_ascii(self.str())); }

Value isidentifier(Interpreter&, const Value& self, Args&) {
  const std::string& s = self.str();
  bool first = true;
  for (size_t at = 0, bytes = 0; at < s.size(); at += bytes) {
    const char32_t c = decode(s, at, &bytes);
    if (!(c == '_' || unicode::is_letter(c) || (!std::exchange(first, false) && unicode::is_word(c)))) return Value::boolean(false);
    first = false;
  }
  return Value::boolean(!s.empty());
}

// ---- stripping ----

template <bool Left, bool Right>
Value strip_method(Interpreter& in, const Value& self, Args& args) {
  const Bound bound("strip", args, {"chars"});
  const bool spaces = !bound.has(0) || bound.get(0)->is(Kind::kNone);
  const MarkedText chars = spaces ? MarkedText() : bound.text(0, "");
  return in.make_string(strip(self.text(), Left, Right, spaces ? nullptr : &chars.text));
}

Value removeprefix(Interpreter& in, const Value& self, Args& args) {
  const std::string prefix = Bound("removeprefix", args, {"prefix"}, 1).string(0, "");
  return self.str().starts_with(prefix) ? in.make_string(self.text().sub(prefix.size(), self.str().size())) : self;
}
Value removesuffix(Interpreter& in, const Value& self, Args& args) {
  const std::string suffix = Bound("removesuffix", args, {"suffix"}, 1).string(0, "");
  return self.str().ends_with(suffix) ? in.make_string(self.text().sub(0, self.str().size() - suffix.size())) : self;
}

// ---- searching ----

// The byte range of s[start:end] as find() and its kind take it.
struct Window {
  size_t begin = 0, end = 0;
  bool valid = true;  // start lies within the string
};
Window window(const std::string& s, const Bound& bound, size_t first) {
  const auto length = static_cast<int64_t>(unicode::length(s));
  const auto clamp = [&](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + length : i, 0, length); };
  const int64_t start = bound.integer(first, 0);
  const int64_t begin = clamp(start), end = clamp(bound.integer(first + 1, length));
  Window w;
  w.valid = start <= length && begin <= end;
  w.begin = offset_of(s, static_cast<size_t>(begin));
  w.end = offset_of(s, static_cast<size_t>(std::max(begin, end)));
  return w;
}

template <bool Front>
Value affix(Interpreter&, const Value& self, Args& args) {
  const char* const name = Front ? "startswith" : "endswith";
  const Bound bound(name, args, {"prefix", "start", "end"}, 1);
  const Window w = window(self.str(), bound, 1);
  const std::string_view s = std::string_view(self.str()).substr(w.begin, w.end - w.begin);
  const auto matches = [&](const Value& v) {
    const std::string& text = require_string(v, std::string(name) + " first arg").text;
    return w.valid && (Front ? s.starts_with(text) : s.ends_with(text));
  };
  const Value& wanted = *bound.get(0);
  if (!wanted.is(Kind::kTuple)) return Value::boolean(matches(wanted));
  const auto& items = wanted.items().items;
  return Value::boolean(std::any_of(items.begin(), items.end(), matches));
}

template <bool Last, bool Must>
Value find_method(Interpreter& in, const Value& self, Args& args) {
  const Bound bound("find", args, {"sub", "start", "end"}, 1);
  const std::string wanted = bound.string(0, "");
  const Window w = window(self.str(), bound, 1);
  in.charge_bytes(self.str().size());
  const std::string_view s = std::string_view(self.str()).substr(w.begin, w.end - w.begin);
  const size_t at = !w.valid ? std::string_view::npos : Last ? s.rfind(wanted) : s.find(wanted);
  if (at != std::string_view::npos) {
    return Value::integer(static_cast<int64_t>(unicode::length(std::string_view(self.str()).substr(0, w.begin + at))));
  }
  if (Must) fail("substring not found");
  return Value::integer(-1);
}

Value count_method(Interpreter& in, const Value& self, Args& args) {
  const Bound bound("count", args, {"sub", "start", "end"}, 1);
  const std::string wanted = bound.string(0, "");
  const Window w = window(self.str(), bound, 1);
  in.charge_bytes(self.str().size());
  const std::string_view s = std::string_view(self.str()).substr(w.begin, w.end - w.begin);
  if (!w.valid) return Value::integer(0);
  if (wanted.empty()) return Value::integer(static_cast<int64_t>(unicode::length(s)) + 1);
  int64_t count = 0;
  for (size_t at = s.find(wanted); at != std::string_view::npos; at = s.find(wanted, at + wanted.size())) ++count;
  return Value::integer(count);
}

Value replace_method(Interpreter& in, const Value& self, Args& args) {
  const Bound bound("replace", args, {"old", "new", "count"}, 2);
  return replace_text(in, self.text(), bound.string(0, ""), bound.text(1, ""), bound.integer(2, -1));
}

// ---- splitting and joining ----

template <bool FromRight>
Value split_method(Interpreter& in, const Value& self, Args& args) {
  const Bound bound("split", args, {"sep", "maxsplit"});
  const bool spaces = !bound.has(0) || bound.get(0)->is(Kind::kNone);
  const std::string separator = spaces ? "" : bound.string(0, "");
  if (!spaces && separator.empty()) fail("empty separator");
  const int64_t limit = bound.integer(1, -1);
  const auto ranges = spaces ? split_spaces(self.str(), limit, FromRight) : split_on(self.str(), separator, limit, FromRight);
  return texts(in, self.text(), ranges);
}

Value splitlines(Interpreter& in, const Value& self, Args& args) {
  const bool keep = Bound("splitlines", args, {"keepends"}).boolean(0, false);
  const std::string& s = self.str();
  std::vector<TextRange> ranges;
  size_t begin = 0;
  for (size_t at = 0, bytes = 0; at < s.size(); at += bytes) {
    const char32_t c = decode(s, at, &bytes);
    if (!(c >= 0xA && c <= 0xD) && !(c >= 0x1C && c <= 0x1E) && c != 0x85 && c != 0x2028 && c != 0x2029) continue;
    const size_t end = at;
    if (c == '\r' && at + 1 < s.size() && s[at + 1] == '\n') bytes = 2;
    ranges.push_back({begin, keep ? at + bytes : end});
    begin = at + bytes;
  }
  if (begin < s.size()) ranges.push_back({begin, s.size()});
  return texts(in, self.text(), ranges);
}

template <bool Last>
Value partition(Interpreter& in, const Value& self, Args& args) {
  const std::string separator = Bound("partition", args, {"sep"}, 1).string(0, "");
  if (separator.empty()) fail("empty separator");
  const MarkedText& s = self.text();
  const size_t at = Last ? s.text.rfind(separator) : s.text.find(separator);
  std::vector<Value> parts;
  if (at != std::string::npos) {
    const size_t after = at + separator.size();
    parts = {in.make_string(s.sub(0, at)), in.make_string(s.sub(at, after)), in.make_string(s.sub(after, s.text.size()))};
  } else if (Last) {
    parts = {Value::string(""), Value::string(""), self};
  } else {
    parts = {self, Value::string(""), Value::string("")};
  }
  return in.make_list(std::move(parts), Kind::kTuple);
}

Value join_method(Interpreter& in, const Value& self, Args& args) {
  const Bound bound("join", args, {"iterable"}, 1);
  MarkedText out;
  bool first = true;
  for (const Value& item : in.iterate(*bound.get(0))) {
    if (!std::exchange(first, false)) append(out, self.text());
    append(out, require_string(item, "sequence item"));
    in.check_size(out.text.size());
  }
  return in.make_string(std::move(out));
}

// ---- padding ----

template <Align Where>
Value pad_method(Interpreter& in, const Value& self, Args& args) {
  const Bound bound("center", args, {"width", "fillchar"}, 1);
  const MarkedText fill = bound.text(1, " ");
  if (unicode::length(fill.text) != 1) fail("the fill character must be exactly one character long");
  return in.make_string(pad(in, self.text(), bound.integer(0, 0), fill, Where));
}

Value zfill(Interpreter& in, const Value& self, Args& args) {
  const int64_t width = Bound("zfill", args, {"width"}, 1).integer(0, 0);
  const MarkedText& s = self.text();
  const size_t sign = !s.text.empty() && (s.text[0] == '+' || s.text[0] == '-') ? 1 : 0;
  MarkedText out = s.sub(0, sign);
  append(out, pad(in, s.sub(sign, s.text.size()), width - static_cast<int64_t>(sign), {"0", {}}, Align::kRight));
  return in.make_string(std::move(out));
}

Value expandtabs(Interpreter& in, const Value& self, Args& args) {
  const int64_t size = Bound("expandtabs", args, {"tabsize"}).integer(0, 8);
  int64_t column = 0;
  return in.make_string(map_chars(self.text(), [&](std::string& out, char32_t c, size_t) {
    if (c != '\t') {
      unicode::append(out, c);
      column = c == '\n' || c == '\r' ? 0 : column + 1;
      return;
    }
    const int64_t spaces = size > 0 ? size - column % size : 0;
    in.check_size(static_cast<size_t>(spaces));
    in.charge_bytes(static_cast<size_t>(spaces));
    out.append(static_cast<size_t>(spaces), ' ');
    column += spaces;
  }));
}

Value format_method(Interpreter& in, const Value& self, Args& args) { return brace_format(in, self.text(), args); }

bool is_python_space(char32_t c) { return unicode::is_whitespace(c) || (c >= 0x1C && c <= 0x1F); }
bool is_python_alnum(char32_t c) { return unicode::is_letter(c) || unicode::is_numeric(c); }

}  // namespace

MethodFn find_string_method(std::string_view name) {
  static const StringMap<MethodFn> methods = {
      {"capitalize", capitalize_method},
      {"casefold", mapped<unicode::append_folded>},
      {"center", pad_method<Align::kCenter>},
      {"count", count_method},
      {"endswith", affix<false>},
      {"expandtabs", expandtabs},
      {"find", find_method<false, false>},
      {"format", format_method},
      {"index", find_method<false, true>},
      {"isalnum", all_chars<is_python_alnum>}, {"isalpha", all_chars<unicode::is_letter>},
      {"isascii", isascii},
      {"isdecimal", all_chars<unicode::is_decimal>},
      {"isdigit", all_chars<unicode::is_digit>},
      {"isidentifier", isidentifier},
      {"islower", cased<unicode::is_lower, unicode::is_upper>},
      {"isnumeric", all_chars<unicode::is_numeric>},
      {"isprintable", all_chars<unicode::is_printable>},
      {"isspace", all_chars<is_python_space>},
      {"istitle", istitle},
      {"isupper", cased<unicode::is_upper, unicode::is_lower>},
      {"join", join_method},
      {"ljust", pad_method<Align::kLeft>}, {"lower", mapped<unicode::append_lower>},
      {"lstrip", strip_method<true, false>},
      {"partition", partition<false>},
      {"removeprefix", removeprefix}, {"removesuffix", removesuffix},
      {"replace", replace_method},
      {"rfind", find_method<true, false>}, {"rindex", find_method<true, true>},
      {"rjust", pad_method<Align::kRight>},
      {"rpartition", partition<true>},
      {"rsplit", split_method<true>},
      {"rstrip", strip_method<false, true>},
      {"split", split_method<false>},
      {"splitlines", splitlines},
      {"startswith", affix<true>},
      {"strip", strip_method<true, true>},
      {"swapcase", swapcase}, {"title", title_method},
      {"upper", mapped<unicode::append_upper>}, {"zfill", zfill},
  };
  const auto it = methods.find(name);
  return it == methods.end() ? nullptr : it->second;
}

}  // namespace shoal::jinja
