// Text <-> token ids, exactly as the model's own tokenizer does it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace shoal {

// A run of text and who wrote it. Special tokens are recognised only in trusted runs (the template's own text), so
// that what a user types can never become a control token.
struct TextPart {
  std::string text;
  bool trusted = true;
};

struct EncodeOptions {
  bool add_special = true;     // run the post-processor (BOS, EOS ...) around the text
  bool parse_special = true;   // recognise special added tokens written out in the text
  size_t tokens_max = SIZE_MAX;  // encoding stops where more have been found; what is returned then are the first ones
};

// The bytes of one sequence of tokens as they arrive. Belongs to one thread; the tokenizer outlives it.
class TokenStream {
 public:
  virtual ~TokenStream() = default;
  // The bytes that are certain after `id`: they may end within a UTF-8 sequence, but never have to be taken back.
  virtual std::string push(TokenId id) = 0;
  // The bytes that waited for a next token.
  virtual std::string finish() = 0;
};

// Immutable after construction; every method may be called from any thread.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options) const = 0;
  // Parts are encoded as one text, except that nothing in an untrusted part is recognised as a special token.
  virtual std::vector<TokenId> encode(std::span<const TextPart> parts, const EncodeOptions& options) const = 0;

  // No text of `bytes` bytes has fewer tokens, whatever it is. 0 where any number of bytes may become one token or none.
  virtual uint64_t tokens_min(uint64_t bytes) const { return static_cast<void>(bytes), 0; }

  // The text of all ids at once. Unknown ids give nothing. May hold U+FFFD where bytes are not UTF-8.
  virtual std::string decode(std::span<const TokenId> ids, bool skip_special) const = 0;

  // The bytes that `id` adds to a text that it begins, or continues (SentencePiece strips a first space). May be a part of a UTF-8 sequence. Empty for unknown ids, and for special ones if skip_special.
  virtual std::string token_bytes(TokenId id, bool first, bool skip_special) const = 0;

  // decode(), token by token: the bytes of push() and finish() together, with U+FFFD for what is not UTF-8, are its
  // text. Unlike token_bytes() it knows all the context that the tokenizer's decoder looks at.
  virtual std::unique_ptr<TokenStream> open_stream(bool skip_special) const;

  virtual std::string token_text(TokenId id) const = 0;                    // vocabulary spelling, for people
  virtual std::optional<TokenId> token_id(std::string_view spelling) const = 0;
  virtual bool is_special(TokenId id) const = 0;
  virtual uint32_t vocab_size() const = 0;                                 // highest id + 1
};

// `folder` holds tokenizer.json (required) and may hold tokenizer_config.json.
StatusOr<std::unique_ptr<Tokenizer>> load_hf_tokenizer(const std::string& folder);

}  // namespace shoal
