#include "text/tokenizer/gguf_vocab.h"

#include <algorithm>
#include <cmath>

#include "nlohmann/json.hpp"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/charsmap.h"
#include "text/tokenizer/pcre_regex.h"
#include "text/tokenizer/pipeline_tokenizer.h"
#include "text/tokenizer/tokenizer_json.h"
#include "text/tokenizer/unicode.h"
#include "text/tokenizer/unigram.h"
#include "text/tokenizer/wordpiece.h"

namespace shoal {
namespace {

constexpr std::string_view kSpace = "\u2581";
// Finding the merges of a scored vocabulary looks at every cut of every token, so the sum of squared lengths is work.
constexpr uint64_t kCutWorkMax = 1ull << 31;

GgufTokenType type_of(const GgufVocab& vocab, size_t id) {
  return vocab.token_types.empty() ? GgufTokenType::kNormal : static_cast<GgufTokenType>(vocab.token_types[id]);
}
bool is_control(GgufTokenType type) { return type == GgufTokenType::kControl || type == GgufTokenType::kUnknown; }
// Whether text may give the token through the model.
bool is_reachable(GgufTokenType type) { return !is_control(type) && type != GgufTokenType::kByte; }

Status check(const GgufVocab& vocab) {
  const size_t count = vocab.tokens.size();
  if (count == 0 || count > static_cast<size_t>(kTokenIdEnd)) {
    return invalid_argument("tokenizer.ggml.tokens has ", count, " entries; 1..", kTokenIdEnd, " are possible");
  }
  const auto same = [&](size_t n, const char* key) -> Status {
    if (n == 0 || n == count) return OkStatus();
    return invalid_argument("tokenizer.ggml.", key, " has ", n, " entries for ", count, " tokens; the file is damaged");
  };
  RETURN_IF_ERROR(same(vocab.scores.size(), "scores"));
  RETURN_IF_ERROR(same(vocab.token_types.size(), "token_type"));
  const auto in_range = [&](const std::optional<int64_t>& id, const char* key) -> Status {
    if (!id || (*id >= 0 && *id < static_cast<int64_t>(count))) return OkStatus();
    return invalid_argument("tokenizer.ggml.", key, " is ", *id, ", outside of the vocabulary of ", count);
  };
  RETURN_IF_ERROR(in_range(vocab.bos_token_id, "bos_token_id"));
  RETURN_IF_ERROR(in_range(vocab.eos_token_id, "eos_token_id"));
  return in_range(vocab.unknown_token_id, "unknown_token_id");
}

// Spellings, ids, special and added tokens: the same for every kind of model.
Status fill_tables(const GgufVocab& vocab, TokenizerParts& parts) {
  parts.spellings = vocab.tokens;
  parts.ids.reserve(vocab.tokens.size());
  for (size_t i = 0; i < vocab.tokens.size(); ++i) {
    const std::string& spelling = vocab.tokens[i];
    const auto id = static_cast<TokenId>(i);
    if (!unicode::is_valid(spelling)) return invalid_argument("tokenizer.ggml.tokens[", i, "] is not UTF-8");
    if (spelling.empty()) continue;
    const auto [it, is_new] = parts.ids.try_emplace(spelling, id);
    if (!is_new) return invalid_argument("tokenizer.ggml.tokens has '", spelling, "' at ", it->second, " and at ", i);
    const GgufTokenType type = type_of(vocab, i);
    if (is_control(type)) parts.special.insert(id);
    if (!is_control(type) && type != GgufTokenType::kUserDefined) continue;
    if (spelling.size() > kAddedTokenBytesMax) {
      return invalid_argument("tokenizer.ggml.tokens[", i, "] is a control token of ", spelling.size(), " bytes");
    }
    AddedToken token;
    token.id = id;
    token.content = spelling;
    token.special = is_control(type);
    parts.added.push_back(std::move(token));
  }
  return OkStatus();
}

void add_ends(const GgufVocab& vocab, bool bos_by_default, bool eos_by_default, TokenizerParts& parts) {
  if (vocab.add_bos_token.value_or(bos_by_default) && vocab.bos_token_id) {
    parts.post.before = {static_cast<TokenId>(*vocab.bos_token_id)};
  }
  if (vocab.add_eos_token.value_or(eos_by_default) && vocab.eos_token_id) {
    parts.post.after = {static_cast<TokenId>(*vocab.eos_token_id)};
  }
}

std::array<TokenId, 256> byte_tokens(const GgufVocab& vocab) {
  std::array<TokenId, 256> tokens;
  tokens.fill(-1);
  for (size_t i = 0; i < vocab.tokens.size(); ++i) {
    const int byte = byte_token_value(vocab.tokens[i]);
    if (byte >= 0 && type_of(vocab, i) != GgufTokenType::kControl) tokens[static_cast<size_t>(byte)] = static_cast<TokenId>(i);
  }
  return tokens;
}

std::optional<TokenId> unk_of(const GgufVocab& vocab) {
  if (!vocab.unknown_token_id) return std::nullopt;
  return static_cast<TokenId>(*vocab.unknown_token_id);
}

// ---- byte-level BPE ----

StatusOr<BpeMerge> parse_merge(const std::string& text, uint32_t rank, const StringMap<TokenId>& ids) {
  const size_t space = text.find(' ', 1);  // a side may itself begin with a space in old files
  if (space == std::string::npos || space + 1 == text.size()) return invalid_argument("'", text, "' must be two tokens with a space between");
  const std::string left = text.substr(0, space), right = text.substr(space + 1), whole = left + right;
  TokenId found[3];
  const std::string* spellings[] = {&left, &right, &whole};
  for (int i = 0; i < 3; ++i) {
    const auto it = ids.find(*spellings[i]);
    if (it == ids.end()) return invalid_argument("names '", *spellings[i], "', which is not among the tokens");
    found[i] = it->second;
  }
  return BpeMerge{found[0], found[1], found[2], rank};
}

StatusOr<std::unique_ptr<TokenModel>> make_byte_level_model(const GgufVocab& vocab, const GgufPre& pre, const TokenizerParts& parts) {
  BpeConfig bpe;
  bpe.raw_bytes = true;
  bpe.ignore_merges = pre.ignore_merges;
  for (size_t i = 0; i < vocab.tokens.size(); ++i) {
    if (vocab.tokens[i].empty() || is_control(type_of(vocab, i))) continue;
    if (auto bytes = byte_level::to_bytes(vocab.tokens[i])) bpe.vocab.emplace(*std::move(bytes), static_cast<TokenId>(i));
  }
  bpe.merges.reserve(vocab.merges.size());
  for (const std::string& text : vocab.merges) {
    const auto rank = static_cast<uint32_t>(bpe.merges.size());
    auto merge = parse_merge(text, rank, parts.ids);
    if (!merge.ok()) return annotate(merge.status(), absl::StrCat("tokenizer.ggml.merges[", rank, "]"));
    bpe.merges.push_back(*merge);
  }
  const auto special = [&](TokenId id) { return parts.special.contains(id); };
  std::erase_if(bpe.merges, [&](const BpeMerge& m) { return special(m.left) || special(m.right) || special(m.result); });
  bpe.byte_tokens.fill(-1);
  return std::make_unique<Bpe>(std::move(bpe));
}

Status build_gpt2(const GgufVocab& vocab, TokenizerParts& parts) {
  ASSIGN_OR_RETURN(const GgufPre pre, find_gguf_pre(vocab.pre));
  if (vocab.merges.empty()) return invalid_argument("tokenizer.ggml.merges is missing; model 'gpt2' needs it");
  std::vector<Regex> expressions;
  for (const char* expression : pre.expressions) {
    ASSIGN_OR_RETURN(Regex regex, Regex::compile(expression));
    expressions.push_back(std::move(regex));
  }
  parts.pre_tokenizer = make_regex_pre_tokenizer(std::move(expressions));
  ASSIGN_OR_RETURN(parts.model, make_byte_level_model(vocab, pre, parts));
  parts.decoder = make_byte_level_decoder();
  add_ends(vocab, pre.add_bos, false, parts);
  return OkStatus();
}

// ---- SentencePiece ----

// Merges of a scored vocabulary: any two symbols whose joined spelling is a token, the higher score first.
class ScoredMerges {
 public:
  ScoredMerges(const GgufVocab& vocab, BpeConfig& bpe) : vocab_(vocab), bpe_(bpe), next_symbol_(static_cast<TokenId>(vocab.tokens.size())) {}

  Status build() {
    RETURN_IF_ERROR(rank_scores());
    uint64_t work = 0;
    for (const std::string& token : vocab_.tokens) work += static_cast<uint64_t>(token.size()) * token.size();
    if (work > kCutWorkMax) return invalid_argument("tokenizer.ggml.tokens are too long to be a SentencePiece vocabulary");
    for (size_t i = 0; i < vocab_.tokens.size(); ++i) {
      if (is_reachable(type_of(vocab_, i)) && !vocab_.tokens[i].empty()) bpe_.vocab.emplace(vocab_.tokens[i], static_cast<TokenId>(i));
    }
    for (size_t i = 0; i < vocab_.tokens.size(); ++i) {
      if (is_reachable(type_of(vocab_, i))) add_cuts(i);
    }
    return OkStatus();
  }

 private:
  Status rank_scores() {
    std::vector<float> sorted = vocab_.scores;
    if (std::any_of(sorted.begin(), sorted.end(), [](float f) { return !std::isfinite(f); })) {
      return invalid_argument("tokenizer.ggml.scores has a value that is not finite; the file is damaged");
    }
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
    ranks_.reserve(vocab_.scores.size());
    for (const float score : vocab_.scores) {
      ranks_.push_back(static_cast<uint32_t>(std::lower_bound(sorted.begin(), sorted.end(), score, std::greater<>()) - sorted.begin()));
    }
    return OkStatus();
  }

  void add_cuts(size_t id) {
    const std::string_view token = vocab_.tokens[id];
    for (size_t cut = token.empty() ? 0 : unicode::step(token, 0); cut < token.size(); cut += unicode::step(token, cut)) {
      const auto left = symbol(token.substr(0, cut)), right = symbol(token.substr(cut));
      if (left && right) bpe_.merges.push_back({*left, *right, static_cast<TokenId>(id), ranks_[id]});
    }
  }
  // The id of a token or of a single code point, which may be part of a token without being one.
  std::optional<TokenId> symbol(std::string_view text) {
    if (const auto it = bpe_.vocab.find(text); it != bpe_.vocab.end()) return it->second;
    if (unicode::step(text, 0) != text.size()) return std::nullopt;
    const auto [it, is_new] = bpe_.extra_symbols.try_emplace(std::string(text), next_symbol_);
    if (is_new) ++next_symbol_;
    return it->second;
  }

  const GgufVocab& vocab_;
  BpeConfig& bpe_;
  std::vector<uint32_t> ranks_;
  TokenId next_symbol_;
};

void add_sentencepiece_normalizer(bool space_prefix, std::vector<std::unique_ptr<Normalizer>> steps, TokenizerParts& parts) {
  if (space_prefix) steps.push_back(make_prepend_normalizer(std::string(kSpace)));
  steps.push_back(make_replace_normalizer(" ", std::string(kSpace)));
  parts.normalizer = make_normalizer_sequence(std::move(steps));
  parts.decoder = make_sentencepiece_decoder(space_prefix);
  parts.byte_tokens = true;
}

Status build_llama(const GgufVocab& vocab, TokenizerParts& parts) {
  if (vocab.scores.empty()) return invalid_argument("tokenizer.ggml.scores is missing; model 'llama' needs it");
  BpeConfig bpe;
  bpe.byte_fallback = true;
  bpe.byte_tokens = byte_tokens(vocab);
  bpe.unk = unk_of(vocab);
  RETURN_IF_ERROR(ScoredMerges(vocab, bpe).build());
  parts.model = std::make_unique<Bpe>(std::move(bpe));
  add_sentencepiece_normalizer(vocab.add_space_prefix.value_or(true), {}, parts);
  add_ends(vocab, true, false, parts);
  return OkStatus();
}

Status build_t5(const GgufVocab& vocab, TokenizerParts& parts) {
  if (vocab.scores.empty()) return invalid_argument("tokenizer.ggml.scores is missing; model 't5' needs it");
  UnigramConfig unigram;
  unigram.unk = unk_of(vocab);
  unigram.byte_tokens = byte_tokens(vocab);
  unigram.byte_fallback = std::any_of(unigram.byte_tokens.begin(), unigram.byte_tokens.end(), [](TokenId id) { return id >= 0; });
  unigram.score_min = *std::min_element(vocab.scores.begin(), vocab.scores.end());
  for (size_t i = 0; i < vocab.tokens.size(); ++i) {
    if (!is_reachable(type_of(vocab, i)) || vocab.tokens[i].empty()) continue;
    unigram.pieces.push_back({vocab.tokens[i], static_cast<TokenId>(i), vocab.scores[i]});
  }
  parts.model = std::make_unique<Unigram>(std::move(unigram));
  std::vector<std::unique_ptr<Normalizer>> steps;
  if (!vocab.precompiled_charsmap.empty()) {
    ASSIGN_OR_RETURN(auto map, make_charsmap_normalizer(vocab.precompiled_charsmap));
    steps.push_back(std::move(map));
  }
  if (vocab.remove_extra_whitespaces.value_or(true)) {
    ASSIGN_OR_RETURN(auto collapse, make_space_collapsing_normalizer());
    steps.push_back(std::move(collapse));
  }
  add_sentencepiece_normalizer(vocab.add_space_prefix.value_or(true), std::move(steps), parts);
  add_ends(vocab, false, true, parts);
  return OkStatus();
}

// ---- WordPiece ----

// Tokens that begin a word are marked here, not those that go on. The files do not say whether capitals are kept: a vocabulary that has
// some keeps them.
Status build_bert(const GgufVocab& vocab, TokenizerParts& parts) {
  const auto unk = unk_of(vocab);
  if (!unk) return invalid_argument("tokenizer.ggml.unknown_token_id is missing; model 'bert' needs it");
  WordPieceConfig config{.unk = *unk};
  bool cased = false;
  for (size_t i = 0; i < vocab.tokens.size(); ++i) {
    const std::string& token = vocab.tokens[i];
    if (!is_reachable(type_of(vocab, i)) || token.empty()) continue;
    cased |= std::any_of(token.begin(), token.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
    const bool begins = token.starts_with(std::string(kSpace));
    config.tokens.emplace_back(begins ? token.substr(kSpace.size()) : config.continuing_prefix + token, static_cast<TokenId>(i));
  }
  parts.model = std::make_unique<WordPiece>(config);
  ASSIGN_OR_RETURN(parts.normalizer, make_normalizer({{"type", "BertNormalizer"}, {"lowercase", !cased}}));
  ASSIGN_OR_RETURN(parts.pre_tokenizer, make_pre_tokenizer({{"type", "BertPreTokenizer"}}, /*raw_bytes=*/false));
  ASSIGN_OR_RETURN(parts.decoder, make_decoder(Json()));
  add_ends(vocab, true, true, parts);
  return OkStatus();
}

}  // namespace

StatusOr<std::unique_ptr<Tokenizer>> make_gguf_tokenizer(const GgufVocab& vocab) {
  RETURN_IF_ERROR(check(vocab));
  TokenizerParts parts;
  RETURN_IF_ERROR(fill_tables(vocab, parts));
  if (vocab.model == "gpt2") {
    RETURN_IF_ERROR(build_gpt2(vocab, parts));
  } else if (vocab.model == "llama") {
    RETURN_IF_ERROR(build_llama(vocab, parts));
  } else if (vocab.model == "t5") {
    RETURN_IF_ERROR(build_t5(vocab, parts));
  } else if (vocab.model == "bert") {
    RETURN_IF_ERROR(build_bert(vocab, parts));
  } else {
    return unimplemented("tokenizer.ggml.model '", vocab.model, "' is not supported; gpt2, llama, t5 and bert are");
  }
  return std::make_unique<PipelineTokenizer>(std::move(parts));
}

}  // namespace shoal
