#include "gateway/openai_request.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "absl/strings/str_split.h"
#include "base/json.h"
#include "gateway/fuzz_targets.h"
#include "gateway/other_fields.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

ApiResult<ChatRequest> chat(Json more) {
  Json body = {{"model", "m"}, {"messages", Json::array({{{"role", "user"}, {"content", "hi"}}})}};
  body.update(more);
  return parse_chat_request(body.dump(), {});
}

ApiResult<CompletionRequest> completion(Json more) {
  Json body = {{"model", "m"}, {"prompt", "hi"}};
  body.update(more);
  return parse_completion_request(body.dump(), {});
}

struct BadField {
  const char* json;
  const char* param;
};

TEST(ChatRequest, EveryKnownFieldOfWrongTypeOrRangeIsRefusedByName) {
  const BadField rows[] = {
      {R"({"temperature":"hot"})", "temperature"},
      {R"({"temperature":2.1})", "temperature"},
      {R"({"temperature":-0.1})", "temperature"},
      {R"({"top_p":1.5})", "top_p"},
      {R"({"top_k":-2})", "top_k"},
      {R"({"min_p":2})", "min_p"},
      {R"({"n":0})", "n"},
      {R"({"n":1000000000})", "n"},
      {R"({"n":1.5})", "n"},
      {R"({"max_tokens":-1})", "max_tokens"},
      {R"({"max_tokens":9223372036854775808})", "max_tokens"},
      {R"({"max_completion_tokens":"many"})", "max_completion_tokens"},
      {R"({"presence_penalty":3})", "presence_penalty"},
      {R"({"frequency_penalty":-3})", "frequency_penalty"},
      {R"({"repetition_penalty":0})", "repetition_penalty"},
      {R"({"seed":1.5})", "seed"},
      {R"({"seed":"x"})", "seed"},
      {R"({"stop":5})", "stop"},
      {R"({"stop":["a",5]})", "stop"},
      {R"({"logit_bias":[1]})", "logit_bias"},
      {R"({"logit_bias":{"foo":1}})", "logit_bias"},
      {R"({"logit_bias":{"1":101}})", "logit_bias"},
      {R"({"stream":"yes"})", "stream"},
      {R"({"stream_options":{"include_usage":1}})", "stream_options.include_usage"},
      {R"({"logprobs":2})", "logprobs"},
      {R"({"top_logprobs":3})", "top_logprobs"},
      {R"({"logprobs":true,"top_logprobs":21})", "top_logprobs"},
      {R"({"min_tokens":5,"max_tokens":4})", "min_tokens"},
      {R"({"stop_token_ids":[-1]})", "stop_token_ids"},
      {R"({"ignore_eos":"no"})", "ignore_eos"},
      {R"({"messages":[]})", "messages"},
      {R"({"messages":"hi"})", "messages"},
      {R"({"messages":["hi"]})", "messages.[0]"},
      {R"({"messages":[{"content":"hi"}]})", "messages.[0].role"},
      {R"({"messages":[{"role":"robot","content":"hi"}]})", "messages.[0].role"},
      {R"({"messages":[{"role":"user"}]})", "messages.[0].content"},
      {R"({"messages":[{"role":"user","content":7}]})", "messages.[0].content"},
      {R"({"messages":[{"role":"user","content":"x","images":["aGk="]}]})", "messages.[0].images"},
      {R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{}}]}]})", "messages.[0].content.[0]"},
      {R"({"messages":[{"role":"user","content":[{"type":"text"}]}]})", "messages.[0].content.[0]"},
      {R"({"chat_template_kwargs":3})", "chat_template_kwargs"},
      {R"({"continue_final_message":true,"add_generation_prompt":true})", "continue_final_message"},
      {R"({"model":7})", "model"},
      {R"({"model":""})", "model"},
      {R"({"response_format":{"type":"xml"}})", "response_format.type"},
      {R"({"tools":{}})", "tools"},
      {R"({"tools":["f"]})", "tools.[0]"},
      {R"({"tools":[{"type":"web_search"}]})", "tools.[0].type"},
      {R"({"tools":[{"type":"function"}]})", "tools.[0].function"},
      {R"({"tools":[{"type":"function","function":{}}]})", "tools.[0].function.name"},
      {R"({"tools":[{"type":"function","function":{"name":"a b"}}]})", "tools.[0].function.name"},
      {R"({"tools":[{"type":"function","function":{"name":"f","parameters":[]}}]})", "tools.[0].function.parameters"},
      {R"({"tools":[{"type":"function","function":{"name":"f","strict":1}}]})", "tools.[0].function.strict"},
      {R"({"tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"f"}}]})", "tools.[1].function.name"},
      {R"({"tool_choice":"required"})", "tool_choice"},
      {R"({"tool_choice":"must","tools":[{"type":"function","function":{"name":"f"}}]})", "tool_choice"},
      {R"({"tool_choice":{"type":"function"},"tools":[{"type":"function","function":{"name":"f"}}]})", "tool_choice"},
      {R"({"tool_choice":{"type":"function","function":{"name":"g"}},"tools":[{"type":"function","function":{"name":"f"}}]})", "tool_choice"},
      {R"({"parallel_tool_calls":1})", "parallel_tool_calls"},
      {R"({"functions":[{"name":"f"}]})", "functions"},
      {R"({"messages":[{"role":"assistant","content":"x","function_call":{}}]})", "messages.[0].function_call"},
      {R"({"messages":[{"role":"assistant","tool_calls":3}]})", "messages.[0].tool_calls"},
      {R"({"messages":[{"role":"user","content":"x","tool_calls":[{}]}]})", "messages.[0].tool_calls"},
      {R"({"messages":[{"role":"assistant","tool_calls":[3]}]})", "messages.[0].tool_calls.[0]"},
      {R"({"messages":[{"role":"assistant","tool_calls":[{}]}]})", "messages.[0].tool_calls.[0].function"},
      {R"({"messages":[{"role":"assistant","tool_calls":[{"function":{"arguments":"{}"}}]}]})", "messages.[0].tool_calls.[0].function.name"},
      {R"({"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{"}}]}]})", "messages.[0].tool_calls.[0].function.arguments"},
      {R"({"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"[]"}}]}]})", "messages.[0].tool_calls.[0].function.arguments"},
      {R"({"messages":[{"role":"tool","content":"x","tool_call_id":3}]})", "messages.[0].tool_call_id"},
      {R"({"messages":[{"role":"assistant","content":"x","reasoning_content":3}]})", "messages.[0].reasoning_content"},
      {R"({"reasoning_effort":"huge"})", "reasoning_effort"},
      {R"({"reasoning_format":"x"})", "reasoning_format"},
      {R"({"include_reasoning":"no"})", "include_reasoning"},
      {R"({"chat_template":"{{ x }}"})", "chat_template"},
  };
  for (const BadField& row : rows) {
    const auto result = chat(Json::parse(row.json));
    ASSERT_FALSE(result.ok()) << row.json;
    EXPECT_EQ(result.error().http_status, 400) << row.json;
    EXPECT_EQ(result.error().param, row.param) << row.json;
    EXPECT_EQ(result.error().type, "invalid_request_error");
    EXPECT_NE(result.error().message.find(row.param), std::string::npos) << result.error().message;
  }
}

TEST(ChatRequest, UnknownFieldsAreIgnoredAndNullMeansAbsent) {
  const auto result = chat({{"store", false}, {"metadata", {{"a", 1}}}, {"x_my_own", 3}, {"temperature", nullptr}, {"stop", nullptr},
                            {"tools", Json::array()}, {"response_format", {{"type", "text"}}}});
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_FALSE((*result).common.temperature.has_value());
}

TEST(ChatRequest, WhatWouldChangeTheAnswerAndIsNotServedIsRefusedByName) {
  for (const UnservedField& field : unserved_fields()) {
    const std::string name(field.name);
    if (name == "messages" || name == "tools" || name == "tool_choice" || name == "reasoning_effort" || name == "top_logprobs") continue;
    const auto asked = chat({{name, {{"something", 1}}}});
    ASSERT_FALSE(asked.ok()) << name;
    EXPECT_EQ(asked.error().param, name);
    EXPECT_EQ(asked.error().code, "unsupported_value");
    for (const Json& nothing : {Json(nullptr), Json(""), Json::array(), Json::object()}) EXPECT_TRUE(chat({{name, nothing}}).ok()) << name;
    for (const absl::string_view text : absl::StrSplit(std::string(field.harmless), ' ', absl::SkipEmpty())) {
      EXPECT_TRUE(chat({{name, Json::parse(std::string(text))}}).ok()) << name << " " << text;
    }
  }
  for (const char* name : {"messages", "tools", "tool_choice", "reasoning_effort", "top_logprobs"}) {
    const auto asked = completion({{name, {{"something", 1}}}});
    ASSERT_FALSE(asked.ok()) << name;
    EXPECT_EQ(asked.error().param, name);
  }
  EXPECT_EQ(completion({{"service_tier", "flex"}}).error().param, "service_tier");
  EXPECT_TRUE(completion({{"service_tier", "auto"}, {"store", false}, {"use_beam_search", false}, {"length_penalty", 1}}).ok());
}

TEST(ChatRequest, AMisspeltFieldIsRefusedWithTheNameThatWasMeant) {
  const std::pair<const char*, const char*> rows[] = {{"temprature", "temperature"}, {"max_token", "max_tokens"}, {"maxTokens", "max_tokens"},
                                                      {"top-p", "top_p"}, {"stopp", "stop"}, {"repetition_penality", "repetition_penalty"},
                                                      {"reponse_format", "response_format"}, {"guided_jsn", "guided_json"}, {"Stream", "stream"}};
  for (const auto& [given, meant] : rows) {
    const auto result = chat({{given, 1}});
    ASSERT_FALSE(result.ok()) << given;
    EXPECT_EQ(result.error().param, given);
    EXPECT_NE(result.error().message.find(std::string("'") + meant + "'"), std::string::npos) << result.error().message;
  }
}

TEST(ChatRequest, MisspeltFieldsWithinObjectsAndOfTokenizeAreNamedToo) {
  EXPECT_EQ(chat({{"stream", true}, {"stream_options", {{"include_usages", true}}}}).error().param, "stream_options.include_usages");
  EXPECT_TRUE(chat({{"stream", true}, {"stream_options", {{"continuous_usage_stats", true}}}}).ok());
  EXPECT_EQ(chat({{"slo", {{"ttft_mss", 5}}}}).error().param, "slo.ttft_mss");
  EXPECT_EQ(parse_tokenize_request(R"({"prompt":"x","add_special_token":false})", {}).error().param, "add_special_token");
  EXPECT_TRUE(parse_tokenize_request(R"({"prompt":"x","temperature":0,"store":true})", {}).ok()) << "nothing is generated";
  EXPECT_EQ(parse_detokenize_request(R"({"tokens":[1],"modell":"x"})").error().param, "modell");
}

TEST(ChatRequest, WhatClientsSendByHabitIsIgnored) {
  for (const std::string_view name : ignored_fields()) EXPECT_TRUE(chat({{std::string(name), {{"any", "thing"}}}}).ok()) << name;
  for (const char* other : {"x", "k", "tags", "my_extension", "trace", "n_gpu"}) EXPECT_TRUE(chat({{other, 1}}).ok()) << other;
}

TEST(ChatRequest, TheTableOfFieldsIsInTheDocuments) {
  const std::string docs = *read_file(std::string(SHOAL_SOURCE_DIR) + "/docs/FIELDS.md", 1 << 20);
  for (const UnservedField& field : unserved_fields()) EXPECT_NE(docs.find("`" + std::string(field.name) + "`"), std::string::npos) << field.name;
  for (const std::string_view name : ignored_fields()) EXPECT_NE(docs.find("`" + std::string(name) + "`"), std::string::npos) << name;
}

TEST(ChatRequest, OtherWaysToSampleAreRead) {
  const auto result = chat({{"typical_p", 0.5}, {"xtc_probability", 0.25}, {"dry_multiplier", 0.8}, {"dry_penalty_last_n", 64},
                            {"dry_sequence_breakers", {"a", ""}}, {"mirostat", 2}, {"mirostat_tau", 4}, {"allowed_token_ids", {7, 3}},
                            {"bad_words", {"no"}}, {"top_n_sigma", -1}, {"prompt_logprobs", 2}});
  ASSERT_TRUE(result.ok()) << result.error().message;
  const SamplingExtensions& sampling = (*result).common.sampling;
  EXPECT_EQ(sampling.dry.window, 64u);
  EXPECT_EQ(sampling.dry_breakers, std::vector<std::string>{"a"});
  EXPECT_EQ(sampling.allowed_ids, (std::vector<TokenId>{3, 7}));
  EXPECT_EQ(sampling.top_n_sigma, 0.0f);
  EXPECT_EQ((*result).common.prompt_logprobs, 2u);
  EXPECT_EQ(chat({{"allowed_token_ids", Json::array()}}).error().param, "allowed_token_ids");
  EXPECT_EQ(chat({{"mirostat", 3}}).error().param, "mirostat");
  EXPECT_EQ(chat({{"prompt_logprobs", 1}, {"stream", true}}).error().param, "prompt_logprobs");
}

TEST(ChatRequest, TheNewerSpellingOfMaxTokensWins) {
  EXPECT_EQ((*chat({{"max_tokens", 5}})).common.max_tokens, 5u);
  EXPECT_EQ((*chat({{"max_tokens", 5}, {"max_completion_tokens", 7}})).common.max_tokens, 7u);
  EXPECT_FALSE((*chat(Json::object())).common.max_tokens.has_value());
}

TEST(ChatRequest, AnyInt64IsASeed) {
  EXPECT_EQ((*chat({{"seed", INT64_MIN}})).common.seed, INT64_MIN);
  EXPECT_EQ((*chat({{"seed", INT64_MAX}})).common.seed, INT64_MAX);
  EXPECT_EQ((*chat({{"seed", UINT64_MAX}})).common.seed, -1);
}

TEST(ChatRequest, TextPartsBecomeOneTextAndToolArgumentsAnObject) {
  const auto result = chat({{"messages", Json::parse(R"([
      {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
      {"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}}]},
      {"role":"tool","content":"3","tool_call_id":"1"}])")}});
  ASSERT_TRUE(result.ok()) << result.error().message;
  const OrderedJson& messages = *(*result).prompt.messages;
  EXPECT_EQ(messages[0]["content"], "a\nb");
  EXPECT_TRUE(messages[1]["content"].is_null());
  EXPECT_EQ(messages[1]["tool_calls"][0]["function"]["arguments"]["x"], 1);
}

TEST(ChatRequest, BodiesThatAreNotJsonObjectsAreInvalidJson) {
  for (const char* body : {"", "{", "[]", "null", "{\"a\":1,\"a\":2}", "{\"a\":1e999}", "\xff"}) {
    const auto result = parse_chat_request(body, {});
    ASSERT_FALSE(result.ok()) << body;
    EXPECT_EQ(result.error().code, "invalid_json") << body;
  }
  const auto deep = parse_chat_request(std::string(100'000, '[') + std::string(100'000, ']'), {});
  EXPECT_EQ(deep.error().code, "invalid_json");
}

TEST(CompletionRequest, PromptMayBeTextTextsIdsOrListsOfIds) {
  EXPECT_EQ((*completion({{"prompt", "x"}})).prompts.size(), 1u);
  EXPECT_EQ((*completion({{"prompt", {"x", "y"}}})).prompts.size(), 2u);
  const auto ids = completion({{"prompt", {1, 2, 3}}});
  EXPECT_EQ(std::get<std::vector<TokenId>>((*ids).prompts[0]), (std::vector<TokenId>{1, 2, 3}));
  const auto lists = completion({{"prompt", Json::parse("[[1,2],[3]]")}});
  ASSERT_EQ((*lists).prompts.size(), 2u);
  EXPECT_EQ(std::get<std::vector<TokenId>>((*lists).prompts[1]), (std::vector<TokenId>{3}));
}

TEST(CompletionRequest, BadPromptsAreRefusedByPlace) {
  const BadField rows[] = {{R"({"prompt":null})", "prompt"},    {R"({"prompt":[]})", "prompt"},
                           {R"({"prompt":[1,"x"]})", "prompt"}, {R"({"prompt":["x",3]})", "prompt[1]"},
                           {R"({"prompt":[[1],[-4]]})", "prompt[1]"}, {R"({"prompt":{"a":1}})", "prompt"},
                           {R"({"logprobs":21})", "logprobs"},  {R"({"best_of":2})", "best_of"},
                           {R"({"suffix":"x"})", "suffix"},     {R"({"echo":1})", "echo"}};
  for (const BadField& row : rows) {
    const auto result = completion(Json::parse(row.json));
    ASSERT_FALSE(result.ok()) << row.json;
    EXPECT_EQ(result.error().param, row.param) << row.json;
  }
}

TEST(CompletionRequest, PromptsTimesChoicesIsBounded) {
  const auto result = completion({{"prompt", Json(std::vector<std::string>(100, "x"))}, {"n", 100}});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().param, "n");
}

TEST(CompletionRequest, SixteenTokensUnlessToldOtherwise) {
  EXPECT_EQ((*completion(Json::object())).common.max_tokens, 16u);
  EXPECT_EQ((*completion({{"max_tokens", 0}})).common.max_tokens, 0u);
}

// The fuzzer's seeds: "ok_*" are taken by an endpoint, "bad_*" by none.
TEST(RequestCorpus, EveryFileIsJudgedRightly) {
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(SHOAL_SOURCE_DIR "/tests/corpus/request")) {
    const auto body = read_file(entry.path(), 1 << 20);
    ASSERT_TRUE(body.ok()) << body.status();
    EXPECT_EQ(fuzz::request(*body), entry.path().filename().string().starts_with("ok_")) << entry.path();
    ++files;
  }
  EXPECT_GE(files, 10u);
}

}  // namespace
}  // namespace shoal
