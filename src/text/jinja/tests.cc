// What may follow "is".
#include <cmath>

#include "text/jinja/interpreter.h"
#include "text/tokenizer/string_map.h"
#include "text/tokenizer/unicode.h"

namespace shoal::jinja {
namespace {

const Value& operand(const char* name, const Args& args) {
  if (args.positional.size() != 1) fail("test '", name, "' takes one argument");
  return args.positional[0];
}

template <Op Operator>
bool compares(Interpreter& in, const Value& v, Args& args) {
  return in.compare(Operator, v, operand("comparison", args));
}

template <Kind Wanted>
bool has_kind(Interpreter&, const Value& v, Args&) { return v.is(Wanted); }

bool is_defined(Interpreter&, const Value& v, Args&) { return !v.is(Kind::kUndefined); }
bool is_callable(Interpreter&, const Value& v, Args&) { return v.is(Kind::kCallable) || v.is(Kind::kLoop); }
bool is_mapping(Interpreter&, const Value& v, Args&) { return v.is(Kind::kDict); }
bool is_number(Interpreter&, const Value& v, Args&) { return v.is_number(); }
bool is_integer(Interpreter&, const Value& v, Args&) { return v.is(Kind::kInt); }
bool is_true(Interpreter&, const Value& v, Args&) { return v.is(Kind::kBool) && v.as_bool(); }
bool is_false(Interpreter&, const Value& v, Args&) { return v.is(Kind::kBool) && !v.as_bool(); }
bool is_escaped(Interpreter&, const Value& v, Args&) { return v.markup(); }

bool is_iterable(Interpreter&, const Value& v, Args&) {
  switch (v.kind()) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kView:
    case Kind::kGenerator:
    case Kind::kLoop: return true;
    default: return false;
  }
}

// Has a length and items by index or key.
bool is_sequence(Interpreter&, const Value& v, Args&) {
  return v.is(Kind::kString) || v.is(Kind::kList) || v.is(Kind::kTuple) || v.is(Kind::kDict) ||
         (v.is(Kind::kView) && std::string_view(v.items().view) == "range");
}

int64_t modulo(Interpreter& in, const Value& v, int64_t by) {
  const Value rest = in.arithmetic(Op::kModulo, v, Value::integer(by));
  return rest.is_integral() ? rest.as_int() : rest.as_double() == 0 ? 0 : rest.as_double() == 1 ? 1 : 2;
}
bool is_odd(Interpreter& in, const Value& v, Args&) { return modulo(in, v, 2) == 1; }
bool is_even(Interpreter& in, const Value& v, Args&) { return modulo(in, v, 2) == 0; }
bool is_divisible(Interpreter& in, const Value& v, Args& args) {
  return equal(in.arithmetic(Op::kModulo, v, operand("divisibleby", args)), Value::integer(0));
}

bool same_as(Interpreter&, const Value& v, Args& args) {
  const Value& other = operand("sameas", args);
  if (v.kind() != other.kind()) return false;
  switch (v.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
    case Kind::kString: return equal(v, other);
    default: return v.identity() == other.identity();
  }
}

template <bool (*Wanted)(char32_t), bool (*Refused)(char32_t)>
bool cased(Interpreter& in, const Value& v, Args&) {
  const std::string s = in.text_of(v).text;
  bool any = false;
  for (size_t at = 0, bytes = 0; at < s.size(); at += bytes) {
    const char32_t c = unicode::decode(s, at, &bytes);
    if (Refused(c) || unicode::is_title(c)) return false;
    any |= Wanted(c);
  }
  return any;
}

bool is_in(Interpreter& in, const Value& v, Args& args) { return in.compare(Op::kIn, v, operand("in", args)); }

bool is_filter(Interpreter&, const Value& v, Args&) {
  return v.is(Kind::kString) && (find_text_filter(v.str()) != nullptr || find_sequence_filter(v.str()) != nullptr);
}
bool is_test(Interpreter&, const Value& v, Args&) { return v.is(Kind::kString) && find_test(v.str()) != nullptr; }

}  // namespace

TestFn find_test(std::string_view name) {
  static const StringMap<TestFn> tests = {
      {"defined", is_defined},
      {"undefined", has_kind<Kind::kUndefined>},
      {"none", has_kind<Kind::kNone>},
      {"boolean", has_kind<Kind::kBool>},
      {"integer", is_integer},
      {"float", has_kind<Kind::kFloat>},
      {"number", is_number},
      {"string", has_kind<Kind::kString>},
      {"mapping", is_mapping},
      {"iterable", is_iterable},
      {"sequence", is_sequence},
      {"callable", is_callable},
      {"true", is_true},
      {"false", is_false},
      {"odd", is_odd},
      {"even", is_even},
      {"divisibleby", is_divisible},
      {"sameas", same_as},
      {"escaped", is_escaped},
      {"lower", cased<unicode::is_lower, unicode::is_upper>},
      {"upper", cased<unicode::is_upper, unicode::is_lower>},
      {"in", is_in},
      {"filter", is_filter},
      {"test", is_test},
      {"==", compares<Op::kEq>}, {"eq", compares<Op::kEq>}, {"equalto", compares<Op::kEq>},
      {"!=", compares<Op::kNe>}, {"ne", compares<Op::kNe>},
      {">", compares<Op::kGt>}, {"gt", compares<Op::kGt>}, {"greaterthan", compares<Op::kGt>},
      {"ge", compares<Op::kGe>}, {">=", compares<Op::kGe>},
      {"<", compares<Op::kLt>}, {"lt", compares<Op::kLt>}, {"lessthan", compares<Op::kLt>},
      {"<=", compares<Op::kLe>}, {"le", compares<Op::kLe>},
  };
  const auto it = tests.find(name);
  return it == tests.end() ? nullptr : it->second;
}

}  // namespace shoal::jinja
