#include "loadgen/prompt_text.h"

#include <algorithm>

#include "base/rng.h"
#include "workload/views.h"

namespace shoal {
namespace {

// Common English words, which large vocabularies hold as one token each.
constexpr std::string_view kWords[] = {
    "the",  "of",    "and",   "to",    "in",    "is",    "was",   "for",   "on",    "that",  "by",    "with",  "from",
    "at",   "as",    "are",   "his",   "her",   "it",    "an",    "were",  "which", "this",  "be",    "or",    "has",
    "had",  "first", "one",   "their", "its",   "new",   "after", "but",   "who",   "not",   "they",  "have",  "two",
    "been", "other", "when",  "there", "all",   "time",  "into",  "more",  "may",   "years", "over",  "only",  "some",
    "city", "world", "would", "where", "later", "up",    "such",  "used",  "many",  "can",   "state", "about"};

}  // namespace

WordBook WordBook::approximate() {
  WordBook book;
  for (const std::string_view word : kWords) book.words_.push_back({word, 1});
  return book;
}

StatusOr<WordBook> WordBook::measure(const CountTokens& count) {
  WordBook book;
  const std::string anchor = " the";
  ASSIGN_OR_RETURN(const uint32_t once, count(anchor));
  ASSIGN_OR_RETURN(const uint32_t twice, count(anchor + anchor));
  if (twice <= once) return invalid_argument("the tokenizer counts ", once, " tokens for one word and ", twice, " for two");
  book.overhead_ = once > twice - once ? once - (twice - once) : 0;
  for (const std::string_view word : kWords) {
    ASSIGN_OR_RETURN(const uint32_t both, count(anchor + " " + own(word)));
    if (both > once) book.words_.push_back({word, both - once});
  }
  std::stable_sort(book.words_.begin(), book.words_.end(), [](const Word& a, const Word& b) { return a.tokens < b.tokens; });
  return book;
}

std::string WordBook::text(uint64_t seed, uint32_t tokens) const {
  Rng rng(seed);
  std::string out;
  size_t affordable = words_.size();
  for (uint32_t left = tokens; left > 0;) {
    while (affordable > 1 && words_[affordable - 1].tokens > left) --affordable;
    const Word& word = words_[rng.below(affordable)];
    out += ' ';
    out += word.spelling;
    left -= std::min(left, word.tokens);
  }
  return out;
}

std::string write_prompt(const PromptRecipe& recipe, const WordBook& words) {
  std::string out = recipe.literal;
  for (const PromptRecipe::Run& run : recipe.runs) out += words.text(run.seed, run.tokens);
  return out;
}

}  // namespace shoal
