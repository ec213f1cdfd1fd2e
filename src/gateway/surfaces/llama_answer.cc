#include "gateway/surfaces/llama_answer.h"

#include "nlohmann/json.hpp"

namespace shoal {
namespace {

double per(double count, double seconds) { return seconds > 0 ? count / seconds : 0; }

Json timings_json(const Usage& usage, const AnswerTimes& times) {
  const uint32_t computed = usage.prompt_tokens - std::min(usage.cached_tokens, usage.prompt_tokens);
  const double prompt_s = to_seconds(times.prompt), tokens_s = to_seconds(times.tokens);
  return {{"cache_n", usage.cached_tokens},
          {"prompt_n", computed},
          {"prompt_ms", prompt_s * 1e3},
          {"prompt_per_token_ms", computed > 0 ? prompt_s * 1e3 / computed : 0},
          {"prompt_per_second", per(computed, prompt_s)},
          {"predicted_n", usage.completion_tokens},
          {"predicted_ms", tokens_s * 1e3},
          {"predicted_per_token_ms", usage.completion_tokens > 0 ? tokens_s * 1e3 / usage.completion_tokens : 0},
          {"predicted_per_second", per(usage.completion_tokens, tokens_s)}};
}

Json settings_json(const PreparedRequest& request) {
  const SamplingParams& s = request.request.sampling;
  return {{"n_predict", request.request.max_tokens}, {"temperature", s.temperature}, {"top_k", s.top_k}, {"top_p", s.top_p}, {"min_p", s.min_p},
          {"typical_p", s.typical_p}, {"repeat_penalty", s.repetition_penalty}, {"presence_penalty", s.presence_penalty},
          {"frequency_penalty", s.frequency_penalty}, {"seed", s.seed}, {"stop", request.output.stop}};
}

}  // namespace

Json LlamaAnswer::last(uint32_t index, const CollectedChoice& choice, const Generation& generation) const {
  const Usage usage = generation.usage();
  const bool limit = choice.finish_reason == "length";
  Json out = {{"index", index}, {"content", choice.text}, {"tokens", choice.ids}, {"id_slot", 0}, {"stop", true}, {"model", model_},
              {"tokens_predicted", usage.completion_tokens}, {"tokens_evaluated", usage.prompt_tokens}, {"tokens_cached", usage.cached_tokens},
              {"generation_settings", settings_json(generation.request())}, {"has_new_line", choice.text.find('\n') != std::string::npos},
              {"truncated", false}, {"stop_type", limit ? "limit" : choice.stop.empty() ? "eos" : "word"}, {"stopping_word", choice.stop},
              {"timings", timings_json(usage, clock_.times(generation))}};
  if (!choice.pieces.empty()) out["completion_probabilities"] = scored_tokens_json(choice.pieces, /*with_ids=*/true);
  return out;
}

std::string LlamaAnswer::body(const std::vector<CollectedChoice>& choices, const Generation& generation) {
  if (!many_) return dump_json(last(0, choices.front(), generation));
  Json list = Json::array();
  for (uint32_t i = 0; i < choices.size(); ++i) list.push_back(last(i, choices[i], generation));
  return dump_json(list);
}

void LlamaAnswer::push(const Progress& progress, const Generation& generation, std::string& out) {
  for (const ChoiceUpdate& update : progress.updates) {
    const Usage usage = generation.usage();
    if (!update.delta.shows_nothing()) {
      Json piece = {{"index", 0}, {"content", update.delta.text}, {"tokens", update.delta.ids}, {"stop", false}, {"id_slot", 0},
                    {"tokens_predicted", usage.completion_tokens}, {"tokens_evaluated", usage.prompt_tokens}};
      if (!update.delta.pieces.empty()) piece["completion_probabilities"] = scored_tokens_json(update.delta.pieces, /*with_ids=*/true);
      plain_event(dump_json(piece), out);
    }
    if (!update.delta.finish || progress.failure) continue;
    CollectedChoice ended;  // its text has been sent
    ended.finish_reason = finish_name(update.delta);
    ended.stop = update.delta.stop;
    plain_event(dump_json(last(0, ended, generation)), out);
  }
  if (progress.failure) plain_event(progress.failure->body(Surface::kLlamaCpp), out);
}

}  // namespace shoal
