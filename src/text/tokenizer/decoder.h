// Token spellings -> bytes, one token at a time: the "decoder" of tokenizer.json.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace shoal {

// A piece of a token on its way through the stages. Joining stages make one long token out of many, which then
// arrives in several chunks.
struct DecodeChunk {
  std::string bytes;
  bool begins = true;  // the first chunk of its token
  bool ends = true;    // the last one
};

// One stage of a decoder with the state of one stream.
class DecodeStage {
 public:
  virtual ~DecodeStage() = default;
  virtual std::unique_ptr<DecodeStage> clone() const = 0;  // with the state of a stream that has not begun
  virtual void push(DecodeChunk chunk, std::vector<DecodeChunk>& out) = 0;
  virtual void finish(std::vector<DecodeChunk>& out) {}
  // The stream is to be treated as one that has already begun: no first-token rules any more.
  virtual void skip_first() {}
};

// The stages of one tokenizer; also the state of one stream.
class Decoder {
 public:
  Decoder() = default;
  explicit Decoder(std::vector<std::unique_ptr<DecodeStage>> stages) : stages_(std::move(stages)) {}
  Decoder(Decoder&&) = default;
  Decoder& operator=(Decoder&&) = default;

  Decoder clone() const;
  // The bytes that are certain after the token spelled `spelling`; the rest comes later or from finish().
  std::string push(std::string_view spelling);
  std::string finish();
  void skip_first();

 private:
  std::string run(std::vector<DecodeChunk> chunks, size_t stage) const;
  std::vector<std::unique_ptr<DecodeStage>> stages_;
};

// ByteLevel, Metaspace, WordPiece, ByteFallback, Fuse, Strip, Replace, BPEDecoder, Sequence. JSON null gives the rule
// for tokenizers without a decoder: spellings joined by spaces.
StatusOr<Decoder> make_decoder(const Json& config);

// The decoders that GGUF vocabularies imply.
Decoder make_byte_level_decoder();
Decoder make_sentencepiece_decoder(bool strip_first_space);

// "<0x0A>" -> 10; -1 for any other spelling.
int byte_token_value(std::string_view spelling);

}  // namespace shoal
