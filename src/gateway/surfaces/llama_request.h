// The bodies of llama.cpp's own POST /completion and /infill as the completion that they stand for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gateway/openai_request.h"
#include "gateway/prepare.h"

namespace shoal {

struct LlamaRequest {
  CompletionRequest completion;  // of /infill without prompts: fill_in() makes them
  bool many = false;             // several prompts, so that the answer is a list
  bool return_tokens = false;
};

// What comes before the gap and after it, and other files that may help.
struct InfillText {
  struct File {
    std::string name, text;
  };
  std::vector<File> files;
  std::string prefix, suffix;
};

struct InfillRequest {
  LlamaRequest request;
  InfillText text;
};

// `samplers`, slots and times are ignored: the order of samplers is fixed, and slots are this server's own business.
ApiResult<LlamaRequest> parse_llama_completion(std::string_view body, const RequestLimits& limits);
ApiResult<InfillRequest> parse_llama_infill(std::string_view body, const RequestLimits& limits);

// The prompt in the tokens that the model was trained to fill gaps with. 501 for a model that has none.
ApiResult<std::vector<TokenId>> infill_prompt(const InfillText& text, const PrepareContext& context);

}  // namespace shoal
