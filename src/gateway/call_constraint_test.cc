#include "gateway/call_constraint.h"

#include <gtest/gtest.h>

#include "gateway/prepare.h"
#include "gateway/test_support.h"

namespace shoal {
namespace {

class CallConstraintTest : public testing::Test {
 protected:
  // A model whose template ends the prompt with `tail`, and which writes calls and reasoning in these formats.
  ApiResult<PreparedRequest> chat(const std::string& tail, Json more, const char* calls = "hermes", const char* reasoning = "qwen3",
                                  uint32_t max_model_len = 4000) {
    auto text = std::make_shared<ModelText>();
    text->tokenizer = std::make_unique<test::ByteTokenizer>();
    text->chat_template = *ChatTemplate::parse("{% for m in messages %}{{ m.content }}\n{% endfor %}{{ tools|tojson }}" + tail);
    text->traits = probe_template([&](const OrderedJson& variables) { return text_or_nothing(*text->chat_template, variables); }, {});
    text->format = *choose_format("", calls, reasoning);
    Json body = {{"model", "m"}, {"messages", Json::array({{{"role", "user"}, {"content", "Is <think> a tag?"}}})}, {"max_tokens", 5}};
    body.update(more);
    const auto request = parse_chat_request(body.dump(), {});
    if (!request.ok()) return request.error();
    return prepare_chat(*request, {.model = std::make_shared<const ModelEntry>(model_), .text = text, .max_model_len = max_model_len, .fallback_seed = 1, .now_unix_seconds = 0, .grammars = cache_});
  }
  static Json tools(Json more = Json::object()) {
    Json out = {{"tools", Json::parse(R"([{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{"type":"integer"}}}}}])")}};
    out.update(more);
    return out;
  }
  static const Grammar* grammar_of(const ApiResult<PreparedRequest>& prepared) {
    const GrammarRef& grammar = (*prepared).request.sampling.grammar;
    return grammar ? &*grammar : nullptr;
  }

  GrammarCache* cache_ = nullptr;
  ModelEntry model_{.id = ModelId(0), .name = "m", .max_model_len = 4000, .vocab_size = test::kVocab};
};

TEST_F(CallConstraintTest, AutoHoldsFromTheMarkerOnAndRequiredFromTheStart) {
  const auto automatic = chat("", tools());
  ASSERT_TRUE(automatic.ok()) << automatic.error().message;
  ASSERT_NE(grammar_of(automatic), nullptr);
  EXPECT_EQ(grammar_of(automatic)->triggers, std::vector<std::string>{"<tool_call>"});
  const auto required = chat("", tools({{"tool_choice", "required"}}));
  ASSERT_NE(grammar_of(required), nullptr);
  EXPECT_TRUE(grammar_of(required)->triggers.empty());
  EXPECT_EQ(grammar_of(chat("", tools({{"tool_choice", "none"}}))), nullptr);
  EXPECT_EQ(grammar_of(chat("", Json::object())), nullptr);
}

TEST_F(CallConstraintTest, WhereThePromptOpensTheReasoningWhatIsAskedForComesAfterIt) {
  const std::vector<std::string> after = {"</think>"};
  const auto required = chat("<think>\n", tools({{"tool_choice", "required"}}));
  EXPECT_TRUE((*required).answer.begins_in_reasoning());
  EXPECT_EQ(grammar_of(required)->triggers, after);
  EXPECT_EQ(grammar_of(chat("<think>\n", {{"response_format", {{"type", "json_object"}}}}))->triggers, after);
  EXPECT_TRUE(grammar_of(chat("<think>\n</think>", {{"response_format", {{"type", "json_object"}}}}))->triggers.empty());
}

TEST_F(CallConstraintTest, WhatAClientWritesOpensNoReasoning) {
  EXPECT_FALSE((*chat("", Json::object())).answer.begins_in_reasoning());
  EXPECT_FALSE((*chat("<think></think>", Json::object())).answer.begins_in_reasoning());
}

TEST_F(CallConstraintTest, AFormatThatCannotBeAskedForGivesWayToOneThatCan) {
  EXPECT_EQ(grammar_of(chat("", tools(), "gemma4")), nullptr);
  const auto required = chat("", tools({{"tool_choice", "required"}}), "gemma4");
  ASSERT_NE(grammar_of(required), nullptr);
  EXPECT_EQ((*required).answer.format.calls, &generic_calls());
}

TEST_F(CallConstraintTest, AStrictSchemaThatCannotBeFollowedIsTheClientsFault) {
  Json strict = tools();
  strict["tools"][0]["function"]["strict"] = true;
  strict["tools"][0]["function"]["parameters"]["properties"]["a"] = {{"not", Json::object()}};
  const auto refused = chat("", strict);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().param, "tools");
  strict["tools"][0]["function"]["strict"] = false;
  EXPECT_TRUE(chat("", strict).ok());
}

TEST_F(CallConstraintTest, SchemasThatAreTooMuchTogetherStandForAnyObject) {
  Json many = {{"tools", Json::array()}, {"tool_choice", "required"}};
  Json schema = {{"type", "object"}, {"properties", Json::object()}};
  for (int i = 0; i < 40; ++i) schema["properties"]["p" + std::to_string(i)] = {{"type", "array"}, {"maxItems", 60}, {"items", {{"type", "integer"}}}};
  for (int i = 0; i < 60; ++i) many["tools"].push_back({{"type", "function"}, {"function", {{"name", "f" + std::to_string(i)}, {"parameters", schema}}}});
  const auto prepared = chat("", many, "hermes", "none", 1 << 24);
  ASSERT_TRUE(prepared.ok()) << prepared.error().message;
  ASSERT_NE(grammar_of(prepared), nullptr);
  EXPECT_EQ(grammar_of(prepared)->gbnf.find("p39"), std::string::npos);
}

TEST_F(CallConstraintTest, AGrammarIsMadeOnceForTheSameTools) {
  GrammarCache cache;
  cache_ = &cache;
  const auto first = chat("", tools()), second = chat("", tools()), other = chat("", tools({{"tool_choice", "required"}}));
  EXPECT_EQ(grammar_of(first), grammar_of(second));
  EXPECT_NE(grammar_of(first), grammar_of(other));
}

}  // namespace
}  // namespace shoal
