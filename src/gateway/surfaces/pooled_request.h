// The bodies of POST /v1/embeddings, /v1/rerank, /v1/score and Ollama's /api/embed: what one vector, or one score, each is wanted of.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/openai_request.h"
#include "gateway/prepare.h"

namespace shoal {

struct PooledRequest {
  // One text, or ids that are taken as they are; with `second` a pair that is judged together.
  struct Item {
    TextOrIds first;
    std::optional<std::string> second;
  };
  std::string model;
  std::vector<Item> items;               // at least one
  std::optional<uint32_t> cut_to;        // texts of more tokens are cut to so many, the closing ones kept; else they are refused
  bool cut_to_fit = false;               // likewise to what the model takes
  // Of embeddings.
  bool base64 = false;
  std::optional<uint32_t> dimensions;    // the first of a vector, brought to the length 1 again
  // Of rerank.
  std::optional<uint32_t> top_n;
  bool return_documents = false;
  std::string instruction;               // for models that take one
};

ApiResult<PooledRequest> parse_embeddings_request(std::string_view body, const RequestLimits& limits);
ApiResult<PooledRequest> parse_rerank_request(std::string_view body, const RequestLimits& limits);
ApiResult<PooledRequest> parse_score_request(std::string_view body, const RequestLimits& limits);
ApiResult<PooledRequest> parse_ollama_embed(std::string_view body, const RequestLimits& limits);

enum class PooledUse { kEmbed, kJudge };  // kJudge: pairs get a score each

// 400 for a model that does something else. A generative model is a judge if its name says that it is a reranker: it is asked
// whether the answer is "yes" or "no".
ApiResult<PreparedRequest> prepare_pooled(const PooledRequest& request, PooledUse use, const PrepareContext& context);

// The score of a pair by what the model gave of it, in (0, 1).
float score_of(const std::vector<float>& values);
// v / |v|; zeros stay zeros.
void normalize(std::vector<float>& v);

}  // namespace shoal
