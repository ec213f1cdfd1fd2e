// Filters over text and numbers.
#include <charconv>
#include <cmath>

#include "absl/strings/str_format.h"
#include "text/jinja/strings.h"
#include "text/tokenizer/string_map.h"

namespace shoal::jinja {
namespace {

// Filters that are methods of str underneath leave markup markup.
Value keep_markup(const Value& input, Value result) { return input.markup() ? result.as_markup() : result; }

Value default_filter(Interpreter&, const Value& v, Args& args) {
  const Bound bound("default", args, {"default_value", "boolean"});
  const bool replace = v.is(Kind::kUndefined) || (bound.boolean(1, false) && !truthy(v));
  return !replace ? v : bound.has(0) ? *bound.get(0) : Value::string("");
}

template <void (*Map)(std::string&, char32_t)>
Value mapped(Interpreter& in, const Value& v, Args&) {
  return keep_markup(v, in.make_string(map_chars(in.text_of(v), [](std::string& out, char32_t c, size_t) { Map(out, c); })));
}

Value capitalize_filter(Interpreter& in, const Value& v, Args&) {
  return keep_markup(v, in.make_string(capitalize(in.text_of(v))));
}

// Unlike str.title() words begin after white space, hyphens and opening brackets only.
Value title(Interpreter& in, const Value& v, Args&) {
  bool begins = true;
  return in.make_string(map_chars(in.text_of(v), [&](std::string& out, char32_t c, size_t) {
    const bool separator = unicode::is_whitespace(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
    begins ? unicode::append_upper(out, c) : unicode::append_lower(out, c);
    begins = separator;
  }));
}

Value trim(Interpreter& in, const Value& v, Args& args) {
  const Bound bound("trim", args, {"chars"});
  const bool spaces = !bound.has(0) || bound.get(0)->is(Kind::kNone);
  const std::string chars = spaces ? "" : bound.string(0, "");
  return keep_markup(v, in.make_string(strip(in.text_of(v), true, true, spaces ? nullptr : &chars)));
}

Value replace(Interpreter& in, const Value& v, Args& args) {
  const Bound bound("replace", args, {"old", "new", "count"}, 2);
  return replace_text(in, in.text_of(v), in.text_of(*bound.get(0)).text, in.text_of(*bound.get(1)), bound.integer(2, -1));
}

Value string(Interpreter& in, const Value& v, Args&) { return v.is(Kind::kString) ? v : in.make_string(in.text_of(v)); }
Value safe(Interpreter& in, const Value& v, Args& args) { return string(in, v, args).as_markup(); }
Value escape(Interpreter& in, const Value& v, Args&) { return escape_html(in, v); }
Value forceescape(Interpreter& in, const Value& v, Args&) { return escape_html(in, in.make_string(in.text_of(v))); }

Value indent(Interpreter& in, const Value& v, Args& args) {
  const Bound bound("indent", args, {"width", "first", "blank"});
  const bool by_text = bound.has(0) && bound.get(0)->is(Kind::kString);
  MarkedText unit = by_text ? bound.text(0, "") : MarkedText();
  if (!by_text) {
    const int64_t width = std::max<int64_t>(0, bound.integer(0, 4));
    in.check_size(static_cast<size_t>(width));
    unit.text.assign(static_cast<size_t>(width), ' ');
  }
  const bool blank = bound.boolean(2, false);
  MarkedText s = in.text_of(v);
  append(s, "\n", false);  // so that a last empty line counts as one
  Args none;
  const std::vector<Value> lines = in.iterate(in.call_method(Value::string(std::move(s)), "splitlines", none));
  MarkedText out;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) append(out, "\n", false);
    const bool indented = i == 0 ? bound.boolean(1, false) : blank || !lines[i].str().empty();
    if (indented) append(out, unit);
    append(out, lines[i].text());
    in.check_size(out.text.size());
  }
  return keep_markup(v, in.make_string(std::move(out)));
}

Value center(Interpreter& in, const Value& v, Args& args) {
  const Bound bound("center", args, {"width"});
  return in.make_string(pad(in, in.text_of(v), bound.integer(0, 80), {" ", {}}, Align::kCenter));
}

Value truncate(Interpreter& in, const Value& v, Args& args) {
  const Bound bound("truncate", args, {"length", "killwords", "end", "leeway"});
  const MarkedText s = in.text_of(v), end = bound.text(2, "...");
  const int64_t length = bound.integer(0, 255), leeway = bound.integer(3, 5);
  const auto end_length = static_cast<int64_t>(unicode::length(end.text));
  if (length < end_length) fail("expected length >= ", end_length, ", got ", length);
  if (leeway < 0) fail("expected leeway >= 0, got ", leeway);
  if (static_cast<int64_t>(unicode::length(s.text)) <= length + leeway) return in.make_string(s);
  MarkedText out = s.sub(0, offset_of(s.text, static_cast<size_t>(length - end_length)));
  if (!bound.boolean(1, false)) {
    const size_t space = out.text.rfind(' ');
    if (space != std::string::npos) out = out.sub(0, space);
  }
  append(out, end);
  return in.make_string(std::move(out));
}

Value wordcount(Interpreter& in, const Value& v, Args&) {
  const std::string s = in.text_of(v).text;
  int64_t count = 0;
  bool in_word = false;
  for (size_t at = 0, bytes = 0; at < s.size(); at += bytes) {
    const bool word = unicode::is_word(unicode::decode(s, at, &bytes));
    count += word && !in_word;
    in_word = word;
  }
  return Value::integer(count);
}

// Percent-encoding of all but letters, digits, "_.-~" and `safe_chars`.
MarkedText quote(const MarkedText& s, std::string_view safe_chars, std::string_view space) {
  Rewriter out(s);
  for (size_t at = 0; at < s.text.size(); ++at) {
    const auto b = static_cast<uint8_t>(s.text[at]);
    const bool keep = (b < 0x80 && std::isalnum(b)) || std::string_view("_.-~").find(static_cast<char>(b)) != std::string_view::npos ||
                      safe_chars.find(static_cast<char>(b)) != std::string_view::npos;
    if (keep) {
      out.keep(at, at + 1);
    } else {
      out.put(b == ' ' ? std::string(space) : absl::StrFormat("%%%02X", b), at, at + 1);
    }
  }
  return out.take();
}

Value urlencode(Interpreter& in, const Value& v, Args&) {
  if (!v.is(Kind::kDict)) return in.make_string(quote(in.text_of(v), "/", "%20"));
  MarkedText out;
  for (const auto& entry : v.entries().entries) {
    if (!out.text.empty()) append(out, "&", false);
    append(out, quote(in.text_of(entry.key), "", "+"));
    append(out, "=", false);
    append(out, quote(in.text_of(entry.value), "", "+"));
  }
  return in.make_string(std::move(out));
}

Value format(Interpreter& in, const Value& v, Args& args) {
  if (!args.positional.empty() && !args.named.empty()) fail("can't handle positional and keyword arguments at the same time");
  if (args.named.empty()) return percent_format(in, in.text_of(v), in.make_list(args.positional, Kind::kTuple));
  DictObject* dict = in.make_dict();
  for (auto& [name, value] : args.named) dict->set(Value::string(name), value);
  return percent_format(in, in.text_of(v), Value::dict(dict));
}

// ---- numbers ----

std::string stripped(const Value& v) {
  std::string text = strip(v.text(), true, true, nullptr).text;
  std::erase(text, '_');
  if (text.starts_with('+')) text.erase(0, 1);
  return text;
}

std::optional<double> parse_real(const Value& v) {
  if (v.is_number()) return v.as_double();
  if (!v.is(Kind::kString)) return std::nullopt;
  const std::string text = stripped(v);
  double value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

Value int_filter(Interpreter&, const Value& v, Args& args) {
  const Bound bound("int", args, {"default", "base"});
  const Value fallback = bound.has(0) ? *bound.get(0) : Value::integer(0);
  if (v.is_integral()) return Value::integer(v.as_int(), v.untrusted());
  if (v.is(Kind::kString)) {
    std::string text = stripped(v);
    const int64_t base = bound.integer(1, 10);
    if (base < 2 || base > 36) return fallback;
    for (const auto& [prefix, radix] : {std::pair("0x", 16), std::pair("0o", 8), std::pair("0b", 2)}) {
      if (base == radix && text.starts_with(prefix)) text.erase(0, 2);
    }
    int64_t value = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value, static_cast<int>(base));
    if (parsed.ec == std::errc() && parsed.ptr == text.data() + text.size()) return Value::integer(value, true);
  }
  const auto real = parse_real(v);
  if (!real || !std::isfinite(*real) || std::abs(*real) > 9e18) return fallback;
  return Value::integer(static_cast<int64_t>(*real), v.is(Kind::kString) || v.untrusted());
}

Value float_filter(Interpreter&, const Value& v, Args& args) {
  const Bound bound("float", args, {"default"});
  if (const auto real = parse_real(v)) return Value::real(*real, v.is(Kind::kString) || v.untrusted());
  return bound.has(0) ? *bound.get(0) : Value::real(0.0);
}

Value abs_filter(Interpreter& in, const Value& v, Args&) {
  if (v.is(Kind::kUndefined)) fail_undefined(v);
  if (!v.is_number()) fail("bad operand type for abs(): '", type_name(v), "'");
  return v.as_double() < 0 ? in.arithmetic(Op::kMultiply, v, Value::integer(-1)) : in.arithmetic(Op::kAdd, Value::integer(0), v);
}

Value round_filter(Interpreter&, const Value& v, Args& args) {
  const Bound bound("round", args, {"precision", "method"});
  const std::string method = bound.string(1, "common");
  const int64_t precision = std::clamp<int64_t>(bound.integer(0, 0), -300, 300);
  if (v.is(Kind::kUndefined)) fail_undefined(v);
  if (!v.is_number()) fail("type ", type_name(v), " doesn't define __round__ method");
  if (method == "ceil" || method == "floor") {
    const double scale = std::pow(10.0, static_cast<double>(precision)), scaled = v.as_double() * scale;
    return Value::real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale, v.untrusted());
  }
  if (method != "common") fail("method must be common, ceil or floor");
  if (v.is_integral() && precision >= 0) return Value::integer(v.as_int(), v.untrusted());
  // Correctly rounded decimal digits, ties by the exact binary value, as CPython does it.
  double rounded = v.as_double();
  if (precision >= 0) {
    const std::string digits = absl::StrFormat("%.*f", static_cast<int>(precision), rounded);
    std::from_chars(digits.data(), digits.data() + digits.size(), rounded);
  } else {
    const double scale = std::pow(10.0, static_cast<double>(-precision));
    rounded = std::nearbyint(rounded / scale) * scale;
  }
  if (v.is_integral()) return Value::integer(static_cast<int64_t>(rounded), v.untrusted());
  return Value::real(rounded, v.untrusted());
}

Value filesizeformat(Interpreter& in, const Value& v, Args& args) {
  const Bound bound("filesizeformat", args, {"binary"});
  const bool binary = bound.boolean(0, false);
  const double bytes = parse_real(v).value_or(0), base = binary ? 1024 : 1000;
  if (bytes == 1) return Value::string("1 Byte");
  if (bytes < base) return in.make_string(absl::StrFormat("%d Bytes", static_cast<int64_t>(bytes)), v.untrusted());
  static constexpr const char* kDecimal[] = {"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"};
  static constexpr const char* kBinary[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"};
  double unit = base;
  size_t i = 0;
  while (bytes >= unit * base && i + 1 < std::size(kDecimal)) unit *= base, ++i;
  return in.make_string(absl::StrFormat("%.1f %s", bytes / unit, binary ? kBinary[i] : kDecimal[i]), v.untrusted());
}

}  // namespace

FilterFn find_text_filter(std::string_view name) {
  static const StringMap<FilterFn> filters = {
      {"abs", abs_filter},
      {"capitalize", capitalize_filter},
      {"center", center},
      {"d", default_filter},
      {"default", default_filter},
      {"e", escape},
      {"escape", escape},
      {"filesizeformat", filesizeformat},
      {"float", float_filter},
      {"forceescape", forceescape},
      {"format", format},
      {"indent", indent},
      {"int", int_filter},
      {"lower", mapped<unicode::append_lower>},
      {"replace", replace},
      {"round", round_filter},
      {"safe", safe},
      {"string", string},
      {"title", title},
      {"tojson", to_json},
      {"trim", trim},
      {"truncate", truncate},
      {"upper", mapped<unicode::append_upper>},
      {"urlencode", urlencode},
      {"wordcount", wordcount},
  };
  const auto it = filters.find(name);
  return it == filters.end() ? nullptr : it->second;
}

}  // namespace shoal::jinja
