#include "text/tokenizer/tokenizer_json.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/json_fields.h"
#include "text/tokenizer/pipeline_tokenizer.h"
#include "text/tokenizer/unigram.h"
#include "text/tokenizer/wordpiece.h"

namespace shoal {
namespace {

// Everything the loading functions build up.
struct Loading {
  TokenizerParts parts;
  absl::flat_hash_set<TokenId> unreachable;  // special tokens: text never gives them through the model
  bool raw_bytes = false;
};

StatusOr<TokenId> checked_id(const Json& value, std::string_view what) {
  const bool integer = value.is_number_integer();
  const int64_t id = integer ? value.get<int64_t>() : -1;
  if (!integer || id < 0 || id >= kTokenIdEnd) {
    return invalid_argument("id ", dump_json(value), " of ", std::string(what), " is not an integer in 0..", kTokenIdEnd - 1);
  }
  return static_cast<TokenId>(id);
}

// Puts a token into the id <-> spelling tables. A second spelling for an id or a second id for a spelling is refused.
Status add_spelling(TokenizerParts& parts, const std::string& spelling, TokenId id) {
  const auto [it, is_new] = parts.ids.try_emplace(spelling, id);
  if (!is_new && it->second != id) {
    return invalid_argument("token '", spelling, "' has the ids ", it->second, " and ", id, "; remove one of them");
  }
  const auto slot = static_cast<size_t>(id);
  if (slot >= parts.spellings.size()) parts.spellings.resize(slot + 1);
  std::string& known = parts.spellings[slot];
  if (is_new && !known.empty() && known != spelling) {
    return invalid_argument("id ", id, " stands for both '", known, "' and '", spelling, "'; give each token its own id");
  }
  known = spelling;
  return OkStatus();
}

Status load_added_tokens(const Json& root, Loading& loading) {
  const Json* list = member(root, "added_tokens");
  if (list == nullptr) return OkStatus();
  if (!list->is_array()) return invalid_argument("'added_tokens' must be an array");
  for (const Json& entry : *list) {
    AddedToken token;
    ASSIGN_OR_RETURN(token.content, json_string(entry, "content", ""));
    const std::string where = absl::StrCat("added_tokens: '", token.content.substr(0, 80), "'");
    if (token.content.empty() || token.content.size() > kAddedTokenBytesMax) {
      return invalid_argument(where, ": 'content' must have 1..", kAddedTokenBytesMax, " bytes");
    }
    const Json* id = member(entry, "id");
    if (id == nullptr) return invalid_argument(where, " has no 'id'");
    ASSIGN_OR_RETURN(token.id, checked_id(*id, where));
    ASSIGN_OR_RETURN(token.special, json_bool(entry, "special", false));
    ASSIGN_OR_RETURN(token.lstrip, json_bool(entry, "lstrip", false));
    ASSIGN_OR_RETURN(token.rstrip, json_bool(entry, "rstrip", false));
    ASSIGN_OR_RETURN(token.single_word, json_bool(entry, "single_word", false));
    ASSIGN_OR_RETURN(token.normalized, json_bool(entry, "normalized", !token.special));
    RETURN_IF_ERROR(annotate(add_spelling(loading.parts, token.content, token.id), "added_tokens"));
    if (token.special) {
      loading.parts.special.insert(token.id);
      loading.unreachable.insert(token.id);
    }
    loading.parts.added.push_back(std::move(token));
  }
  return OkStatus();
}

std::array<TokenId, 256> byte_tokens_of(const TokenizerParts& parts) {
  std::array<TokenId, 256> tokens;
  for (unsigned b = 0; b < 256; ++b) {
    const auto it = parts.ids.find(absl::StrFormat("<0x%02X>", b));
    tokens[b] = it == parts.ids.end() ? -1 : it->second;
  }
  return tokens;
}

// ---- BPE ----

StatusOr<std::pair<std::string, std::string>> merge_sides(const Json& merge) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return std::pair{merge[0].get<std::string>(), merge[1].get<std::string>()};
  }
  if (!merge.is_string()) return invalid_argument("must be 'a b' or [a, b]");
  const auto text = merge.get<std::string>();
  const size_t space = text.find(' ');
  if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
    return invalid_argument("'", text, "' must be two tokens with one space between");
  }
  return std::pair{text.substr(0, space), text.substr(space + 1)};
}

StatusOr<BpeMerge> parse_merge(const Json& merge, uint32_t rank, const std::string& prefix, const TokenizerParts& parts) {
  ASSIGN_OR_RETURN(const auto sides, merge_sides(merge));
  const auto& [left, right] = sides;
  if (left.empty() || right.empty()) return invalid_argument("has an empty side");
  std::string_view tail = right;
  if (!prefix.empty() && tail.starts_with(prefix)) tail.remove_prefix(prefix.size());
  TokenId ids[3];
  const std::string whole = left + std::string(tail);
  const std::string* spellings[] = {&left, &right, &whole};
  for (int i = 0; i < 3; ++i) {
    const auto it = parts.ids.find(*spellings[i]);
    if (it == parts.ids.end()) return invalid_argument("names '", *spellings[i], "', which is not in the vocabulary");
    ids[i] = it->second;
  }
  return BpeMerge{ids[0], ids[1], ids[2], rank};
}

Status load_bpe_vocab(const Json& model, Loading& loading, BpeConfig& bpe) {
  const Json* vocab = member(model, "vocab");
  if (vocab == nullptr || !vocab->is_object()) return invalid_argument("'vocab' must be an object of token: id");
  bpe.vocab.reserve(vocab->size());
  loading.parts.ids.reserve(vocab->size() + loading.parts.ids.size());
  for (const auto& [spelling, value] : vocab->items()) {
    ASSIGN_OR_RETURN(const TokenId id, checked_id(value, absl::StrCat("vocab['", spelling, "']")));
    RETURN_IF_ERROR(annotate(add_spelling(loading.parts, spelling, id), "vocab"));
    if (loading.unreachable.contains(id) || spelling.empty()) continue;
    if (!loading.raw_bytes) {
      bpe.vocab.emplace(spelling, id);
    } else if (auto bytes = byte_level::to_bytes(spelling)) {
      bpe.vocab.emplace(*std::move(bytes), id);
    }
  }
  return OkStatus();
}

Status load_merges(const Json& model, const Loading& loading, BpeConfig& bpe) {
  ASSIGN_OR_RETURN(const Json* const merges, array_member(model, "merges"));
  bpe.merges.reserve(merges->size());
  for (const Json& entry : *merges) {
    const auto rank = static_cast<uint32_t>(bpe.merges.size());
    auto merge = parse_merge(entry, rank, bpe.continuing_prefix, loading.parts);
    if (!merge.ok()) return annotate(merge.status(), absl::StrCat("merges[", rank, "]"));
    bpe.merges.push_back(*merge);
  }
  const auto is_reachable = [&](TokenId id) { return !loading.unreachable.contains(id); };
  std::erase_if(bpe.merges, [&](const BpeMerge& m) {
    return !is_reachable(m.left) || !is_reachable(m.right) || !is_reachable(m.result);
  });
  return OkStatus();
}

StatusOr<std::optional<TokenId>> unk_of(const Json& model, const TokenizerParts& parts) {
  ASSIGN_OR_RETURN(const std::string unk, json_string(model, "unk_token", ""));
  if (unk.empty()) return std::optional<TokenId>();
  const auto it = parts.ids.find(unk);
  if (it == parts.ids.end()) return invalid_argument("'unk_token' is '", unk, "', which is not in the vocabulary");
  return std::optional<TokenId>(it->second);
}

Status load_bpe(const Json& model, Loading& loading) {
  BpeConfig bpe;
  bpe.raw_bytes = loading.raw_bytes;
  ASSIGN_OR_RETURN(bpe.ignore_merges, json_bool(model, "ignore_merges", false));
  ASSIGN_OR_RETURN(bpe.byte_fallback, json_bool(model, "byte_fallback", false));
  ASSIGN_OR_RETURN(bpe.fuse_unk, json_bool(model, "fuse_unk", false));
  ASSIGN_OR_RETURN(bpe.continuing_prefix, json_string(model, "continuing_subword_prefix", ""));
  ASSIGN_OR_RETURN(bpe.end_suffix, json_string(model, "end_of_word_suffix", ""));
  RETURN_IF_ERROR(load_bpe_vocab(model, loading, bpe));
  RETURN_IF_ERROR(load_merges(model, loading, bpe));
  ASSIGN_OR_RETURN(bpe.unk, unk_of(model, loading.parts));
  bpe.byte_tokens = byte_tokens_of(loading.parts);
  loading.parts.byte_tokens = bpe.byte_fallback;
  loading.parts.model = std::make_unique<Bpe>(std::move(bpe));
  return OkStatus();
}

// ---- Unigram ----

Status load_unigram(const Json& model, Loading& loading) {
  UnigramConfig unigram;
  ASSIGN_OR_RETURN(const Json* const vocab, array_member(model, "vocab"));
  if (vocab->size() > static_cast<size_t>(kTokenIdEnd)) return invalid_argument("'vocab' has ", vocab->size(), " entries");
  double score_min = std::numeric_limits<double>::infinity();
  TokenId id = 0;
  for (const Json& entry : *vocab) {
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number()) {
      return invalid_argument("vocab[", id, "] must be [token, score]");
    }
    auto text = entry[0].get<std::string>();
    const double score = entry[1].get<double>();
    score_min = std::min(score_min, score);
    RETURN_IF_ERROR(annotate(add_spelling(loading.parts, text, id), "vocab"));
    if (!loading.unreachable.contains(id)) unigram.pieces.push_back({std::move(text), id, score});
    ++id;
  }
  unigram.score_min = score_min;
  ASSIGN_OR_RETURN(const int64_t unk, json_int(model, "unk_id", -1, -1, id - 1));
  if (unk >= 0) unigram.unk = static_cast<TokenId>(unk);
  ASSIGN_OR_RETURN(unigram.byte_fallback, json_bool(model, "byte_fallback", false));
  unigram.byte_tokens = byte_tokens_of(loading.parts);
  loading.parts.byte_tokens = unigram.byte_fallback;
  loading.parts.model = std::make_unique<Unigram>(std::move(unigram));
  return OkStatus();
}

// ---- WordPiece ----

Status load_wordpiece(const Json& model, Loading& loading) {
  WordPieceConfig config;
  const Json* vocab = member(model, "vocab");
  if (vocab == nullptr || !vocab->is_object()) return invalid_argument("'vocab' must be an object of token: id");
  for (const auto& [spelling, value] : vocab->items()) {
    ASSIGN_OR_RETURN(const TokenId id, checked_id(value, absl::StrCat("vocab['", spelling, "']")));
    RETURN_IF_ERROR(annotate(add_spelling(loading.parts, spelling, id), "vocab"));
    if (!loading.unreachable.contains(id) && !spelling.empty()) config.tokens.emplace_back(spelling, id);
  }
  ASSIGN_OR_RETURN(config.continuing_prefix, json_string(model, "continuing_subword_prefix", "##"));
  ASSIGN_OR_RETURN(const int64_t most, json_int(model, "max_input_chars_per_word", 100, 1, 1 << 20));
  config.word_code_points_max = static_cast<uint32_t>(most);
  ASSIGN_OR_RETURN(const auto unk, unk_of(model, loading.parts));
  if (!unk) return invalid_argument("'unk_token' is missing");
  config.unk = *unk;
  loading.parts.model = std::make_unique<WordPiece>(config);
  return OkStatus();
}

Status load_model(const Json& root, Loading& loading) {
  const Json* model = member(root, "model");
  if (model == nullptr || !model->is_object()) return invalid_argument("'model' is missing; is this a tokenizer.json?");
  ASSIGN_OR_RETURN(std::string type, json_string(*model, "type", ""));
  if (type.empty()) type = member(*model, "merges") != nullptr ? "BPE" : "Unigram";  // files before the field existed
  if (type == "BPE") return annotate(load_bpe(*model, loading), "model");
  if (type == "Unigram") return annotate(load_unigram(*model, loading), "model");
  if (type == "WordPiece") return annotate(load_wordpiece(*model, loading), "model");
  return unimplemented("model type '", type, "' is not supported; BPE, Unigram and WordPiece are");
}

// ---- tokenizer_config.json ----

// A token of tokenizer_config.json is a string or an object with its "content".
StatusOr<std::optional<TokenId>> config_token(const Json& config, const std::string& key, const TokenizerParts& parts) {
  const Json* value = member(config, key);
  if (value == nullptr) return std::optional<TokenId>();
  std::string text;
  if (value->is_string()) {
    text = value->get<std::string>();
  } else {
    ASSIGN_OR_RETURN(text, json_string(*value, "content", ""));
  }
  const auto it = parts.ids.find(text);
  if (it == parts.ids.end()) return invalid_argument("'", key, "' is '", text, "', which is not in the vocabulary");
  return std::optional<TokenId>(it->second);
}

bool is_llama_class(std::string_view name) {
  static constexpr std::string_view kClasses[] = {"LlamaTokenizer", "CodeLlamaTokenizer", "GemmaTokenizer", "CohereTokenizer"};
  if (name.ends_with("Fast")) name.remove_suffix(4);
  return std::find(std::begin(kClasses), std::end(kClasses), name) != std::end(kClasses);
}

// The fast Llama-like classes of `transformers` build the template anew from add_bos_token and add_eos_token; other
// classes take the post-processor as it is.
Status apply_config(const Json& config, TokenizerParts& parts) {
  if (!config.is_object()) return OkStatus();
  ASSIGN_OR_RETURN(const std::string name, json_string(config, "tokenizer_class", ""));
  if (!is_llama_class(name)) return OkStatus();
  const auto apply = [&](const std::string& flag, const std::string& token, std::vector<TokenId>& side) -> Status {
    if (member(config, flag) == nullptr) return OkStatus();
    ASSIGN_OR_RETURN(const bool wanted, json_bool(config, flag, false));
    side.clear();
    if (!wanted) return OkStatus();
    ASSIGN_OR_RETURN(const auto id, config_token(config, token, parts));
    if (!id) return invalid_argument("'", flag, "' is true, but there is no '", token, "'");
    side.push_back(*id);
    return OkStatus();
  };
  RETURN_IF_ERROR(apply("add_bos_token", "bos_token", parts.post.before));
  return apply("add_eos_token", "eos_token", parts.post.after);
}

Status load_pipeline(const Json& root, Loading& loading) {
  TokenizerParts& parts = loading.parts;
  if (const Json* normalizer = member(root, "normalizer")) {
    auto made = make_normalizer(*normalizer);
    if (!made.ok()) return annotate(made.status(), "normalizer");
    parts.normalizer = *std::move(made);
  }
  if (const Json* pre = member(root, "pre_tokenizer")) {
    auto made = make_pre_tokenizer(*pre, loading.raw_bytes);
    if (!made.ok()) return annotate(made.status(), "pre_tokenizer");
    parts.pre_tokenizer = *std::move(made);
  }
  const Json* decoder = member(root, "decoder");
  auto decoding = make_decoder(decoder == nullptr ? Json() : *decoder);
  if (!decoding.ok()) return annotate(decoding.status(), "decoder");
  parts.decoder = *std::move(decoding);
  if (const Json* post = member(root, "post_processor")) {
    const auto lookup = [&](std::string_view spelling) -> std::optional<TokenId> {
      const auto it = parts.ids.find(spelling);
      return it == parts.ids.end() ? std::nullopt : std::optional(it->second);
    };
    auto made = make_post_processor(*post, lookup);
    if (!made.ok()) return annotate(made.status(), "post_processor");
    parts.post = *std::move(made);
  }
  return OkStatus();
}

JsonLimits tokenizer_limits() { return {.bytes_max = kTokenizerFileBytesMax, .depth_max = 32, .values_max = 16u << 20}; }

}  // namespace

StatusOr<std::unique_ptr<Tokenizer>> make_tokenizer(const Json& tokenizer, const Json& config) {
  if (!tokenizer.is_object()) return invalid_argument("must be an object, not ", tokenizer.type_name());
  Loading loading;
  if (const Json* pre = member(tokenizer, "pre_tokenizer")) loading.raw_bytes = ends_in_byte_level(*pre);
  RETURN_IF_ERROR(load_added_tokens(tokenizer, loading));
  RETURN_IF_ERROR(load_model(tokenizer, loading));
  RETURN_IF_ERROR(load_pipeline(tokenizer, loading));
  RETURN_IF_ERROR(annotate(apply_config(config, loading.parts), "tokenizer_config.json"));
  return std::make_unique<PipelineTokenizer>(std::move(loading.parts));
}

StatusOr<std::unique_ptr<Tokenizer>> parse_tokenizer(std::string_view tokenizer_text, std::string_view config_text) {
  auto tokenizer = parse_json(tokenizer_text, tokenizer_limits());
  if (!tokenizer.ok()) return tokenizer.status();
  Json config;
  if (!config_text.empty()) {
    auto parsed = parse_json(config_text);
    if (!parsed.ok()) return annotate(parsed.status(), "tokenizer_config.json");
    config = *std::move(parsed);
  }
  return make_tokenizer(*tokenizer, config);
}

StatusOr<std::unique_ptr<Tokenizer>> load_hf_tokenizer(const std::string& folder) {
  const std::string path = (std::filesystem::path(folder) / "tokenizer.json").string();
  const std::string config_path = (std::filesystem::path(folder) / "tokenizer_config.json").string();
  ASSIGN_OR_RETURN(const std::string text, read_file(path, kTokenizerFileBytesMax));
  std::string config_text;
  if (std::error_code error; std::filesystem::exists(config_path, error)) {
    ASSIGN_OR_RETURN(config_text, read_file(config_path, 64u << 20));
  }
  auto tokenizer = parse_tokenizer(text, config_text);
  if (!tokenizer.ok()) return annotate(tokenizer.status(), path);
  return tokenizer;
}

}  // namespace shoal
