// The bytes of every token of a model, in an order in which those that begin alike lie together.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "text/tokenizer/string_map.h"
#include "text/tokenizer/tokenizer.h"

namespace shoal {

// Immutable; any thread.
class TokenVocabulary {
 public:
  struct Token {
    TokenId id = 0;
    std::string bytes;     // what it adds to a text; a control token's is its spelling
    bool control = false;  // never matches by its bytes
  };
  // `size`: ids below it exist. Tokens without bytes match nothing.
  TokenVocabulary(std::vector<Token> tokens, uint32_t size);
  static std::shared_ptr<const TokenVocabulary> of(const Tokenizer& tokenizer);

  uint32_t size() const { return size_; }
  std::string_view bytes(TokenId id) const;   // empty for unknown ids
  bool is_control(TokenId id) const;
  std::optional<TokenId> token_id(std::string_view spelling) const;  // of control and added tokens, and of all others by their bytes
  size_t token_bytes_max() const { return token_bytes_max_; }

  // A trie of all tokens but the control tokens, depth first: the subtree of node i is [i, subtree_end). Node 0 is the
  // root. The tokens whose bytes end at nodes [i, k) are sorted_ids()[node i's tokens .. node k's tokens).
  struct TrieNode {
    uint32_t subtree_end = 0;
    uint32_t tokens = 0;     // index into sorted_ids() of the first one that ends here or later
    uint16_t depth = 0;      // bytes from the root
    uint8_t byte = 0;        // the last of them
  };
  std::span<const TrieNode> trie() const { return {trie_.data(), trie_.size() - 1}; }
  const TrieNode& trie_node(uint32_t i) const { return trie_[i]; }  // also one past the last
  std::span<const TokenId> sorted_ids() const { return sorted_; }

 private:
  void build_trie();

  uint32_t size_;
  size_t token_bytes_max_ = 0;
  std::string text_;                    // of all tokens, one after the other
  std::vector<uint32_t> offsets_;       // [size_ + 1] by id
  std::vector<bool> control_;
  std::vector<TokenId> sorted_;
  std::vector<TrieNode> trie_;          // and a sentinel
  StringMap<TokenId> ids_;              // of control and added tokens
};

// Made at the first call, once. Any thread.
class LazyVocabulary {
 public:
  std::shared_ptr<const TokenVocabulary> get(const Tokenizer& tokenizer) const {
    std::call_once(once_, [&] { made_ = TokenVocabulary::of(tokenizer); });
    return made_;
  }

 private:
  mutable std::once_flag once_;
  mutable std::shared_ptr<const TokenVocabulary> made_;
};

}  // namespace shoal
