#include "gateway/openai_body.h"

#include <algorithm>

#include "gateway/model_totals.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

Json byte_list(const std::string& bytes) {
  Json list = Json::array();
  for (const char c : bytes) list.push_back(static_cast<unsigned char>(c));
  return list;
}

Json chat_token(const TokenPiece& token, float logprob) {
  return {{"token", token.text}, {"logprob", logprob}, {"bytes", byte_list(token.bytes)}};
}

Json chat_logprobs(const std::vector<ScoredPiece>& pieces) { return {{"content", scored_tokens_json(pieces)}, {"refusal", nullptr}}; }

Json completion_logprobs(const std::vector<ScoredPiece>& pieces) {
  Json tokens = Json::array(), logprobs = Json::array(), tops = Json::array(), offsets = Json::array();
  for (const ScoredPiece& piece : pieces) {
    tokens.push_back(piece.token.text);
    offsets.push_back(piece.text_offset);
    if (!piece.logprob) {
      logprobs.push_back(nullptr);
      tops.push_back(nullptr);
      continue;
    }
    logprobs.push_back(*piece.logprob);
    // The sampled token is always among them. Of two tokens with one spelling the likelier (first) is kept.
    Json top = Json::object();
    for (const auto& [token, logprob] : piece.top) top.emplace(token.text, logprob);
    top.emplace(piece.token.text, *piece.logprob);
    tops.push_back(std::move(top));
  }
  return {{"tokens", std::move(tokens)}, {"token_logprobs", std::move(logprobs)}, {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

// vLLM's form: null for the first token, then an object from token ids to what is known of each.
Json prompt_logprobs(const std::vector<PromptScore>& scores) {
  Json list = Json::array();
  for (const PromptScore& score : scores) {
    Json entry = score.candidates.empty() ? Json(nullptr) : Json::object();
    for (const PromptScore::Candidate& candidate : score.candidates) {
      entry[std::to_string(candidate.id)] = {{"logprob", candidate.logprob}, {"rank", candidate.rank}, {"decoded_token", candidate.text}};
    }
    list.push_back(std::move(entry));
  }
  return list;
}

// Reasoning goes by the name that most clients know, and by vLLM's.
void add_reasoning(const std::string& reasoning, Json& out) {
  if (!reasoning.empty()) out["reasoning_content"] = out["reasoning"] = reasoning;
}

Json message_json(const CollectedChoice& choice) {
  Json message = {{"role", "assistant"}, {"content", choice.text}, {"refusal", nullptr}};
  add_reasoning(choice.reasoning, message);
  if (choice.calls.empty()) return message;
  if (choice.text.empty()) message["content"] = nullptr;
  for (const CallDelta& call : choice.calls) {
    message["tool_calls"].push_back({{"id", call.id}, {"type", "function"}, {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  return message;
}

// The first piece of a call names it and has no arguments, the next ones have nothing else.
Json call_json(const CallDelta& call) {
  if (call.name.empty()) return {{"index", call.index}, {"function", {{"arguments", call.arguments}}}};
  return {{"index", call.index}, {"id", call.id}, {"type", "function"}, {"function", {{"name", call.name}, {"arguments", ""}}}};
}

Json usage_json(const Usage& usage) {
  Json out = {{"prompt_tokens", usage.prompt_tokens},
              {"completion_tokens", usage.completion_tokens},
              {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
              {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}}};
  if (usage.reasoning_tokens > 0) out["completion_tokens_details"] = {{"reasoning_tokens", usage.reasoning_tokens}};
  return out;
}

Json chunk(const AnswerHead& head, Json choices) {
  const char* object = head.kind == AnswerKind::kChat ? "chat.completion.chunk" : "text_completion";
  Json out = {{"id", head.id}, {"object", object}, {"created", head.created}, {"model", head.model},
              {"choices", std::move(choices)}};
  if (head.include_usage) out["usage"] = nullptr;
  return out;
}

std::string chat_chunk(const AnswerHead& head, uint32_t choice, Json delta, Json logprobs, Json finish_reason) {
  return dump_json(chunk(head, Json::array({{{"index", choice}, {"delta", std::move(delta)},
                                             {"logprobs", std::move(logprobs)},
                                             {"finish_reason", std::move(finish_reason)}}})));
}

std::string completion_chunk(const AnswerHead& head, uint32_t choice, std::string text, Json logprobs,
                             Json finish_reason) {
  return dump_json(chunk(head, Json::array({{{"index", choice}, {"text", std::move(text)},
                                             {"logprobs", std::move(logprobs)},
                                             {"finish_reason", std::move(finish_reason)}}})));
}

const ModelStatus* status_on(const NodeStatus& node, ModelId model) {
  for (const ModelStatus& status : node.models) {
    if (status.model == model) return &status;
  }
  return nullptr;
}

Json state_json(const ModelEntry& model, const RouterSnapshot& nodes) {
  const ModelTotals totals = totals_of(model.id, nodes);
  Json out = {{"value", std::string(model_state_name(totals.state))}};
  if (totals.state == ModelState::kLoading) out["progress"] = totals.progress;
  if (totals.state == ModelState::kFailed) out["error"] = totals.error;
  return out;
}

}  // namespace

Json scored_tokens_json(const std::vector<ScoredPiece>& pieces, bool with_ids) {
  const auto token_json = [&](const TokenPiece& token, float logprob) {
    Json entry = chat_token(token, logprob);
    if (with_ids) entry["id"] = token.id;
    return entry;
  };
  Json content = Json::array();
  for (const ScoredPiece& piece : pieces) {
    Json entry = token_json(piece.token, piece.logprob.value_or(0.0f));
    entry["top_logprobs"] = Json::array();
    for (const auto& [token, logprob] : piece.top) entry["top_logprobs"].push_back(token_json(token, logprob));
    content.push_back(std::move(entry));
  }
  return content;
}

namespace {

const char* task_name(const ModelEntry& model) { return !model.pooled ? "generate" : model.pooled->labels > 0 ? "score" : "embed"; }

}  // namespace

std::string answer_body(const AnswerHead& head, const std::vector<CollectedChoice>& choices, bool logprobs,
                        const Usage& usage) {
  Json list = Json::array();
  for (uint32_t i = 0; i < choices.size(); ++i) {
    const CollectedChoice& choice = choices[i];
    Json item = {{"index", i}, {"finish_reason", std::string(choice.finish_reason)}, {"logprobs", nullptr}};
    if (head.kind == AnswerKind::kChat) {
      item["message"] = message_json(choice);
      if (logprobs) item["logprobs"] = chat_logprobs(choice.pieces);
    } else {
      item["text"] = choice.text;
      if (logprobs) item["logprobs"] = completion_logprobs(choice.pieces);
      if (!choice.prompt.empty()) item["prompt_logprobs"] = prompt_logprobs(choice.prompt);
    }
    list.push_back(std::move(item));
  }
  Json body = {{"id", head.id},
                    {"object", head.kind == AnswerKind::kChat ? "chat.completion" : "text_completion"},
                    {"created", head.created},
                    {"model", head.model},
                    {"choices", std::move(list)},
                    {"usage", usage_json(usage)}};
  const bool chat_scores = head.kind == AnswerKind::kChat && !choices.empty() && !choices.front().prompt.empty();
  if (chat_scores) body["prompt_logprobs"] = prompt_logprobs(choices.front().prompt);
  return dump_json(body);
}

std::string role_chunk(const AnswerHead& head, uint32_t choice) {
  return chat_chunk(head, choice, {{"role", "assistant"}, {"content", ""}}, nullptr, nullptr);
}

std::vector<std::string> delta_chunks(const AnswerHead& head, uint32_t choice, const ChoiceDelta& delta) {
  const bool chat = head.kind == AnswerKind::kChat;
  Json logprobs = delta.pieces.empty() ? Json(nullptr) : chat ? chat_logprobs(delta.pieces) : completion_logprobs(delta.pieces);
  if (!chat) return {completion_chunk(head, choice, delta.text, std::move(logprobs), nullptr)};
  std::vector<std::string> chunks;
  if (!delta.text.empty() || !delta.reasoning.empty() || delta.calls.empty()) {
    Json said = Json::object();
    if (!delta.text.empty() || delta.reasoning.empty()) said["content"] = delta.text;
    add_reasoning(delta.reasoning, said);
    chunks.push_back(chat_chunk(head, choice, std::move(said), std::exchange(logprobs, nullptr), nullptr));
  }
  for (const CallDelta& call : delta.calls) {
    Json said = {{"tool_calls", Json::array({call_json(call)})}};
    chunks.push_back(chat_chunk(head, choice, std::move(said), std::exchange(logprobs, nullptr), nullptr));
  }
  return chunks;
}

std::string finish_chunk(const AnswerHead& head, uint32_t choice, std::string_view reason) {
  if (head.kind == AnswerKind::kChat) return chat_chunk(head, choice, Json::object(), nullptr, std::string(reason));
  return completion_chunk(head, choice, "", nullptr, std::string(reason));
}

std::string usage_chunk(const AnswerHead& head, const Usage& usage) {
  Json out = chunk(head, Json::array());
  out["usage"] = usage_json(usage);
  return dump_json(out);
}

Json model_json(const ModelEntry& model, const RouterSnapshot& nodes) {
  return {{"id", model.name},
          {"object", "model"},
          {"created", model.created_unix_seconds},
          {"owned_by", "shoal"},
          {"aliases", model.aliases},
          {"max_model_len", context_limit(model, nodes)},
          {"status", state_json(model, nodes)},
          {"meta", {{"architecture", model.architecture}, {"n_params", model.parameter_count},
                    {"size", model.weight_bytes}, {"n_vocab", model.vocab_size}, {"n_ctx", context_limit(model, nodes)}, {"task", task_name(model)},
                    {"n_ctx_train", model.trained_len}}}};
}

std::string models_body(const std::vector<ModelRef>& models, const RouterSnapshot& nodes) {
  Json list = Json::array();
  for (const ModelRef& model : models) list.push_back(model_json(*model, nodes));
  return dump_json({{"object", "list"}, {"data", std::move(list)}});
}

uint32_t context_limit(const ModelEntry& model, const RouterSnapshot& nodes) {
  uint32_t limit = model.max_model_len;
  for (const auto& [id, node] : nodes.nodes) {
    const ModelStatus* status = status_on(node, model.id);
    if (status != nullptr && status->max_model_len != 0) limit = std::min(limit, status->max_model_len);
  }
  return model.pooled && limit > 1 ? limit - 1 : limit;  // engines keep room for a token that is not generated there
}

}  // namespace shoal
