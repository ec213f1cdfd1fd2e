// "%d of %s" % (...) and "{} of {}".format(...).
#include <algorithm>
#include <charconv>
#include <cmath>

#include "absl/strings/str_format.h"
#include "text/jinja/strings.h"

namespace shoal::jinja {
namespace {

constexpr int kPrecisionMax = 1000;

// What both languages say about one field.
struct Spec {
  MarkedText fill{" ", {}};
  char align = 0;      // < > ^ =
  char sign = '-';     // - + or space
  bool alternate = false;
  char grouping = 0;   // , or _
  int64_t width = 0;
  int precision = -1;
  char type = 0;
};

// A decimal number; counts beyond what any width may be are refused.
int64_t take_number(std::string_view s, size_t& at) {
  int64_t value = 0;
  for (; at < s.size() && s[at] >= '0' && s[at] <= '9'; ++at) {
    value = value * 10 + (s[at] - '0');
    if (value > INT32_MAX) fail("too many decimal digits in format string");
  }
  return value;
}

void group_digits(std::string& digits, char separator) {
  const size_t end = std::min(digits.find_first_not_of("0123456789"), digits.size());
  for (size_t at = end; at > 3; at -= 3) digits.insert(at - 3, 1, separator);
}

std::string in_base(uint64_t value, int base, bool upper) {
  char digits[72];
  std::string out(digits, std::to_chars(digits, digits + sizeof(digits), value, base).ptr);
  if (upper) std::transform(out.begin(), out.end(), out.begin(), [](char c) { return static_cast<char>(std::toupper(static_cast<unsigned char>(c))); });
  return out;
}

// The magnitude of a number as `spec.type` asks for it.
std::string magnitude(const Value& v, const Spec& spec) {
  const char type = spec.type;
  const bool integral_type = std::string_view("dioxXbu").find(type) != std::string_view::npos && type != 0;
  if (integral_type || (type == 0 && v.is_integral())) {
    const double real = v.as_double();
    if (!v.is_integral() && (!std::isfinite(real) || std::abs(real) > 9e18)) fail("cannot convert float to integer");
    const int64_t i = v.is_integral() ? v.as_int() : static_cast<int64_t>(real);
    const uint64_t bits = i < 0 ? 0 - static_cast<uint64_t>(i) : static_cast<uint64_t>(i);
    const int base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
    const std::string prefix = spec.alternate && base != 10 ? std::string("0") + type : "";
    return prefix + in_base(bits, base, type == 'X');
  }
  const double f = std::abs(v.as_double());
  if (type == 0 && spec.precision < 0) return float_repr(f);
  const int precision = spec.precision < 0 ? 6 : spec.precision;
  switch (type) {
    case 'e': return absl::StrFormat("%.*e", precision, f);
    case 'E': return absl::StrFormat("%.*E", precision, f);
    case 'f':
    case 'F': return absl::StrFormat("%.*f", precision, f);
    case '%': return absl::StrFormat("%.*f", precision, f * 100) + "%";
    case 'G': return absl::StrFormat("%.*G", precision, f);
    default: return absl::StrFormat("%.*g", precision, f);
  }
}

MarkedText format_number(Interpreter& in, const Value& v, Spec spec) {
  if (spec.type == 'c') {
    MarkedText out;
    append(out, unicode::encode(static_cast<char32_t>(v.as_int())), v.untrusted());
    return pad(in, out, spec.width, spec.fill, spec.align == '<' ? Align::kLeft : Align::kRight);
  }
  std::string digits = magnitude(v, spec);
  if (spec.grouping != 0) group_digits(digits, spec.grouping);
  const bool negative = v.is_integral() ? v.as_int() < 0 : std::signbit(v.as_double());
  const std::string sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  MarkedText body, out;
  append(body, digits, v.untrusted());
  append(out, sign, v.untrusted());
  if (spec.align == '=') {
    append(out, pad(in, body, spec.width - static_cast<int64_t>(sign.size()), spec.fill, Align::kRight));
    return out;
  }
  append(out, body);
  const Align align = spec.align == '<' ? Align::kLeft : spec.align == '^' ? Align::kCenter : Align::kRight;
  return pad(in, out, spec.width, spec.fill, align);
}

MarkedText format_text(Interpreter& in, MarkedText text, const Spec& spec) {
  if (spec.precision >= 0) text = text.sub(0, offset_of(text.text, static_cast<size_t>(spec.precision)));
  const Align align = spec.align == '>' ? Align::kRight : spec.align == '^' ? Align::kCenter : Align::kLeft;
  return pad(in, text, spec.width, spec.fill, align);
}

// ---- percent ----

class PercentFormatter {
 public:
  PercentFormatter(Interpreter& in, const MarkedText& format, const Value& arguments)
      : in_(in), format_(format), s_(format.text), arguments_(arguments) {}

  MarkedText run() {
    size_t kept = 0;
    for (size_t at = s_.find('%'); at != std::string_view::npos; at = s_.find('%', kept)) {
      append(out_, format_.sub(kept, at));
      kept = field(at + 1);
      in_.check_size(out_.text.size());
    }
    append(out_, format_.sub(kept, s_.size()));
    const bool all_used = !arguments_.is(Kind::kTuple) ? next_ > 0 || arguments_.is(Kind::kDict) || arguments_.is(Kind::kList)
                                                       : next_ >= arguments_.items().items.size();
    if (!all_used && !by_name_) fail("not all arguments converted during string formatting");
    return std::move(out_);
  }

 private:
  const Value& next() {
    if (!arguments_.is(Kind::kTuple)) {
      if (next_++ > 0) fail("not enough arguments for format string");
      return arguments_;
    }
    if (next_ >= arguments_.items().items.size()) fail("not enough arguments for format string");
    return arguments_.items().items[next_++];
  }

  // Writes the field whose text begins at `at`; returns where it ends.
  size_t field(size_t at) {
    const Value* value = nullptr;
    if (at < s_.size() && s_[at] == '(') {
      const size_t close = s_.find(')', at);
      if (close == std::string_view::npos || !arguments_.is(Kind::kDict)) fail("format requires a mapping");
      value = arguments_.entries().find(s_.substr(at + 1, close - at - 1));
      if (value == nullptr) fail("no argument '", std::string(s_.substr(at + 1, close - at - 1)), "' for format string");
      by_name_ = true;
      at = close + 1;
    }
    Spec spec;
    spec.align = '>';
    for (; at < s_.size() && std::string_view("-+ #0").find(s_[at]) != std::string_view::npos; ++at) flag(spec, s_[at]);
    spec.width = at < s_.size() && s_[at] == '*' ? (++at, require_int(next(), "width")) : take_number(s_, at);
    if (at < s_.size() && s_[at] == '.') spec.precision = static_cast<int>(std::min<int64_t>(take_number(s_, ++at), kPrecisionMax));
    while (at < s_.size() && (s_[at] == 'l' || s_[at] == 'h' || s_[at] == 'L')) ++at;
    if (at >= s_.size()) fail("incomplete format");
    spec.type = s_[at];
    if (spec.type == '%') {
      append(out_, "%", false);
    } else {
      convert(value != nullptr ? *value : next(), spec);
    }
    return at + 1;
  }
  static void flag(Spec& spec, char c) {
    if (c == '-') spec.align = '<';
    if (c == '+') spec.sign = '+';
    if (c == ' ' && spec.sign != '+') spec.sign = ' ';
    if (c == '#') spec.alternate = true;
    if (c == '0' && spec.align != '<') spec.align = '=', spec.fill = {"0", {}};
  }
  void convert(const Value& v, Spec& spec) {
    if (spec.type == 's' || spec.type == 'r' || spec.type == 'a') {
      MarkedText text;
      if (spec.type == 's') {
        text = in_.text_of(v);
      } else {
        in_.charge(weight_of(v));
        append_repr(text, v);
      }
      spec.fill = {" ", {}};
      if (spec.align == '=') spec.align = '>';
      return append(out_, format_text(in_, std::move(text), spec));
    }
    if (spec.type == 'c' && v.is(Kind::kString)) return append(out_, format_text(in_, v.text(), spec));
    if (std::string_view("diuoxXeEfFgGc").find(spec.type) == std::string_view::npos) {
      fail("unsupported format character '", std::string(1, spec.type), "'");
    }
    if (v.is(Kind::kUndefined)) fail_undefined(v);
    if (!v.is_number()) fail("%", std::string(1, spec.type), " format: a number is required, not ", type_name(v));
    append(out_, format_number(in_, v, spec));
  }

  Interpreter& in_;
  const MarkedText& format_;
  const std::string_view s_;
  const Value& arguments_;
  size_t next_ = 0;
  bool by_name_ = false;
  MarkedText out_;
};

// ---- braces ----

class BraceFormatter {
 public:
  BraceFormatter(Interpreter& in, Args& args) : in_(in), args_(args) {}

  // Fields inside of a format specification may hold fields once more, but not deeper.
  MarkedText run(const MarkedText& format, int depth) {
    if (depth > 1) fail("max string recursion exceeded");
    const std::string_view s = format.text;
    MarkedText out;
    for (size_t at = 0; at < s.size();) {
      const size_t brace = std::min(s.find_first_of("{}", at), s.size());
      append(out, format.sub(at, brace));
      if (brace == s.size()) break;
      if (s.substr(brace + 1, 1) == s.substr(brace, 1)) {
        append(out, format.sub(brace, brace + 1));
        at = brace + 2;
        continue;
      }
      if (s[brace] == '}') fail("single '}' encountered in format string");
      const size_t close = matching(s, brace);
      append(out, field(format.sub(brace + 1, close), depth));
      in_.check_size(out.text.size());
      at = close + 1;
    }
    return out;
  }

 private:
  static size_t matching(std::string_view s, size_t open) {
    int nesting = 0;
    for (size_t at = open; at < s.size(); ++at) {
      if (s[at] == '{') ++nesting;
      if (s[at] == '}' && --nesting == 0) return at;
    }
    fail("expected '}' before end of string");
  }

  MarkedText field(const MarkedText& field, int depth) {
    const std::string_view s = field.text;
    size_t end = 0;
    while (end < s.size() && s[end] != '!' && s[end] != ':') end = s[end] == '[' ? std::min(s.find(']', end), s.size() - 1) + 1 : end + 1;
    const Value v = look_up(s.substr(0, end));
    char conversion = 0;
    if (end < s.size() && s[end] == '!') {
      if (end + 1 >= s.size()) fail("end of string while looking for conversion specifier");
      conversion = s[end + 1];
      end += 2;
      if (end < s.size() && s[end] != ':') fail("expected ':' after conversion specifier");
    }
    const MarkedText spec = end < s.size() ? run(field.sub(end + 1, s.size()), depth + 1) : MarkedText();
    if (conversion == 'r' || conversion == 'a') {
      MarkedText text;
      in_.charge(weight_of(v));
      append_repr(text, v);
      return format_value(Value::string(std::move(text)), spec);
    }
    if (conversion != 0 && conversion != 's') fail("unknown conversion specifier '", std::string(1, conversion), "'");
    return format_value(conversion == 's' ? Value::string(in_.text_of(v)) : v, spec);
  }

  // "0.name[key]" among the arguments; "" is the next one.
  Value look_up(std::string_view path) {
    size_t at = std::min(path.find_first_of(".["), path.size());
    const std::string_view head = path.substr(0, at);
    Value v = argument(head);
    while (at < path.size()) {
      if (path[at] == '.') {
        const size_t end = std::min(path.find_first_of(".[", at + 1), path.size());
        v = in_.attribute(v, path.substr(at + 1, end - at - 1));
        at = end;
      } else {
        const size_t close = path.find(']', at);
        if (close == std::string_view::npos) fail("missing ']' in format string");
        const std::string_view key = path.substr(at + 1, close - at - 1);
        size_t digits = 0;
        const bool is_index = !key.empty() && key.find_first_not_of("0123456789") == std::string_view::npos;
        v = in_.item(v, is_index ? Value::integer(take_number(key, digits)) : Value::string(key));
        at = close + 1;
      }
      if (v.is(Kind::kUndefined)) fail_undefined(v);
    }
    return v;
  }
  Value argument(std::string_view head) {
    const bool is_index = head.find_first_not_of("0123456789") == std::string_view::npos;
    if (is_index) {
      size_t digits = 0;
      const auto i = head.empty() ? next_++ : static_cast<size_t>(take_number(head, digits));
      if (i >= args_.positional.size()) fail("replacement index ", i, " out of range for positional args tuple");
      return args_.positional[i];
    }
    for (const auto& [name, value] : args_.named) {
      if (name == head) return value;
    }
    fail("format() has no argument '", std::string(head), "'");
  }

  MarkedText format_value(const Value& v, const MarkedText& spec_text) {
    if (spec_text.text.empty()) return in_.text_of(v);
    const Spec spec = parse_spec(spec_text);
    if (v.is_number() && !(v.is(Kind::kBool) && spec.type == 0)) {
      if (spec.type == 's') fail("unknown format code 's' for object of type '", type_name(v), "'");
      return format_number(in_, v, spec);
    }
    if (!v.is(Kind::kString) && !v.is(Kind::kBool)) fail("unsupported format string passed to ", type_name(v), ".__format__");
    if (spec.type != 0 && spec.type != 's') fail("unknown format code '", std::string(1, spec.type), "' for object of type 'str'");
    if (spec.align == '=') fail("'=' alignment not allowed in string format specifier");
    return format_text(in_, in_.text_of(v), spec);
  }

  Spec parse_spec(const MarkedText& text) const {
    Spec spec;
    const std::string_view s = text.text;
    const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
    const size_t fill_bytes = unicode::step(s, 0);
    size_t at = 0;
    if (fill_bytes < s.size() && is_align(s[fill_bytes])) {
      spec.fill = text.sub(0, fill_bytes);
      spec.align = s[fill_bytes];
      at = fill_bytes + 1;
    } else if (is_align(s[0])) {
      spec.align = s[at++];
    }
    const auto peek = [&] { return at < s.size() ? s[at] : '\0'; };
    if (peek() == '+' || peek() == '-' || peek() == ' ') spec.sign = s[at++];
    if (peek() == '#') spec.alternate = true, ++at;
    if (peek() == '0') {
      ++at;
      if (spec.align == 0) spec.align = '=', spec.fill = {"0", {}};
    }
    spec.width = take_number(s, at);
    if (peek() == ',' || peek() == '_') spec.grouping = s[at++];
    if (peek() == '.') spec.precision = static_cast<int>(std::min<int64_t>(take_number(s, ++at), kPrecisionMax));
    if (at < s.size()) spec.type = s[at++];
    if (at < s.size() || (spec.type != 0 && std::string_view("sdnbcoxXeEfFgG%").find(spec.type) == std::string_view::npos)) {
      fail("invalid format specifier '", text.text, "'");
    }
    return spec;
  }

  Interpreter& in_;
  Args& args_;
  size_t next_ = 0;
};

}  // namespace

Value percent_format(Interpreter& interpreter, const MarkedText& format, const Value& arguments) {
  interpreter.charge_bytes(format.text.size());
  return interpreter.make_string(PercentFormatter(interpreter, format, arguments).run());
}

Value brace_format(Interpreter& interpreter, const MarkedText& format, Args& args) {
  interpreter.charge_bytes(format.text.size());
  return interpreter.make_string(BraceFormatter(interpreter, args).run(format, 0));
}

}  // namespace shoal::jinja
