#include "text/answers/call_syntax.h"

#include <algorithm>

namespace shoal {
namespace {

using enum CallShape;

constexpr CallSyntax kCalls[] = {
    {.name = "openai", .shape = kHarmony, .signs = {"<|channel|>", "<|start|>"}},
    {.name = "kimi_k3", .shape = kTagged, .signs = {"'<|open|>'"}, .section_begin = "<|open|>tools<|sep|>",
     .section_end = "<|close|>tools<|sep|>", .begin = "<|open|>call tool=\"", .end = "<|close|>call<|sep|>",
     .name_end = "\" index=\"", .index_end = "\"<|sep|>", .key_begin = "<|open|>argument key=\"", .key_end = "\" type=\"",
     .attribute_end = "\"<|sep|>", .value_end = "<|close|>argument<|sep|>"},
    {.name = "kimi_k2", .shape = kNamedJson, .signs = {"<|tool_calls_section_begin|>"},
     .section_begin = "<|tool_calls_section_begin|>", .section_end = "<|tool_calls_section_end|>",
     .begin = "<|tool_call_begin|>functions.", .end = "<|tool_call_end|>", .name_end = ":",
     .index_end = "<|tool_call_argument_begin|>", .id_from_index = true},
    {.name = "apertus", .signs = {"<|tools_prefix|>"}, .section_begin = "<|tools_prefix|>",
     .section_end = "<|tools_suffix|>", .between = ", ", .list_begin = "[", .list_end = "]"},
    {.name = "cohere", .signs = {"<|START_ACTION|>"}, .section_begin = "<|START_ACTION|>", .section_end = "<|END_ACTION|>",
     .between = ",\n    ", .list_begin = "[\n    ", .list_end = "\n]", .name_key = "tool_name", .arguments_key = "parameters"},
    {.name = "deepseek_v4", .shape = kTagged, .signs = {"｜DSML｜", "'tool_calls>"},
     .section_begin = "<｜DSML｜tool_calls>\n", .section_end = "</｜DSML｜tool_calls>",
     .begin = "<｜DSML｜invoke name=\"", .end = "</｜DSML｜invoke>\n", .name_end = "\">\n",
     .key_begin = "<｜DSML｜parameter name=\"", .key_end = "\" string=\"", .attribute_end = "\">",
     .value_end = "</｜DSML｜parameter>\n"},
    {.name = "deepseek_v32", .shape = kTagged, .signs = {"｜DSML｜"}, .section_begin = "<｜DSML｜function_calls>\n",
     .section_end = "</｜DSML｜function_calls>", .begin = "<｜DSML｜invoke name=\"", .end = "</｜DSML｜invoke>\n",
     .name_end = "\">\n", .key_begin = "<｜DSML｜parameter name=\"", .key_end = "\" string=\"", .attribute_end = "\">",
     .value_end = "</｜DSML｜parameter>\n"},
    {.name = "deepseek_v3", .shape = kNamedJson, .signs = {"<｜tool▁calls▁begin｜>", "```json"},
     .section_begin = "<｜tool▁calls▁begin｜>", .section_end = "<｜tool▁calls▁end｜>",
     .begin = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>", .end = "\n```<｜tool▁call▁end｜>", .between = "\n",
     .name_end = "\n```json\n"},
    {.name = "deepseek_v31", .shape = kNamedJson, .signs = {"<｜tool▁calls▁begin｜>"},
     .section_begin = "<｜tool▁calls▁begin｜>", .section_end = "<｜tool▁calls▁end｜>", .begin = "<｜tool▁call▁begin｜>",
     .end = "<｜tool▁call▁end｜>", .name_end = "<｜tool▁sep｜>"},
    {.name = "glm47", .shape = kTagged, .signs = {"<arg_key>", "{function-name}<arg_key>"}, .begin = "<tool_call>",
     .end = "</tool_call>", .key_begin = "<arg_key>", .key_end = "</arg_key><arg_value>", .value_end = "</arg_value>"},
    {.name = "glm45", .shape = kTagged, .signs = {"<arg_key>"}, .begin = "<tool_call>", .end = "</tool_call>",
     .between = "\n", .name_end = "\n", .key_begin = "<arg_key>", .key_end = "</arg_key>\n<arg_value>",
     .value_end = "</arg_value>\n"},
    {.name = "hy_v3", .shape = kTagged, .signs = {"<tool_sep{}>", ":opensource"},
     .section_begin = "<tool_calls:opensource>\n", .section_end = "</tool_calls:opensource>",
     .begin = "<tool_call:opensource>", .end = "</tool_call:opensource>\n", .name_end = "<tool_sep:opensource>\n",
     .key_begin = "<arg_key:opensource>", .key_end = "</arg_key:opensource>\n<arg_value:opensource>",
     .value_end = "</arg_value:opensource>\n"},
    {.name = "minimax_m3", .shape = kXml, .signs = {"]<]minimax[>["}, .section_begin = "]<]minimax[>[<tool_call>\n",
     .section_end = "]<]minimax[>[</tool_call>", .begin = "]<]minimax[>[<invoke name=\"",
     .end = "]<]minimax[>[</invoke>\n", .name_end = "\">"},
    {.name = "minimax_m2", .shape = kTagged, .signs = {"<minimax:tool_call>"}, .section_begin = "<minimax:tool_call>\n",
     .section_end = "</minimax:tool_call>", .begin = "<invoke name=\"", .end = "</invoke>\n", .name_end = "\">\n",
     .key_begin = "<parameter name=\"", .key_end = "\">", .value_end = "</parameter>\n"},
    {.name = "minimax", .signs = {"<tool_calls>\\n{\"name\""}, .section_begin = "<tool_calls>\n",
     .section_end = "</tool_calls>", .end = "\n", .name_key = "name", .arguments_key = "arguments"},
    {.name = "jamba", .signs = {"<tool_calls>"}, .section_begin = "<tool_calls>", .section_end = "</tool_calls>",
     .between = ",\n", .list_begin = "[\n", .list_end = "\n]", .name_key = "name", .arguments_key = "arguments"},
    {.name = "gemma4", .shape = kGemma, .signs = {"<|tool_call>call:"}, .begin = "<|tool_call>call:",
     .end = "<tool_call|>"},
    {.name = "gigachat3", .signs = {"<|function_call|>"}, .begin = "<|function_call|>", .name_key = "name",
     .arguments_key = "arguments"},
    {.name = "qwen3_coder", .shape = kTagged, .signs = {"<function=", "<parameter="}, .begin = "<tool_call>\n<function=",
     .end = "</function>\n</tool_call>", .between = "\n", .other_begin = "<function=", .name_end = ">\n",
     .key_begin = "<parameter=", .key_end = ">\n", .value_end = "\n</parameter>\n"},
    {.name = "functionary", .shape = kNamedJson, .signs = {"<function="}, .begin = "<function=", .end = "</function>",
     .name_end = ">"},
    {.name = "granite", .signs = {"<|tool_call|>"}, .section_begin = "<|tool_call|>", .between = ", ", .list_begin = "[", .list_end = "]", .name_key = "name",
     .arguments_key = "arguments"},
    {.name = "hermes", .signs = {"<tool_call>"}, .begin = "<tool_call>\n", .end = "\n</tool_call>", .between = "\n",
     .name_key = "name", .arguments_key = "arguments"},
    {.name = "mistral", .shape = kNamedJson, .signs = {"[TOOL_CALLS]", "[ARGS]"}, .begin = "[TOOL_CALLS]",
     .name_end = "[ARGS]", .short_ids = true},
    {.name = "mistral_v3", .signs = {"[TOOL_CALLS]"}, .section_begin = "[TOOL_CALLS]", .between = ", ", .list_begin = "[", .list_end = "]", .name_key = "name",
     .arguments_key = "arguments", .short_ids = true},
    {.name = "phi4_mini_json", .signs = {"<|tool|>", "functools"}, .section_begin = "functools", .between = ", ", .list_begin = "[", .list_end = "]",
     .name_key = "name", .arguments_key = "arguments"},
    {.name = "lfm2", .shape = kPython, .signs = {"List of tools: ["}, .section_begin = "<|tool_call_start|>",
     .section_end = "<|tool_call_end|>", .between = ", ", .list_begin = "[", .list_end = "]"},
    {.name = "pythonic", .shape = kPython, .signs = {"[func_name1("}, .between = ", ", .list_begin = "[", .list_end = "]", .bare = true},
    {.name = "llama3_json", .signs = {"\"parameters\": dictionary of argument name"}, .between = "; ",
     .other_begin = "<|python_tag|>", .bare = true, .name_key = "name", .arguments_key = "parameters"},
};

constexpr ReasoningSyntax kReasoning[] = {
    {.name = "openai_gptoss", .sign = "<|channel|>"},
    {.name = "kimi_k3", .sign = "'<|open|>'", .begin = "<|open|>think<|sep|>", .end = "<|close|>think<|sep|>",
     .wrappers = {"<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>", "<|end_of_msg|>"}},
    {.name = "cohere", .sign = "<|START_THINKING|>", .begin = "<|START_THINKING|>", .end = "<|END_THINKING|>",
     .wrappers = {"<|START_TEXT|>", "<|END_TEXT|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>"}},
    {.name = "hy_v3", .sign = "'<think{}>'.format", .begin = "<think:opensource>", .end = "</think:opensource>"},
    {.name = "minimax_m3", .sign = "</mm:think>", .begin = "<mm:think>", .end = "</mm:think>"},
    {.name = "apertus", .sign = "<|inner_prefix|>", .begin = "<|inner_prefix|>", .end = "<|inner_suffix|>"},
    {.name = "gemma4", .sign = "<|channel>thought", .begin = "<|channel>thought\n", .end = "<channel|>"},
    {.name = "mistral", .sign = "[THINK]", .begin = "[THINK]", .end = "[/THINK]"},
    {.name = "granite", .sign = "Here is my thought process:", .begin = "Here is my thought process:",
     .end = "Here is my response:"},
    {.name = "deepseek_r1", .sign = "</think>", .begin = "<think>", .end = "</think>"},
};

// Names of vLLM's for rows that are spelled the same.
constexpr std::pair<std::string_view, std::string_view> kCallAliases[] = {
    {"qwen3_xml", "qwen3_coder"}, {"step3p5", "qwen3_coder"}, {"nemotron_v3", "qwen3_coder"}, {"llama4_json", "llama3_json"},
    {"llama4_pythonic", "pythonic"}, {"granite4", "hermes"}, {"hunyuan_v3", "hy_v3"}, {"longcat", "hermes"}};
constexpr std::pair<std::string_view, std::string_view> kReasoningAliases[] = {
    {"qwen3", "deepseek_r1"}, {"deepseek_v3", "deepseek_r1"}, {"glm45", "deepseek_r1"}, {"minimax_m2", "deepseek_r1"},
    {"step3", "deepseek_r1"}, {"nemotron_v3", "deepseek_r1"}, {"kimi_k2", "deepseek_r1"}, {"cohere2", "cohere"}};

bool has_signs(const CallSyntax& syntax, std::string_view text) {
  return std::all_of(syntax.signs.begin(), syntax.signs.end(),
                     [&](std::string_view sign) { return text.find(sign) != std::string_view::npos; });
}

template <typename Row, typename Aliases>
StatusOr<const Row*> by_name(std::span<const Row> rows, const Aliases& aliases, std::string_view name, const char* flag) {
  std::string_view wanted = name;
  for (const auto& [alias, real] : aliases) {
    if (alias == name) wanted = real;
  }
  for (const Row& row : rows) {
    if (row.name == wanted) return &row;
  }
  std::string known = "auto, none";
  for (const Row& row : rows) known.append(", ").append(row.name);
  for (const auto& [alias, real] : aliases) known.append(", ").append(alias);
  return invalid_argument(flag, " '", std::string(name), "' is not known; there are ", known);
}

}  // namespace

std::span<const CallSyntax> call_syntaxes() { return kCalls; }
std::span<const ReasoningSyntax> reasoning_syntaxes() { return kReasoning; }

bool AnswerFormat::has_marker(std::string_view token) const {
  if (token.empty()) return false;
  const auto holds = [&](std::string_view literal) { return literal.find(token) != std::string_view::npos; };
  if (calls != nullptr) {
    constexpr std::string_view kHarmonyMarkers = "<|start|><|channel|><|constrain|><|message|><|end|><|call|><|return|>";
    for (const std::string_view literal :
         {calls->section_begin, calls->section_end, calls->begin, calls->end, calls->other_begin, calls->name_end,
          calls->index_end, calls->key_begin, calls->key_end, calls->attribute_end, calls->value_end}) {
      if (holds(literal)) return true;
    }
    if (calls->shape == CallShape::kHarmony && holds(kHarmonyMarkers)) return true;
    if (calls->shape == CallShape::kGemma && token == "<|\"|>") return true;
    if (calls->shape == CallShape::kXml && holds("]<]minimax[>[")) return true;
    if (calls->name == "mistral" && token == "[CALL_ID]") return true;
  }
  if (reasoning == nullptr) return false;
  return holds(reasoning->begin) || holds(reasoning->end) ||
         std::any_of(reasoning->wrappers.begin(), reasoning->wrappers.end(), holds);
}

AnswerFormat detect_format(std::string_view chat_template) {
  AnswerFormat format;
  for (const CallSyntax& syntax : kCalls) {
    if (format.calls == nullptr && has_signs(syntax, chat_template)) format.calls = &syntax;
  }
  for (const ReasoningSyntax& syntax : kReasoning) {
    const bool found = chat_template.find(syntax.sign) != std::string_view::npos;
    if (format.reasoning == nullptr && found) format.reasoning = &syntax;
  }
  return format;
}

StatusOr<AnswerFormat> choose_format(std::string_view chat_template, const std::string& calls, const std::string& reasoning) {
  AnswerFormat format = detect_format(chat_template);
  if (calls == "none") format.calls = nullptr;
  if (calls != "auto" && calls != "none") {
    ASSIGN_OR_RETURN(format.calls, by_name(call_syntaxes(), kCallAliases, calls, "tool-call-parser"));
  }
  if (reasoning == "none") format.reasoning = nullptr;
  if (reasoning != "auto" && reasoning != "none") {
    ASSIGN_OR_RETURN(format.reasoning, by_name(reasoning_syntaxes(), kReasoningAliases, reasoning, "reasoning-parser"));
    format.always_reasons = reasoning == "deepseek_r1";
  }
  return format;
}

const CallSyntax& generic_calls() {
  static const CallSyntax* const hermes =
      std::find_if(std::begin(kCalls), std::end(kCalls), [](const CallSyntax& row) { return row.name == "hermes"; });
  return *hermes;
}

}  // namespace shoal
