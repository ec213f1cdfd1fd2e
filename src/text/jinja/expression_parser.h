// The expressions of a template. The statements are in parser.cc.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/token_cursor.h"

namespace shoal::jinja {

// Precedence from loose to tight: inline if, or, and, not, comparisons, sums, ~, products, **, signs, postfix; filters
// and tests bind to the operand before them.
class ExpressionParser : protected TokenCursor {
 public:
  using TokenCursor::TokenCursor;

 protected:
  static constexpr int kDepthMax = 120;  // of statements and brackets in the source

  // Guards every recursion of the parser.
  struct Deeper {
    explicit Deeper(ExpressionParser& p) : parser(p) {
      if (++parser.depth_ > kDepthMax) parser.bad("nested too deeply");
    }
    ~Deeper() { --parser.depth_; }
    ExpressionParser& parser;
  };

  ExprPtr make(ExprKind kind) const {
    auto e = std::make_unique<Expr>();
    e->kind = kind;
    e->line = now().line;
    return e;
  }
  void add_child(Expr& e, ExprPtr child) {
    if (child != nullptr) e.depth = std::max(e.depth, child->depth + 1);
    if (e.depth > kDepthMax) bad("expression nested too deeply");
    e.children.push_back(std::move(child));
  }
  ExprPtr constant(Value v) const {
    auto e = make(ExprKind::kConst);
    e->constant = std::move(v);
    return e;
  }

  // What a macro's body names decides whether it takes a caller and surplus arguments.
  struct Uses {
    bool caller = false, varargs = false, kwargs = false;
  };

  // ---- expressions ----
  bool at_tuple_end(std::string_view extra_end) const;
  // expr, or a tuple of several; with_condition false: "if" ends it (for ... in x if y).
  ExprPtr parse_tuple(bool with_condition, std::string_view extra_end = {}, bool in_brackets = false);
  ExprPtr parse_expression();
  // A flat node over operands joined by what `take` accepts.
  template <typename Operand, typename Take>
  ExprPtr chain(const Operand& operand, const Take& take);
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  struct OpName {
    std::string_view name;
    Op op;
  };
  // Takes an operator of `table` into node->ops, creating the node.
  bool take_binary(ExprPtr& node, ExprKind kind, std::initializer_list<OpName> table);
  ExprPtr parse_compare();
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_unary(bool with_filters);
  ExprPtr parse_primary();
  ExprPtr parse_name();
  ExprPtr parse_number();
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr parse_postfix(ExprPtr e);
  ExprPtr parse_subscript(ExprPtr object);
  ExprPtr parse_index();
  void parse_args(Expr& e);
  // The filters, tests and calls after an operand; `begin` true: a filter name stands first (filter block).
  ExprPtr parse_filters(ExprPtr e, bool begin = false);
  std::string take_dotted_name();
  ExprPtr parse_test(ExprPtr e);

  int depth_ = 0;
  Uses uses_;
};

}  // namespace shoal::jinja
