// Ways to sample beyond OpenAI's, in the names of vLLM and llama.cpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/request.h"
#include "gateway/api_error.h"
#include "gateway/fields.h"
#include "text/tokenizer/tokenizer.h"

namespace shoal {

struct RequestLimits;
struct ModelText;

// As the client wrote it. What is text becomes token ids when the model is known: make_token_rules().
struct SamplingExtensions {
  float typical_p = 1.0f;
  float top_n_sigma = 0.0f;
  float xtc_probability = 0.0f;
  float xtc_threshold = 0.1f;
  DryPenalty dry;
  Mirostat mirostat;
  std::vector<std::string> dry_breakers = {"\n", ":", "\"", "*"};  // llama.cpp's
  std::vector<std::string> bad_words;
  std::vector<TokenId> allowed_ids;  // ascending; empty: every token
};

void read_sampling_extensions(Fields& fields, const RequestLimits& limits, SamplingExtensions& out);

// None where nothing is asked for. An error names the field.
ApiResult<SharedValue<TokenRules>> make_token_rules(const SamplingExtensions& wanted, const ModelText& text, uint32_t vocab_size);

}  // namespace shoal
