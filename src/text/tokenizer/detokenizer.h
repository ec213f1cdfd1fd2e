// Token ids -> text as they arrive: never a part of a UTF-8 sequence, never a part of a stop string.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace shoal {

// One stream of one sequence. The concatenation of every push() and the final flush() is decode() of all ids.
class Detokenizer {
 public:
  // `tokenizer` outlives the detokenizer.
  Detokenizer(const Tokenizer& tokenizer, bool skip_special);

  // The text that became complete with `id`; bytes of an unfinished UTF-8 sequence are held back.
  std::string push(TokenId id);
  // What is still held; an unfinished sequence becomes U+FFFD. The stream ends with it.
  std::string flush();

 private:
  std::unique_ptr<TokenStream> stream_;
  std::string held_;
};

// Finds the first of several stop strings in text that arrives in pieces, holding back what may yet become one. First
// is the one that is complete first (of those that end together, the longest), so it does not matter how the text was
// cut into pieces. Empty stop strings are ignored.
class StopMatcher {
 public:
  explicit StopMatcher(std::vector<std::string> stops, bool include_stop = false);

  struct Result {
    std::string text;                  // may be shown now
    std::optional<std::string> stop;   // the stop string that ended the stream; nothing follows it
  };
  Result push(std::string_view piece);
  std::string flush();  // the end of the stream: what was held is ordinary text

 private:
  std::vector<std::string> stops_;
  bool include_stop_;
  bool stopped_ = false;
  std::string held_;
};

}  // namespace shoal
