// Which tokens may come next, so that the text of an answer stays within its grammar. A grammar is compiled once for a
// vocabulary; a position in it is a small value that any number of requests may hold at the same time.
//
//   GrammarMatcher::Position at = matcher->start();
//   allowed = matcher->allowed(at);      // the tokens that may come next, whether the answer may end here
//   matcher->advance(at, token);         // the one that came
//
// Masks follow XGrammar (arXiv 2411.15100): what a token does within one rule is found out once per node of the
// automaton; only tokens that run over the rule's end are looked at again where the rule was entered.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/request.h"
#include "base/status.h"
#include "text/grammar/machine.h"
#include "text/grammar/trigger_scanner.h"
#include "text/tokenizer/token_vocabulary.h"

namespace shoal {

// One bit per token id.
struct TokenMask {
  std::vector<uint64_t> words;
  uint32_t count = 0;

  bool holds(TokenId id) const {
    const auto i = static_cast<size_t>(id);
    return i / 64 < words.size() && (words[i / 64] >> (i % 64) & 1) != 0;
  }
};

// One thread at a time. Deterministic: what is allowed depends on the grammar, the vocabulary and the tokens alone.
class GrammarMatcher {
 public:
  // InvalidArgument as parse_gbnf() and compile() give it.
  static StatusOr<std::unique_ptr<GrammarMatcher>> create(const Grammar& grammar, std::shared_ptr<const TokenVocabulary> vocabulary,
                                                          const grammar::GrammarLimits& limits = {});

  struct Position {
    bool free = false;       // no trigger has come yet
    uint32_t state = 0;      // of the scanner while free, else of the machine
    uint64_t generation = 0;
  };
  struct Allowed {
    std::shared_ptr<const TokenMask> mask;  // null: every token
    bool may_end = false;                   // the text so far is complete, so a stop token may follow
    bool complete = false;                  // and nothing else may
  };

  Position start() const;
  // ResourceExhausted if the grammar is so ambiguous here that following it would take more than sensible work.
  StatusOr<Allowed> allowed(const Position& at);
  // Whether nothing but the end may follow.
  bool complete(const Position& at) const;
  // InvalidArgument if the token is not allowed there.
  Status advance(Position& at, TokenId token);

  // Gives up what is remembered beyond the limits. Positions of an earlier generation() are void then: advance from
  // start() again.
  void trim();
  uint64_t generation() const { return generation_; }
  size_t bytes() const { return machine_->bytes() + cache_bytes_ + automaton_bytes_; }

 private:
  // What is known of the tokens that may come at a node, whoever called its rule.
  struct Local {
    std::vector<uint64_t> words;      // those that stay within the rule or end with it; or, if they are few ...
    std::vector<TokenId> tokens;
    std::vector<uint32_t> escapes;    // nodes of the vocabulary's trie: the rule may have ended before the bytes below them
    size_t escape_nodes = 0;          // all that lies below them
  };

  GrammarMatcher(grammar::Automaton automaton, const std::vector<std::string>& triggers, std::shared_ptr<const TokenVocabulary> vocabulary);
  std::shared_ptr<const TokenMask> mask_of(grammar::StateId state);
  std::shared_ptr<const TokenMask> free_mask(uint32_t scanner_state);
  const Local& local(grammar::NodeIndex node);
  void add_bytes_of(grammar::StateId state, TokenMask& mask);
  void add_token_terminals(grammar::StateId state, TokenMask& mask);
  template <typename Visit>
  bool walk(uint32_t from, grammar::StateId state, size_t nodes_max, Visit&& visit);
  grammar::StateId after_bytes(grammar::StateId state, std::string_view bytes);
  Status too_ambiguous() const;

  const std::shared_ptr<const TokenVocabulary> vocabulary_;
  std::unique_ptr<grammar::Machine> machine_;
  grammar::TriggerScanner scanner_;
  uint64_t generation_ = 1;
  std::vector<grammar::NodeIndex> lookalikes_;                    // by node: the one whose Local is its own as well
  absl::flat_hash_map<grammar::NodeIndex, Local> locals_;
  absl::flat_hash_map<grammar::StateId, std::shared_ptr<const TokenMask>> masks_;
  absl::flat_hash_map<uint32_t, std::shared_ptr<const TokenMask>> free_masks_;  // null: every token
  size_t automaton_bytes_ = 0;
  size_t cache_bytes_ = 0;
  std::vector<grammar::StateId> path_;  // scratch of walk(), by depth
};

// Whether a grammar can be compiled for a vocabulary, without the cost of its masks.
Status check_grammar(const Grammar& grammar, const grammar::TokenLookup& token_id, uint32_t vocab_size, const grammar::GrammarLimits& limits = {});

}  // namespace shoal
