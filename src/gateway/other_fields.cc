#include "gateway/other_fields.h"

#include <algorithm>
#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "base/nearest.h"
#include "gateway/strings.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr std::string_view kLeaveOut = "leave it out";
constexpr std::string_view kMaxTokens = "use 'max_tokens'";
constexpr std::string_view kTemplateSwitch = "use 'chat_template_kwargs' with the variables of the model's template";

constexpr UnservedField kUnserved[] = {
    // Search of another kind.
    {"use_beam_search", "false", "answers are sampled, there is no beam search; leave it out"},
    {"num_beams", "1", "answers are sampled, there is no beam search; leave it out"},
    {"beam_width", "1", "answers are sampled, there is no beam search; leave it out"},
    {"length_penalty", "0 1", "it belongs to beam search, which is not there; leave it out"},
    {"early_stopping", "false", "it belongs to beam search, which is not there; leave it out"},
    {"penalty_alpha", "0", "there is no contrastive search; leave it out"},
    {"guidance_scale", "0 1", "there is no classifier-free guidance; leave it out"},
    {"cfg_scale", "0 1", "there is no classifier-free guidance; leave it out"},
    {"negative_prompt", "", "there is no classifier-free guidance; leave it out"},
    // Sampling.
    {"no_repeat_ngram_size", "0", "use 'dry_multiplier' or 'repetition_penalty'"},
    {"encoder_repetition_penalty", "0 1", "use 'repetition_penalty'"},
    {"repeat_penalty", "1", "use 'repetition_penalty'"},
    {"tfs_z", "1", "use 'min_p' or 'typical_p'"},
    {"tfs", "1", "use 'min_p' or 'typical_p'"},
    {"top_a", "0", "use 'min_p'"},
    {"typical", "0 1", "use 'typical_p'"},
    {"nsigma", "-1 0", "use 'top_n_sigma'"},
    {"epsilon_cutoff", "0", "use 'min_p'"},
    {"eta_cutoff", "0", "use 'min_p'"},
    {"dynatemp_range", "0", "use 'temperature'"},
    {"smoothing_factor", "0", "use 'temperature'"},
    {"do_sample", "true", "use 'temperature': 0"},
    {"mirostat_mode", "0", "use 'mirostat'"},
    {"dry_range", "0", "use 'dry_penalty_last_n'"},
    {"samplers", "", "the order of samplers is fixed; leave it out"},
    {"sampler_order", "", "the order of samplers is fixed; leave it out"},
    {"sampler_priority", "", "the order of samplers is fixed; leave it out"},
    {"random_seed", "", "use 'seed'"},
    {"logits_processors", "", kLeaveOut},
    {"custom_logit_processor", "", kLeaveOut},
    {"vllm_xargs", "", kLeaveOut},
    // Lengths and ends.
    {"max_new_tokens", "", kMaxTokens},
    {"max_length", "", kMaxTokens},
    {"max_tokens_to_sample", "", kMaxTokens},
    {"max_output_tokens", "", kMaxTokens},
    {"n_predict", "-1", kMaxTokens},
    {"num_predict", "-1", kMaxTokens},
    {"min_new_tokens", "0", "use 'min_tokens'"},
    {"stop_sequences", "", "use 'stop'"},
    {"stop_words", "", "use 'stop'"},
    {"stop_regex", "", "use 'stop' or 'guided_regex'"},
    {"t_max_predict_ms", "0", "send the header X-Request-Timeout"},
    {"truncate_prompt_tokens", "", "prompts are never cut; leave it out"},
    {"transforms", "", "prompts are never cut; leave it out"},
    {"suffix", "", kLeaveOut},
    {"input_prefix", "", kLeaveOut},
    {"input_suffix", "", kLeaveOut},
    // Structured output in other words.
    {"regex", "", "use 'guided_regex'"},
    {"ebnf", "", "use 'guided_grammar'"},
    {"structural_tag", "", kLeaveOut},
    {"guided_whitespace_pattern", "", kLeaveOut},
    {"format", "", "use 'response_format'"},
    // The prompt.
    {"messages", "", "use /v1/chat/completions"},
    {"prompt", "", "use 'messages', or /v1/completions"},
    {"system", "", "send a system message"},
    {"instructions", "", "send a system message"},
    {"tools", "", "use /v1/chat/completions"},
    {"tool_choice", "\"none\" \"auto\"", "use /v1/chat/completions"},
    {"reasoning_effort", "\"none\"", "use /v1/chat/completions"},
    {"echo", "false", "use /v1/completions"},
    {"add_special_tokens", "false", "the template writes them; leave it out"},
    {"chat_template", "", "the model's own template is used; leave it out"},
    {"safe_prompt", "false", "send a system message"},
    {"prompt_mode", "", "use 'reasoning_effort'"},
    {"enable_thinking", "", kTemplateSwitch},
    {"thinking", "", kTemplateSwitch},
    {"thinking_budget", "-1", kTemplateSwitch},
    {"reasoning_budget", "-1", kTemplateSwitch},
    {"reasoning", "", "use 'reasoning_effort'"},
    {"verbosity", "\"medium\"", "say in the prompt how long an answer should be"},
    // Other media, adapters, tools of others.
    {"images", "", "only text is supported; leave it out"},
    {"image_data", "", "only text is supported; leave it out"},
    {"audio", "", "only text is supported; leave it out"},
    {"mm_processor_kwargs", "", "only text is supported; leave it out"},
    {"lora_request", "", "adapters are not supported; leave it out"},
    {"lora_path", "", "adapters are not supported; leave it out"},
    {"lora", "", "adapters are not supported; leave it out"},
    {"adapter_id", "", "adapters are not supported; leave it out"},
    {"web_search_options", "", "there is no web search; leave it out"},
    {"plugins", "", kLeaveOut},
    {"kv_transfer_params", "", kLeaveOut},
    // What comes back, and what is kept.
    {"service_tier", "\"auto\" \"default\"", "requests are ordered by 'priority'; send \"auto\" or leave it out"},
    {"store", "false", "answers are not kept; send false or leave it out"},
    {"top_logprobs", "0", "use 'logprobs' with a number"},
    {"n_probs", "0", "use 'logprobs' and 'top_logprobs'"},
    {"post_sampling_probs", "false", "log-probabilities are those of the model before sampling; leave it out"},
    {"return_token_ids", "false", "use 'return_tokens_as_token_ids' with 'logprobs'"},
    {"return_tokens", "false", "use 'return_tokens_as_token_ids' with 'logprobs'"},
    {"return_hidden_states", "false", kLeaveOut},
    {"return_full_text", "false", "use 'echo' of /v1/completions"},
    // Not a field: what belongs elsewhere.
    {"extra_body", "", "it is an argument of OpenAI's Python client; put its fields beside 'model'"},
    {"options", "", "it is a field of Ollama's API; put sampling fields beside 'model'"},
};

// Sent by habit; none of them can change an answer.
constexpr std::array<std::string_view, 32> kIgnored = {
    "user", "metadata", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "prediction", "request_id", "rid",
    "cache_prompt", "cache_salt", "id_slot", "slot_id", "n_keep", "n_discard", "keep_alive", "timings_per_token", "return_progress",
    "guided_decoding_backend", "guided_decoding_disable_fallback", "spaces_between_special_tokens", "detokenize", "session_id",
    "repeat_last_n", "min_keep", "provider", "usage", "conversation_id", "chat_id", "background_tasks",
    "features", "session_params", "trace_id"};

bool asks_nothing(const OrderedJson& value, std::string_view harmless) {
  if (value.is_null() || ((value.is_structured()) && value.empty()) || value == "") return true;
  for (const absl::string_view text : absl::StrSplit(absl::string_view(harmless.data(), harmless.size()), ' ', absl::SkipEmpty())) {
    const auto same = parse_ordered_json({text.data(), text.size()});
    if (same.ok() && *same == value) return true;
  }
  return false;
}

// "maxTokens", "max-tokens" and "max_tokens" are one word.
std::string bare(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c != '_' && c != '-') out += absl::ascii_tolower(static_cast<unsigned char>(c));
  }
  return out;
}

// Stricter than for names that people type: an unknown field of somebody's extension is to be ignored.
bool misspells(std::string_view given, std::string_view known) {
  constexpr size_t kLongEnough = 4;
  if (bare(given) == bare(known)) return true;
  return given.size() >= kLongEnough && known.size() >= kLongEnough && edit_distance(given, known) <= (known.size() < 9 ? 1 : 2);
}

bool serves(const Fields& fields, const std::string& key) {
  return std::find(fields.known().begin(), fields.known().end(), key) != fields.known().end();
}

}  // namespace

std::span<const UnservedField> unserved_fields() { return kUnserved; }
std::span<const std::string_view> ignored_fields() { return kIgnored; }

void check_other_fields(Fields& fields) {
  for (const auto& [key, value] : fields.object().items()) {
    const auto unserved = std::find_if(std::begin(kUnserved), std::end(kUnserved), [&](const UnservedField& f) { return f.name == key; });
    if (unserved == std::end(kUnserved) || serves(fields, key) || asks_nothing(value, unserved->harmless)) continue;
    return fields.refuse(unsupported_value(fields.name(key), absl::StrCat("'", fields.name(key), "' is not served; ", str(unserved->advice), ".")));
  }
  check_misspelt_fields(fields);
}

void check_misspelt_fields(Fields& fields) {
  for (const auto& [key, value] : fields.object().items()) {
    const auto is_it = [&key = key](const UnservedField& f) { return f.name == key; };
    const bool peers_know = std::find(kIgnored.begin(), kIgnored.end(), key) != kIgnored.end() || std::any_of(std::begin(kUnserved), std::end(kUnserved), is_it);
    if (peers_know || serves(fields, key)) continue;
    const auto meant = std::find_if(fields.known().begin(), fields.known().end(), [&key = key](const std::string& name) { return misspells(key, name); });
    if (meant == fields.known().end()) continue;
    ApiError error = invalid_value(fields.name(key), absl::StrCat("Unknown field '", fields.name(key), "'; did you mean '", fields.name(*meant), "'?"));
    error.code = "unknown_field";
    return fields.refuse(std::move(error));
  }
}

}  // namespace shoal
