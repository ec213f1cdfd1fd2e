// The unigram language model of SentencePiece: of all ways to cut a piece into tokens, the one of the highest score.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/tokenizer/byte_trie.h"
#include "text/tokenizer/token_model.h"

namespace shoal {

// Already validated.
struct UnigramConfig {
  struct Piece {
    std::string text;
    TokenId id;
    double score;
  };
  std::vector<Piece> pieces;               // without tokens that text must never give
  double score_min = 0;                    // over the whole vocabulary; an unknown symbol scores 10 less
  std::optional<TokenId> unk;              // without it unknown symbols vanish
  bool byte_fallback = false;
  std::array<TokenId, 256> byte_tokens{};  // -1 where there is none
};

class Unigram : public TokenModel {
 public:
  explicit Unigram(UnigramConfig config);
  // Viterbi in one pass; time is linear in the length times the length of the longest token. What every best path has
  // in common is written as soon as it is known, so that memory does not grow with the piece.
  void encode(std::string_view piece, size_t tokens_max, std::vector<TokenId>& out) const override;
  size_t token_bytes_max() const override;

 private:
  class Search;
  void emit_unknown(std::string_view text, std::vector<TokenId>& out) const;

  const UnigramConfig config_;
  ByteTrie trie_;  // to indices of config_.pieces
  std::unordered_map<std::string_view, TokenId> ids_;
  bool all_bytes_known_ = false;  // an unknown symbol becomes its bytes
};

}  // namespace shoal
