// The methods of dict, list and tuple that do not change their object.
#include <algorithm>

#include "text/jinja/interpreter.h"

namespace shoal::jinja {
namespace {

Value get(Interpreter& in, const Value& self, Args& args) {
  const Bound bound("get", args, {"key", "default"}, 1);
  in.charge(weight_of(*bound.get(0)));
  const Value* value = self.entries().find(*bound.get(0));
  if (value != nullptr) return *value;
  return bound.has(1) ? *bound.get(1) : Value::none();
}

Value items(Interpreter& in, const Value& self, Args& args) {
  const Bound bound("items", args, {});
  const DictObject& dict = self.entries();
  std::vector<Value> pairs;
  for (const auto& entry : dict.entries) pairs.push_back(in.make_list({entry.key, entry.value}, Kind::kTuple, dict.untrusted));
  return in.make_list(std::move(pairs), Kind::kView, dict.untrusted, "dict_items");
}

Value keys(Interpreter& in, const Value& self, Args& args) {
  const Bound bound("keys", args, {});
  return in.make_list(in.iterate(self), Kind::kView, self.untrusted(), "dict_keys");
}

Value values(Interpreter& in, const Value& self, Args& args) {
  const Bound bound("values", args, {});
  std::vector<Value> out;
  for (const auto& entry : self.entries().entries) out.push_back(entry.value);
  return in.make_list(std::move(out), Kind::kView, self.untrusted(), "dict_values");
}

Value copy(Interpreter& in, const Value& self, Args& args) {
  const Bound bound("copy", args, {});
  if (self.is(Kind::kList)) return in.make_list(self.items().items, Kind::kList, self.untrusted());
  in.charge(self.entries().entries.size());
  DictObject* dict = in.make_dict();
  dict->untrusted = self.untrusted();
  for (const auto& entry : self.entries().entries) dict->set(entry.key, entry.value);
  return Value::dict(dict);
}

Value count(Interpreter& in, const Value& self, Args& args) {
  const Bound bound("count", args, {"value"}, 1);
  const auto& all = self.items().items;
  in.charge(self.items().weight);
  return Value::integer(std::count_if(all.begin(), all.end(), [&](const Value& v) { return equal(v, *bound.get(0)); }));
}

Value index(Interpreter& in, const Value& self, Args& args) {
  const Bound bound("index", args, {"value", "start", "stop"}, 1);
  const auto& all = self.items().items;
  in.charge(self.items().weight);
  const auto length = static_cast<int64_t>(all.size());
  const auto clamp = [&](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + length : i, 0, length); };
  for (int64_t i = clamp(bound.integer(1, 0)), end = clamp(bound.integer(2, length)); i < end; ++i) {
    if (equal(all[static_cast<size_t>(i)], *bound.get(0))) return Value::integer(i);
  }
  fail(in.text_of(*bound.get(0)).text, " is not in list");
}

}  // namespace

MethodFn find_container_method(Kind kind, std::string_view name) {
  if (kind == Kind::kDict) {
    if (name == "get") return get;
    if (name == "items") return items;
    if (name == "keys") return keys;
    if (name == "values") return values;
    if (name == "copy") return copy;
  } else if (kind == Kind::kList || kind == Kind::kTuple) {
    if (name == "count") return count;
    if (name == "index") return index;
    if (name == "copy" && kind == Kind::kList) return copy;
  }
  return nullptr;
}

bool is_mutating_method(Kind kind, std::string_view name) {
  static constexpr std::string_view kOfLists[] = {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"};
  static constexpr std::string_view kOfDicts[] = {"clear", "pop", "popitem", "setdefault", "update"};
  if (kind == Kind::kList) return std::find(std::begin(kOfLists), std::end(kOfLists), name) != std::end(kOfLists);
  return kind == Kind::kDict && std::find(std::begin(kOfDicts), std::end(kOfDicts), name) != std::end(kOfDicts);
}

}  // namespace shoal::jinja
