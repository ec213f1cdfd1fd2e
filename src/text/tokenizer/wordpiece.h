// The model of BERT's tokenizers (arXiv 1810.04805): a word is cut into the longest known beginning, then the longest known
// continuation, and so on; a word that cannot be cut to its end is one unknown token.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/byte_trie.h"
#include "text/tokenizer/token_model.h"

namespace shoal {

// Already validated.
struct WordPieceConfig {
  std::vector<std::pair<std::string, TokenId>> tokens;  // without those that text must never give
  std::string continuing_prefix = "##";                 // of tokens that go on within a word
  TokenId unk = 0;
  uint32_t word_code_points_max = 100;                  // longer words are unknown
};

class WordPiece : public TokenModel {
 public:
  explicit WordPiece(const WordPieceConfig& config);
  void encode(std::string_view piece, size_t tokens_max, std::vector<TokenId>& out) const override;
  size_t token_bytes_max() const override { return 0; }  // an unknown word is one token

 private:
  const TokenId unk_;
  const uint32_t word_code_points_max_;
  ByteTrie begins_, continues_;
};

}  // namespace shoal
