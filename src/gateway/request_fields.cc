#include "gateway/request_fields.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "gateway/other_fields.h"
#include "gateway/sampling_fields.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr int64_t kTokenIdMax = INT32_MAX;
constexpr int64_t kTokensMax = INT32_MAX;
constexpr size_t kModelNameBytesMax = 1024;

void read_logit_bias(Fields& fields, const RequestLimits& limits, GenerationFields& out) {
  const OrderedJson* bias = fields.find("logit_bias");
  if (bias == nullptr || !fields.ok()) return;
  if (!bias->is_object()) return fields.refuse("logit_bias", "'logit_bias' must map token ids to numbers.");
  if (bias->size() > limits.logit_bias_max) {
    return fields.refuse("logit_bias", absl::StrCat("'logit_bias' has ", bias->size(), " entries; the limit is ",
                                                    limits.logit_bias_max, "."));
  }
  for (const auto& [key, value] : bias->items()) {
    TokenId id = 0;
    if (!absl::SimpleAtoi(key, &id) || id < 0) {
      return fields.refuse("logit_bias", "'logit_bias' key '" + key + "' is not a token id.");
    }
    if (!value.is_number() || !(value.get<double>() >= -100.0 && value.get<double>() <= 100.0)) {
      return fields.refuse("logit_bias", "'logit_bias' of token " + key + " must be a number from -100 to 100.");
    }
    out.logit_bias.emplace_back(id, value.get<float>());
  }
  std::sort(out.logit_bias.begin(), out.logit_bias.end());
}

void read_stream(Fields& fields, GenerationFields& out) {
  fields.boolean("stream", out.stream);
  const OrderedJson* options = fields.find("stream_options");
  if (options == nullptr || !fields.ok()) return;
  if (!options->is_object()) return fields.refuse("stream_options", "'stream_options' must be an object.");
  Fields inner(*options, "stream_options.");
  inner.boolean("include_usage", out.include_usage);
  check_misspelt_fields(inner);
  if (!inner.ok()) fields.refuse(*inner.error());
}

void read_seed(Fields& fields, GenerationFields& out) {
  const OrderedJson* seed = fields.find("seed");
  if (seed == nullptr || !fields.ok()) return;
  if (seed->is_number_unsigned()) {
    out.seed = static_cast<int64_t>(seed->get<uint64_t>());  // the upper half of uint64 is taken as bits
    return;
  }
  int64_t value = 0;
  fields.integer("seed", INT64_MIN, INT64_MAX, value);
  out.seed = value;
}

void read_sampling(Fields& fields, const RequestLimits& limits, GenerationFields& out) {
  fields.number("temperature", 0, 2, out.temperature);
  fields.number("top_p", 0, 1, out.top_p);
  fields.number("min_p", 0, 1, out.min_p);
  fields.number("repetition_penalty", 0.01, 100, out.repetition_penalty);
  fields.number("presence_penalty", -2, 2, out.presence_penalty);
  fields.number("frequency_penalty", -2, 2, out.frequency_penalty);
  int64_t top_k = -2;
  fields.integer("top_k", -1, kTokensMax, top_k);
  if (top_k > -2) out.top_k = static_cast<uint32_t>(std::max<int64_t>(top_k, 0));  // -1 and 0 both mean all
  read_seed(fields, out);
  read_sampling_extensions(fields, limits, out.sampling);
}

void read_lengths(Fields& fields, GenerationFields& out) {
  int64_t max_tokens = -1;
  fields.integer("max_tokens", 0, kTokensMax, max_tokens);
  fields.integer("max_completion_tokens", 0, kTokensMax, max_tokens);  // the newer spelling wins
  if (max_tokens >= 0) out.max_tokens = static_cast<uint32_t>(max_tokens);
  fields.integer("min_tokens", 0, kTokensMax, out.min_tokens);
  if (fields.ok() && out.max_tokens && out.min_tokens > *out.max_tokens) {
    fields.refuse("min_tokens", absl::StrCat("'min_tokens' is ", out.min_tokens, ", more than 'max_tokens' ",
                                             *out.max_tokens, "."));
  }
}

void read_prompt_logprobs(Fields& fields, const RequestLimits& limits, GenerationFields& out) {
  int64_t alternatives = -1;
  fields.integer("prompt_logprobs", 0, limits.top_logprobs_max, alternatives);
  if (alternatives < 0 || !fields.ok()) return;
  out.prompt_logprobs = static_cast<uint32_t>(alternatives);
  if (out.stream) fields.refuse("prompt_logprobs", "'prompt_logprobs' are not there with 'stream': true; ask for the whole answer.");
}

// Stricter deadlines than the model's.
void read_slo(Fields& fields, GenerationFields& out) {
  const OrderedJson* slo = fields.find("slo");
  if (slo == nullptr || !fields.ok()) return;
  if (!slo->is_object()) return fields.refuse("slo", "'slo' must be an object with 'ttft_ms' and 'tbt_ms'.");
  Fields inner(*slo, "slo.");
  std::optional<double> ttft_ms, tbt_ms;
  inner.number("ttft_ms", kDeadlineMsMin, kDeadlineMsMax, ttft_ms);
  inner.number("tbt_ms", kDeadlineMsMin, kDeadlineMsMax, tbt_ms);
  check_misspelt_fields(inner);
  if (!inner.ok()) return fields.refuse(*inner.error());
  if (ttft_ms) out.ttft_max = from_seconds(*ttft_ms / 1e3);
  if (tbt_ms) out.tbt_max = from_seconds(*tbt_ms / 1e3);
}

}  // namespace

void read_generation_fields(Fields& fields, const RequestLimits& limits, GenerationFields& out) {
  fields.text("model", kModelNameBytesMax, out.model);
  if (fields.ok() && out.model.empty()) {
    fields.refuse("model", "'model' is missing: name one of the models of GET /v1/models.");
  }
  read_structured_output(fields, out.structured);
  read_stream(fields, out);
  fields.integer("n", 1, limits.choices_max, out.n);
  int64_t best_of = out.n;
  fields.integer("best_of", 1, limits.choices_max, best_of);
  if (fields.ok() && best_of != out.n) {
    fields.refuse(unsupported_value("best_of", "'best_of' other than 'n' is not supported; leave it out."));
  }
  read_lengths(fields, out);
  read_sampling(fields, limits, out);
  read_logit_bias(fields, limits, out);
  fields.texts("stop", limits.stop_strings_max, limits.stop_string_bytes_max, out.stop);
  std::erase(out.stop, std::string());  // an empty stop string would end every answer at once
  fields.ids("stop_token_ids", limits.stop_ids_max, kTokenIdMax, out.stop_token_ids);
  fields.boolean("ignore_eos", out.ignore_eos);
  fields.boolean("skip_special_tokens", out.skip_special_tokens);
  fields.boolean("include_stop_str_in_output", out.include_stop_str_in_output);
  fields.boolean("return_tokens_as_token_ids", out.return_tokens_as_token_ids);
  fields.integer("priority", INT32_MIN, INT32_MAX, out.priority);
  read_slo(fields, out);
  read_prompt_logprobs(fields, limits, out);
}

}  // namespace shoal
