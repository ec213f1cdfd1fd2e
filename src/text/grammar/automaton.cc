#include "text/grammar/automaton.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "text/grammar/nfa.h"
#include "text/grammar/rule_analysis.h"

namespace shoal::grammar {
namespace {

// Rules are compiled as they are called, from the root on; those that nobody calls are not.
class Compiler {
 public:
  Compiler(const ParsedGrammar& grammar, const RuleAnalysis& analysis, const TokenLookup& token_id, uint32_t vocab_size, const GrammarLimits& limits)
      : grammar_(grammar),
        limits_(limits),
        builder_(grammar, analysis, token_id, vocab_size, limits.nodes_max, [this](ExprId body) { return index_of(body); }) {}

  StatusOr<Automaton> run() {
    index_of(grammar_.rules[grammar_.root].body);
    for (size_t i = 0; i < bodies_.size(); ++i) {
      ASSIGN_OR_RETURN(const Nfa nfa, builder_.build(bodies_[i]));
      starts_.push_back(static_cast<NodeIndex>(out_.nodes.size()));
      ASSIGN_OR_RETURN(const std::vector<DfaNode> nodes, determinise(nfa));
      append(nodes);
      if (out_.nodes.size() > limits_.nodes_max || out_.byte_edges.size() > 8 * limits_.nodes_max) {
        return invalid_argument("the grammar is too large: more than ", limits_.nodes_max, " nodes; use shorter bounds or fewer alternatives");
      }
    }
    for (Automaton::Call& call : out_.call_edges) call.start = starts_[call.start];
    out_.start = 0;
    number_byte_classes();
    return std::move(out_);
  }

 private:
  RuleIndex index_of(ExprId body) {
    const auto [it, is_new] = indices_.try_emplace(body, static_cast<RuleIndex>(bodies_.size()));
    if (is_new) bodies_.push_back(body);
    return it->second;
  }

  void append(const std::vector<DfaNode>& nodes) {
    const auto base = static_cast<NodeIndex>(out_.nodes.size());
    for (const DfaNode& from : nodes) {
      Automaton::Node node;
      node.bytes_begin = static_cast<uint32_t>(out_.byte_edges.size());
      node.calls_begin = static_cast<uint32_t>(out_.call_edges.size());
      node.tokens_begin = static_cast<uint32_t>(out_.token_edges.size());
      for (const Nfa::Edge& e : from.edges) {
        const NodeIndex target = base + e.target;
        switch (e.label.kind) {
          case Label::Kind::kByte:
            out_.byte_edges.push_back({static_cast<uint8_t>(e.label.first), static_cast<uint8_t>(e.label.last), target});
            break;
          case Label::Kind::kCall: out_.call_edges.push_back({e.label.first, target}); break;  // a rule, until all have a start
          case Label::Kind::kToken: out_.token_edges.push_back({static_cast<TokenId>(e.label.first), target}); break;
        }
      }
      node.bytes_end = static_cast<uint32_t>(out_.byte_edges.size());
      node.calls_end = static_cast<uint32_t>(out_.call_edges.size());
      node.tokens_end = static_cast<uint32_t>(out_.token_edges.size());
      node.final = from.final;
      out_.nodes.push_back(node);
    }
  }

  void number_byte_classes() {
    std::array<bool, 257> border{};
    border[0] = true;
    for (const Automaton::ByteEdge& e : out_.byte_edges) border[e.first] = border[e.last + 1] = true;
    for (size_t byte = 0; byte < 256; ++byte) {
      if (border[byte]) out_.class_byte.push_back(static_cast<uint8_t>(byte));
      out_.byte_class[byte] = static_cast<uint8_t>(out_.class_byte.size() - 1);
    }
  }

  const ParsedGrammar& grammar_;
  const GrammarLimits limits_;
  NfaBuilder builder_;
  absl::flat_hash_map<ExprId, RuleIndex> indices_;
  std::vector<ExprId> bodies_;
  std::vector<NodeIndex> starts_;
  Automaton out_;
};

}  // namespace

StatusOr<Automaton> compile(const ParsedGrammar& grammar, const TokenLookup& token_id, uint32_t vocab_size, const GrammarLimits& limits) {
  ASSIGN_OR_RETURN(const RuleAnalysis analysis, RuleAnalysis::of(grammar));
  ASSIGN_OR_RETURN(Automaton out, Compiler(grammar, analysis, token_id, vocab_size, limits).run());
  const Automaton::Node& start = out.nodes[out.start];
  if (start.only_ends()) return invalid_argument("the grammar matches nothing but the empty text");
  return out;
}

}  // namespace shoal::grammar
