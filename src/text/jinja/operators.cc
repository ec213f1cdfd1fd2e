// Arithmetic and comparison, as Python does them.
#include <cmath>

#include "text/jinja/interpreter.h"

namespace shoal::jinja {
namespace {

const char* symbol(Op op) {
  static constexpr const char* kSymbols[] = {"+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "in", "not in"};
  return kSymbols[static_cast<size_t>(op)];
}

[[noreturn]] void unsupported(Op op, const Value& a, const Value& b) {
  if (a.is(Kind::kUndefined)) fail_undefined(a);
  if (b.is(Kind::kUndefined)) fail_undefined(b);
  fail("unsupported operand type(s) for ", symbol(op), ": '", type_name(a), "' and '", type_name(b), "'");
}

[[noreturn]] void overflow() { fail("the result of integer arithmetic does not fit 64 bits"); }

int64_t floor_divide(int64_t a, int64_t b) {
  if (b == 0) fail("integer division or modulo by zero");
  if (b == -1) return a == INT64_MIN ? (overflow(), 0) : -a;
  const int64_t q = a / b;
  return q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
}

int64_t integer_power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) overflow();
  }
  return result;
}

Value integer_arithmetic(Op op, const Value& x, const Value& y) {
  const int64_t a = x.as_int(), b = y.as_int();
  const bool untrusted = x.untrusted() || y.untrusted();
  int64_t result = 0;
  bool overflowed = false;
  switch (op) {
    case Op::kAdd: overflowed = __builtin_add_overflow(a, b, &result); break;
    case Op::kSubtract: overflowed = __builtin_sub_overflow(a, b, &result); break;
    case Op::kMultiply: overflowed = __builtin_mul_overflow(a, b, &result); break;
    case Op::kDivide:
      if (b == 0) fail("division by zero");
      return Value::real(static_cast<double>(a) / static_cast<double>(b), untrusted);
    case Op::kFloorDivide: result = floor_divide(a, b); break;
    case Op::kModulo: result = b == -1 ? 0 : a - floor_divide(a, b) * b; break;
    default:
      if (b < 0) return Value::real(std::pow(static_cast<double>(a), static_cast<double>(b)), untrusted);
      result = integer_power(a, b);
  }
  if (overflowed) overflow();
  return Value::integer(result, untrusted);
}

Value real_arithmetic(Op op, const Value& x, const Value& y) {
  const double a = x.as_double(), b = y.as_double();
  const bool untrusted = x.untrusted() || y.untrusted();
  if (b == 0 && (op == Op::kDivide || op == Op::kFloorDivide || op == Op::kModulo)) fail("float division by zero");
  switch (op) {
    case Op::kAdd: return Value::real(a + b, untrusted);
    case Op::kSubtract: return Value::real(a - b, untrusted);
    case Op::kMultiply: return Value::real(a * b, untrusted);
    case Op::kDivide: return Value::real(a / b, untrusted);
    case Op::kFloorDivide: return Value::real(std::floor(a / b), untrusted);
    case Op::kModulo: {
      const double rest = std::fmod(a, b);
      return Value::real(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest, untrusted);
    }
    default: return Value::real(std::pow(a, b), untrusted);
  }
}

// A string or list `count` times.
Value repeat(Interpreter& in, const Value& v, int64_t count) {
  const size_t times = count > 0 ? static_cast<size_t>(count) : 0;
  if (v.is(Kind::kString)) {
    if (times > 0 && v.str().size() > SIZE_MAX / 2 / times) in.check_size(SIZE_MAX);
    in.check_size(v.str().size() * times);
    in.charge_bytes(v.str().size() * times);
    MarkedText out;
    for (size_t i = 0; i < times && !v.str().empty(); ++i) append(out, v.text());
    return in.make_string(std::move(out));
  }
  const std::vector<Value>& items = v.items().items;
  if (items.empty() || times == 0) return in.make_list({}, v.kind());
  in.charge(times);
  in.charge(items.size() > SIZE_MAX / 2 / times ? SIZE_MAX / 2 : items.size() * times);
  std::vector<Value> out;
  for (size_t i = 0; i < times; ++i) out.insert(out.end(), items.begin(), items.end());
  return in.make_list(std::move(out), v.kind(), v.untrusted());
}

// The operands of markup % operands.
Value escape_operands(Interpreter& in, const Value& v) {
  if (v.is(Kind::kString)) return escape_html(in, v);
  if (!v.is(Kind::kTuple)) return v;
  std::vector<Value> items = v.items().items;
  for (Value& item : items) item = escape_operands(in, item);
  return in.make_list(std::move(items), Kind::kTuple);
}

bool is_sequence(const Value& v) { return v.is(Kind::kString) || v.is(Kind::kList) || v.is(Kind::kTuple); }

// Three-way comparison of values that have an order; `op` is for the message.
int order(Interpreter& in, Op op, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.as_int() < b.as_int() ? -1 : a.as_int() > b.as_int();
    const double x = a.as_double(), y = b.as_double();
    return x < y ? -1 : x > y ? 1 : x == y ? 0 : 2;  // 2: not a number, never <, <=, > or >=
  }
  if (a.is(Kind::kString) && b.is(Kind::kString)) return a.str().compare(b.str()) < 0 ? -1 : a.str() != b.str();
  if (a.kind() == b.kind() && (a.is(Kind::kList) || a.is(Kind::kTuple))) {
    const auto &x = a.items().items, &y = b.items().items;
    in.charge(std::min(weight_of(a), weight_of(b)));
    for (size_t i = 0; i < x.size() && i < y.size(); ++i) {
      if (!equal(x[i], y[i])) return order(in, op, x[i], y[i]);
    }
    return x.size() < y.size() ? -1 : x.size() > y.size();
  }
  if (a.is(Kind::kUndefined)) fail_undefined(a);
  if (b.is(Kind::kUndefined)) fail_undefined(b);
  fail("'", symbol(op), "' not supported between instances of '", type_name(a), "' and '", type_name(b), "'");
}

bool contains(Interpreter& in, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kString: {
      if (item.is(Kind::kUndefined)) fail_undefined(item);
      if (!item.is(Kind::kString)) fail("'in <string>' requires string as left operand, not ", type_name(item));
      in.charge_bytes(container.str().size());
      return container.str().find(item.str()) != std::string::npos;
    }
    case Kind::kDict:
      in.charge(weight_of(item));
      return container.entries().find(item) != nullptr;
    case Kind::kUndefined: return false;
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
    case Kind::kGenerator: {
      ListObject& list = container.items();
      in.charge(std::min(list.weight, add_weights(list.items.size(), list.items.size() * weight_of(item))));
      while (container.is(Kind::kGenerator) && list.next < list.items.size()) {
        if (equal(list.items[list.next++], item)) return true;
      }
      return !container.is(Kind::kGenerator) &&
             std::any_of(list.items.begin(), list.items.end(), [&](const Value& v) { return equal(v, item); });
    }
    default: fail("argument of type '", type_name(container), "' is not iterable");
  }
}

}  // namespace

Value Interpreter::arithmetic(Op op, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return a.is_integral() && b.is_integral() ? integer_arithmetic(op, a, b) : real_arithmetic(op, a, b);
  if (op == Op::kAdd && a.kind() == b.kind() && is_sequence(a)) {
    if (a.is(Kind::kString) && a.markup() != b.markup()) {
      return arithmetic(op, escape_html(*this, a), escape_html(*this, b));
    }
    if (a.is(Kind::kString)) {
      check_size(a.str().size() + b.str().size());
      MarkedText out = a.text();
      append(out, b.text());
      const Value sum = make_string(std::move(out));
      return a.markup() ? sum.as_markup() : sum;
    }
    charge(a.items().items.size() + b.items().items.size());
    std::vector<Value> items = a.items().items;
    items.insert(items.end(), b.items().items.begin(), b.items().items.end());
    return make_list(std::move(items), a.kind(), a.untrusted() || b.untrusted());
  }
  if (op == Op::kMultiply && is_sequence(a) && b.is_integral()) return repeat(*this, a, b.as_int());
  if (op == Op::kMultiply && is_sequence(b) && a.is_integral()) return repeat(*this, b, a.as_int());
  if (op == Op::kModulo && a.is(Kind::kString)) {
    const Value formatted = percent_format(*this, a.text(), a.markup() ? escape_operands(*this, b) : b);
    return a.markup() ? formatted.as_markup() : formatted;
  }
  if (op == Op::kAdd && a.is(Kind::kString) && !b.is(Kind::kUndefined)) {
    fail("can only concatenate str (not \"", type_name(b), "\") to str");
  }
  unsupported(op, a, b);
}

bool Interpreter::compare(Op op, const Value& a, const Value& b) {
  charge(std::min(weight_of(a), weight_of(b)));
  switch (op) {
    case Op::kEq: return equal(a, b);
    case Op::kNe: return !equal(a, b);
    case Op::kIn: return contains(*this, b, a);
    case Op::kNotIn: return !contains(*this, b, a);
    default: break;
  }
  const int o = order(*this, op, a, b);
  if (o == 2) return false;
  return op == Op::kLt ? o < 0 : op == Op::kLe ? o <= 0 : op == Op::kGt ? o > 0 : o >= 0;
}

}  // namespace shoal::jinja
