// What there is to know of a grammar's rules before they become automata.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "text/grammar/gbnf_parser.h"

namespace shoal::grammar {

struct RuleFacts {
  bool productive = false;   // derives some text
  bool nullable = false;     // derives the empty text
  bool recursive = false;    // reaches itself
  bool unbounded = false;    // contains a repetition without limit, its own or of what is put in its place
  bool in_place = false;     // small enough to stand wherever it is used, without a call
  uint64_t cost = 0;         // nodes it takes, about
};

class RuleAnalysis {
 public:
  // InvalidArgument for left recursion and for a root that derives nothing, or nothing but the empty text.
  static StatusOr<RuleAnalysis> of(const ParsedGrammar& grammar);

  const RuleFacts& rule(uint32_t id) const { return facts_[id]; }
  bool productive(ExprId expr) const;
  bool nullable(ExprId expr) const;
  uint64_t cost(ExprId expr) const { return costs_[expr]; }

 private:
  struct Components;
  explicit RuleAnalysis(const ParsedGrammar& grammar) : grammar_(&grammar), facts_(grammar.rules.size()), costs_(grammar.exprs.size()), unbounded_(grammar.exprs.size()) {}
  Status find_productive_and_nullable();
  Status refuse_left_recursion() const;
  void order_rules();
  void weigh();
  void weigh(ExprId expr);
  void called_rules(ExprId expr, bool first_only, std::vector<uint32_t>& out) const;

  const ParsedGrammar* grammar_;
  std::vector<RuleFacts> facts_;
  std::vector<uint32_t> callees_first_;  // rules, those that are called before their callers where there is no cycle
  std::vector<uint64_t> costs_;          // by expression
  std::vector<bool> unbounded_;
};

}  // namespace shoal::grammar
