#include "gateway/sampling_fields.h"

#include <algorithm>

#include "gateway/catalog.h"
#include "gateway/openai_request.h"
#include "gateway/strings.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr size_t kBreakerTailMax = 20;  // tokens

void read_dry(Fields& fields, const RequestLimits& limits, SamplingExtensions& out) {
  fields.number("dry_multiplier", 0, 100, out.dry.multiplier);
  fields.number("dry_base", 1, 100, out.dry.base);
  fields.integer("dry_allowed_length", 0, INT32_MAX, out.dry.allowed_length);
  int64_t window = -1;  // the whole context
  fields.integer("dry_penalty_last_n", -1, INT32_MAX, window);
  if (window >= 0) out.dry.window = static_cast<uint32_t>(window);
  if (fields.find("dry_sequence_breakers") == nullptr) return;
  out.dry_breakers.clear();
  fields.texts("dry_sequence_breakers", limits.dry_breakers_max, limits.stop_string_bytes_max, out.dry_breakers);
  std::erase(out.dry_breakers, std::string());
}

void read_mirostat(Fields& fields, SamplingExtensions& out) {
  fields.integer("mirostat", 0, 2, out.mirostat.version);
  fields.number("mirostat_tau", 0, 100, out.mirostat.tau);
  fields.number("mirostat_eta", 0, 10, out.mirostat.eta);
}

// A word as it begins an answer, and as it follows a space (as vLLM does): each where it is spelled so.
void add_bad_word(const std::string& word, const Tokenizer& tokenizer, std::vector<std::vector<TokenId>>& out) {
  const EncodeOptions options{.add_special = false, .parse_special = false};
  const std::string bare(absl::StripLeadingAsciiWhitespace(word));
  const std::vector<TokenId> plain = tokenizer.encode(bare, options);
  if (plain.empty()) return;
  out.push_back(plain);
  const std::vector<TokenId> spaced = tokenizer.encode(" " + bare, options);
  if (!spaced.empty() && spaced.front() != plain.front() && spaced.size() == plain.size()) out.push_back(spaced);
}

// Every way in which tokens can write `breaker`: a token that holds it, or one that ends with its beginning, followed by
// the tokens of the rest.
void add_breaker(const std::string& breaker, const TokenVocabulary& vocabulary, const Tokenizer& tokenizer,
                 std::vector<std::vector<TokenId>>& out) {
  const EncodeOptions options{.add_special = false, .parse_special = false};
  for (TokenId id = 0; id < static_cast<TokenId>(vocabulary.size()); ++id) {
    const std::string_view bytes = vocabulary.bytes(id);
    if (bytes.find(breaker) != std::string_view::npos) {
      out.push_back({id});
      continue;
    }
    for (size_t n = std::min(bytes.size(), breaker.size() - 1); n > 0; --n) {
      if (!bytes.ends_with(std::string_view(breaker).substr(0, n))) continue;
      std::vector<TokenId> tail = tokenizer.encode(std::string_view(breaker).substr(n), options);
      tail.resize(std::min(tail.size(), kBreakerTailMax));
      tail.insert(tail.begin(), id);
      out.push_back(std::move(tail));
    }
  }
}

}  // namespace

void read_sampling_extensions(Fields& fields, const RequestLimits& limits, SamplingExtensions& out) {
  fields.number("typical_p", 0, 1, out.typical_p);
  fields.number("top_n_sigma", -1, 100, out.top_n_sigma);
  fields.number("xtc_probability", 0, 1, out.xtc_probability);
  fields.number("xtc_threshold", 0, 1, out.xtc_threshold);
  if (out.typical_p <= 0) out.typical_p = 1.0f;  // llama.cpp's and text-generation-webui's way to say "off"
  out.top_n_sigma = std::max(out.top_n_sigma, 0.0f);
  read_dry(fields, limits, out);
  read_mirostat(fields, out);
  fields.texts("bad_words", limits.bad_words_max, limits.stop_string_bytes_max, out.bad_words);
  if (const OrderedJson* allowed = fields.find("allowed_token_ids"); allowed != nullptr && allowed->is_array() && allowed->empty()) {
    fields.refuse("allowed_token_ids", "'allowed_token_ids' is empty, so nothing could be said; leave it out.");
  }
  fields.ids("allowed_token_ids", limits.allowed_ids_max, INT32_MAX, out.allowed_ids);
  std::sort(out.allowed_ids.begin(), out.allowed_ids.end());
}

ApiResult<SharedValue<TokenRules>> make_token_rules(const SamplingExtensions& wanted, const ModelText& text, uint32_t vocab_size) {
  TokenRules rules;
  rules.allowed = wanted.allowed_ids;
  if (!rules.allowed.empty() && static_cast<uint32_t>(rules.allowed.back()) >= vocab_size) {
    return invalid_value("allowed_token_ids", absl::StrCat("Token id ", rules.allowed.back(), " is outside the model's vocabulary of ", vocab_size, "."));
  }
  for (const std::string& word : wanted.bad_words) add_bad_word(word, *text.tokenizer, rules.bad_words);
  if (wanted.dry.multiplier != 0.0f) {
    const auto vocabulary = text.vocabulary.get(*text.tokenizer);
    for (const std::string& breaker : wanted.dry_breakers) add_breaker(breaker, *vocabulary, *text.tokenizer, rules.dry_breakers);
    const auto reversed = [](const auto& a, const auto& b) { return std::lexicographical_compare(a.rbegin(), a.rend(), b.rbegin(), b.rend()); };
    std::sort(rules.dry_breakers.begin(), rules.dry_breakers.end(), reversed);
    rules.dry_breakers.erase(std::unique(rules.dry_breakers.begin(), rules.dry_breakers.end()), rules.dry_breakers.end());
  }
  if (rules == TokenRules()) return SharedValue<TokenRules>();
  return SharedValue<TokenRules>(std::move(rules));
}

}  // namespace shoal
