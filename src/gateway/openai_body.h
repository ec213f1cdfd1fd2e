// The answers' JSON: complete bodies and stream chunks, exactly as OpenAI's clients expect them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gateway/catalog.h"
#include "gateway/generation.h"
#include "gateway/router_loop.h"

namespace shoal {

enum class AnswerKind { kChat, kCompletion };

// What every chunk of one answer repeats.
struct AnswerHead {
  AnswerKind kind = AnswerKind::kChat;
  std::string id;             // "chatcmpl-..." or "cmpl-..."
  int64_t created = 0;        // seconds since 1970
  std::string model;          // as the client named it
  bool include_usage = false;
};

// One choice, collected for an answer that is not streamed.
struct CollectedChoice {
  std::string text;
  std::string reasoning;
  std::vector<CallDelta> calls;  // whole ones
  std::vector<ScoredPiece> pieces;
  std::vector<TokenId> ids;
  std::vector<PromptScore> prompt;
  std::string_view finish_reason;
  std::string stop;              // the stop string that ended it, if one did
  std::vector<float> vector;     // of a pooled model
};

// [{token, logprob, bytes, top_logprobs}], as chats and responses have them; llama.cpp's endpoints want each token's id as well.
Json scored_tokens_json(const std::vector<ScoredPiece>& pieces, bool with_ids = false);
std::string answer_body(const AnswerHead& head, const std::vector<CollectedChoice>& choices, bool logprobs,
                        const Usage& usage);

// Stream chunks, without "data: ".
std::string role_chunk(const AnswerHead& head, uint32_t choice);                            // chat: the first one
// Text, reasoning and logprobs in one chunk, then one for each piece of a tool call. At least one.
std::vector<std::string> delta_chunks(const AnswerHead& head, uint32_t choice, const ChoiceDelta& delta);
std::string finish_chunk(const AnswerHead& head, uint32_t choice, std::string_view reason); // empty delta
std::string usage_chunk(const AnswerHead& head, const Usage& usage);

// GET /v1/models and /v1/models/{id}.
Json model_json(const ModelEntry& model, const RouterSnapshot& nodes);
std::string models_body(const std::vector<ModelRef>& models, const RouterSnapshot& nodes);

// The longest sequence: the smallest of what the model and the nodes that serve it allow.
uint32_t context_limit(const ModelEntry& model, const RouterSnapshot& nodes);

}  // namespace shoal
