// Values of the template language, with Python's semantics and with the origin of every character of text.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/status.h"
#include "text/tokenizer/marked_text.h"

namespace shoal::jinja {

// What evaluation throws; it never leaves the public interface of chat_template.h.
struct Fault {
  StatusCode code = StatusCode::kInvalidArgument;
  std::string message;
};
template <typename... Args>
[[noreturn]] void fail(const Args&... args) {
  throw Fault{StatusCode::kInvalidArgument, absl::StrCat(args...)};
}

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kView,       // dict_items and friends, range: iterable again and again, not a list
  kGenerator,  // what map and select give: each item comes once
  kNamespace,
  kLoop,
  kCallable,
};

// Containers, callables: owned by the arena of one rendering, so cycles neither leak nor recurse when they go.
struct Object {
  virtual ~Object() = default;
};
struct ListObject;
struct DictObject;
struct LoopObject;
struct CallableObject;

using Str = std::shared_ptr<const MarkedText>;

class Value {
 public:
  Value() = default;  // undefined, without a name
  static Value none() { return Value(Kind::kNone); }
  static Value boolean(bool b) { return with(Kind::kBool, [b](Value& v) { v.int_ = b; }); }
  static Value integer(int64_t i, bool untrusted = false) {
    return with(Kind::kInt, [=](Value& v) { v.int_ = i, v.untrusted_ = untrusted; });
  }
  static Value real(double f, bool untrusted = false) {
    return with(Kind::kFloat, [=](Value& v) { v.float_ = f, v.untrusted_ = untrusted; });
  }
  static Value string(MarkedText text) {
    return with(Kind::kString, [&](Value& v) { v.text_ = std::make_shared<const MarkedText>(std::move(text)); });
  }
  static Value string(std::string_view text, bool untrusted = false);
  // The same string as HTML that is already escaped: what is added to it will be escaped first (markupsafe).
  Value as_markup() const {
    Value v = *this;
    v.markup_ = true;
    return v;
  }
  static Value list(ListObject* list, Kind kind = Kind::kList);
  static Value dict(DictObject* dict, Kind kind = Kind::kDict);
  static Value loop(LoopObject* loop);
  static Value callable(CallableObject* callable);
  // `message` is what using the value in vain says, e.g. "'x' is undefined".
  static Value undefined(std::string_view message);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_number() const { return kind_ == Kind::kBool || kind_ == Kind::kInt || kind_ == Kind::kFloat; }
  bool is_integral() const { return kind_ == Kind::kBool || kind_ == Kind::kInt; }

  // REQUIRES the kind that the name says.
  bool as_bool() const { return int_ != 0; }
  int64_t as_int() const { return int_; }  // also of a bool
  double as_double() const { return kind_ == Kind::kFloat ? float_ : static_cast<double>(int_); }
  bool has_text() const { return text_ != nullptr; }  // of an undefined value: its message
  const MarkedText& text() const { return *text_; }
  const std::string& str() const { return text_->text; }
  ListObject& items() const;  // list, tuple, view, generator
  DictObject& entries() const;  // dict, namespace
  LoopObject& loop_state() const;
  CallableObject& function() const;
  const Object* identity() const { return object_; }

  bool markup() const { return markup_; }
  // Of numbers and containers: they came from a request. Strings say it for each byte.
  bool untrusted() const { return untrusted_; }

 private:
  explicit Value(Kind kind) : kind_(kind) {}
  template <typename F>
  static Value with(Kind kind, F&& f) {
    Value v(kind);
    f(v);
    return v;
  }
  Kind kind_ = Kind::kUndefined;
  bool untrusted_ = false;
  bool markup_ = false;
  union {
    int64_t int_ = 0;
    double float_;
    Object* object_;
  };
  Str text_;
};

// `depth` is one more than that of the deepest container inside: it bounds every recursion over values. `weight` counts
// all that is inside, shared parts as often as they are reached: printing, comparing and hashing cost so much.
struct ListObject : Object {
  std::vector<Value> items;
  size_t next = 0;         // of a generator: the first item that has not been taken
  const char* view = "";   // of a view: its Python type
  uint32_t depth = 1;
  uint64_t weight = 1;
  bool untrusted = false;
};

// Keeps the order of insertion. Keys are hashable: strings, numbers, none, tuples of them.
struct DictObject : Object {
  struct Entry {
    Value key, value;
  };
  std::vector<Entry> entries;
  uint32_t depth = 1;
  uint64_t weight = 1;
  bool untrusted = false;

  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  // Replaces or appends; true if it is new.
  bool set(Value key, Value value);

 private:
  // Small dicts are scanned; the index is built on the way to kIndexedFrom entries.
  static constexpr size_t kIndexedFrom = 12;
  size_t position(const Value& key) const;  // entries.size() if absent
  absl::flat_hash_map<size_t, std::vector<uint32_t>> index_;
};

// What `loop` is inside of a for statement.
struct LoopObject : Object {
  std::vector<Value> items;
  size_t index = 0;
  uint32_t depth = 0;  // loops around it
  Value changed_last;
  bool changed_any = false;
  CallableObject* recurse = nullptr;  // of `for ... recursive`
};

// The `view` of the pairs that groupby gives: they also answer to .grouper and .list.
inline constexpr const char* kGroupTuple = "_GroupTuple";

struct Args {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

class Interpreter;

struct CallableObject : Object {
  virtual Value call(Interpreter& interpreter, Args& args) = 0;
  virtual std::string_view name() const = 0;
  // Attributes of macros; undefined for others.
  virtual Value attribute(Interpreter& interpreter, std::string_view name) { return {}; }
};

constexpr uint32_t kValueDepthMax = 64;

bool truthy(const Value& v);
bool equal(const Value& a, const Value& b);
size_t hash(const Value& v);             // fails for unhashable kinds
const char* type_name(const Value& v);   // Python's
uint32_t depth_of(const Value& v);       // 0 for scalars
uint64_t weight_of(const Value& v);      // 1 for numbers; saturates
uint64_t add_weights(uint64_t a, uint64_t b);

// Text -----------------------------------------------------------------------------------------------------------

void append(MarkedText& to, const MarkedText& more);
void append(MarkedText& to, std::string_view more, bool untrusted);
// str(v) and repr(v). Containers show their items' repr; depth is bounded by kValueDepthMax.
MarkedText to_text(const Value& v);
void append_repr(MarkedText& out, const Value& v);
std::string float_repr(double f);

}  // namespace shoal::jinja
