// What values are made of: items, attributes, slices, and the services that filters build values with.
#include <algorithm>

#include "text/jinja/interpreter.h"
#include "text/tokenizer/unicode.h"

namespace shoal::jinja {
namespace {

struct BoundMethod : CallableObject {
  BoundMethod(Value object, MethodFn method, std::string_view method_name)
      : self(std::move(object)), fn(method), name_(method_name) {}
  Value call(Interpreter& interpreter, Args& args) override {
    return self.is(Kind::kString) ? call_string_method(interpreter, fn, name_, self, args) : fn(interpreter, self, args);
  }
  std::string_view name() const override { return name_; }
  const Value self;
  const MethodFn fn;
  const std::string name_;
};

MethodFn find_method(const Value& object, std::string_view name) {
  return object.is(Kind::kString) ? find_string_method(name) : find_container_method(object.kind(), name);
}

Value no_attribute(const Value& object, std::string_view name) {
  if (object.is(Kind::kNone)) return Value::undefined(absl::StrCat("'None' has no attribute '", std::string(name), "'"));
  return Value::undefined(absl::StrCat("'", type_name(object), " object' has no attribute '", std::string(name), "'"));
}

Value unsafe_attribute(const Value& object, std::string_view name) {
  return Value::undefined(
      absl::StrCat("access to attribute '", std::string(name), "' of '", type_name(object), "' object is unsafe."));
}

Value loop_changed(Interpreter& in, const Value& self, Args& args) {
  LoopObject& loop = self.loop_state();
  const Value now = in.make_list(args.positional, Kind::kTuple);
  const bool changed = !loop.changed_any || in.compare(Op::kNe, loop.changed_last, now);
  loop.changed_any = true;
  loop.changed_last = now;
  return Value::boolean(changed);
}

Value loop_cycle(Interpreter&, const Value& self, Args& args) {
  if (args.positional.empty()) fail("no items for cycling given");
  return args.positional[self.loop_state().index % args.positional.size()];
}

Value loop_attribute(Interpreter& in, const Value& self, std::string_view name) {
  const LoopObject& loop = self.loop_state();
  const auto index = static_cast<int64_t>(loop.index), length = static_cast<int64_t>(loop.items.size());
  if (name == "index") return Value::integer(index + 1);
  if (name == "index0") return Value::integer(index);
  if (name == "revindex") return Value::integer(length - index);
  if (name == "revindex0") return Value::integer(length - index - 1);
  if (name == "first") return Value::boolean(index == 0);
  if (name == "last") return Value::boolean(index + 1 == length);
  if (name == "length") return Value::integer(length);
  if (name == "depth") return Value::integer(loop.depth + 1);
  if (name == "depth0") return Value::integer(loop.depth);
  if (name == "previtem") return index > 0 ? loop.items[loop.index - 1] : Value::undefined("there is no previous item");
  if (name == "nextitem") return index + 1 < length ? loop.items[loop.index + 1] : Value::undefined("there is no next item");
  if (name == "cycle") return Value::callable(in.make<BoundMethod>(self, loop_cycle, name));
  if (name == "changed") return Value::callable(in.make<BoundMethod>(self, loop_changed, name));
  return no_attribute(self, name);
}

// The byte offset of the code point `index` of a string of `count` code points.
size_t byte_offset(std::string_view s, size_t index, size_t count) {
  if (count == s.size()) return index;  // ASCII
  size_t at = 0;
  for (size_t i = 0; i < index; ++i) at += unicode::step(s, at);
  return at;
}

// Python's slice indices for a sequence of `length`, applied by calling take(i) for each.
struct SliceBounds {
  int64_t start, stop, step;
};
SliceBounds resolve(int64_t length, const Value& start, const Value& stop, const Value& step) {
  const auto given = [](const Value& v) { return !v.is(Kind::kNone) && !v.is(Kind::kUndefined); };
  SliceBounds b{0, 0, given(step) ? require_int(step, "slice step") : 1};
  if (b.step == 0) fail("slice step cannot be zero");
  const bool back = b.step < 0;
  const auto clamp = [&](const Value& v, int64_t fallback) {
    if (!given(v)) return fallback;
    int64_t i = require_int(v, "slice index");
    if (i < 0) i = i < -length ? -1 : i + length;
    return back ? std::clamp<int64_t>(i, -1, length - 1) : std::clamp<int64_t>(i, 0, length);
  };
  b.start = clamp(start, back ? length - 1 : 0);
  b.stop = clamp(stop, back ? -1 : length);
  return b;
}

}  // namespace

std::vector<Value> Interpreter::iterate(const Value& v) {
  std::vector<Value> out;
  switch (v.kind()) {
    case Kind::kUndefined: break;
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
      charge(v.items().items.size() / 4);
      return v.items().items;
    case Kind::kGenerator: {
      ListObject& rest = v.items();
      out.assign(rest.items.begin() + static_cast<ptrdiff_t>(rest.next), rest.items.end());
      rest.next = rest.items.size();
      break;
    }
    case Kind::kDict:
      charge(v.entries().entries.size() / 4);
      for (const auto& entry : v.entries().entries) out.push_back(entry.key);
      break;
    case Kind::kString: {
      const std::string& s = v.str();
      charge(s.size());
      for (size_t at = 0; at < s.size();) {
        const size_t bytes = unicode::step(s, at);
        out.push_back(Value::string(v.text().sub(at, at + bytes)));
        at += bytes;
      }
      break;
    }
    default: fail("'", type_name(v), "' object is not iterable");
  }
  return out;
}

Value Interpreter::attribute(const Value& object, std::string_view name) {
  if (object.is(Kind::kUndefined)) fail_undefined(object);
  if (const MethodFn fn = find_method(object, name)) return Value::callable(make<BoundMethod>(object, fn, name));
  switch (object.kind()) {
    case Kind::kDict:
    case Kind::kNamespace: {
      const Value* value = object.entries().find(name);
      if (value != nullptr) return *value;
      break;
    }
    case Kind::kLoop: return loop_attribute(*this, object, name);
    case Kind::kTuple:
      if (object.items().view == kGroupTuple && name == "grouper") return object.items().items[0];
      if (object.items().view == kGroupTuple && name == "list") return object.items().items[1];
      break;
    case Kind::kCallable: {
      Value value = object.function().attribute(*this, name);
      if (!value.is(Kind::kUndefined)) return value;
      break;
    }
    default: break;
  }
  return is_mutating_method(object.kind(), name) ? unsafe_attribute(object, name) : no_attribute(object, name);
}

Value Interpreter::call_method(const Value& object, std::string_view name, Args& args) {
  if (object.is(Kind::kUndefined)) fail_undefined(object);
  if (const MethodFn fn = find_method(object, name)) {
    const Deeper deeper(*this);
    return object.is(Kind::kString) ? call_string_method(*this, fn, name, object, args) : fn(*this, object, args);
  }
  return call(attribute(object, name), args);
}

Value Interpreter::item(const Value& object, const Value& key) {
  if (object.is(Kind::kUndefined)) fail_undefined(object);
  charge(weight_of(key));
  if (object.is(Kind::kDict)) {
    if (key.is(Kind::kList) || key.is(Kind::kDict)) return Value::undefined("unhashable key");
    if (const Value* value = object.entries().find(key)) return *value;
  }
  const bool sequence = object.is(Kind::kList) || object.is(Kind::kTuple) || object.is(Kind::kString) ||
                        (object.is(Kind::kView) && std::string_view(object.items().view) == "range");
  if (sequence && key.is_integral()) {
    const bool is_string = object.is(Kind::kString);
    const size_t count = is_string ? unicode::length(object.str()) : object.items().items.size();
    if (is_string) charge_bytes(object.str().size());
    const auto length = static_cast<int64_t>(count);
    const int64_t index = key.as_int() < 0 ? key.as_int() + length : key.as_int();
    if (index < 0 || index >= length) return Value::undefined(absl::StrCat(type_name(object), " object has no element ", key.as_int()));
    if (!is_string) return object.items().items[static_cast<size_t>(index)];
    const size_t at = byte_offset(object.str(), static_cast<size_t>(index), count);
    const Value character = Value::string(object.text().sub(at, at + unicode::step(object.str(), at)));
    return object.markup() ? character.as_markup() : character;
  }
  if (!key.is(Kind::kString)) {
    return Value::undefined(absl::StrCat("'", type_name(object), " object' has no element ", text_of(key).text));
  }
  return attribute(object, key.str());
}

Value Interpreter::slice(const Value& object, const Expr& e, Scope& scope) {
  Value parts[3];
  for (size_t i = 0; i < 3; ++i) {
    if (e.children[i] != nullptr) parts[i] = eval(*e.children[i], scope);
  }
  if (object.is(Kind::kUndefined)) fail_undefined(object);
  if (object.is(Kind::kString)) {
    const std::string& s = object.str();
    const size_t count = unicode::length(s);
    const SliceBounds b = resolve(static_cast<int64_t>(count), parts[0], parts[1], parts[2]);
    charge_bytes(s.size());
    if (b.step == 1) {
      if (b.start >= b.stop) return Value::string("");
      const size_t begin = byte_offset(s, static_cast<size_t>(b.start), count);
      const size_t end = begin + byte_offset(std::string_view(s).substr(begin), static_cast<size_t>(b.stop - b.start),
                                             count == s.size() ? s.size() - begin : SIZE_MAX);
      const Value part = make_string(object.text().sub(begin, end));
      return object.markup() ? part.as_markup() : part;
    }
    const std::vector<Value> characters = iterate(object);
    MarkedText out;
    for (int64_t i = b.start; b.step > 0 ? i < b.stop : i > b.stop; i += b.step) append(out, characters[static_cast<size_t>(i)].text());
    return make_string(std::move(out));
  }
  if (!object.is(Kind::kList) && !object.is(Kind::kTuple) && !object.is(Kind::kView)) {
    return Value::undefined(absl::StrCat("'", type_name(object), "' object cannot be sliced"));
  }
  const std::vector<Value>& items = object.items().items;
  const SliceBounds b = resolve(static_cast<int64_t>(items.size()), parts[0], parts[1], parts[2]);
  std::vector<Value> out;
  for (int64_t i = b.start; b.step > 0 ? i < b.stop : i > b.stop; i += b.step) {
    out.push_back(items[static_cast<size_t>(i)]);
    if (b.step > INT64_MAX - std::abs(i)) break;
  }
  return make_list(std::move(out), object.kind(), object.untrusted(), object.items().view);
}

void fail_undefined(const Value& v) { fail(v.has_text() ? v.str() : "value is undefined"); }

int64_t require_int(const Value& v, std::string_view what) {
  if (v.is(Kind::kUndefined)) fail_undefined(v);
  if (!v.is_integral()) fail(std::string(what), " must be an integer, not ", type_name(v));
  return v.as_int();
}

const MarkedText& require_string(const Value& v, std::string_view what) {
  if (v.is(Kind::kUndefined)) fail_undefined(v);
  if (!v.is(Kind::kString)) fail(std::string(what), " must be str, not ", type_name(v));
  return v.text();
}

Bound::Bound(std::string_view function, const Args& args, std::initializer_list<std::string_view> names, size_t required)
    : function_(function), values_(names.size()) {
  if (args.positional.size() > names.size()) {
    fail(function_, "() takes at most ", names.size(), " argument(s), ", args.positional.size(), " given");
  }
  for (size_t i = 0; i < args.positional.size(); ++i) values_[i] = args.positional[i];
  for (const auto& [name, value] : args.named) {
    const auto it = std::find(names.begin(), names.end(), name);
    if (it == names.end()) fail(function_, "() got an unexpected keyword argument '", name, "'");
    auto& slot = values_[static_cast<size_t>(it - names.begin())];
    if (slot) fail(function_, "() got multiple values for argument '", name, "'");
    slot = value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (!values_[i]) fail(function_, "() missing argument '", std::string(names.begin()[i]), "'");
  }
}

int64_t Bound::integer(size_t i, int64_t fallback) const {
  return has(i) && !get(i)->is(Kind::kNone) ? require_int(*get(i), function_) : fallback;
}
bool Bound::boolean(size_t i, bool fallback) const { return has(i) ? truthy(*get(i)) : fallback; }
MarkedText Bound::text(size_t i, std::string_view fallback) const {
  if (!has(i)) return MarkedText{std::string(fallback), {}};
  return require_string(*get(i), function_ + "() argument");
}

}  // namespace shoal::jinja
