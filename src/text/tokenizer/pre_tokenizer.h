// How text is cut into the pieces that the model then merges: the "pre_tokenizer" of tokenizer.json.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "text/tokenizer/pcre_regex.h"

namespace shoal {

// Takes the pieces of one text from left to right. Belongs to one thread.
class PieceSink {
 public:
  virtual ~PieceSink() = default;
  // `piece` is not empty, is well-formed UTF-8 and lives as long as the call. False: nothing more is wanted.
  virtual bool take(std::string_view piece) = 0;
};

// Immutable; may be used from any thread.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  // A sink that cuts every piece it takes and hands what it makes of it on at once, so that only what is wanted is cut
  // and nothing is held. `next` and the pre-tokenizer outlive it; `at_start`: its first piece begins the whole text.
  virtual std::unique_ptr<PieceSink> open(PieceSink& next, bool at_start) const = 0;
  // Whether every byte is in some piece.
  virtual bool keeps_all() const { return true; }
};

// `raw_bytes`: a final ByteLevel step leaves bytes as they are, because the model's vocabulary is held in raw bytes.
// Only sensible if ends_in_byte_level(config).
StatusOr<std::unique_ptr<PreTokenizer>> make_pre_tokenizer(const Json& config, bool raw_bytes, int depth = 0);
bool ends_in_byte_level(const Json& config);

// Cuts at every match of each expression in turn, matches and the text between them both being pieces.
std::unique_ptr<PreTokenizer> make_regex_pre_tokenizer(std::vector<Regex> expressions);

}  // namespace shoal
