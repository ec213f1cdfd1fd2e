// What an answer must look like so that it holds the tool calls that were asked for, as a grammar: the other half of
// CallSyntax. What the grammar allows, the parser of answers reads as calls with arguments that are valid under the
// tools' schemas.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/request.h"
#include "text/answers/answer_parser.h"

namespace shoal {

struct CallGrammarOptions {
  const CallSyntax& syntax;
  const ToolList& tools;                       // at least one
  std::string only;                            // the name of the one that must be called; empty: any
  bool parallel = true;                        // several calls may follow each other
  bool lazy = false;                           // only from the first marker of a call on; before it all is free
  const ReasoningSyntax* reasoning = nullptr;  // may come before the calls, where they are not lazy
  std::function<std::optional<TokenId>(std::string_view)> control_token;  // by spelling; ordinary tokens: nullopt
};

// Whether there are grammars for calls of this syntax.
bool can_constrain(const CallSyntax& syntax, bool lazy);

// InvalidArgument names a strict tool whose schema no grammar can follow. Of a tool that is not strict such a schema
// stands for any object.
StatusOr<Grammar> call_grammar(const CallGrammarOptions& options);

}  // namespace shoal
