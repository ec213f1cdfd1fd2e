#include "text/answers/call_grammar.h"

#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "text/answers/answer_parser.h"
#include "text/grammar/grammar_matcher.h"

namespace shoal {
namespace {

const ToolList kTools = {
    {"get_weather", *parse_ordered_json(R"({"type":"object","properties":{"city":{"type":"string"},"unit":{"type":"string","enum":["C","F"]},
                    "days":{"type":"integer","minimum":0,"maximum":9}},"required":["city","days"]})"), true},
    {"now", nullptr},
};

// One token per byte, and control tokens for some markers.
std::shared_ptr<const TokenVocabulary> bytes_and(const std::vector<std::string>& markers) {
  std::vector<TokenVocabulary::Token> tokens;
  for (int i = 0; i < 256; ++i) tokens.push_back({i, std::string(1, static_cast<char>(i)), false});
  for (const std::string& marker : markers) tokens.push_back({static_cast<TokenId>(tokens.size()), marker, true});
  return std::make_shared<TokenVocabulary>(tokens, static_cast<uint32_t>(tokens.size()));
}

struct Constraint {
  std::shared_ptr<const TokenVocabulary> vocabulary;
  std::unique_ptr<GrammarMatcher> matcher;
  Grammar grammar;
};

Constraint constrain(CallGrammarOptions options, const std::vector<std::string>& markers) {
  Constraint out;
  out.vocabulary = bytes_and(markers);
  const auto vocabulary = out.vocabulary;
  options.control_token = [vocabulary](std::string_view spelling) -> std::optional<TokenId> {
    const auto id = vocabulary->token_id(spelling);
    return id && vocabulary->is_control(*id) ? id : std::nullopt;
  };
  auto grammar = call_grammar(options);
  EXPECT_TRUE(grammar.ok()) << grammar.status();
  if (!grammar.ok()) return out;
  out.grammar = *grammar;
  auto matcher = GrammarMatcher::create(*grammar, out.vocabulary);
  EXPECT_TRUE(matcher.ok()) << matcher.status() << "\n" << grammar->gbnf;
  if (matcher.ok()) out.matcher = *std::move(matcher);
  return out;
}

// A text that the grammar allows, token by token at random, short rather than long.
std::optional<std::string> random_text(Constraint& constraint, std::mt19937& random, std::string start = "") {
  GrammarMatcher& matcher = *constraint.matcher;
  GrammarMatcher::Position at = matcher.start();
  for (const char c : start) EXPECT_TRUE(matcher.advance(at, static_cast<unsigned char>(c)).ok());
  std::string text = std::move(start);
  for (int step = 0; step < 4000; ++step) {
    const auto allowed = matcher.allowed(at);
    EXPECT_TRUE(allowed.ok()) << text;
    if (allowed->complete || (allowed->may_end && random() % 4 == 0)) return text;
    std::vector<TokenId> ids;
    for (TokenId id = 0; id < static_cast<TokenId>(constraint.vocabulary->size()); ++id) {
      if (allowed->mask == nullptr || allowed->mask->holds(id)) ids.push_back(id);
    }
    if (ids.empty()) return allowed->may_end ? std::optional(text) : std::nullopt;
    // Of the ways on, those that end strings and lists are taken often enough.
    TokenId id = ids[random() % ids.size()];
    for (const char c : {'"', '<', '}', '\n'}) {
      if (random() % 3 == 0 && std::find(ids.begin(), ids.end(), c) != ids.end()) id = c;
    }
    if (ids.back() >= 256 && random() % 3 == 0) id = ids.back();
    EXPECT_TRUE(matcher.advance(at, id).ok());
    text += constraint.vocabulary->bytes(id);
  }
  return std::nullopt;
}

struct Calls {
  std::vector<std::pair<std::string, std::string>> calls;
  std::string content;
};

Calls parse(const CallSyntax& syntax, const ReasoningSyntax* reasoning, std::string_view text) {
  AnswerParserOptions options{.format = {.calls = &syntax, .reasoning = reasoning}};
  options.tools = std::make_shared<ToolList>(kTools);
  const auto parser = make_answer_parser(options);
  AnswerDelta said;
  parser->push(text, said);
  parser->finish(false, said);
  Calls out{.content = said.content};
  for (const CallDelta& call : said.calls) {
    if (!call.name.empty()) out.calls.emplace_back(call.name, "");
    out.calls.back().second += call.arguments;
  }
  return out;
}

void expect_valid(const Calls& said, const std::string& text, const CallSyntax& syntax) {
  ASSERT_FALSE(said.calls.empty()) << syntax.name << ": " << text;
  EXPECT_EQ(said.content, "") << syntax.name << ": " << text;
  for (const auto& [name, arguments] : said.calls) {
    const auto json = parse_ordered_json(arguments, {.refuse_duplicate_keys = false});
    ASSERT_TRUE(json.ok() && json->is_object()) << syntax.name << ": " << text << " gives " << arguments;
    if (name == "now") continue;
    ASSERT_EQ(name, "get_weather");
    EXPECT_TRUE(json->contains("city") && (*json)["city"].is_string()) << arguments;
    EXPECT_TRUE(json->contains("days") && (*json)["days"].is_number_integer()) << arguments;
  }
}

// The markers of a family that are control tokens in most vocabularies.
std::vector<std::string> markers_of(const CallSyntax& syntax) {
  std::vector<std::string> out;
  for (const std::string_view literal : {syntax.section_begin, syntax.section_end, syntax.begin, syntax.end}) {
    const size_t end = literal.find(literal.starts_with('[') ? ']' : '>');
    if (end != std::string_view::npos) out.emplace_back(literal.substr(0, end + 1));
  }
  if (syntax.shape == CallShape::kHarmony) out = {"<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|constrain|>"};
  if (syntax.name == "kimi_k3") out = {"<|open|>", "<|close|>", "<|sep|>"};
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

TEST(CallGrammarTest, WhatTheGrammarAllowsIsReadAsValidCalls) {
  std::mt19937 random(3);
  for (const CallSyntax& syntax : call_syntaxes()) {
    if (!can_constrain(syntax, false)) continue;
    for (const bool control : {false, true}) {
      if (!control && syntax.name == "kimi_k3") continue;  // its markers cannot be told from text
      Constraint constraint = constrain({.syntax = syntax, .tools = kTools}, control ? markers_of(syntax) : std::vector<std::string>());
      ASSERT_NE(constraint.matcher, nullptr) << syntax.name;
      int ended = 0;
      for (int round = 0; round < 40; ++round) {
        const auto text = random_text(constraint, random);
        if (!text) continue;
        ++ended;
        expect_valid(parse(syntax, nullptr, *text), *text, syntax);
      }
      EXPECT_GT(ended, 0) << syntax.name << "\n" << constraint.grammar.gbnf;
    }
  }
}

TEST(CallGrammarTest, LazyGrammarsHoldFromTheMarkerOn) {
  std::mt19937 random(4);
  for (const CallSyntax& syntax : call_syntaxes()) {
    if (!can_constrain(syntax, true) || syntax.shape == CallShape::kHarmony || syntax.name == "kimi_k3") continue;
    Constraint constraint = constrain({.syntax = syntax, .tools = kTools, .lazy = true}, {});
    ASSERT_NE(constraint.matcher, nullptr) << syntax.name;
    ASSERT_EQ(constraint.grammar.triggers.size(), 1u);
    for (int round = 0; round < 10; ++round) {
      const auto text = random_text(constraint, random, constraint.grammar.triggers[0]);
      if (text) expect_valid(parse(syntax, nullptr, *text), *text, syntax);
    }
    GrammarMatcher::Position at = constraint.matcher->start();
    for (const char c : std::string("Any text < [ { at all")) EXPECT_TRUE(constraint.matcher->advance(at, c).ok());
    EXPECT_TRUE(constraint.matcher->allowed(at)->may_end);
  }
}

TEST(CallGrammarTest, ReasoningMayComeFirstAndOnlyTheNamedToolIsCalled) {
  std::mt19937 random(5);
  const CallSyntax& hermes = generic_calls();
  const ReasoningSyntax& think = reasoning_syntaxes().back();
  Constraint constraint = constrain({.syntax = hermes, .tools = kTools, .only = "get_weather", .reasoning = &think}, {});
  const auto text = random_text(constraint, random, "<think>\nI <call> </the tool.</think>\n\n<tool_call>");
  ASSERT_TRUE(text.has_value());
  const Calls said = parse(hermes, &think, *text);
  expect_valid(said, *text, hermes);
  EXPECT_EQ(said.calls.size(), 1u);
  EXPECT_EQ(said.calls[0].first, "get_weather");
}

TEST(CallGrammarTest, AStrictSchemaThatCannotBeFollowedIsRefusedAndAnotherIsAnyObject) {
  ToolList tools = {{"f", *parse_ordered_json(R"({"type":"object","properties":{"a":{"not":{}}},"required":["a"]})"), true}};
  CallGrammarOptions options{.syntax = generic_calls(), .tools = tools};
  options.control_token = [](std::string_view) { return std::nullopt; };
  EXPECT_THAT(std::string(call_grammar(options).status().message()), testing::HasSubstr("'f'"));
  tools[0].strict = false;
  EXPECT_TRUE(call_grammar(options).ok());
}

TEST(CallGrammarTest, NoSchemaIsTooOddForAnyFormat) {
  for (const char* schema : {"null", "{}", R"({"properties":{"a":true,"b":false,"c":7,"":{}}})", R"({"type":"object","properties":7,"required":7})",
                             R"({"type":"array"})", R"({"properties":{"a":{"type":["string","null"]},"b":{"enum":[]},"c":{"type":7}},"required":["z"]})",
                             R"({"properties":{"a>b\"</parameter>":{"type":"string","enum":["x",1]}},"$defs":{"d":{}}})"}) {
    const ToolList tools = {{"f", *parse_ordered_json(schema)}};
    for (const CallSyntax& syntax : call_syntaxes()) {
      if (!can_constrain(syntax, false)) continue;
      CallGrammarOptions options{.syntax = syntax, .tools = tools};
      options.control_token = [](std::string_view) { return std::nullopt; };
      const auto grammar = call_grammar(options);
      ASSERT_TRUE(grammar.ok()) << syntax.name << " " << schema << grammar.status();
      EXPECT_TRUE(check_grammar(*grammar, options.control_token, 256).ok()) << syntax.name << " " << schema << "\n" << grammar->gbnf;
    }
  }
}

}  // namespace
}  // namespace shoal
