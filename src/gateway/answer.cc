#include "gateway/answer.h"

#include "absl/strings/str_cat.h"
#include "gateway/strings.h"
#include "nlohmann/json.hpp"

namespace shoal {

void named_event(std::string_view name, const Json& data, std::string& out) {
  absl::StrAppend(&out, "event: ", str(name), "\ndata: ", dump_json(data), "\n\n");
}

void plain_event(std::string_view data, std::string& out) { absl::StrAppend(&out, "data: ", str(data), "\n\n"); }

void collect(Progress progress, std::vector<CollectedChoice>& choices) {
  for (ChoiceUpdate& update : progress.updates) {
    CollectedChoice& choice = choices[update.choice];
    choice.text += update.delta.text;
    choice.reasoning += update.delta.reasoning;
    for (CallDelta& call : update.delta.calls) {
      if (call.name.empty()) {
        choice.calls.back().arguments += call.arguments;
      } else {
        choice.calls.push_back(std::move(call));
      }
    }
    choice.pieces.insert(choice.pieces.end(), std::make_move_iterator(update.delta.pieces.begin()),
                         std::make_move_iterator(update.delta.pieces.end()));
    choice.ids.insert(choice.ids.end(), update.delta.ids.begin(), update.delta.ids.end());
    if (!update.delta.prompt.empty()) choice.prompt = std::move(update.delta.prompt);
    if (!update.delta.vector.empty()) choice.vector = std::move(update.delta.vector);
    if (!update.delta.finish) continue;
    choice.finish_reason = finish_name(update.delta);
    choice.stop = std::move(update.delta.stop);
  }
}

std::string OpenAiAnswer::body(const std::vector<CollectedChoice>& choices, const Generation& generation) {
  return answer_body(head_, choices, generation.request().output.logprobs.has_value(), generation.usage());
}

void OpenAiAnswer::begin(const Generation& generation, std::string& out) {
  if (head_.kind != AnswerKind::kChat) return;
  for (uint32_t i = 0; i < generation.choices(); ++i) plain_event(role_chunk(head_, i), out);
}

void OpenAiAnswer::push(const Progress& progress, const Generation& generation, std::string& out) {
  for (const ChoiceUpdate& update : progress.updates) {
    if (!update.delta.shows_nothing()) {
      for (const std::string& chunk : delta_chunks(head_, update.choice, update.delta)) plain_event(chunk, out);
    }
    if (update.delta.finish) plain_event(finish_chunk(head_, update.choice, finish_name(update.delta)), out);
  }
  if (!progress.done) return;
  if (progress.failure) {
    plain_event(progress.failure->body(), out);
  } else if (head_.include_usage) {
    plain_event(usage_chunk(head_, generation.usage()), out);
  }
  plain_event("[DONE]", out);
}

}  // namespace shoal
