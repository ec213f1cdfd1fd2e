#include "gateway/prepare.h"

#include <gtest/gtest.h>

#include "gateway/test_support.h"

namespace shoal {
namespace {

class PrepareTest : public testing::Test {
 protected:
  PrepareTest() : model_(test::World::entry(0, "tiny")), text_(*test::World::load_text(model_)) {}

  PrepareContext context() const {
    return {.model = std::make_shared<const ModelEntry>(model_), .text = text_, .max_model_len = 100, .fallback_seed = 77, .now_unix_seconds = 0};
  }
  ApiResult<PreparedRequest> chat(Json more) const {
    Json body = {{"model", "m"}, {"messages", Json::array({{{"role", "user"}, {"content", "hi"}}})}};
    body.update(more);
    return prepare_chat(*parse_chat_request(body.dump(), {}), context());
  }
  ApiResult<PreparedRequest> completion(Json more) const {
    Json body = {{"model", "m"}, {"prompt", "hi"}};
    body.update(more);
    return prepare_completion(*parse_completion_request(body.dump(), {}), context());
  }

  ModelEntry model_;
  std::shared_ptr<const ModelText> text_;
};

TEST_F(PrepareTest, TheModelsDefaultsFillWhatTheRequestLeavesOpen) {
  model_.defaults = {.temperature = 0.6f, .top_p = 0.9f, .top_k = 20u, .repetition_penalty = 1.1f, .max_new_tokens = 30u};
  const auto silent = chat(Json::object());
  const SamplingParams& sampling = (*silent).request.sampling;
  EXPECT_FLOAT_EQ(sampling.temperature, 0.6f);
  EXPECT_FLOAT_EQ(sampling.top_p, 0.9f);
  EXPECT_EQ(sampling.top_k, 20u);
  EXPECT_FLOAT_EQ(sampling.repetition_penalty, 1.1f);
  EXPECT_EQ(sampling.seed, 77u);
  EXPECT_EQ((*silent).request.max_tokens, 30u);
  const auto loud = chat({{"temperature", 0}, {"top_p", 1}, {"top_k", -1}, {"max_tokens", 40}, {"seed", 5}});
  EXPECT_FLOAT_EQ((*loud).request.sampling.temperature, 0.0f);
  EXPECT_EQ((*loud).request.sampling.top_k, 0u);
  EXPECT_EQ((*loud).request.sampling.seed, 5u);
  EXPECT_EQ((*loud).request.max_tokens, 40u);
}

TEST_F(PrepareTest, BadWordsAndBreakersBecomeTokens) {
  const auto prepared = chat({{"bad_words", {"hi"}}, {"dry_multiplier", 1}, {"dry_sequence_breakers", {"\n"}}, {"allowed_token_ids", {1, 2}}});
  ASSERT_TRUE(prepared.ok()) << prepared.error().message;
  const TokenRules& rules = *(*prepared).request.sampling.rules;
  EXPECT_EQ(rules.allowed, (std::vector<TokenId>{1, 2}));
  ASSERT_FALSE(rules.bad_words.empty());
  EXPECT_EQ(text_->tokenizer->decode(rules.bad_words.front(), false), "hi");
  ASSERT_FALSE(rules.dry_breakers.empty());
  for (const auto& breaker : rules.dry_breakers) EXPECT_NE(text_->tokenizer->decode(breaker, false).find('\n'), std::string::npos);
  EXPECT_FALSE((*chat(Json::object())).request.sampling.rules);
  EXPECT_EQ(chat({{"allowed_token_ids", {1, 1 << 30}}}).error().param, "allowed_token_ids");
}

TEST(RenderChat, KeysReachTheTemplateInTheClientsOrder) {
  const auto request = parse_chat_request(
      R"({"model":"m","messages":[{"role":"assistant","content":"","tool_calls":[{"type":"function","id":"c1","function":
      {"name":"f","arguments":"{\"z\":1,\"a\":{\"y\":2,\"b\":3}}"}}]}],"chat_template_kwargs":{"k":{"z":1,"a":2}}})", {});
  ASSERT_TRUE(request.ok()) << request.error().message;
  ModelText text;
  text.traits.tools = text.traits.tool_calls = true;
  text.chat_template = *ChatTemplate::parse("{{ messages[0].tool_calls[0].function.arguments|tojson }} {{ k|tojson }}");
  const auto parts = render_chat((*request).prompt, text, 0);
  ASSERT_TRUE(parts.ok());
  EXPECT_EQ(join(*parts), R"({"z": 1, "a": {"y": 2, "b": 3}} {"z": 1, "a": 2})");
}

TEST(RenderChat, WhatAClientWritesIntoTemplateVariablesIsNotTheTemplatesOwnText) {
  ModelText text;
  text.chat_template = *ChatTemplate::parse("{{ bos_token }}{{ style }}");
  text.template_variables = {{"bos_token", "<s>"}};
  const Json messages = Json::array({{{"role", "user"}, {"content", "hi"}}});
  const auto variables = std::make_shared<OrderedJson>(OrderedJson{{"style", "</s>"}});
  const ChatPrompt prompt{.messages = std::make_shared<OrderedJson>(messages), .variables = variables};
  const auto parts = render_chat(prompt, text, 0);
  ASSERT_TRUE(parts.ok());
  for (const TextPart& part : *parts) EXPECT_EQ(part.trusted, part.text == "<s>") << part.text;
  EXPECT_EQ(join(*parts), "<s></s>");
}

TEST_F(PrepareTest, WithoutALimitTheAnswerMayFillTheContext) {
  EXPECT_EQ((*chat(Json::object())).request.max_tokens, 100u - 19u);
}

TEST_F(PrepareTest, PromptAndAnswerMustFitTogether) {
  EXPECT_TRUE(completion({{"prompt", std::string(98, 'x')}, {"max_tokens", 1}}).ok());  // and the first token
  for (const auto& [length, max_tokens] : {std::pair(99, 1), std::pair(50, 50), std::pair(200, 1), std::pair(1, INT32_MAX)}) {
    const auto result = completion({{"prompt", std::string(static_cast<size_t>(length), 'x')}, {"max_tokens", max_tokens}});
    ASSERT_FALSE(result.ok()) << length << "+" << max_tokens;
    EXPECT_EQ(result.error().code, "context_length_exceeded");
    EXPECT_EQ(result.error().n_prompt_tokens, length + 1);
  }
}

// Counts what it is made to tokenise. No token of it has more than 4 bytes, as far as anybody is told.
class CountingTokenizer : public test::ByteTokenizer {
 public:
  using ByteTokenizer::encode;
  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options) const override {
    std::vector<TokenId> ids = ByteTokenizer::encode(text, options);
    encoded += ids.size();
    return ids;
  }
  uint64_t tokens_min(uint64_t bytes) const override { return bounded ? bytes / 4 : 0; }

  bool bounded = true;
  mutable size_t encoded = 0;
};

TEST_F(PrepareTest, WhatNoContextCanHoldIsNotTokenisedToItsEnd) {
  auto owned = std::make_unique<CountingTokenizer>();
  CountingTokenizer* const counting = owned.get();
  std::const_pointer_cast<ModelText>(text_)->tokenizer = std::move(owned);
  const std::string huge(100'000, 'x');
  const Json messages = Json::array({{{"role", "user"}, {"content", huge}}});
  for (const bool bounded : {true, false}) {
    counting->bounded = bounded;
    for (const auto& result : {chat({{"messages", messages}}), completion({{"prompt", huge}}), completion({{"prompt", {huge, "hi"}}})}) {
      ASSERT_FALSE(result.ok());
      EXPECT_EQ(result.error().code, "context_length_exceeded");
      EXPECT_TRUE(result.error().message.starts_with("This model's maximum context length is 100 tokens. However, your prompt has at least "))
          << result.error().message;
      EXPECT_GE(result.error().n_prompt_tokens, bounded ? 25'000u : 201u);
    }
  }
  counting->encoded = 0, counting->bounded = true;
  (void)completion({{"prompt", huge}});
  EXPECT_EQ(counting->encoded, 0u) << "its bytes alone are too many";
  counting->bounded = false;
  (void)completion({{"prompt", huge}});
  EXPECT_LE(counting->encoded, 202u) << "the context twice over";
}

TEST_F(PrepareTest, EndOfSequenceStopsUnlessIgnored) {
  EXPECT_EQ((*chat({{"stop_token_ids", {7}}})).request.stop_ids, (std::vector<TokenId>{7, test::kEos}));
  EXPECT_EQ((*chat({{"stop_token_ids", {7}}, {"ignore_eos", true}})).request.stop_ids, (std::vector<TokenId>{7}));
}

TEST_F(PrepareTest, ScoringAsksForOneTokenAndForThePromptsOwn) {
  const auto result = completion({{"max_tokens", 0}, {"echo", true}, {"logprobs", 3}});
  EXPECT_EQ((*result).request.max_tokens, 1u);
  EXPECT_EQ((*result).request.prompt_logprobs, 3u);
  EXPECT_TRUE((*result).output.score_only);
}

TEST_F(PrepareTest, DeveloperBecomesSystemForTemplatesThatDoNotKnowIt) {
  const Json messages = Json::array({{{"role", "developer"}, {"content", "x"}}});
  const auto result = chat({{"messages", messages}});
  EXPECT_EQ((*result).prompts[0].ids, test::bytes_of("system: x\nassistant:"));
}

TEST_F(PrepareTest, AMessageThatTheTemplateDropsCannotBeContinued) {
  const Json messages = Json::array({{{"role", "assistant"}, {"content", "  "}}});
  const auto result = chat({{"messages", messages}, {"continue_final_message", true}});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().param, "continue_final_message");
}

TEST_F(PrepareTest, WithoutAChatTemplateChatIsRefusedWithTheReason) {
  auto text = std::make_shared<ModelText>();
  text->tokenizer = std::make_unique<test::ByteTokenizer>();
  text->chat_template_problem = "line 3: unexpected '%'";
  text_ = text;
  const auto result = chat(Json::object());
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.error().message.find("line 3"), std::string::npos);
}

}  // namespace
}  // namespace shoal
