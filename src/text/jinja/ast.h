// The syntax tree of a template. Immutable once parsed, shared by all renderings.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "text/jinja/value.h"

namespace shoal::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

enum class ExprKind : uint8_t {
  kConst,       // constant
  kName,        // text
  kAttribute,   // children[0] . text
  kItem,        // children[0] [ children[1] ]
  kSlice,       // inside of an item: children are start, stop, step; null where left out
  kCall,        // children[0] ( args )
  kFilter,      // children[0] | text ( args ); children[0] is null in a filter block
  kTest,        // children[0] is text ( args )
  kNot,         // children[0]
  kNegate,
  kPlus,
  kArithmetic,  // children[0] ops[0] children[1] ops[1] ..., from left to right
  kConcat,      // children ~ ...
  kCompare,     // children[0] ops[0] children[1] and children[1] ops[1] ...
  kAnd,
  kOr,
  kCondition,   // children[0] if children[1] else children[2], which may be null
  kList,
  kTuple,
  kDict,        // key, value, key, value ...
};

enum class Op : uint8_t { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower, kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };

struct CallArgs {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star, star_star;  // *args, **kwargs
};

// Chains are flat, so the depth of a tree is the depth of brackets in the source, which the parser bounds.
struct Expr {
  ExprKind kind;
  uint32_t line = 0;
  uint32_t depth = 1;
  std::string text;
  Value constant;
  std::vector<ExprPtr> children;
  std::vector<Op> ops;
  CallArgs args;
};

struct Stmt;
using Body = std::vector<std::unique_ptr<Stmt>>;

enum class StmtKind : uint8_t {
  kText,      // text
  kOutput,    // expr
  kIf,        // branches, then body as else
  kFor,       // target in expr [if test] [recursive]; body; orelse
  kSet,       // target = expr
  kSetBlock,  // target = the rendered body, through the filter in `expr` if there is one
  kMacro,     // name, params; body
  kCall,      // expr is the call; params; body is what caller() renders
  kFilter,    // expr is the filter; body
  kWith,      // targets = values; body
  kScope,     // body in a scope of its own (block, autoescape)
  kGroup,     // body in the same scope (generation)
  kBreak,
  kContinue,
  kRefuse,    // text says why: include, import, extends
};

struct Param {
  std::string name;
  ExprPtr fallback;  // null: undefined if not given
};

struct Stmt {
  StmtKind kind;
  uint32_t line = 0;
  std::string text;       // text, macro name, reason
  Value constant;         // kText: the text as a value
  ExprPtr expr, target, test;
  std::vector<std::pair<ExprPtr, Body>> branches;
  std::vector<std::pair<ExprPtr, ExprPtr>> bindings;  // of with
  std::vector<Param> params;
  Body body, orelse;
  bool recursive = false;
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;  // of a macro's body
};

}  // namespace shoal::jinja
