#include "gateway/surfaces/pooled_answer.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <numeric>

#include "absl/strings/escaping.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

// The shortest digits that are this number again.
void append_number(float value, std::string& out) {
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  out.append(digits, end);
}

// Written as it goes: vectors as JSON values would take many times the memory of their text.
std::string list_of(const std::vector<float>& vector) {
  std::string out = "[";
  for (size_t i = 0; i < vector.size(); ++i) {
    if (i > 0) out += ',';
    append_number(vector[i], out);
  }
  return out + "]";
}

// Little-endian f32.
std::string base64_of(const std::vector<float>& vector) {
  std::string bytes;
  for (const float value : vector) {
    const auto bits = std::bit_cast<uint32_t>(value);
    for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(bits >> shift & 0xff);
  }
  return "\"" + absl::Base64Escape(bytes) + "\"";
}

Json usage_json(const Usage& usage) { return {{"prompt_tokens", usage.prompt_tokens}, {"total_tokens", usage.prompt_tokens}}; }

}  // namespace

std::vector<float> PooledAnswer::vector_of(const CollectedChoice& choice, const Generation& generation) const {
  std::vector<float> vector = choice.vector;
  const auto& pooled = generation.request().model->pooled;
  const bool cut = request_.dimensions && *request_.dimensions < vector.size();
  if (cut) vector.resize(*request_.dimensions);
  if (cut || (pooled && pooled->normalize)) normalize(vector);
  return vector;
}

std::string PooledAnswer::embeddings(const std::vector<CollectedChoice>& choices, const Generation& generation) const {
  std::string out = "{\"object\":\"list\",\"data\":[";
  for (size_t i = 0; i < choices.size(); ++i) {
    const std::vector<float> vector = vector_of(choices[i], generation);
    absl::StrAppend(&out, i == 0 ? "" : ",", "{\"object\":\"embedding\",\"index\":", i, ",\"embedding\":", request_.base64 ? base64_of(vector) : list_of(vector), "}");
  }
  absl::StrAppend(&out, "],\"model\":", dump_json(request_.model), ",\"usage\":", dump_json(usage_json(generation.usage())), "}");
  return out;
}

std::string PooledAnswer::ollama(const std::vector<CollectedChoice>& choices, const Generation& generation) const {
  if (form_ == Form::kOllamaEmbedding) return "{\"embedding\":" + list_of(vector_of(choices.front(), generation)) + "}";
  std::string out = absl::StrCat("{\"model\":", dump_json(request_.model), ",\"embeddings\":[");
  for (size_t i = 0; i < choices.size(); ++i) absl::StrAppend(&out, i == 0 ? "" : ",", list_of(vector_of(choices[i], generation)));
  absl::StrAppend(&out, "],\"total_duration\":", clock_.times(generation).total.count(), ",\"load_duration\":0,\"prompt_eval_count\":", generation.usage().prompt_tokens, "}");
  return out;
}

// By score, the best first; /v1/score in the order of the request.
std::string PooledAnswer::scores(const std::vector<CollectedChoice>& choices, const Generation& generation) const {
  std::vector<float> scores;
  for (const CollectedChoice& choice : choices) {
    std::vector<float> values = choice.vector;
    if (!generation.request().model->pooled && !generation.request().output.first_is_no) std::reverse(values.begin(), values.end());
    scores.push_back(score_of(values));
  }
  Json list = Json::array();
  if (form_ == Form::kScore) {
    for (size_t i = 0; i < scores.size(); ++i) list.push_back({{"index", i}, {"object", "score"}, {"score", scores[i]}});
    return dump_json({{"id", id_}, {"object", "list"}, {"created", created_}, {"model", request_.model}, {"data", list}, {"usage", usage_json(generation.usage())}});
  }
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  order.resize(std::min<size_t>(order.size(), request_.top_n.value_or(UINT32_MAX)));
  for (const size_t i : order) {
    list.push_back({{"index", i}, {"relevance_score", scores[i]}});
    if (request_.return_documents) list.back()["document"] = {{"text", *request_.items[i].second}};
  }
  return dump_json({{"id", id_}, {"model", request_.model}, {"results", list}, {"usage", usage_json(generation.usage())}});
}

std::string PooledAnswer::body(const std::vector<CollectedChoice>& choices, const Generation& generation) {
  switch (form_) {
    case Form::kEmbeddings: return embeddings(choices, generation);
    case Form::kOllamaEmbed:
    case Form::kOllamaEmbedding: return ollama(choices, generation);
    case Form::kRerank:
    case Form::kScore: return scores(choices, generation);
  }
  return "{}";
}

}  // namespace shoal
