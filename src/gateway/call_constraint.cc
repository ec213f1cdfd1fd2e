#include "gateway/call_constraint.h"

#include <algorithm>

#include "gateway/structured_fields.h"
#include "nlohmann/json.hpp"
#include "text/answers/call_grammar.h"
#include "text/grammar/grammar_matcher.h"

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

StatusOr<Grammar> checked_grammar(const CallGrammarOptions& options, uint32_t vocab_size) {
  ASSIGN_OR_RETURN(Grammar grammar, call_grammar(options));
  RETURN_IF_ERROR(check_grammar(grammar, options.control_token, vocab_size));
  return grammar;
}

ApiResult<GrammarRef> make_call_grammar(CallGrammarOptions options, const AnswerParserOptions& answer, uint32_t vocab_size) {
  auto grammar = checked_grammar(options, vocab_size);
  ToolList loose = options.tools;
  if (!grammar.ok() && !any_strict(loose)) {
    for (ToolSpec& tool : loose) tool.parameters = nullptr;
    const CallGrammarOptions looser{options.syntax, loose, options.only, options.parallel, options.lazy, options.reasoning, options.control_token};
    grammar = checked_grammar(looser, vocab_size);
    if (!grammar.ok() && options.lazy) return GrammarRef();  // nothing was promised
  }
  if (!grammar.ok()) return unusable(grammar.status());
  if (!options.lazy && answer.begins_in_reasoning()) grammar->triggers = {std::string(answer.format.reasoning->end)};
  return GrammarRef(*std::move(grammar));
}

// All that a grammar of calls depends on.
std::string cache_key(const CallGrammarOptions& options, const AnswerParserOptions& answer, const ModelEntry& model) {
  std::string key = absl::StrCat("calls:", model.id.value, ":", std::string(options.syntax.name), ":", options.only, ":",
                                 options.parallel, options.lazy, options.reasoning != nullptr, answer.begins_in_reasoning());
  for (const ToolSpec& tool : options.tools) absl::StrAppend(&key, ":", tool.name, ":", tool.strict, dump_ordered_json(tool.parameters));
  return key;
}

}  // namespace

ApiResult<GrammarRef> constrain_calls(const ToolFields& tools, const ModelEntry& model, const ModelText& text,
                                      GrammarCache* cache, AnswerParserOptions& answer) {
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
  const CallGrammarOptions options{.syntax = *answer.format.calls, .tools = *tools.specs, .only = tools.choice.name,
                                   .parallel = tools.parallel, .lazy = lazy,
                                   .reasoning = answer.begins_in_reasoning() ? nullptr : answer.format.reasoning,
                                   .control_token = control_token};
  const auto make = [&] { return make_call_grammar(options, answer, tokenizer.vocab_size()); };
  return cache == nullptr ? make() : cache->grammar(cache_key(options, answer, model), make);
}

}  // namespace shoal
