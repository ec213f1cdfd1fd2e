#include "gateway/model_card.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/json.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr size_t kCardsMax = 10'000, kNamesMax = 100, kStopsMax = 1000;

Json defaults_json(const GenerationDefaults& defaults) {
  Json out = Json::object();
  const auto put = [&](const char* key, const auto& value) {
    if (value) out[key] = *value;
  };
  put("temperature", defaults.temperature);
  put("top_p", defaults.top_p);
  put("min_p", defaults.min_p);
  put("top_k", defaults.top_k);
  put("repetition_penalty", defaults.repetition_penalty);
  put("max_new_tokens", defaults.max_new_tokens);
  return out;
}

constexpr uint32_t kPairForms = 3;

Json pooled_json(const PooledEntry& pooled) {
  return {{"width", pooled.width}, {"labels", pooled.labels}, {"normalize", pooled.normalize}, {"pairs", static_cast<uint32_t>(pooled.pairs)}};
}

StatusOr<std::optional<PooledEntry>> read_pooled(const Json& card) {
  const auto found = card.find("pooled");
  if (found == card.end()) return std::optional<PooledEntry>();
  if (!found->is_object()) return invalid_argument("'pooled' is no object");
  PooledEntry pooled;
  ASSIGN_OR_RETURN(const int64_t width, json_int(*found, "width", 0, 1, 1 << 20));
  ASSIGN_OR_RETURN(const int64_t labels, json_int(*found, "labels", 0, 0, 1 << 20));
  ASSIGN_OR_RETURN(const int64_t pairs, json_int(*found, "pairs", 0, 0, kPairForms - 1));
  ASSIGN_OR_RETURN(pooled.normalize, json_bool(*found, "normalize", false));
  pooled.width = static_cast<uint32_t>(width);
  pooled.labels = static_cast<uint32_t>(labels);
  pooled.pairs = static_cast<PairForm>(pairs);
  return std::optional(pooled);
}

template <typename T>
Status read_number(const Json& json, const char* key, std::optional<T>& out) {
  const auto found = json.find(key);
  if (found == json.end()) return OkStatus();
  if (!found->is_number()) return invalid_argument("'", key, "' is no number");
  out = found->get<T>();
  return OkStatus();
}

StatusOr<GenerationDefaults> read_defaults(const Json& card) {
  GenerationDefaults defaults;
  const auto found = card.find("defaults");
  if (found == card.end()) return defaults;
  if (!found->is_object()) return invalid_argument("'defaults' is no object");
  RETURN_IF_ERROR(read_number(*found, "temperature", defaults.temperature));
  RETURN_IF_ERROR(read_number(*found, "top_p", defaults.top_p));
  RETURN_IF_ERROR(read_number(*found, "min_p", defaults.min_p));
  RETURN_IF_ERROR(read_number(*found, "top_k", defaults.top_k));
  RETURN_IF_ERROR(read_number(*found, "repetition_penalty", defaults.repetition_penalty));
  RETURN_IF_ERROR(read_number(*found, "max_new_tokens", defaults.max_new_tokens));
  return defaults;
}

template <typename T>
StatusOr<std::vector<T>> read_list(const Json& card, const char* key, size_t most) {
  std::vector<T> out;
  const auto found = card.find(key);
  if (found == card.end()) return out;
  if (!found->is_array() || found->size() > most) return invalid_argument("'", key, "' is not a list of up to ", most);
  for (const Json& item : *found) {
    const bool fits = std::is_same_v<T, std::string> ? item.is_string() : item.is_number_integer();
    if (!fits) return invalid_argument("'", key, "' holds something else");
    out.push_back(item.get<T>());
  }
  return out;
}

StatusOr<uint32_t> read_count(const Json& card, const char* key) {
  ASSIGN_OR_RETURN(const int64_t value, json_int(card, key, 0, 0, UINT32_MAX));
  return static_cast<uint32_t>(value);
}

StatusOr<ModelCard> read_card(const Json& json) {
  if (!json.is_object()) return invalid_argument("a card is no object");
  ModelCard card;
  ModelEntry& entry = card.entry;
  ASSIGN_OR_RETURN(entry.name, json_string(json, "name", ""));
  if (entry.name.empty()) return invalid_argument("a card has no name");
  const auto stamp = json.find("stamp");
  if (stamp == json.end() || !stamp->is_number_unsigned()) return invalid_argument("'stamp' is missing");
  card.stamp = stamp->get<uint64_t>();
  ASSIGN_OR_RETURN(entry.path, json_string(json, "path", ""));
  ASSIGN_OR_RETURN(entry.aliases, read_list<std::string>(json, "aliases", kNamesMax));
  ASSIGN_OR_RETURN(entry.architecture, json_string(json, "architecture", ""));
  ASSIGN_OR_RETURN(entry.max_model_len, read_count(json, "max_model_len"));
  ASSIGN_OR_RETURN(entry.trained_len, read_count(json, "trained_len"));
  ASSIGN_OR_RETURN(entry.vocab_size, read_count(json, "vocab_size"));
  if (entry.max_model_len == 0 || entry.vocab_size == 0) return invalid_argument("'max_model_len' or 'vocab_size' is missing");
  ASSIGN_OR_RETURN(entry.eos_ids, read_list<TokenId>(json, "eos_ids", kStopsMax));
  ASSIGN_OR_RETURN(entry.defaults, read_defaults(json));
  ASSIGN_OR_RETURN(entry.tool_call_parser, json_string(json, "tool_call_parser", "auto"));
  ASSIGN_OR_RETURN(entry.reasoning_parser, json_string(json, "reasoning_parser", "auto"));
  ASSIGN_OR_RETURN(const int64_t parameters, json_int(json, "parameters", 0, 0, INT64_MAX));
  ASSIGN_OR_RETURN(const int64_t weights, json_int(json, "weight_bytes", 0, 0, INT64_MAX));
  entry.parameter_count = static_cast<uint64_t>(parameters);
  entry.weight_bytes = static_cast<uint64_t>(weights);
  ASSIGN_OR_RETURN(entry.created_unix_seconds, json_int(json, "created", 0, INT64_MIN, INT64_MAX));
  ASSIGN_OR_RETURN(const int64_t ttft, json_int(json, "ttft_ns", entry.slo.ttft.count(), 0, INT64_MAX));
  ASSIGN_OR_RETURN(const int64_t tbt, json_int(json, "tbt_ns", entry.slo.tbt.count(), 0, INT64_MAX));
  entry.slo = {Duration(ttft), Duration(tbt)};
  ASSIGN_OR_RETURN(entry.pooled, read_pooled(json));
  return card;
}

}  // namespace

std::string write_cards(const std::vector<ModelCard>& cards) {
  Json out = Json::array();
  for (const ModelCard& card : cards) {
    const ModelEntry& e = card.entry;
    out.push_back({{"name", e.name}, {"stamp", card.stamp}, {"path", e.path}, {"aliases", e.aliases}, {"architecture", e.architecture},
                   {"max_model_len", e.max_model_len}, {"trained_len", e.trained_len}, {"vocab_size", e.vocab_size}, {"eos_ids", e.eos_ids},
                   {"defaults", defaults_json(e.defaults)}, {"tool_call_parser", e.tool_call_parser}, {"reasoning_parser", e.reasoning_parser},
                   {"parameters", e.parameter_count}, {"weight_bytes", e.weight_bytes}, {"created", e.created_unix_seconds},
                   {"ttft_ns", e.slo.ttft.count()}, {"tbt_ns", e.slo.tbt.count()}});
    if (e.pooled) out.back()["pooled"] = pooled_json(*e.pooled);
  }
  return dump_json(out);
}

StatusOr<std::vector<ModelCard>> read_cards(std::string_view text) {
  ASSIGN_OR_RETURN(const Json json, parse_json(text));
  if (!json.is_array() || json.size() > kCardsMax) return invalid_argument("cards are a list of up to ", kCardsMax);
  std::vector<ModelCard> cards;
  for (const Json& item : json) {
    auto card = read_card(item);
    if (!card.ok()) return annotate(card.status(), item.is_object() && item.contains("name") && item["name"].is_string() ? absl::StrCat("model '", item["name"].get<std::string>(), "'") : "a model");
    cards.push_back(*std::move(card));
  }
  return cards;
}

}  // namespace shoal
