// Tokens that are found in text as they are spelled, before anything else looks at it.
#pragma once

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/ids.h"
#include "text/tokenizer/byte_trie.h"
#include "text/tokenizer/marked_text.h"

namespace shoal {

struct AddedToken {
  TokenId id = 0;
  std::string content;
  bool special = false;      // a control token: recognised in trusted text only, left out by skip_special
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // ... after it
  bool single_word = false;  // not recognised next to a word character
  bool normalized = false;   // looked for in normalised text
};

// Finds the tokens of one of the two passes (before or after normalisation). Immutable; any thread.
class AddedTokenMatcher {
 public:
  AddedTokenMatcher() = default;
  // `contents[i]` is what to look for in place of tokens[i].content (its normalised form).
  AddedTokenMatcher(std::vector<AddedToken> tokens, const std::vector<std::string>& contents);

  struct Segment {
    size_t begin, end;
    TokenId id;  // -1: ordinary text
  };
  // Calls f with the segments of `text` in ascending order, which cover it, until f returns false. At every place the longest
  // token is taken. A special token counts only if all of it is trusted; one that is not is looked through, so it hides no
  // trusted token. Without `parse_special` special tokens are passed over as ordinary text.
  void for_each_segment(const MarkedText& text, bool parse_special, absl::FunctionRef<bool(const Segment&)> f) const;
  bool empty() const { return tokens_.empty(); }

 private:
  struct Match {
    size_t end = 0;
    int32_t token = -1;
  };
  Match longest_at(const MarkedText& text, size_t at) const;
  bool hides_trusted_special(const MarkedText& text, size_t begin, size_t end) const;
  bool is_single_word(const std::string& text, size_t begin, size_t end) const;

  std::vector<AddedToken> tokens_;
  ByteTrie trie_;  // to indices of tokens_
};

}  // namespace shoal
