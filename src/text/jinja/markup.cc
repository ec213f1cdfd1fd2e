// Strings that "safe" and "escape" marked as HTML. The environment does not escape by itself, but what is added to such
// a string is escaped, and templates in the field depend on it.
#include <algorithm>

#include "text/jinja/interpreter.h"
#include "text/jinja/strings.h"

namespace shoal::jinja {
namespace {

template <size_t N>
bool is_one_of(std::string_view name, const std::string_view (&names)[N]) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

constexpr std::string_view kEscapingMethods[] = {
    "capitalize", "casefold", "center", "expandtabs", "format", "ljust", "lower", "lstrip", "partition", "removeprefix",
    "removesuffix", "replace", "rjust", "rpartition", "rstrip", "strip", "swapcase", "title", "upper", "zfill"};
constexpr std::string_view kSplittingMethods[] = {"split", "rsplit", "splitlines", "partition", "rpartition"};

Value mark_all(Interpreter& in, const Value& v) {
  std::vector<Value> items;
  for (const Value& item : v.items().items) items.push_back(item.as_markup());
  return in.make_list(std::move(items), v.kind());
}

}  // namespace

Value escape_html(Interpreter& in, const Value& v) {
  if (v.is(Kind::kString) && v.markup()) return v;
  return in.make_string(map_chars(in.text_of(v), [](std::string& out, char32_t c, size_t) {
           switch (c) {
             case '&': out += "&amp;"; break;
             case '<': out += "&lt;"; break;
             case '>': out += "&gt;"; break;
             case '\'': out += "&#39;"; break;
             case '"': out += "&#34;"; break;
             default: unicode::append(out, c);
           }
         }))
      .as_markup();
}

Value call_string_method(Interpreter& in, MethodFn fn, std::string_view name, const Value& self, Args& args) {
  if (!self.markup()) return fn(in, self, args);
  const auto escape = [&](Value& v) {
    if (v.is(Kind::kString)) v = escape_html(in, v);
  };
  const bool escapes = is_one_of(name, kEscapingMethods);
  if (escapes) {
    for (Value& v : args.positional) escape(v);
    for (auto& [_, v] : args.named) escape(v);
  }
  if (name == "join" && !args.positional.empty()) {
    std::vector<Value> items = in.iterate(args.positional[0]);
    for (Value& v : items) v = escape_html(in, v);
    args.positional[0] = in.make_list(std::move(items));
  }
  const Value result = fn(in, self, args);
  if (is_one_of(name, kSplittingMethods)) return mark_all(in, result);
  return result.is(Kind::kString) && (escapes || name == "join") ? result.as_markup() : result;
}

}  // namespace shoal::jinja
