// Follows the grammars of one model's requests: which tokens may come next. What it keeps is a cache: where an answer
// stands in its grammar is a function of the grammar and the answer's tokens, and is found again by replaying them after
// a preemption, a fail-over or an eviction.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/request.h"
#include "base/status.h"
#include "text/grammar/grammar_matcher.h"
#include "text/tokenizer/token_vocabulary.h"

namespace shoal {

// One thread.
class TokenConstraints {
 public:
  // Asked for once, at the first request with a grammar.
  using VocabularySource = std::function<StatusOr<std::shared_ptr<const TokenVocabulary>>()>;
  explicit TokenConstraints(VocabularySource source) : source_(std::move(source)) {}

  struct Next {
    bool free = false;                     // every token may come
    bool over = false;                     // none may: the answer is complete
    std::span<const uint64_t> allowed;     // else one bit per token id, valid until the next call
  };
  // What may follow `output`. Stop ids are allowed exactly where the grammar can end, and nowhere if `ban_stop_ids`; then
  // an answer that nothing else may follow is over. An error if nothing may come and the answer is not complete, or if
  // the grammar cannot be followed here. REQUIRES: request.sampling.grammar.
  StatusOr<Next> next(const Request& request, std::span<const TokenId> output, bool ban_stop_ids);
  // `token` was drawn from what the last next() allowed. True if the answer is complete with it and nothing may follow.
  bool took(TokenId token);

 private:
  struct Compiled {
    GrammarRef grammar;
    std::unique_ptr<GrammarMatcher> matcher;
  };
  struct Key {
    GrammarRef grammar;
    friend bool operator==(const Key&, const Key&) = default;
    template <typename H>
    friend H AbslHashValue(H h, const Key& key) {
      return H::combine(std::move(h), key.grammar->gbnf, key.grammar->triggers);
    }
  };
  // A request on its way through its grammar.
  struct Walk {
    RequestId request;
    GrammarRef grammar;
    std::optional<std::list<Compiled>::iterator> compiled;  // none: not yet, or given up to stay within the limits
    GrammarMatcher::Position at;
    std::vector<TokenId> tokens;           // that led to `at`
  };

  StatusOr<std::list<Compiled>::iterator> compiled(const GrammarRef& grammar);
  StatusOr<Walk*> walk_to(const Request& request, std::span<const TokenId> output);
  void keep_within_limits();

  const VocabularySource source_;
  std::shared_ptr<const TokenVocabulary> vocabulary_;
  std::list<Compiled> compiled_;           // the most recently used first
  absl::flat_hash_map<Key, std::list<Compiled>::iterator> by_grammar_;
  std::list<Walk> walks_;                  // the most recently used first
  absl::flat_hash_map<RequestId, std::list<Walk>::iterator> by_request_;
  std::vector<uint64_t> words_;            // of the last next()
  Walk* last_ = nullptr;
  std::span<const TokenId> last_stop_ids_;
};

}  // namespace shoal
