#include "text/jinja/expression_parser.h"

#include <charconv>

namespace shoal::jinja {

bool ExpressionParser::at_tuple_end(std::string_view extra_end) const {
  return at(TokenKind::kVariableEnd) || at(TokenKind::kBlockEnd) || at_op(")") ||
         (!extra_end.empty() && at_name(extra_end)) || at(TokenKind::kEnd);
}

ExprPtr ExpressionParser::parse_tuple(bool with_condition, std::string_view extra_end, bool in_brackets) {
  const auto one = [&] { return with_condition ? parse_expression() : parse_or(); };
  ExprPtr tuple = make(ExprKind::kTuple);
  bool is_tuple = false;
  while (true) {
    if (!tuple->children.empty()) {
      if (!take_op(",")) break;
      is_tuple = true;
    }
    if (at_tuple_end(extra_end)) break;
    add_child(*tuple, one());
  }
  if (is_tuple) return tuple;
  if (!tuple->children.empty()) return std::move(tuple->children[0]);
  if (!in_brackets) bad("expected an expression, got " + describe());
  return tuple;
}

ExprPtr ExpressionParser::parse_expression() {
  Deeper deeper(*this);
  ExprPtr e = parse_or();
  while (take_name("if")) {
    ExprPtr condition = make(ExprKind::kCondition);
    ExprPtr test = parse_or();
    ExprPtr otherwise;
    if (take_name("else")) otherwise = parse_expression();
    add_child(*condition, std::move(e));
    add_child(*condition, std::move(test));
    add_child(*condition, std::move(otherwise));
    e = std::move(condition);
  }
  return e;
}

template <typename Operand, typename Take>
ExprPtr ExpressionParser::chain(const Operand& operand, const Take& take) {
  ExprPtr first = operand();
  ExprPtr node;
  while (take(node)) {
    if (node->children.empty()) add_child(*node, std::move(first));
    add_child(*node, operand());
  }
  return node != nullptr ? std::move(node) : std::move(first);
}

ExprPtr ExpressionParser::parse_or() {
  return chain([&] { return parse_and(); }, [&](ExprPtr& node) {
    if (!take_name("or")) return false;
    if (node == nullptr) node = make(ExprKind::kOr);
    return true;
  });
}

ExprPtr ExpressionParser::parse_and() {
  return chain([&] { return parse_not(); }, [&](ExprPtr& node) {
    if (!take_name("and")) return false;
    if (node == nullptr) node = make(ExprKind::kAnd);
    return true;
  });
}

ExprPtr ExpressionParser::parse_not() {
  if (!at_name("not")) return parse_compare();
  Deeper deeper(*this);
  ExprPtr e = make(ExprKind::kNot);
  skip();
  add_child(*e, parse_not());
  return e;
}

bool ExpressionParser::take_binary(ExprPtr& node, ExprKind kind, std::initializer_list<OpName> table) {
  for (const OpName& entry : table) {
    if (!take_op(entry.name)) continue;
    if (node == nullptr) node = make(kind);
    node->ops.push_back(entry.op);
    return true;
  }
  return false;
}

ExprPtr ExpressionParser::parse_compare() {
  return chain([&] { return parse_sum(); }, [&](ExprPtr& node) {
    if (take_binary(node, ExprKind::kCompare, {{"==", Op::kEq}, {"!=", Op::kNe}, {"<", Op::kLt}, {"<=", Op::kLe},
                                               {">", Op::kGt}, {">=", Op::kGe}})) {
      return true;
    }
    const bool negated = at_name("not") && after().kind == TokenKind::kName && after().text == "in";
    if (!negated && !at_name("in")) return false;
    skip();
    if (negated) skip();
    if (node == nullptr) node = make(ExprKind::kCompare);
    node->ops.push_back(negated ? Op::kNotIn : Op::kIn);
    return true;
  });
}

ExprPtr ExpressionParser::parse_sum() {
  return chain([&] { return parse_concat(); }, [&](ExprPtr& node) {
    return take_binary(node, ExprKind::kArithmetic, {{"+", Op::kAdd}, {"-", Op::kSubtract}});
  });
}

ExprPtr ExpressionParser::parse_concat() {
  return chain([&] { return parse_product(); }, [&](ExprPtr& node) {
    if (!take_op("~")) return false;
    if (node == nullptr) node = make(ExprKind::kConcat);
    return true;
  });
}

ExprPtr ExpressionParser::parse_product() {
  return chain([&] { return parse_power(); }, [&](ExprPtr& node) {
    return take_binary(node, ExprKind::kArithmetic, {{"*", Op::kMultiply}, {"//", Op::kFloorDivide}, {"/", Op::kDivide},
                                                     {"%", Op::kModulo}});
  });
}

ExprPtr ExpressionParser::parse_power() {
  return chain([&] { return parse_unary(true); }, [&](ExprPtr& node) {
    return take_binary(node, ExprKind::kArithmetic, {{"**", Op::kPower}});
  });
}

ExprPtr ExpressionParser::parse_unary(bool with_filters) {
  Deeper deeper(*this);
  ExprPtr e;
  if (at_op("-") || at_op("+")) {
    e = make(at_op("-") ? ExprKind::kNegate : ExprKind::kPlus);
    skip();
    add_child(*e, parse_unary(false));
  } else {
    e = parse_primary();
  }
  e = parse_postfix(std::move(e));
  return with_filters ? parse_filters(std::move(e)) : std::move(e);
}

ExprPtr ExpressionParser::parse_primary() {
  switch (now().kind) {
    case TokenKind::kName: return parse_name();
    case TokenKind::kString: {
      std::string text;
      ExprPtr e = make(ExprKind::kConst);
      for (; at(TokenKind::kString); skip()) text += now().text;
      e->constant = Value::string(text);
      return e;
    }
    case TokenKind::kInteger:
    case TokenKind::kFloat: return parse_number();
    default: break;
  }
  if (take_op("(")) {
    ExprPtr e = parse_tuple(true, {}, true);
    expect_op(")");
    return e;
  }
  if (at_op("[")) return parse_list();
  if (at_op("{")) return parse_dict();
  bad("unexpected " + describe());
}

ExprPtr ExpressionParser::parse_name() {
  const std::string& name = now().text;
  ExprPtr e;
  if (name == "true" || name == "True") {
    e = constant(Value::boolean(true));
  } else if (name == "false" || name == "False") {
    e = constant(Value::boolean(false));
  } else if (name == "none" || name == "None") {
    e = constant(Value::none());
  } else {
    e = make(ExprKind::kName);
    e->text = name;
    uses_.caller |= name == "caller", uses_.varargs |= name == "varargs", uses_.kwargs |= name == "kwargs";
  }
  skip();
  return e;
}

ExprPtr ExpressionParser::parse_number() {
  const std::string& text = now().text;
  ExprPtr e;
  if (at(TokenKind::kFloat)) {
    double value = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc()) bad("number out of range");
    e = constant(Value::real(value));
  } else {
    const bool radix = text.size() > 1 && text[0] == '0' && (text[1] | 0x20) >= 'a';
    const int base = !radix ? 10 : (text[1] | 0x20) == 'x' ? 16 : (text[1] | 0x20) == 'o' ? 8 : 2;
    int64_t value = 0;
    const char* const begin = text.data() + (radix ? 2 : 0);
    const char* const end = text.data() + text.size();
    const auto parsed = std::from_chars(begin, end, value, base);
    if (parsed.ec != std::errc() || parsed.ptr != end) bad("integer '" + text + "' is malformed or does not fit 64 bits");
    e = constant(Value::integer(value));
  }
  skip();
  return e;
}

ExprPtr ExpressionParser::parse_list() {
  ExprPtr e = make(ExprKind::kList);
  expect_op("[");
  while (!take_op("]")) {
    if (!e->children.empty()) {
      expect_op(",");
      if (take_op("]")) break;
    }
    add_child(*e, parse_expression());
  }
  return e;
}

ExprPtr ExpressionParser::parse_dict() {
  ExprPtr e = make(ExprKind::kDict);
  expect_op("{");
  while (!take_op("}")) {
    if (!e->children.empty()) {
      expect_op(",");
      if (take_op("}")) break;
    }
    add_child(*e, parse_expression());
    expect_op(":");
    add_child(*e, parse_expression());
  }
  return e;
}

ExprPtr ExpressionParser::parse_postfix(ExprPtr e) {
  while (true) {
    if (take_op(".")) {
      const bool index = at(TokenKind::kInteger);
      ExprPtr outer = make(index ? ExprKind::kItem : ExprKind::kAttribute);
      add_child(*outer, std::move(e));
      if (index) {
        add_child(*outer, parse_number());
      } else {
        outer->text = take_identifier();
      }
      e = std::move(outer);
    } else if (at_op("[")) {
      e = parse_subscript(std::move(e));
    } else if (at_op("(")) {
      ExprPtr call = make(ExprKind::kCall);
      add_child(*call, std::move(e));
      parse_args(*call);
      e = std::move(call);
    } else {
      return e;
    }
  }
}

ExprPtr ExpressionParser::parse_subscript(ExprPtr object) {
  ExprPtr e = make(ExprKind::kItem);
  expect_op("[");
  add_child(*e, std::move(object));
  ExprPtr first = parse_index();
  if (at_op(",")) {
    ExprPtr tuple = make(ExprKind::kTuple);
    add_child(*tuple, std::move(first));
    while (take_op(",")) {
      if (at_op("]")) break;
      add_child(*tuple, parse_index());
    }
    first = std::move(tuple);
  }
  expect_op("]");
  add_child(*e, std::move(first));
  return e;
}

ExprPtr ExpressionParser::parse_index() {
  ExprPtr start;
  if (!at_op(":")) {
    start = parse_expression();
    if (!at_op(":")) return start;
  }
  ExprPtr slice = make(ExprKind::kSlice);
  add_child(*slice, std::move(start));
  for (int part = 0; part < 2; ++part) {
    const bool has = take_op(":");
    const bool empty = !has || at_op("]") || at_op(",") || at_op(":");
    add_child(*slice, empty ? nullptr : parse_expression());
  }
  return slice;
}

void ExpressionParser::parse_args(Expr& e) {
  expect_op("(");
  CallArgs& args = e.args;
  const auto keep = [&](ExprPtr value) {
    e.depth = std::max(e.depth, value->depth + 1);
    if (e.depth > kDepthMax) bad("expression nested too deeply");
    return value;
  };
  bool first = true;
  while (!take_op(")")) {
    if (!std::exchange(first, false)) {
      expect_op(",");
      if (take_op(")")) break;
    }
    if (take_op("**")) {
      if (args.star_star) bad("two ** arguments");
      args.star_star = keep(parse_expression());
    } else if (take_op("*")) {
      if (args.star || args.star_star) bad("misplaced * argument");
      args.star = keep(parse_expression());
    } else if (at(TokenKind::kName) && after().kind == TokenKind::kOperator && after().text == "=") {
      std::string name = take_identifier();
      skip();
      args.named.emplace_back(std::move(name), keep(parse_expression()));
    } else {
      if (!args.named.empty() || args.star || args.star_star) bad("positional argument follows keyword argument");
      args.positional.push_back(keep(parse_expression()));
    }
  }
}

ExprPtr ExpressionParser::parse_filters(ExprPtr e, bool begin) {
  while (true) {
    if (begin || take_op("|")) {
      begin = false;
      ExprPtr filter = make(ExprKind::kFilter);
      filter->text = take_dotted_name();
      add_child(*filter, std::move(e));
      if (at_op("(")) parse_args(*filter);
      e = std::move(filter);
    } else if (at_name("is") && e != nullptr) {
      e = parse_test(std::move(e));
    } else if (at_op("(") && e != nullptr) {
      ExprPtr call = make(ExprKind::kCall);
      add_child(*call, std::move(e));
      parse_args(*call);
      e = std::move(call);
    } else {
      return e;
    }
  }
}

std::string ExpressionParser::take_dotted_name() {
  std::string name = take_identifier();
  while (take_op(".")) name += "." + take_identifier();
  return name;
}

ExprPtr ExpressionParser::parse_test(ExprPtr e) {
  skip();
  const bool negated = take_name("not");
  ExprPtr test = make(ExprKind::kTest);
  test->text = take_dotted_name();
  add_child(*test, std::move(e));
  const bool operand = at(TokenKind::kString) || at(TokenKind::kInteger) || at(TokenKind::kFloat) || at_op("[") || at_op("{") ||
                       (at(TokenKind::kName) && !at_name("else") && !at_name("or") && !at_name("and"));
  if (at_op("(")) {
    parse_args(*test);
  } else if (operand) {
    if (at_name("is")) bad("you cannot chain multiple tests with 'is'");
    ExprPtr argument = parse_postfix(parse_primary());
    test->depth = std::max(test->depth, argument->depth + 1);
    test->args.positional.push_back(std::move(argument));
  }
  if (!negated) return test;
  ExprPtr e_not = make(ExprKind::kNot);
  add_child(*e_not, std::move(test));
  return e_not;
}

}  // namespace shoal::jinja
