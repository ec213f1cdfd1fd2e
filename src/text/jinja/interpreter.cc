#include "text/jinja/interpreter.h"

#include <algorithm>

namespace shoal::jinja {
void Scope::set(std::string_view name, Value value) {
  for (auto& variable : variables) {
    if (variable.first == name) {
      variable.second = std::move(value);
      return;
    }
  }
  variables.emplace_back(name, std::move(value));
}

const Value* Scope::find(std::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent) {
    for (const auto& variable : scope->variables) {
      if (variable.first == name) return &variable.second;
    }
  }
  return nullptr;
}

void Interpreter::enter() {
  charge(1);
  if (++depth_ > options().limits.depth_max * kEvaluationsPerDepth) {
    exhausted(absl::StrCat("the nesting limit of ", options().limits.depth_max));
  }
}

MarkedText Interpreter::render(const Body& body, Scope& root) {
  try {
    MarkedText out;
    run(body, *new_scope(&root), out);
    return out;
  } catch (Fault& fault) {
    // A template's own words, and messages that already have a line, stay as they are.
    if (fault.code == StatusCode::kAborted) {
      fault.code = StatusCode::kInvalidArgument;
    } else if (!fault.message.starts_with("line ")) {
      fault.message = absl::StrCat("line ", line_, ": ", fault.message);
    }
    throw;
  }
}

Scope* Interpreter::new_scope(Scope* parent) {
  auto* scope = make<Scope>();
  scope->parent = parent;
  return scope;
}

// ---- statements ----

Flow Interpreter::run(const Body& body, Scope& scope, MarkedText& out) {
  for (const auto& s : body) {
    if (const Flow flow = run(*s, scope, out); flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

void Interpreter::write(MarkedText& out, const Value& v) {
  if (v.is(Kind::kUndefined)) return;
  if (v.is(Kind::kString)) {
    check_size(out.text.size() + v.str().size());
    charge_bytes(v.str().size());
    return append(out, v.text());
  }
  const MarkedText text = text_of(v);
  check_size(out.text.size() + text.text.size());
  append(out, text);
}

Flow Interpreter::run(const Stmt& s, Scope& scope, MarkedText& out) {
  const Deeper deeper(*this);
  line_ = s.line;
  switch (s.kind) {
    case StmtKind::kText: write(out, s.constant); break;
    case StmtKind::kOutput: write(out, eval(*s.expr, scope)); break;
    case StmtKind::kIf: return run_if(s, scope, out);
    case StmtKind::kFor: return run_for(s, scope, out, nullptr, 0);
    case StmtKind::kSet: assign(*s.target, eval(*s.expr, scope), scope); break;
    case StmtKind::kSetBlock: run_set_block(s, scope); break;
    case StmtKind::kMacro: scope.set(s.text, Value::callable(make_macro(*this, s, scope))); break;
    case StmtKind::kCall: run_call(s, scope, out); break;
    case StmtKind::kFilter: {
      const Value body = make_string(capture(s.body, scope));
      write(out, eval_filter(*s.expr, scope, &body));
      break;
    }
    case StmtKind::kWith: run_with(s, scope, out); break;
    case StmtKind::kScope: return run(s.body, *new_scope(&scope), out);
    case StmtKind::kGroup: return run(s.body, scope, out);
    case StmtKind::kBreak: return Flow::kBreak;
    case StmtKind::kContinue: return Flow::kContinue;
    case StmtKind::kRefuse: fail("line ", s.line, ": ", s.text);
  }
  return Flow::kNext;
}

Flow Interpreter::run_if(const Stmt& s, Scope& scope, MarkedText& out) {
  for (const auto& [test, body] : s.branches) {
    if (truthy(eval(*test, scope))) return run(body, scope, out);
  }
  return run(s.body, scope, out);
}

Flow Interpreter::run_for(const Stmt& s, Scope& scope, MarkedText& out, const Value* iterable, uint32_t depth) {
  std::vector<Value> items = iterate(iterable != nullptr ? *iterable : eval(*s.expr, scope));
  Scope* inner = new_scope(&scope);
  const auto fresh = [&] {
    if (inner->captured) inner = new_scope(&scope);
    inner->variables.clear();
  };
  if (s.test != nullptr) {
    std::vector<Value> kept;
    for (Value& item : items) {
      fresh();
      assign(*s.target, item, *inner);
      if (truthy(eval(*s.test, *inner))) kept.push_back(std::move(item));
    }
    items = std::move(kept);
  }
  if (items.empty()) return run(s.orelse, *new_scope(&scope), out);
  auto* loop = make<LoopObject>();
  loop->items = std::move(items);
  loop->depth = depth;
  if (s.recursive) loop->recurse = make_recursive_loop(*this, s, scope, depth);
  for (; loop->index < loop->items.size(); ++loop->index) {
    charge(1);
    fresh();
    inner->set("loop", Value::loop(loop));
    assign(*s.target, loop->items[loop->index], *inner);
    if (run(s.body, *inner, out) == Flow::kBreak) break;
  }
  return Flow::kNext;
}

MarkedText Interpreter::capture(const Body& body, Scope& parent) {
  MarkedText out;
  run(body, *new_scope(&parent), out);
  return out;
}

void Interpreter::run_set_block(const Stmt& s, Scope& scope) {
  Value value = make_string(capture(s.body, scope));
  if (s.expr != nullptr) value = eval_filter(*s.expr, scope, &value);
  assign(*s.target, value, scope);
}

void Interpreter::run_call(const Stmt& s, Scope& scope, MarkedText& out) {
  const Value caller = Value::callable(make_macro(*this, s, scope));
  write(out, eval_call(*s.expr, scope, &caller));
}

void Interpreter::run_with(const Stmt& s, Scope& scope, MarkedText& out) {
  Scope* inner = new_scope(&scope);
  for (const auto& [target, value] : s.bindings) assign(*target, eval(*value, scope), *inner);
  run(s.body, *inner, out);
}

void Interpreter::assign(const Expr& target, const Value& value, Scope& scope) {
  if (target.kind == ExprKind::kName) return scope.set(target.text, value);
  if (target.kind == ExprKind::kAttribute) {
    const Value* object = scope.find(target.children[0]->text);
    if (object == nullptr || !object->is(Kind::kNamespace)) fail("cannot assign attribute on non-namespace object");
    object->entries().set(Value::string(target.text), value);
    return;
  }
  const std::vector<Value> items = iterate(value);
  const size_t wanted = target.children.size();
  if (items.size() < wanted) fail("not enough values to unpack (expected ", wanted, ", got ", items.size(), ")");
  if (items.size() > wanted) fail("too many values to unpack (expected ", wanted, ")");
  for (size_t i = 0; i < wanted; ++i) assign(*target.children[i], items[i], scope);
}

// ---- expressions ----

Value Interpreter::eval(const Expr& e, Scope& scope) {
  const Deeper deeper(*this);
  line_ = e.line;
  switch (e.kind) {
    case ExprKind::kConst: return e.constant;
    case ExprKind::kName: return eval_name(e, scope);
    case ExprKind::kAttribute: return attribute(eval(*e.children[0], scope), e.text);
    case ExprKind::kItem: return eval_item(e, scope);
    case ExprKind::kCall: return eval_call(e, scope, nullptr);
    case ExprKind::kFilter: return eval_filter(e, scope, nullptr);
    case ExprKind::kTest: return eval_test(e, scope);
    case ExprKind::kNot: return Value::boolean(!truthy(eval(*e.children[0], scope)));
    case ExprKind::kNegate: return arithmetic(Op::kMultiply, Value::integer(-1), [&] {
      const Value v = eval(*e.children[0], scope);
      if (v.is(Kind::kUndefined)) fail_undefined(v);
      if (!v.is_number()) fail("bad operand type for unary -: '", type_name(v), "'");
      return v;
    }());
    case ExprKind::kPlus: return arithmetic(Op::kAdd, Value::integer(0), eval(*e.children[0], scope));
    case ExprKind::kArithmetic: return eval_arithmetic(e, scope);
    case ExprKind::kConcat: return eval_concat(e, scope);
    case ExprKind::kCompare: return eval_compare(e, scope);
    case ExprKind::kAnd:
    case ExprKind::kOr: {
      Value v;
      for (const ExprPtr& child : e.children) {
        v = eval(*child, scope);
        if (truthy(v) == (e.kind == ExprKind::kOr)) break;
      }
      return v;
    }
    case ExprKind::kCondition: return eval_condition(e, scope);
    case ExprKind::kList: return make_list(eval_all(e.children, scope));
    case ExprKind::kTuple: return make_list(eval_all(e.children, scope), Kind::kTuple);
    case ExprKind::kDict: return eval_dict(e, scope);
    case ExprKind::kSlice: break;
  }
  fail("a slice stands only in brackets");
}

Value Interpreter::eval_name(const Expr& e, Scope& scope) {
  if (const Value* value = scope.find(e.text)) return *value;
  return Value::undefined(absl::StrCat("'", e.text, "' is undefined"));
}

Value Interpreter::eval_item(const Expr& e, Scope& scope) {
  const Value object = eval(*e.children[0], scope);
  if (e.children[1]->kind == ExprKind::kSlice) return slice(object, *e.children[1], scope);
  return item(object, eval(*e.children[1], scope));
}

Args Interpreter::eval_args(const CallArgs& args, Scope& scope) {
  Args out;
  out.positional = eval_all(args.positional, scope);
  for (const auto& [name, value] : args.named) out.named.emplace_back(name, eval(*value, scope));
  if (args.star != nullptr) {
    for (Value& v : iterate(eval(*args.star, scope))) out.positional.push_back(std::move(v));
  }
  if (args.star_star != nullptr) {
    const Value more = eval(*args.star_star, scope);
    if (!more.is(Kind::kDict)) fail("argument after ** must be a mapping, not ", type_name(more));
    for (const auto& entry : more.entries().entries) {
      out.named.emplace_back(require_string(entry.key, "a keyword").text, entry.value);
    }
  }
  return out;
}

// A method is called without making a value of it first. `caller` is the body of a call block.
Value Interpreter::eval_call(const Expr& e, Scope& scope, const Value* caller) {
  const Expr& callee = *e.children[0];
  const bool is_method = callee.kind == ExprKind::kAttribute;
  const Value object = eval(is_method ? *callee.children[0] : callee, scope);
  Args args = eval_args(e.args, scope);
  if (caller != nullptr) args.named.emplace_back("caller", *caller);
  line_ = e.line;
  return is_method ? call_method(object, callee.text, args) : call(object, args);
}

Value Interpreter::eval_filter(const Expr& e, Scope& scope, const Value* input) {
  const Expr* inner = e.children[0].get();
  const Value value = inner == nullptr  ? *input
                      : input == nullptr ? eval(*inner, scope)
                                         : eval_filter(*inner, scope, input);
  Args args = eval_args(e.args, scope);
  line_ = e.line;
  return filter(e.text, value, args);
}

Value Interpreter::eval_test(const Expr& e, Scope& scope) {
  const Value value = eval(*e.children[0], scope);
  Args args = eval_args(e.args, scope);
  line_ = e.line;
  return Value::boolean(test(e.text, value, args));
}

Value Interpreter::eval_arithmetic(const Expr& e, Scope& scope) {
  Value result = eval(*e.children[0], scope);
  for (size_t i = 0; i < e.ops.size(); ++i) {
    const Value right = eval(*e.children[i + 1], scope);
    line_ = e.line;
    result = arithmetic(e.ops[i], result, right);
  }
  return result;
}

Value Interpreter::eval_concat(const Expr& e, Scope& scope) {
  MarkedText out;
  for (const ExprPtr& child : e.children) write(out, eval(*child, scope));
  return make_string(std::move(out));
}

Value Interpreter::eval_compare(const Expr& e, Scope& scope) {
  Value left = eval(*e.children[0], scope);
  for (size_t i = 0; i < e.ops.size(); ++i) {
    Value right = eval(*e.children[i + 1], scope);
    if (!compare(e.ops[i], left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Interpreter::eval_condition(const Expr& e, Scope& scope) {
  if (truthy(eval(*e.children[1], scope))) return eval(*e.children[0], scope);
  if (e.children[2] != nullptr) return eval(*e.children[2], scope);
  return Value::undefined("the inline if-expression evaluated to false and no else section was defined");
}

std::vector<Value> Interpreter::eval_all(const std::vector<ExprPtr>& exprs, Scope& scope) {
  std::vector<Value> values;
  values.reserve(exprs.size());
  for (const ExprPtr& expr : exprs) values.push_back(eval(*expr, scope));
  return values;
}

Value Interpreter::eval_dict(const Expr& e, Scope& scope) {
  DictObject* dict = make_dict();
  for (size_t i = 0; i + 1 < e.children.size(); i += 2) {
    Value key = eval(*e.children[i], scope);
    charge(weight_of(key));
    dict->set(std::move(key), eval(*e.children[i + 1], scope));
  }
  return Value::dict(dict);
}

// ---- calls by name ----

Value Interpreter::call(const Value& function, Args& args) {
  if (function.is(Kind::kUndefined)) fail_undefined(function);
  if (function.is(Kind::kLoop) && function.loop_state().recurse != nullptr) return function.loop_state().recurse->call(*this, args);
  if (function.is(Kind::kLoop)) fail("the loop must have the 'recursive' marker to be called");
  if (!function.is(Kind::kCallable)) fail("'", type_name(function), "' object is not callable");
  const Deeper deeper(*this);
  return function.function().call(*this, args);
}

Value Interpreter::filter(std::string_view name, const Value& input, Args& args) {
  FilterFn fn = find_text_filter(name);
  if (fn == nullptr) fn = find_sequence_filter(name);
  if (fn == nullptr) fail("no filter named '", std::string(name), "'");
  const Deeper deeper(*this);
  return fn(*this, input, args);
}

bool Interpreter::test(std::string_view name, const Value& input, Args& args) {
  const TestFn fn = find_test(name);
  if (fn == nullptr) fail("no test named '", std::string(name), "'");
  const Deeper deeper(*this);
  return fn(*this, input, args);
}

}  // namespace shoal::jinja
