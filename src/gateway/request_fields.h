// Parts of request parsing that several bodies share; internal to the gateway.
#pragma once

#include "gateway/fields.h"
#include "gateway/openai_request.h"

namespace shoal {

// Everything of GenerationFields but `logprobs`, which chat and completions spell differently.
void read_generation_fields(Fields& fields, const RequestLimits& limits, GenerationFields& out);

// `messages` with what belongs to it: add_generation_prompt, continue_final_message, chat_template_kwargs.
void read_chat_prompt(Fields& fields, const RequestLimits& limits, ChatPrompt& out);

}  // namespace shoal
