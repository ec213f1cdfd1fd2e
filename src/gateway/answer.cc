#include "gateway/answer.h"

namespace shoal {
namespace {

void event(const std::string& data, std::string& out) {
  out += "data: ";
  out += data;
  out += "\n\n";
}

}  // namespace

void AnswerCollector::push(Progress progress) {
  for (ChoiceUpdate& update : progress.updates) {
    CollectedChoice& choice = choices_[update.choice];
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
    if (!update.delta.prompt.empty()) choice.prompt = std::move(update.delta.prompt);
    if (update.delta.finish) choice.finish_reason = finish_name(update.delta);
  }
}

std::string AnswerCollector::body(const AnswerHead& head, const Generation& generation) const {
  return answer_body(head, choices_, generation.request().output.logprobs.has_value(), generation.usage());
}

void AnswerStream::begin(std::string& out) const {
  if (head_.kind != AnswerKind::kChat) return;
  for (uint32_t i = 0; i < choices_; ++i) event(role_chunk(head_, i), out);
}

void AnswerStream::push(const Progress& progress, const Generation& generation, std::string& out) const {
  for (const ChoiceUpdate& update : progress.updates) {
    if (!update.delta.shows_nothing()) {
      for (const std::string& chunk : delta_chunks(head_, update.choice, update.delta)) event(chunk, out);
    }
    if (update.delta.finish) event(finish_chunk(head_, update.choice, finish_name(update.delta)), out);
  }
  if (!progress.done) return;
  if (progress.failure) {
    event(progress.failure->body(), out);
  } else if (head_.include_usage) {
    event(usage_chunk(head_, generation.usage()), out);
  }
  event("[DONE]", out);
}

void AnswerStream::ping(std::string& out) { out += ": ping\n\n"; }

}  // namespace shoal
