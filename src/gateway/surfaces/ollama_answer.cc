#include "gateway/surfaces/ollama_answer.h"

#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "gateway/model_access.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

Json call_json(const BlockEvent& block) {
  const auto arguments = parse_json(block.text, {.refuse_duplicate_keys = false});
  return {{"id", block.id}, {"function", {{"name", block.name}, {"arguments", arguments.ok() && arguments->is_object() ? *arguments : Json::object()}}}};
}

Json calls_of(const std::vector<BlockEvent>& blocks) {
  Json calls = Json::array();
  for (const BlockEvent& block : blocks) {
    if (block.what == BlockEvent::What::kEnd && block.kind == BlockKind::kCall) calls.push_back(call_json(block));
  }
  return calls;
}

}  // namespace

std::string rfc3339(int64_t unix_seconds) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::FromUnixSeconds(unix_seconds), absl::UTCTimeZone());
}

Json OllamaAnswer::piece(const std::string& text, const std::string& reasoning, const Json& calls) const {
  Json out = {{"model", model_}, {"created_at", rfc3339(unix_seconds())}, {"done", false}};
  if (generate_) {
    out["response"] = text;
    if (!reasoning.empty()) out["thinking"] = reasoning;
    return out;
  }
  out["message"] = {{"role", "assistant"}, {"content", text}};
  if (!reasoning.empty()) out["message"]["thinking"] = reasoning;
  if (!calls.empty()) out["message"]["tool_calls"] = calls;
  return out;
}

// Durations are nanoseconds. Loading is part of the time until the first token, and not told apart.
void OllamaAnswer::finish(std::string_view reason, const Generation& generation, Json& out) const {
  const Usage usage = generation.usage();
  const AnswerTimes times = clock_.times(generation);
  out.update({{"done", true}, {"done_reason", reason == "length" ? "length" : "stop"}, {"total_duration", times.total.count()},
              {"load_duration", 0}, {"prompt_eval_count", usage.prompt_tokens}, {"prompt_eval_duration", times.prompt.count()},
              {"eval_count", usage.completion_tokens}, {"eval_duration", times.tokens.count()}});
}

std::string OllamaAnswer::body(const std::vector<CollectedChoice>& choices, const Generation& generation) {
  const CollectedChoice& choice = choices.front();
  Json out = piece(choice.text, choice.reasoning, calls_of(blocks_.push(whole_delta(choice))));
  if (!choice.pieces.empty()) out["logprobs"] = scored_tokens_json(choice.pieces);
  finish(choice.finish_reason, generation, out);
  return dump_json(out);
}

void OllamaAnswer::push(const Progress& progress, const Generation& generation, std::string& out) {
  for (const ChoiceUpdate& update : progress.updates) {
    const Json calls = calls_of(blocks_.push(update.delta));
    if (!update.delta.text.empty() || !update.delta.reasoning.empty() || !calls.empty()) {
      Json line = piece(update.delta.text, update.delta.reasoning, calls);
      if (!update.delta.pieces.empty()) line["logprobs"] = scored_tokens_json(update.delta.pieces);
      out += dump_json(line) + "\n";
    }
    if (!update.delta.finish || progress.failure) continue;
    Json last = piece("", "", Json::array());
    finish(finish_name(update.delta), generation, last);
    out += dump_json(last) + "\n";
  }
  if (progress.failure) out += progress.failure->body(Surface::kOllama) + "\n";
}

std::string OllamaAnswer::loaded_body() const {
  Json out = piece("", "", Json::array());
  out["done"] = true;
  out["done_reason"] = "load";
  return dump_json(out);
}

}  // namespace shoal
