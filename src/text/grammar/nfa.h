// The automaton of one rule on its way: expressions -> NFA with empty edges -> deterministic nodes.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/status.h"
#include "text/grammar/automaton.h"
#include "text/grammar/rule_analysis.h"

namespace shoal::grammar {

// What an edge takes. Ordered: bytes before calls before tokens.
struct Label {
  enum class Kind : uint8_t { kByte, kCall, kToken } kind = Kind::kByte;
  uint32_t first = 0, last = 0;  // bytes; a rule; a token
  friend auto operator<=>(const Label&, const Label&) = default;
};

struct Nfa {
  struct Edge {
    Label label;
    uint32_t target;
  };
  std::vector<std::vector<Edge>> edges;
  std::vector<std::vector<uint32_t>> empty;  // edges that take nothing
  uint32_t start = 0, end = 0;
};

// A node of a finished rule; targets are within the rule, calls name rules.
struct DfaNode {
  std::vector<Nfa::Edge> edges;
  bool final = false;
};

// A piece of a grammar that gets an automaton of its own: a rule, or a repeated expression too large to be copied.
using RuleIndex = uint32_t;

// Writes the NFA of expressions. What is called for the first time gets its index from `call`.
class NfaBuilder {
 public:
  using IndexOf = std::function<RuleIndex(ExprId body)>;
  NfaBuilder(const ParsedGrammar& grammar, const RuleAnalysis& analysis, const TokenLookup& token_id, uint32_t vocab_size, size_t nodes_max, IndexOf index_of)
      : grammar_(grammar), analysis_(analysis), token_id_(token_id), vocab_size_(vocab_size), nodes_max_(nodes_max), index_of_(std::move(index_of)) {}

  StatusOr<Nfa> build(ExprId body);

 private:
  uint32_t node();
  void edge(uint32_t from, Label label, uint32_t to) { nfa_.edges[from].push_back({label, to}); }
  void add(ExprId expr, uint32_t from, uint32_t to);
  void add_alternatives(const Expr& e, uint32_t from, uint32_t to);
  void add_repeat(const Expr& e, uint32_t from, uint32_t to);
  void add_set(const CodePointSet& set, uint32_t from, uint32_t to);
  void add_token(const Expr& e, uint32_t from, uint32_t to);
  bool ok() const { return status_.ok(); }

  const ParsedGrammar& grammar_;
  const RuleAnalysis& analysis_;
  const TokenLookup& token_id_;
  const uint32_t vocab_size_;
  const size_t nodes_max_;
  const IndexOf index_of_;
  Status status_ = OkStatus();
  Nfa nfa_;
};

// The deterministic form over bytes, calls and tokens; where it would be much larger, the NFA without its empty edges.
// Node 0 is the start. InvalidArgument where that, too, is too large.
StatusOr<std::vector<DfaNode>> determinise(const Nfa& nfa);

}  // namespace shoal::grammar
