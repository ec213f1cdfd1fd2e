// Functions that every template may call.
#include <ctime>

#include "absl/strings/str_replace.h"
#include "text/jinja/interpreter.h"

namespace shoal::jinja {
namespace {

constexpr int64_t kRangeMax = 100'000;  // the sandbox's bound

Value range(Interpreter& in, Args& args) {
  const Bound bound("range", args, {"start", "stop", "step"}, 1);
  const bool one = !bound.has(1);
  const int64_t start = one ? 0 : bound.integer(0, 0), stop = one ? bound.integer(0, 0) : bound.integer(1, 0);
  const int64_t step = bound.integer(2, 1);
  if (step == 0) fail("range() arg 3 must not be zero");
  const double count = (static_cast<double>(stop) - static_cast<double>(start)) / static_cast<double>(step);
  if (count > static_cast<double>(kRangeMax)) fail("range too big; the sandbox blocks ranges larger than ", kRangeMax);
  std::vector<Value> items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    items.push_back(Value::integer(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return in.make_list(std::move(items), Kind::kView, false, "range");
}

// dict() and namespace(): from a mapping or pairs, and from keywords.
Value make_mapping(Interpreter& in, Args& args, Kind kind) {
  DictObject* dict = in.make_dict();
  if (args.positional.size() > 1) fail("expected at most 1 argument, got ", args.positional.size());
  if (!args.positional.empty()) {
    const Value& from = args.positional[0];
    if (from.is(Kind::kDict)) {
      dict->untrusted = from.untrusted();
      for (const auto& entry : from.entries().entries) dict->set(entry.key, entry.value);
    } else {
      for (const Value& pair : in.iterate(from)) {
        const std::vector<Value> sides = in.iterate(pair);
        if (sides.size() != 2) fail("dictionary update sequence element has length ", sides.size(), "; 2 is required");
        dict->set(sides[0], sides[1]);
      }
    }
  }
  for (auto& [name, value] : args.named) dict->set(Value::string(name), value);
  return Value::dict(dict, kind);
}
Value dict(Interpreter& in, Args& args) { return make_mapping(in, args, Kind::kDict); }
Value make_namespace(Interpreter& in, Args& args) { return make_mapping(in, args, Kind::kNamespace); }

// Ends the rendering with the template's own words; kAborted tells the renderer to leave them as they are.
Value raise_exception(Interpreter& in, Args& args) {
  const Bound bound("raise_exception", args, {"message"}, 1);
  throw Fault{StatusCode::kAborted, in.text_of(*bound.get(0)).text};
}

Value strftime_now(Interpreter& in, Args& args) {
  std::string format = Bound("strftime_now", args, {"format"}, 1).string(0, "");
  constexpr size_t kFormatBytesMax = 256;
  if (format.size() > kFormatBytesMax) fail("the format of strftime_now is longer than ", kFormatBytesMax, " bytes");
  format = absl::StrReplaceAll(format, {{"%%", "%%"}, {"%f", "000000"}, {"%Z", ""}, {"%z", ""}});
  if (format.empty()) return Value::string("");
  const std::time_t now = in.options().now_unix_seconds;
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[4096];
  const size_t bytes = std::strftime(text, sizeof(text), format.c_str(), &utc);
  return in.make_string(std::string_view(text, bytes));
}

struct Cycler : CallableObject {
  explicit Cycler(std::vector<Value> all) : items(std::move(all)) {}
  Value call(Interpreter&, Args&) override { fail("'Cycler' object is not callable"); }
  std::string_view name() const override { return "cycler"; }
  Value attribute(Interpreter& in, std::string_view name) override;
  Value next() {
    Value v = items[at];
    at = (at + 1) % items.size();
    return v;
  }
  const std::vector<Value> items;
  size_t at = 0;
};

struct CyclerMethod : CallableObject {
  CyclerMethod(Cycler& c, bool is_next) : cycler(c), advances(is_next) {}
  Value call(Interpreter&, Args&) override {
    if (advances) return cycler.next();
    cycler.at = 0;
    return Value::none();
  }
  std::string_view name() const override { return advances ? "next" : "reset"; }
  Cycler& cycler;
  const bool advances;
};

Value Cycler::attribute(Interpreter& in, std::string_view name) {
  if (name == "current") return items[at];
  if (name == "next" || name == "reset") return Value::callable(in.make<CyclerMethod>(*this, name == "next"));
  return {};
}

Value cycler(Interpreter& in, Args& args) {
  if (args.positional.empty()) fail("at least one item has to be provided");
  return Value::callable(in.make<Cycler>(args.positional));
}

// Gives nothing the first time and its separator from then on.
struct Joiner : CallableObject {
  explicit Joiner(Value v) : separator(std::move(v)) {}
  Value call(Interpreter&, Args&) override { return std::exchange(used, true) ? separator : Value::string(""); }
  std::string_view name() const override { return "joiner"; }
  const Value separator;
  bool used = false;
};

Value joiner(Interpreter& in, Args& args) {
  const Bound bound("joiner", args, {"sep"});
  return Value::callable(in.make<Joiner>(bound.has(0) ? *bound.get(0) : Value::string(", ")));
}

}  // namespace

void add_globals(Interpreter& interpreter, Scope& scope) {
  static constexpr std::pair<const char*, NativeFunction::Fn> kFunctions[] = {
      {"range", range},   {"dict", dict},     {"namespace", make_namespace},          {"raise_exception", raise_exception},
      {"cycler", cycler}, {"joiner", joiner}, {"strftime_now", strftime_now},
  };
  for (const auto& [name, fn] : kFunctions) scope.set(name, Value::callable(interpreter.make<NativeFunction>(name, fn)));
}

}  // namespace shoal::jinja
