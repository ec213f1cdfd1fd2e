// How text is cut into the pieces that the model then merges: the "pre_tokenizer" of tokenizer.json.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "text/pcre_regex.h"

namespace shoal {

// A segment between added tokens, and its pieces in ascending order. Bytes in no piece are dropped.
struct Pieces {
  struct Range {
    size_t begin, end;
  };
  std::string text;           // well-formed UTF-8
  std::vector<Range> ranges;  // never empty ones
  bool at_start = true;       // the segment begins where the whole text begins
};

// Immutable; may be used from any thread.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(Pieces& pieces) const = 0;
};

// `raw_bytes`: a final ByteLevel step leaves bytes as they are, because the model's vocabulary is held in raw bytes.
// Only sensible if ends_in_byte_level(config).
StatusOr<std::unique_ptr<PreTokenizer>> make_pre_tokenizer(const Json& config, bool raw_bytes, int depth = 0);
bool ends_in_byte_level(const Json& config);

// Cuts at every match of each expression in turn, matches and the text between them both being pieces.
std::unique_ptr<PreTokenizer> make_regex_pre_tokenizer(std::vector<Regex> expressions);

}  // namespace shoal
