// Texts with a given number of tokens, from words whose cost in tokens is known.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace shoal {

// Tokens of a text as the served model counts them, with whatever special tokens it puts around it.
using CountTokens = std::function<StatusOr<uint32_t>(std::string_view)>;

class WordBook {
 public:
  // Every word counts as one token: an approximation, good within some ten percent for large vocabularies.
  static WordBook approximate();
  // Asks for the tokens of each word once (about 130 calls). Most tokenizers split at spaces first, so costs add up.
  static StatusOr<WordBook> measure(const CountTokens& count);

  // Text of about `tokens` tokens, a function of `seed`; each word begins with a space. Never more tokens than asked for
  // unless the cheapest word costs more.
  std::string text(uint64_t seed, uint32_t tokens) const;

  // Tokens that surround a text (BOS ...).
  uint32_t overhead() const { return overhead_; }

 private:
  struct Word {
    std::string_view spelling;
    uint32_t tokens = 1;
  };
  std::vector<Word> words_;  // by tokens
  uint32_t overhead_ = 0;
};

// A prompt before it is written out: a literal text, or runs of words. Long prompts of many requests would not fit
// memory at once, so they are written when they are sent.
struct PromptRecipe {
  struct Run {
    uint64_t seed = 0;     // equal seeds give equal text: shared prefixes
    uint32_t tokens = 0;
  };
  std::string literal;
  std::vector<Run> runs;
};
std::string write_prompt(const PromptRecipe& recipe, const WordBook& words);

}  // namespace shoal
