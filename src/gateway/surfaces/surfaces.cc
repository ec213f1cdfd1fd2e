#include "gateway/surfaces/surfaces.h"

#include "absl/strings/str_join.h"
#include "base/log.h"
#include "gateway/surfaces/llama_answer.h"
#include "gateway/surfaces/llama_request.h"
#include "gateway/surfaces/llama_server.h"
#include "gateway/surfaces/messages_answer.h"
#include "gateway/surfaces/messages_request.h"
#include "gateway/surfaces/ollama_answer.h"
#include "gateway/surfaces/ollama_models.h"
#include "gateway/surfaces/ollama_request.h"
#include "gateway/surfaces/pooled_answer.h"
#include "gateway/surfaces/responses_answer.h"
#include "gateway/surfaces/responses_request.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

// Tools that only their vendor could run are not offered to a model; who wonders why finds their names in the log.
void log_skipped(const char* surface, const std::vector<std::string>& types) {
  if (!types.empty()) log_info(surface, ": tools of these types are not served and were left out: ", absl::StrJoin(types, ", "));
}

}  // namespace

ApiResult<PreparedAnswer> Surfaces::prepare(Endpoint endpoint, std::string_view body, Caller caller) {
  if (endpoint == Endpoint::kMessages) return messages(body, caller);
  if (endpoint == Endpoint::kResponses) return responses(body, caller);
  if (endpoint == Endpoint::kOllamaChat) return ollama(/*generate=*/false, body, caller);
  if (endpoint == Endpoint::kOllamaGenerate) return ollama(/*generate=*/true, body, caller);
  if (endpoint == Endpoint::kLlamaCompletion) return llama_completion(body, caller);
  if (endpoint != Endpoint::kLlamaInfill) return pooled(endpoint, body, caller);
  return llama_infill(body, caller);
}

HttpReply Surfaces::reply(const Route& route, std::string_view body, Caller caller) {
  switch (route.endpoint) {
    case Endpoint::kCountTokens: return count_tokens(body, caller);
    case Endpoint::kResponse:
    case Endpoint::kResponseItems:
    case Endpoint::kDeleteResponse: return stored(route, caller);
    case Endpoint::kOllamaVersion: return ollama_version();
    case Endpoint::kOllamaTags: return ollama_tags(models_, caller);
    case Endpoint::kOllamaPs: return ollama_ps(models_, caller);
    case Endpoint::kOllamaShow: return ollama_show(body, models_, caller);
    case Endpoint::kOllamaPull: return ollama_pull(body, models_, caller);
    case Endpoint::kOllamaManage: return ollama_unserved("Changing models over the network");
    case Endpoint::kLlamaProps: return llama_props(route.argument, models_, caller);
    case Endpoint::kLlamaSlots: return llama_slots(route.argument, models_, caller);
    default: return error_reply(from_status(Status(StatusCode::kInternal, "no such endpoint")));
  }
}

ApiResult<PreparedAnswer> Surfaces::messages(std::string_view body, Caller caller) {
  auto request = parse_messages_request(body, limits_, /*counting=*/false);
  if (!request.ok()) return request.error();
  log_skipped("/v1/messages", request->skipped_tools);
  auto context = models_.open(request->chat.common.model, caller);
  if (!context.ok()) return context.error();
  auto prepared = prepare_chat(request->chat, *context);
  if (!prepared.ok()) return prepared.error();
  const GenerationFields& common = request->chat.common;
  return PreparedAnswer{std::make_unique<MessagesAnswer>("msg_" + mint_id(), common.model), common.stream, *std::move(prepared), std::nullopt};
}

ApiResult<PreparedAnswer> Surfaces::responses(std::string_view body, Caller caller) {
  auto request = parse_responses_request(body, limits_, [&](const std::string& id) { return responses_.find(caller, id); });
  if (!request.ok()) return request.error();
  log_skipped("/v1/responses", request->skipped_tools);
  auto context = models_.open(request->chat.common.model, caller);
  if (!context.ok()) return context.error();
  auto prepared = prepare_chat(request->chat, *context);
  if (!prepared.ok()) {
    ApiError error = prepared.error();
    if (error.param == "messages") error.param = "input";
    return error;
  }
  if (!responses_.keeps()) request->store = false, request->echo["store"] = false;
  const bool stream = request->chat.common.stream;
  auto writer = std::make_unique<ResponsesAnswer>("resp_" + mint_id(), unix_seconds(), *std::move(request), responses_, caller);
  return PreparedAnswer{std::move(writer), stream, *std::move(prepared), std::nullopt};
}

// A text with a suffix is a gap to be filled.
ApiResult<PreparedAnswer> Surfaces::ollama(bool generate, std::string_view body, Caller caller) {
  auto request = generate ? parse_ollama_generate(body, limits_) : parse_ollama_chat(body, limits_);
  if (!request.ok()) return request.error();
  GenerationFields& common = request->common();
  const std::string name = common.model;
  auto context = models_.open(name, caller);
  if (!context.ok() && without_latest(name) != name) context = models_.open(without_latest(name), caller);
  if (!context.ok()) return context.error();
  auto writer = std::make_unique<OllamaAnswer>(name, generate);
  if (request->only_load) return PreparedAnswer{.writer = nullptr, .stream = false, .request = {}, .ready = writer->loaded_body()};
  const bool stream = common.stream;
  auto* completion = std::get_if<CompletionRequest>(&request->request);
  if (completion != nullptr && !request->suffix.empty()) {
    auto ids = infill_prompt({.files = {}, .prefix = std::get<std::string>(completion->prompts.front()), .suffix = request->suffix}, *context);
    if (!ids.ok()) return ids.error();
    completion->prompts.front() = *std::move(ids);
  }
  auto prepared = completion == nullptr ? prepare_chat(std::get<ChatRequest>(request->request), *context) : prepare_completion(*completion, *context);
  if (!prepared.ok()) return prepared.error();
  return PreparedAnswer{std::move(writer), stream, *std::move(prepared), std::nullopt};
}

ApiResult<PreparedAnswer> Surfaces::pooled(Endpoint endpoint, std::string_view body, Caller caller) {
  using Form = PooledAnswer::Form;
  const bool embeddings = endpoint == Endpoint::kEmbeddings, rerank = endpoint == Endpoint::kRerank, score = endpoint == Endpoint::kScore;
  auto request = embeddings ? parse_embeddings_request(body, limits_) : rerank ? parse_rerank_request(body, limits_)
                 : score    ? parse_score_request(body, limits_)
                            : parse_ollama_embed(body, limits_);
  if (!request.ok()) return request.error();
  auto context = models_.open(request->model, caller);
  if (!context.ok() && !embeddings && !rerank && !score) context = models_.open(without_latest(request->model), caller);
  if (!context.ok()) return context.error();
  auto prepared = prepare_pooled(*request, rerank || score ? PooledUse::kJudge : PooledUse::kEmbed, *context);
  if (!prepared.ok()) return prepared.error();
  const Form form = embeddings ? Form::kEmbeddings : rerank ? Form::kRerank : score ? Form::kScore
                    : endpoint == Endpoint::kOllamaEmbed ? Form::kOllamaEmbed : Form::kOllamaEmbedding;
  const std::string id = (rerank ? "rerank-" : "score-") + mint_id();
  return PreparedAnswer{std::make_unique<PooledAnswer>(form, id, unix_seconds(), *std::move(request)), false, *std::move(prepared), std::nullopt};
}

ApiResult<PreparedAnswer> Surfaces::llama_completion(std::string_view body, Caller caller) {
  const auto request = parse_llama_completion(body, limits_);
  if (!request.ok()) return request.error();
  const auto context = models_.open(request->completion.common.model, caller);
  if (!context.ok()) return context.error();
  auto prepared = prepare_completion(request->completion, *context);
  if (!prepared.ok()) return prepared.error();
  prepared->output.return_ids = request->return_tokens;
  return PreparedAnswer{std::make_unique<LlamaAnswer>(context->model->name, request->many), request->completion.common.stream, *std::move(prepared), std::nullopt};
}

ApiResult<PreparedAnswer> Surfaces::llama_infill(std::string_view body, Caller caller) {
  auto infill = parse_llama_infill(body, limits_);
  if (!infill.ok()) return infill.error();
  CompletionRequest& completion = infill->request.completion;
  const auto context = models_.open(completion.common.model, caller);
  if (!context.ok()) return context.error();
  auto ids = infill_prompt(infill->text, *context);
  if (!ids.ok()) return ids.error();
  completion.prompts = {*std::move(ids)};
  auto prepared = prepare_completion(completion, *context);
  if (!prepared.ok()) return prepared.error();
  prepared->output.return_ids = infill->request.return_tokens;
  return PreparedAnswer{std::make_unique<LlamaAnswer>(context->model->name, false), completion.common.stream, *std::move(prepared), std::nullopt};
}

HttpReply Surfaces::count_tokens(std::string_view body, Caller caller) {
  const auto request = parse_messages_request(body, limits_, /*counting=*/true);
  if (!request.ok()) return error_reply(request.error(), Surface::kAnthropic);
  const auto context = models_.open(request->chat.common.model, caller);
  if (!context.ok()) return error_reply(context.error(), Surface::kAnthropic);
  const auto parts = render_chat(request->chat.prompt, *context->text, context->now_unix_seconds);
  if (!parts.ok()) return error_reply(parts.error(), Surface::kAnthropic);
  return json_reply({{"input_tokens", encode_chat(*parts, *context->text).size()}});
}

// GET and DELETE /v1/responses/{id}, GET /v1/responses/{id}/input_items.
HttpReply Surfaces::stored(const Route& route, Caller caller) {
  const std::string& id = route.argument;
  const auto response = responses_.find(caller, id);
  if (response == nullptr) return error_reply(response_not_found(id));
  if (route.endpoint == Endpoint::kResponse) return json_reply(response->body);
  if (route.endpoint == Endpoint::kDeleteResponse) {
    responses_.erase(caller, id);
    return json_reply({{"id", id}, {"object", "response"}, {"deleted", true}});
  }
  Json items = Json::array();
  for (size_t i = response->input.size(); i-- > 0;) {  // the newest first, as OpenAI lists them
    items.push_back(response->input[i]);
    if (!items.back().contains("id")) items.back()["id"] = item_id("in", id, static_cast<uint32_t>(i));
  }
  const Json first = items.empty() ? Json(nullptr) : items.front()["id"], last = items.empty() ? Json(nullptr) : items.back()["id"];
  return json_reply({{"object", "list"}, {"data", items}, {"first_id", first}, {"last_id", last}, {"has_more", false}});
}

}  // namespace shoal
