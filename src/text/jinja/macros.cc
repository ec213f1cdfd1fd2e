// Macros, call blocks and recursive loops: statements that templates call.
#include <algorithm>

#include "text/jinja/interpreter.h"

namespace shoal::jinja {
namespace {

struct Macro : CallableObject {
  Macro(const Stmt& s, Scope& scope) : stmt(s), defined_in(scope) { scope.captured = true; }
  Value call(Interpreter& interpreter, Args& args) override { return interpreter.call_macro(stmt, defined_in, args); }
  std::string_view name() const override { return stmt.text; }
  Value attribute(Interpreter& interpreter, std::string_view name) override {
    if (name == "name") return Value::string(stmt.text);
    if (name == "catch_kwargs") return Value::boolean(stmt.uses_kwargs);
    if (name == "catch_varargs") return Value::boolean(stmt.uses_varargs);
    if (name == "caller") return Value::boolean(stmt.uses_caller);
    if (name != "arguments") return {};
    std::vector<Value> names;
    for (const Param& param : stmt.params) names.push_back(Value::string(param.name));
    return interpreter.make_list(std::move(names), Kind::kTuple);
  }
  const Stmt& stmt;
  Scope& defined_in;
};

struct RecursiveLoop : CallableObject {
  RecursiveLoop(const Stmt& s, Scope& scope, uint32_t loop_depth) : stmt(s), defined_in(scope), depth(loop_depth) {
    scope.captured = true;
  }
  Value call(Interpreter& interpreter, Args& args) override {
    const Bound bound("loop", args, {"iterable"}, 1);
    return interpreter.call_loop(stmt, defined_in, *bound.get(0), depth + 1);
  }
  std::string_view name() const override { return "loop"; }
  const Stmt& stmt;
  Scope& defined_in;
  const uint32_t depth;
};

// What no parameter took.
void bind_surplus(Heap& heap, const Stmt& macro, Args& args, const std::vector<bool>& given, Scope& scope) {
  const size_t surplus = args.positional.size() - std::min(args.positional.size(), macro.params.size());
  if (surplus > 0 && !macro.uses_varargs) fail("macro '", macro.text, "' takes not more than ", macro.params.size(), " argument(s)");
  if (macro.uses_varargs) {
    scope.set("varargs", heap.make_list({args.positional.end() - static_cast<ptrdiff_t>(surplus), args.positional.end()}, Kind::kTuple));
  }
  DictObject* kwargs = macro.uses_kwargs ? heap.make_dict() : nullptr;
  for (size_t i = 0; i < args.named.size(); ++i) {
    if (given[i]) continue;
    if (kwargs == nullptr) fail("macro '", macro.text, "' takes no keyword argument '", args.named[i].first, "'");
    kwargs->set(Value::string(args.named[i].first), args.named[i].second);
  }
  if (kwargs != nullptr) scope.set("kwargs", Value::dict(kwargs));
}

}  // namespace

CallableObject* make_macro(Heap& heap, const Stmt& s, Scope& scope) { return heap.make<Macro>(s, scope); }

CallableObject* make_recursive_loop(Heap& heap, const Stmt& s, Scope& scope, uint32_t depth) {
  return heap.make<RecursiveLoop>(s, scope, depth);
}

// Positional and named arguments into the macro's scope; what is left over goes to varargs and kwargs, if the body
// names those, and is an error otherwise. A default may use the parameters before it.
void Interpreter::bind_parameters(const Stmt& macro, Args& args, Scope& scope) {
  std::vector<bool> given(args.named.size(), false);
  const auto named = [&](std::string_view name) -> const Value* {
    for (size_t i = 0; i < args.named.size(); ++i) {
      if (args.named[i].first == name) return given[i] = true, &args.named[i].second;
    }
    return nullptr;
  };
  for (size_t i = 0; i < macro.params.size(); ++i) {
    const Param& param = macro.params[i];
    const Value* by_name = named(param.name);
    if (i < args.positional.size()) {
      if (by_name != nullptr) fail("macro '", macro.text, "' got multiple values for argument '", param.name, "'");
      scope.set(param.name, args.positional[i]);
    } else if (by_name != nullptr) {
      scope.set(param.name, *by_name);
    } else {
      scope.set(param.name, param.fallback != nullptr
                                 ? eval(*param.fallback, scope)
                                 : Value::undefined(absl::StrCat("parameter '", param.name, "' was not provided")));
    }
  }
  if (macro.uses_caller) {
    const Value* caller = named("caller");
    scope.set("caller", caller != nullptr ? *caller : Value::undefined("No caller defined"));
  }
  bind_surplus(*this, macro, args, given, scope);
}

Value Interpreter::call_macro(const Stmt& macro, Scope& defined_in, Args& args) {
  if (++macro_depth_ > options().limits.depth_max) {
    exhausted(absl::StrCat("the limit of ", options().limits.depth_max, " nested macro calls"));
  }
  Scope* scope = new_scope(&defined_in);
  const uint32_t line = line_;
  bind_parameters(macro, args, *scope);
  MarkedText out;
  run(macro.body, *scope, out);
  --macro_depth_;
  line_ = line;
  return make_string(std::move(out));
}

Value Interpreter::call_loop(const Stmt& loop, Scope& defined_in, const Value& iterable, uint32_t depth) {
  if (depth > options().limits.depth_max) exhausted(absl::StrCat("the limit of ", options().limits.depth_max, " nested loops"));
  const Deeper deeper(*this);
  MarkedText out;
  run_for(loop, defined_in, out, &iterable, depth);
  return make_string(std::move(out));
}

}  // namespace shoal::jinja
