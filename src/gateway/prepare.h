// From a client's words to token ids: chat template, tokenizer, defaults, and the checks that need the model. Whatever
// can be wrong with a request ends here with a 400; what comes out can be submitted as it is.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/request.h"
#include "gateway/catalog.h"
#include "gateway/openai_request.h"
#include "text/answers/answer_parser.h"

namespace shoal {

struct PreparedPrompt {
  std::vector<TokenId> ids;  // not empty, shorter than the context
  std::string text;          // for echo
};

// How the tokens of an answer become text.
struct OutputOptions {
  std::vector<std::string> stop;
  uint32_t min_tokens = 0;           // stop strings do not count before
  bool include_stop = false;
  bool skip_special = true;
  bool echo = false;
  bool pooled = false;               // nothing is generated: a vector is the answer
  bool first_is_no = true;           // of a judge's two logits (prepare_pooled)
  bool score_only = false;           // the one generated token is not wanted
  bool bound_by_context = false;     // of GenerationFields::max_tokens_is_bound: the context ends before max_tokens
  bool tokens_as_ids = false;        // tokens are spelled "token_id:N"
  bool return_ids = false;           // ids of tokens beside their text
  std::optional<uint32_t> logprobs;         // alternatives to report beside each token
  std::optional<uint32_t> prompt_logprobs;  // likewise for those of the prompt, as vLLM does
};

struct PreparedRequest {
  ModelRef model;
  std::shared_ptr<const ModelText> text;
  std::vector<PreparedPrompt> prompts;
  uint32_t n = 1;                    // choices per prompt; choice i samples with seed + i
  Request request;                   // what all choices share: everything but id, prompt and the choice's seed
  OutputOptions output;
  AnswerParserOptions answer;        // of chats; default: all text is content
  bool include_reasoning = true;
  uint64_t id_seed = 0;              // ids of tool calls are drawn from it
};

// What preparing needs from outside.
struct PrepareContext {
  ModelRef model;
  std::shared_ptr<const ModelText> text;
  uint32_t max_model_len;     // prompt and answer together
  uint64_t fallback_seed;     // for requests that name none
  int64_t now_unix_seconds;   // for templates that print the date
  GrammarCache* grammars = nullptr;  // may be null
};

ApiResult<PreparedRequest> prepare_chat(const ChatRequest& request, const PrepareContext& context);
ApiResult<PreparedRequest> prepare_completion(const CompletionRequest& request, const PrepareContext& context);

// The prompt of a conversation as the model reads it.
ApiResult<std::vector<TextPart>> render_chat(const ChatPrompt& prompt, const ModelText& text, int64_t now_unix_seconds);
std::vector<TokenId> encode_chat(const std::vector<TextPart>& parts, const ModelText& text);

}  // namespace shoal
