// tojson with the options of `transformers`: ensure_ascii (false), indent, separators, sort_keys (false).
#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "text/jinja/interpreter.h"
#include "text/tokenizer/unicode.h"

namespace shoal::jinja {
namespace {

class JsonWriter {
 public:
  JsonWriter(Interpreter& in, Args& args) : in_(in) {
    const Bound bound("tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"});
    ensure_ascii_ = bound.boolean(0, false);
    sort_keys_ = bound.boolean(3, false);
    if (bound.has(1) && !bound.get(1)->is(Kind::kNone)) {
      pretty_ = true;
      if (bound.get(1)->is(Kind::kString)) {
        unit_ = bound.get(1)->str();
      } else {
        const int64_t width = std::max<int64_t>(0, bound.integer(1, 0));
        in.check_size(static_cast<size_t>(width));
        unit_.assign(static_cast<size_t>(width), ' ');
      }
      item_separator_ = ",";
    }
    if (bound.has(2) && !bound.get(2)->is(Kind::kNone)) {
      const std::vector<Value> pair = in.iterate(*bound.get(2));
      if (pair.size() != 2) fail("separators must be a pair");
      item_separator_ = require_string(pair[0], "separator").text;
      key_separator_ = require_string(pair[1], "separator").text;
    }
  }

  MarkedText run(const Value& v) {
    write(v, 0);
    return std::move(out_);
  }

 private:
  void put(std::string_view text, bool untrusted) {
    in_.check_size(out_.text.size() + text.size());
    append(out_, text, untrusted);
  }

  void write(const Value& v, size_t level) {
    in_.charge(1);
    switch (v.kind()) {
      case Kind::kNone: return put("null", v.untrusted());
      case Kind::kBool: return put(v.as_bool() ? "true" : "false", v.untrusted());
      case Kind::kInt: return put(absl::StrCat(v.as_int()), v.untrusted());
      case Kind::kFloat: return put(real(v.as_double()), v.untrusted());
      case Kind::kString: return write_string(v.text());
      case Kind::kList:
      case Kind::kTuple: return write_list(v.items(), level);
      case Kind::kDict: return write_dict(v.entries(), level);
      default: fail("Object of type ", type_name(v), " is not JSON serializable");
    }
  }

  static std::string real(double f) {
    if (std::isnan(f)) return "NaN";
    if (std::isinf(f)) return f > 0 ? "Infinity" : "-Infinity";
    return float_repr(f);
  }

  void new_line(size_t level, bool untrusted) {
    if (!pretty_) return;
    put("\n", untrusted);
    for (size_t i = 0; i < level; ++i) put(unit_, untrusted);
  }

  void write_list(const ListObject& list, size_t level) {
    if (list.items.empty()) return put("[]", list.untrusted);
    put("[", list.untrusted);
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) put(item_separator_, list.untrusted);
      new_line(level + 1, list.untrusted);
      write(list.items[i], level + 1);
    }
    new_line(level, list.untrusted);
    put("]", list.untrusted);
  }

  void write_dict(const DictObject& dict, size_t level) {
    if (dict.entries.empty()) return put("{}", dict.untrusted);
    std::vector<const DictObject::Entry*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (sort_keys_) {
      in_.charge(entries.size() * 8);
      std::stable_sort(entries.begin(), entries.end(), [](const auto* a, const auto* b) {
        if (!a->key.is(Kind::kString) || !b->key.is(Kind::kString)) {
          if (a->key.is_number() && b->key.is_number()) return a->key.as_double() < b->key.as_double();
          fail("'<' not supported between instances of '", type_name(a->key), "' and '", type_name(b->key), "'");
        }
        return a->key.str() < b->key.str();
      });
    }
    put("{", dict.untrusted);
    bool first = true;
    for (const auto* entry : entries) {
      if (!std::exchange(first, false)) put(item_separator_, dict.untrusted);
      new_line(level + 1, dict.untrusted);
      write_key(entry->key);
      put(key_separator_, dict.untrusted);
      write(entry->value, level + 1);
    }
    new_line(level, dict.untrusted);
    put("}", dict.untrusted);
  }

  void write_key(const Value& key) {
    switch (key.kind()) {
      case Kind::kString: return write_string(key.text());
      case Kind::kBool: return put(key.as_bool() ? "\"true\"" : "\"false\"", false);
      case Kind::kNone: return put("\"null\"", false);
      case Kind::kInt: return put(absl::StrCat("\"", key.as_int(), "\""), key.untrusted());
      case Kind::kFloat: return put("\"" + real(key.as_double()) + "\"", key.untrusted());
      default: fail("keys must be str, int, float, bool or None, not ", type_name(key));
    }
  }

  void write_string(const MarkedText& s) {
    const bool quotes_untrusted = s.untrusted(0, s.text.size());
    put("\"", quotes_untrusted);
    in_.charge_bytes(s.text.size());
    Rewriter out(s);
    size_t kept = 0;
    for (size_t at = 0, bytes = 0; at < s.text.size(); at += bytes) {
      const char32_t c = unicode::decode(s.text, at, &bytes);
      if (c >= 0x20 && c != '"' && c != '\\' && (c < 0x80 || !ensure_ascii_)) continue;
      out.keep(kept, at);
      out.put(escape(c), at, at + bytes);
      kept = at + bytes;
    }
    out.keep(kept, s.text.size());
    const MarkedText escaped = out.take();
    in_.check_size(out_.text.size() + escaped.text.size());
    append(out_, escaped);
    put("\"", quotes_untrusted);
  }

  static std::string escape(char32_t c) {
    switch (c) {
      case '"': return "\\\"";
      case '\\': return "\\\\";
      case '\n': return "\\n";
      case '\r': return "\\r";
      case '\t': return "\\t";
      case '\b': return "\\b";
      case '\f': return "\\f";
      default: break;
    }
    if (c < 0x10000) return absl::StrFormat("\\u%04x", static_cast<uint32_t>(c));
    const uint32_t v = static_cast<uint32_t>(c) - 0x10000;
    return absl::StrFormat("\\u%04x\\u%04x", 0xD800 + (v >> 10), 0xDC00 + (v & 0x3FF));
  }

  Interpreter& in_;
  MarkedText out_;
  bool ensure_ascii_ = false, sort_keys_ = false, pretty_ = false;
  std::string unit_, item_separator_ = ", ", key_separator_ = ": ";
};

}  // namespace

Value to_json(Interpreter& interpreter, const Value& v, Args& args) {
  return interpreter.make_string(JsonWriter(interpreter, args).run(v));
}

}  // namespace shoal::jinja
