// Tools and reasoning over real sockets, with a node that answers with what a model would write.
#include <gtest/gtest.h>

#include "gateway/test_support.h"
#include "gateway/tool_fields.h"

namespace shoal {
namespace {

using test::post;
using test::Reply;
using test::says;
using test::World;

const char* const kCalls =
    "I look. <tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bérn\"}}\n</tool_call>\n"
    "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>";

Json tools() {
  return Json::parse(R"([{"type":"function","function":{"name":"get_weather","parameters":{"type":"object","properties":
                         {"city":{"type":"string"}}}}},{"type":"function","function":{"name":"now"}}])");
}

Json body(Json more, const char* model = "tiny") {
  Json out = {{"model", model}, {"messages", Json::array({{{"role", "user"}, {"content", "hi"}}})}};
  out.update(more);
  return out;
}

// What the deltas of one choice say together, as a message.
Json joined(const Reply& reply, size_t index = 0) {
  Json message = {{"role", "assistant"}, {"content", ""}, {"refusal", nullptr}};
  std::string finish;
  for (const Json& event : reply.events()) {
    if (!event.is_object() || event["choices"].empty() || event["choices"][0]["index"] != index) continue;
    const Json& choice = event["choices"][0];
    if (choice["finish_reason"].is_string()) finish = choice["finish_reason"];
    const Json& delta = choice["delta"];
    message["content"] = message["content"].get<std::string>() + delta.value("content", "");
    for (const char* key : {"reasoning_content", "reasoning"}) {
      if (delta.contains(key)) message[key] = message.value(key, "") + delta[key].get<std::string>();
    }
    for (const Json& call : delta.value("tool_calls", Json::array())) {
      EXPECT_EQ(delta["tool_calls"].size(), 1u);
      if (call.contains("id")) {
        EXPECT_EQ(call["index"], message.value("tool_calls", Json::array()).size());
        EXPECT_EQ(call["function"]["arguments"], "");
        EXPECT_EQ(call["type"], "function");
        message["tool_calls"].push_back({{"id", call["id"]}, {"type", "function"}, {"function", call["function"]}});
      } else {
        EXPECT_EQ(call.size(), 2u) << call;
        EXPECT_EQ(call["function"].size(), 1u) << call;
        Json& arguments = message["tool_calls"][call["index"].get<size_t>()]["function"]["arguments"];
        arguments = arguments.get<std::string>() + call["function"]["arguments"].get<std::string>();
      }
    }
  }
  message["finish_reason"] = finish;
  return message;
}

Json without_ids(Json message) {
  for (Json& call : message["tool_calls"]) call.erase("id");
  return message;
}

TEST(Tools, CallsAreInTheMessageAndStreamedTheSame) {
  World world(says(kCalls));
  const Json whole = post(world, "/v1/chat/completions", body({{"tools", tools()}})).json()["choices"][0];
  EXPECT_EQ(whole["finish_reason"], "tool_calls");
  EXPECT_EQ(whole["message"]["content"], "I look.");
  const Json& calls = whole["message"]["tool_calls"];
  ASSERT_EQ(calls.size(), 2u) << whole;
  EXPECT_EQ(calls[0]["function"], (Json{{"name", "get_weather"}, {"arguments", "{\"city\": \"Bérn\"}"}}));
  EXPECT_EQ(calls[1]["function"], (Json{{"name", "now"}, {"arguments", "{}"}}));
  EXPECT_EQ(calls[0]["id"].get<std::string>().rfind("call_", 0), 0u);
  EXPECT_NE(calls[0]["id"], calls[1]["id"]);

  Json streamed = joined(post(world, "/v1/chat/completions", body({{"tools", tools()}, {"stream", true}})));
  EXPECT_EQ(streamed["finish_reason"], "tool_calls");
  streamed.erase("finish_reason");
  EXPECT_EQ(without_ids(streamed), without_ids(whole["message"]));
}

TEST(Tools, ChoicesOfOneAnswerHaveCallsOfTheirOwn) {
  World world(says(kCalls));
  const Reply reply = post(world, "/v1/chat/completions", body({{"tools", tools()}, {"stream", true}, {"n", 3}}));
  std::set<std::string> ids;
  for (size_t i = 0; i < 3; ++i) {
    const Json message = joined(reply, i);
    ASSERT_EQ(message["tool_calls"].size(), 2u);
    for (const Json& call : message["tool_calls"]) ids.insert(call["id"].get<std::string>());
  }
  EXPECT_EQ(ids.size(), 6u);
}

TEST(Tools, AMessageOfCallsAloneHasNoContent) {
  World world(says("<tool_call>{\"name\": \"now\"}</tool_call>"));
  const Json message = post(world, "/v1/chat/completions", body({{"tools", tools()}})).json()["choices"][0]["message"];
  EXPECT_TRUE(message["content"].is_null()) << message;
}

TEST(Tools, WithoutToolsOrWithChoiceNoneTheTextIsContent) {
  World world(says(kCalls));
  for (const Json& more : {Json::object(), Json{{"tools", tools()}, {"tool_choice", "none"}}}) {
    const Json choice = post(world, "/v1/chat/completions", body(more)).json()["choices"][0];
    EXPECT_EQ(choice["message"]["content"], kCalls);
    EXPECT_EQ(choice["finish_reason"], "stop");
  }
}

TEST(Tools, ALimitOrAStopStringWithinACallIsALengthFinishWithWhatThereIs) {
  World world(says(kCalls));
  for (const Json& more : {Json{{"max_tokens", 80}}, Json{{"stop", "rn\""}}}) {
    Json fields = more;
    fields["tools"] = tools();
    const Json choice = post(world, "/v1/chat/completions", body(fields)).json()["choices"][0];
    EXPECT_EQ(choice["finish_reason"], "length") << choice;
    ASSERT_EQ(choice["message"]["tool_calls"].size(), 1u) << choice;
    EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["arguments"].get<std::string>().rfind("{\"city\": \"B", 0), 0u);
  }
}

TEST(Reasoning, IsAFieldOfItsOwnAndCounted) {
  World world(says("<think>\nHm.\n</think>\n\nYes."));
  const Json reply = post(world, "/v1/chat/completions", body(Json::object(), "org/other")).json();
  const Json& message = reply["choices"][0]["message"];
  EXPECT_EQ(message["content"], "Yes.");
  EXPECT_EQ(message["reasoning_content"], "Hm.");
  EXPECT_EQ(message["reasoning"], "Hm.");
  EXPECT_GT(reply["usage"]["completion_tokens_details"]["reasoning_tokens"], 3);
  Json streamed = joined(post(world, "/v1/chat/completions", body({{"stream", true}}, "org/other")));
  EXPECT_EQ(streamed["finish_reason"], "stop");
  streamed.erase("finish_reason");
  EXPECT_EQ(streamed, message);
}

TEST(Reasoning, CanBeLeftOutOrLeftInTheContent) {
  World world(says("<think>Hm.</think>Yes."));
  Json message = post(world, "/v1/chat/completions", body({{"include_reasoning", false}}, "org/other")).json()["choices"][0]["message"];
  EXPECT_EQ(message["content"], "Yes.");
  EXPECT_FALSE(message.contains("reasoning_content"));
  message = post(world, "/v1/chat/completions", body({{"reasoning_format", "none"}}, "org/other")).json()["choices"][0]["message"];
  EXPECT_EQ(message["content"], "<think>Hm.</think>Yes.");
}

TEST(Reasoning, LogprobsOfAllTokensComeInOrder) {
  World world(says("<think>a</think>b"));
  const Json plain = post(world, "/v1/chat/completions", body({{"logprobs", true}}, "org/other")).json()["choices"][0];
  const Reply streamed = post(world, "/v1/chat/completions", body({{"logprobs", true}, {"stream", true}}, "org/other"));
  Json pieces = Json::array();
  for (const Json& event : streamed.events()) {
    if (!event.is_object() || event["choices"].empty() || !event["choices"][0]["logprobs"].is_object()) continue;
    for (const Json& piece : event["choices"][0]["logprobs"]["content"]) pieces.push_back(piece);
  }
  EXPECT_EQ(pieces, plain["logprobs"]["content"]);
  EXPECT_EQ(pieces.size(), 17u);
}

TEST(ApplyTemplate, GivesThePromptThatChatsAndTokenizeUse) {
  World world(says("x"));
  const Json prompt = post(world, "/apply-template", body(Json::object())).json();
  EXPECT_EQ(prompt, (Json{{"prompt", "user: hi\nassistant:"}}));
  EXPECT_EQ(post(world, "/tokenize", body(Json::object())).json()["count"], prompt["prompt"].get<std::string>().size());
  EXPECT_EQ(post(world, "/apply-template", {{"model", "tiny"}, {"prompt", "x"}}).status, 400);
}

}  // namespace
}  // namespace shoal
