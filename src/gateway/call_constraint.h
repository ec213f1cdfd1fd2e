// What tool_choice promises, as a grammar for the answer.
#pragma once

#include "base/request.h"
#include "gateway/catalog.h"
#include "gateway/tool_fields.h"
#include "text/answers/answer_parser.h"

namespace shoal {

class GrammarCache;

// The grammar that the answer to a chat with these tools must follow: from its first token on where a call is asked for
// (after the reasoning, if there is any), else from the first marker of a call on. None where nothing is promised.
// `answer` says how the answer will be read; its format of calls is replaced if the model's own cannot be asked for.
// 400 for a strict tool whose schema cannot be followed. Where all schemas together are too much for a grammar, those of
// tools that are not strict stand for any object. `cache` may be null.
ApiResult<GrammarRef> constrain_calls(const ToolFields& tools, const ModelEntry& model, const ModelText& text,
                                      GrammarCache* cache, AnswerParserOptions& answer);

}  // namespace shoal
