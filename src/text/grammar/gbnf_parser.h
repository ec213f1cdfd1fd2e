// GBNF text -> expressions: the dialect of llama.cpp.
//
//   root  ::= "yes" | "no" reason?          # a comment
//   reason ::= " " [a-z]{1,10} ("," [^\n"\\]*)* .
//   call  ::= <tool_call> name <[151658]>   # tokens, by their text or their id
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "text/grammar/code_point_set.h"

namespace shoal::grammar {

using ExprId = uint32_t;
constexpr uint32_t kNoLimit = UINT32_MAX;

struct Expr {
  enum class Kind : uint8_t { kLiteral, kSet, kRule, kTokenId, kTokenText, kSequence, kAlternatives, kRepeat };
  Kind kind = Kind::kSequence;     // an empty sequence matches the empty text
  uint32_t value = 0;              // of texts, sets or rules; a token id
  uint32_t least = 0, most = 0;    // kRepeat; kNoLimit
  std::vector<ExprId> children;
};

struct ParsedGrammar {
  struct Rule {
    std::string name;
    ExprId body = 0;
    bool defined = false;
  };
  std::vector<Expr> exprs;
  std::vector<Rule> rules;
  std::vector<std::string> texts;
  std::vector<CodePointSet> sets;
  uint32_t root = 0;
};

struct GrammarLimits {
  size_t bytes_max = 8u << 20;
  size_t rules_max = 50'000;
  size_t exprs_max = 1'000'000;
  int nesting_max = 200;
  uint32_t repeat_max = 100'000;
  size_t nodes_max = 200'000;  // of the automaton
};

// InvalidArgument with line and cause. Every rule that is used is defined, and "root" is.
StatusOr<ParsedGrammar> parse_gbnf(std::string_view text, const GrammarLimits& limits = {});

}  // namespace shoal::grammar
