// Evaluates a template under budgets. One object per rendering; one thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/heap.h"
#include "text/jinja/value.h"

namespace shoal::jinja {

// Variables of one block. A macro keeps a pointer to the scope it was defined in.
struct Scope : Object {
  Scope* parent = nullptr;
  bool captured = false;  // a macro or call block points here: the scope is not used again for the next item of a loop
  std::vector<std::pair<std::string_view, Value>> variables;

  void set(std::string_view name, Value value);
  const Value* find(std::string_view name) const;  // here and in the scopes around
};

enum class Flow : uint8_t { kNext, kBreak, kContinue };

class Interpreter : public Heap {
 public:
  using Heap::Heap;

  // Renders the template with the variables of `root`. Throws Fault.
  MarkedText render(const Body& body, Scope& root);

  // ---- services for filters, tests, methods and globals ----
  // The items of an iterable; takes all that is left of a generator. Fails for what is not iterable.
  std::vector<Value> iterate(const Value& v);
  Value attribute(const Value& object, std::string_view name);      // object.name
  Value item(const Value& object, const Value& key);                // object[key]
  Value call(const Value& function, Args& args);
  Value call_method(const Value& object, std::string_view name, Args& args);
  Value filter(std::string_view name, const Value& input, Args& args);
  bool test(std::string_view name, const Value& input, Args& args);
  Value arithmetic(Op op, const Value& a, const Value& b);
  bool compare(Op op, const Value& a, const Value& b);

  // A macro's body with its arguments bound.
  Value call_macro(const Stmt& macro, Scope& defined_in, Args& args);
  // The items of a recursive loop, one level down.
  Value call_loop(const Stmt& loop, Scope& defined_in, const Value& iterable, uint32_t depth);

 private:
  // Evaluations may nest this many times deeper than macros: statements and expressions of every macro add up.
  static constexpr uint32_t kEvaluationsPerDepth = 10;

  // Bounds the recursion of evaluation.
  struct Deeper {
    explicit Deeper(Interpreter& i) : interpreter(i) { interpreter.enter(); }
    ~Deeper() { --interpreter.depth_; }
    Interpreter& interpreter;
  };
  void enter();

  Flow run(const Body& body, Scope& scope, MarkedText& out);
  Flow run(const Stmt& s, Scope& scope, MarkedText& out);
  Flow run_if(const Stmt& s, Scope& scope, MarkedText& out);
  Flow run_for(const Stmt& s, Scope& scope, MarkedText& out, const Value* iterable, uint32_t depth);
  void run_set_block(const Stmt& s, Scope& scope);
  void run_call(const Stmt& s, Scope& scope, MarkedText& out);
  void run_with(const Stmt& s, Scope& scope, MarkedText& out);
  MarkedText capture(const Body& body, Scope& parent);
  void bind_parameters(const Stmt& macro, Args& args, Scope& scope);
  void write(MarkedText& out, const Value& v);
  void assign(const Expr& target, const Value& value, Scope& scope);
  Scope* new_scope(Scope* parent);

  Value eval(const Expr& e, Scope& scope);
  Value eval_name(const Expr& e, Scope& scope);
  Value eval_item(const Expr& e, Scope& scope);
  Value eval_call(const Expr& e, Scope& scope, const Value* caller);
  Value eval_filter(const Expr& e, Scope& scope, const Value* input);
  Value eval_test(const Expr& e, Scope& scope);
  Value eval_arithmetic(const Expr& e, Scope& scope);
  Value eval_concat(const Expr& e, Scope& scope);
  Value eval_compare(const Expr& e, Scope& scope);
  Value eval_condition(const Expr& e, Scope& scope);
  Value eval_dict(const Expr& e, Scope& scope);
  std::vector<Value> eval_all(const std::vector<ExprPtr>& exprs, Scope& scope);
  Args eval_args(const CallArgs& args, Scope& scope);
  Value slice(const Value& object, const Expr& e, Scope& scope);

  uint32_t depth_ = 0;
  uint32_t macro_depth_ = 0;
};

// The statement as what a template calls: its macro or call block, its recursive loop `depth` loops down.
CallableObject* make_macro(Heap& heap, const Stmt& s, Scope& scope);
CallableObject* make_recursive_loop(Heap& heap, const Stmt& s, Scope& scope, uint32_t depth);

// Tables of the language, by name; null if there is no such thing.
using FilterFn = Value (*)(Interpreter&, const Value& input, Args& args);
using TestFn = bool (*)(Interpreter&, const Value& input, Args& args);
using MethodFn = Value (*)(Interpreter&, const Value& self, Args& args);
FilterFn find_text_filter(std::string_view name);
FilterFn find_sequence_filter(std::string_view name);
TestFn find_test(std::string_view name);
MethodFn find_string_method(std::string_view name);
MethodFn find_container_method(Kind kind, std::string_view name);
// Whether a method of lists or dicts would change its object: the sandbox refuses those.
bool is_mutating_method(Kind kind, std::string_view name);
void add_globals(Interpreter& interpreter, Scope& scope);

// tojson, "%" formatting, str.format().
Value to_json(Interpreter& interpreter, const Value& v, Args& args);
Value percent_format(Interpreter& interpreter, const MarkedText& format, const Value& arguments);
Value brace_format(Interpreter& interpreter, const MarkedText& format, Args& args);

// Arguments matched to parameter names as Python does; fails for too many, unknown or doubled ones.
class Bound {
 public:
  Bound(std::string_view function, const Args& args, std::initializer_list<std::string_view> names, size_t required = 0);
  const Value* get(size_t i) const { return values_[i] ? &*values_[i] : nullptr; }  // null: not given
  bool has(size_t i) const { return values_[i].has_value(); }
  int64_t integer(size_t i, int64_t fallback) const;
  bool boolean(size_t i, bool fallback) const;
  MarkedText text(size_t i, std::string_view fallback) const;
  std::string string(size_t i, std::string_view fallback) const { return text(i, fallback).text; }

 private:
  std::string function_;
  std::vector<std::optional<Value>> values_;
};

// v as HTML text: escaped unless it is markup already.
Value escape_html(Interpreter& interpreter, const Value& v);
// A method of str; on markup it escapes its arguments and gives markup where markupsafe does.
Value call_string_method(Interpreter& interpreter, MethodFn fn, std::string_view name, const Value& self, Args& args);

// Uses an undefined value where it must not be: throws its message.
[[noreturn]] void fail_undefined(const Value& v);
int64_t require_int(const Value& v, std::string_view what);
const MarkedText& require_string(const Value& v, std::string_view what);

// What a function implemented in C++ looks like to a template.
struct NativeFunction : CallableObject {
  using Fn = Value (*)(Interpreter&, Args&);
  NativeFunction(std::string name, Fn fn) : name_(std::move(name)), fn_(fn) {}
  Value call(Interpreter& interpreter, Args& args) override { return fn_(interpreter, args); }
  std::string_view name() const override { return name_; }
  const std::string name_;
  const Fn fn_;
};

}  // namespace shoal::jinja
