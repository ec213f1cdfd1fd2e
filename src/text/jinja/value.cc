#include "text/jinja/value.h"

#include <cmath>

#include "absl/hash/hash.h"

namespace shoal::jinja {

Value Value::string(std::string_view text, bool untrusted) {
  MarkedText marked{std::string(text), {}};
  if (untrusted) marked.marks.assign(text.size(), MarkedText::kUntrusted);
  return string(std::move(marked));
}
Value Value::list(ListObject* list, Kind kind) {
  return with(kind, [=](Value& v) { v.object_ = list, v.untrusted_ = list->untrusted; });
}
Value Value::dict(DictObject* dict, Kind kind) {
  return with(kind, [=](Value& v) { v.object_ = dict, v.untrusted_ = dict->untrusted; });
}
Value Value::loop(LoopObject* loop) {
  return with(Kind::kLoop, [=](Value& v) { v.object_ = loop; });
}
Value Value::callable(CallableObject* callable) {
  return with(Kind::kCallable, [=](Value& v) { v.object_ = callable; });
}
Value Value::undefined(std::string_view message) {
  return with(Kind::kUndefined, [&](Value& v) {
    v.text_ = std::make_shared<const MarkedText>(MarkedText{std::string(message), {}});
  });
}

ListObject& Value::items() const { return *static_cast<ListObject*>(object_); }
DictObject& Value::entries() const { return *static_cast<DictObject*>(object_); }
LoopObject& Value::loop_state() const { return *static_cast<LoopObject*>(object_); }
CallableObject& Value::function() const { return *static_cast<CallableObject*>(object_); }

size_t DictObject::position(const Value& key) const {
  if (entries.size() < kIndexedFrom) {
    for (size_t i = 0; i < entries.size(); ++i) {
      if (equal(entries[i].key, key)) return i;
    }
    return entries.size();
  }
  const auto it = index_.find(hash(key));
  if (it == index_.end()) return entries.size();
  for (const uint32_t i : it->second) {
    if (equal(entries[i].key, key)) return i;
  }
  return entries.size();
}

const Value* DictObject::find(const Value& key) const {
  hash(key);  // Python refuses unhashable keys even where nothing is found
  const size_t at = position(key);
  return at == entries.size() ? nullptr : &entries[at].value;
}

const Value* DictObject::find(std::string_view key) const {
  if (entries.size() < kIndexedFrom) {
    for (const Entry& entry : entries) {
      if (entry.key.is(Kind::kString) && entry.key.str() == key) return &entry.value;
    }
    return nullptr;
  }
  return find(Value::string(key));
}

bool DictObject::set(Value key, Value value) {
  const size_t key_hash = hash(key);
  depth = std::max({depth, depth_of(key) + 1, depth_of(value) + 1});
  if (depth > kValueDepthMax) fail("containers are nested deeper than ", kValueDepthMax);
  weight = add_weights(weight, add_weights(weight_of(key), weight_of(value)));
  const size_t at = position(key);
  if (at < entries.size()) {
    entries[at].value = std::move(value);
    return false;
  }
  entries.push_back({std::move(key), std::move(value)});
  if (entries.size() == kIndexedFrom) {
    for (uint32_t i = 0; i < entries.size(); ++i) index_[hash(entries[i].key)].push_back(i);
  } else if (entries.size() > kIndexedFrom) {
    index_[key_hash].push_back(static_cast<uint32_t>(at));
  }
  return true;
}

bool truthy(const Value& v) {
  switch (v.kind()) {
    case Kind::kUndefined:
    case Kind::kNone: return false;
    case Kind::kBool:
    case Kind::kInt: return v.as_int() != 0;
    case Kind::kFloat: return v.as_double() != 0;
    case Kind::kString: return !v.str().empty();
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView: return !v.items().items.empty();
    case Kind::kDict: return !v.entries().entries.empty();
    default: return true;
  }
}

namespace {

bool equal_items(const std::vector<Value>& a, const std::vector<Value>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!equal(a[i], b[i])) return false;
  }
  return true;
}

bool equal_dicts(const DictObject& a, const DictObject& b) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& entry : a.entries) {
    const Value* other = b.find(entry.key);
    if (other == nullptr || !equal(entry.value, *other)) return false;
  }
  return true;
}

}  // namespace

bool equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.as_int() == b.as_int();
    return a.as_double() == b.as_double();
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone: return true;
    case Kind::kString: return a.str() == b.str();
    case Kind::kList:
    case Kind::kTuple: return a.identity() == b.identity() || equal_items(a.items().items, b.items().items);
    case Kind::kView:
      return a.identity() == b.identity() ||
             (std::string_view(a.items().view) == b.items().view && equal_items(a.items().items, b.items().items));
    case Kind::kDict: return a.identity() == b.identity() || equal_dicts(a.entries(), b.entries());
    default: return a.identity() == b.identity();
  }
}

size_t hash(const Value& v) {
  switch (v.kind()) {
    case Kind::kUndefined:
    case Kind::kNone: return 0x9E3779B9u;
    case Kind::kBool:
    case Kind::kInt: return std::hash<double>()(static_cast<double>(v.as_int()));  // 1 == 1.0 must hash alike
    case Kind::kFloat: return std::hash<double>()(v.as_double());
    case Kind::kString: return absl::Hash<std::string>()(v.str());  // seeded: clients choose keys
    case Kind::kTuple: {
      size_t h = 17;
      for (const Value& item : v.items().items) h = h * 1000003u + hash(item);
      return h;
    }
    case Kind::kList:
    case Kind::kDict: fail("unhashable type: '", type_name(v), "'");
    default: return std::hash<const void*>()(v.identity());
  }
}

const char* type_name(const Value& v) {
  switch (v.kind()) {
    case Kind::kUndefined: return "Undefined";
    case Kind::kNone: return "NoneType";
    case Kind::kBool: return "bool";
    case Kind::kInt: return "int";
    case Kind::kFloat: return "float";
    case Kind::kString: return "str";
    case Kind::kList: return "list";
    case Kind::kTuple: return "tuple";
    case Kind::kDict: return "dict";
    case Kind::kView: return v.items().view;
    case Kind::kGenerator: return "generator";
    case Kind::kNamespace: return "Namespace";
    case Kind::kLoop: return "LoopContext";
    case Kind::kCallable: return "function";
  }
  return "object";
}

uint64_t add_weights(uint64_t a, uint64_t b) {
  constexpr uint64_t kEnough = UINT64_MAX / 4;  // beyond any budget
  return a > kEnough - std::min(b, kEnough) ? kEnough : a + b;
}

uint64_t weight_of(const Value& v) {
  constexpr size_t kBytesPerUnit = 16;
  switch (v.kind()) {
    case Kind::kString: return 1 + v.str().size() / kBytesPerUnit;
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
    case Kind::kGenerator: return v.items().weight;
    case Kind::kDict: return v.entries().weight;
    default: return 1;
  }
}

uint32_t depth_of(const Value& v) {
  switch (v.kind()) {
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
    case Kind::kGenerator: return v.items().depth;
    case Kind::kDict: return v.entries().depth;
    default: return 0;
  }
}

}  // namespace shoal::jinja
