// The tokenizer that tokenizer.json files and GGUF vocabularies are loaded into: added tokens -> normalizer ->
// pre-tokenizer -> model -> post-processor, and a decoder for the way back.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/decoder.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/post_processor.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/string_map.h"
#include "text/tokenizer/token_model.h"
#include "text/tokenizer/tokenizer.h"

namespace shoal {

// Already validated by the loader.
struct TokenizerParts {
  std::vector<std::string> spellings;                    // by id; empty where there is no token
  StringMap<TokenId> ids;         // spelling -> id
  absl::flat_hash_set<TokenId> special;                  // left out by skip_special
  std::vector<AddedToken> added;
  std::unique_ptr<Normalizer> normalizer;                // may be null
  std::unique_ptr<PreTokenizer> pre_tokenizer;           // may be null: one piece
  std::unique_ptr<TokenModel> model;
  PostProcessor post;
  Decoder decoder;
  bool byte_tokens = false;                              // "<0x0A>" decodes to a byte
};

class PipelineTokenizer : public Tokenizer {
 public:
  explicit PipelineTokenizer(TokenizerParts parts);

  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options) const override;
  std::vector<TokenId> encode(std::span<const TextPart> parts, const EncodeOptions& options) const override;
  uint64_t tokens_min(uint64_t bytes) const override;
  std::string decode(std::span<const TokenId> ids, bool skip_special) const override;
  std::string token_bytes(TokenId id, bool first, bool skip_special) const override;
  std::unique_ptr<TokenStream> open_stream(bool skip_special) const override;
  std::string token_text(TokenId id) const override;
  std::optional<TokenId> token_id(std::string_view spelling) const override;
  bool is_special(TokenId id) const override { return parts_.special.contains(id); }
  uint32_t vocab_size() const override { return static_cast<uint32_t>(parts_.spellings.size()); }

 private:
  class Stream;
  std::vector<TokenId> encode_marked(MarkedText text, const EncodeOptions& options) const;
  // Each of them is false where `out` holds more than options.tokens_max.
  bool encode_segment(MarkedText text, bool at_start, const EncodeOptions& options, std::vector<TokenId>& out) const;
  bool encode_plain(std::string_view text, bool at_start, size_t tokens_max, std::vector<TokenId>& out) const;
  size_t token_bytes_max() const;
  // The spelling of a token that is there, or null.
  const std::string* find(TokenId id) const;

  TokenizerParts parts_;
  AddedTokenMatcher raw_matcher_, normalized_matcher_;
  size_t token_bytes_max_ = 0;  // no token stands for more bytes of text; 0: there is no bound
};

}  // namespace shoal
