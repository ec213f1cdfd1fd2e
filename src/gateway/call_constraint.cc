#include "gateway/call_constraint.h"

#include <algorithm>

#include "text/answers/call_grammar.h"
#include "text/grammar_matcher.h"

namespace shoal {
namespace {

bool any_strict(const ToolList& tools) {
  return std::any_of(tools.begin(), tools.end(), [](const ToolSpec& tool) { return tool.strict; });
}

ApiError unusable(const Status& status) {
  ApiError error = invalid_value("tools", absl::StrCat("'tools' cannot be followed: ", status.message(), "."));
  error.code = "invalid_schema";
  return error;
}

}  // namespace

ApiResult<GrammarRef> constrain_calls(const ToolFields& tools, const ModelText& text, AnswerParserOptions& answer) {
  if (!tools.offered()) return GrammarRef();
  const bool lazy = tools.choice.kind == ToolChoice::Kind::kAuto;
  if (!can_constrain(*answer.format.calls, lazy)) {
    if (lazy) return GrammarRef();
    answer.format.calls = &generic_calls();
  }
  const Tokenizer& tokenizer = *text.tokenizer;
  const auto control_token = [&](std::string_view spelling) -> std::optional<TokenId> {
    const auto id = tokenizer.token_id(spelling);
    return id && tokenizer.is_special(*id) ? id : std::nullopt;
  };
  CallGrammarOptions options{.syntax = *answer.format.calls, .tools = *tools.specs, .only = tools.choice.name,
                             .parallel = tools.parallel, .lazy = lazy, .reasoning = nullptr, .control_token = control_token};
  const bool in_reasoning = answer.begins_in_reasoning();
  if (!in_reasoning) options.reasoning = answer.format.reasoning;
  auto grammar = call_grammar(options);
  Status status = grammar.status();
  if (status.ok()) status = check_grammar(*grammar, control_token, tokenizer.vocab_size());
  if (!status.ok()) {
    if (lazy && !any_strict(*tools.specs)) return GrammarRef();  // nothing was promised
    return unusable(status);
  }
  if (in_reasoning && !lazy) grammar->triggers = {std::string(answer.format.reasoning->end)};
  return GrammarRef(*std::move(grammar));
}

}  // namespace shoal
