// What the grammar fuzzers run, shared with a unit test that runs it over every file of tests/corpus.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "nlohmann/json.hpp"
#include "text/grammar/gbnf_builder.h"
#include "text/grammar/grammar_matcher.h"
#include "text/tokenizer/unicode.h"

namespace shoal::fuzz {

// Bytes, some words that cross the borders of JSON and of characters, a control token.
inline std::shared_ptr<const TokenVocabulary> grammar_vocabulary() {
  std::vector<TokenVocabulary::Token> tokens;
  TokenId id = 0;
  for (int b = 0; b < 256; ++b) tokens.push_back({id++, std::string(1, static_cast<char>(b)), false});
  for (const char* word : {"\",", "\": ", "{\"", "ab", "abc", "  ", "\n ", "\xc3\xa9", "\xa9x", "true", "12", "]}"}) tokens.push_back({id++, word, false});
  tokens.push_back({id++, "<end>", true});
  return std::make_shared<const TokenVocabulary>(std::move(tokens), static_cast<uint32_t>(id));
}

constexpr grammar::GrammarLimits kFuzzLimits = {.bytes_max = 1 << 16, .rules_max = 2000, .exprs_max = 20'000, .nodes_max = 5'000};

// Walks at random: a mask holds what advance() takes, and only that. Gives the bytes of the walk; `ended` if it is a
// text of the grammar.
inline std::string walk_grammar(GrammarMatcher& matcher, const TokenVocabulary& vocabulary, uint64_t seed, bool& ended) {
  auto at = matcher.start();
  std::string text;
  ended = false;
  for (uint64_t step = 0; step < 24; ++step) {
    const auto allowed = matcher.allowed(at);
    if (!allowed.ok()) return text;  // too ambiguous
    std::vector<TokenId> fitting;
    for (TokenId id = 0; id < static_cast<TokenId>(vocabulary.size()); ++id) {
      auto moved = at;
      const bool fits = matcher.advance(moved, id).ok();
      if (fits != (!allowed->mask || allowed->mask->holds(id))) std::abort();
      if (fits) fitting.push_back(id);
    }
    ended = allowed->may_end;
    if (allowed->complete != (ended && fitting.empty()) || (!ended && fitting.empty())) std::abort();
    if (fitting.empty() || (ended && counter_bits(seed, 1, step) % 3 == 0)) return text;
    const TokenId token = fitting[counter_bits(seed, 2, step) % fitting.size()];
    if (!matcher.advance(at, token).ok()) std::abort();
    text += vocabulary.bytes(token);
    ended = false;
  }
  return text;
}

// GBNF text: compiles or is refused; a walk keeps its promises.
inline void gbnf(const std::shared_ptr<const TokenVocabulary>& vocabulary, std::string_view input) {
  const auto matcher = GrammarMatcher::create({std::string(input), {}}, vocabulary, kFuzzLimits);
  bool ended = false;
  if (matcher.ok()) walk_grammar(**matcher, *vocabulary, input.size(), ended);
}

// A schema: becomes a grammar that compiles or is refused, and whose complete texts are JSON.
inline void json_schema(const std::shared_ptr<const TokenVocabulary>& vocabulary, std::string_view input) {
  const auto schema = parse_ordered_json(input, JsonLimits{.bytes_max = 1 << 16});
  if (!schema.ok()) return;
  const auto gbnf = gbnf_of_schema(*schema);
  if (!gbnf.ok()) return;
  const auto matcher = GrammarMatcher::create({*gbnf, {}}, vocabulary, kFuzzLimits);
  if (!matcher.ok()) return;  // too large, or recursion without end
  for (uint64_t seed = 0; seed < 3; ++seed) {
    bool ended = false;
    const std::string text = walk_grammar(**matcher, *vocabulary, seed, ended);
    if (ended && !parse_json(text, JsonLimits{.refuse_duplicate_keys = false}).ok()) std::abort();
  }
}

// A regular expression, for a whole text and within a JSON string.
inline void regex(const std::shared_ptr<const TokenVocabulary>& vocabulary, std::string_view input) {
  const auto gbnf = gbnf_of_regex(input);
  if (gbnf.ok()) shoal::fuzz::gbnf(vocabulary, *gbnf);
  if (!unicode::is_valid(input)) return;
  OrderedJson schema = {{"type", "string"}};
  schema["pattern"] = std::string(input);
  json_schema(vocabulary, schema.dump());
}

}  // namespace shoal::fuzz
