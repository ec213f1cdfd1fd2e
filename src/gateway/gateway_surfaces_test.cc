// The interfaces beside OpenAI's chats over real sockets, with a node that answers with what a model would write.
#include <gtest/gtest.h>

#include "gateway/surfaces/messages_request.h"
#include "gateway/surfaces/response_store.h"
#include "gateway/surfaces/responses_request.h"
#include "gateway/test_support.h"

namespace shoal {
namespace {

using test::ask;
using test::http_get;
using test::http_post;
using test::post;
using test::Reply;
using test::says;
using test::World;

const char* const kThinks = "<think>Where?</think>I look. <tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\"}}</tool_call>";
const char* const kReasoner = "org/other";

Json user(const char* text) { return {{"role", "user"}, {"content", text}}; }

Json message_body(Json more, const char* model = "tiny") {
  Json out = {{"model", model}, {"max_tokens", 150}, {"messages", Json::array({user("hi")})}};
  out.update(more);
  return out;
}

Json messages_tools() {
  return Json::parse(R"([{"name":"get_weather","input_schema":{"type":"object","properties":{"city":{"type":"string"}}}},
                         {"type":"web_search_20250305","name":"web_search"}])");
}

Json response_tools() {
  return Json::parse(R"([{"type":"function","name":"get_weather","parameters":{"type":"object","properties":{"city":{"type":"string"}}}},
                         {"type":"web_search"}])");
}

// Events with names, as (name, data).
std::vector<std::pair<std::string, Json>> named_events(const Reply& reply) {
  std::vector<std::pair<std::string, Json>> out;
  for (size_t at = 0; at < reply.body.size();) {
    const size_t end = reply.body.find("\n\n", at);
    const std::string event = reply.body.substr(at, end - at);
    at = end == std::string::npos ? reply.body.size() : end + 2;
    const size_t data = event.find("\ndata: ");
    if (event.rfind("event: ", 0) == 0 && data != std::string::npos) out.emplace_back(event.substr(7, data - 7), Json::parse(event.substr(data + 7)));
  }
  return out;
}

std::vector<std::string> names(const std::vector<std::pair<std::string, Json>>& events, const std::string& but = "") {
  std::vector<std::string> out;
  for (const auto& [name, data] : events) {
    EXPECT_EQ(data["type"], name);
    const bool repeated = !out.empty() && out.back() == name && name.ends_with("delta");
    if (name != but && !repeated) out.push_back(name);
  }
  return out;
}

// ---- Anthropic's --------------------------------------------------------------------------------------------------------------

TEST(Messages, BlocksAreTypedAndOrderedAndStreamedTheSame) {
  World world(says(kThinks));
  const Json whole = post(world, "/v1/messages", message_body({{"tools", messages_tools()}}, kReasoner)).json();
  EXPECT_EQ(whole["type"], "message");
  EXPECT_EQ(whole["stop_reason"], "tool_use");
  ASSERT_EQ(whole["content"].size(), 3u) << whole;
  EXPECT_EQ(whole["content"][0]["thinking"], "Where?");
  EXPECT_EQ(whole["content"][1], (Json{{"type", "text"}, {"text", "I look."}}));
  EXPECT_EQ(whole["content"][2]["input"], (Json{{"city", "Bern"}}));

  const auto events = named_events(post(world, "/v1/messages", message_body({{"tools", messages_tools()}, {"stream", true}}, kReasoner)));
  Json built;
  for (const auto& [name, data] : events) {
    if (name == "content_block_start") {
      EXPECT_EQ(data["index"], built.size());
      built.push_back(data["content_block"]);
      built.back()["input"] = "";
    } else if (name == "content_block_delta") {
      Json& block = built[data["index"].get<size_t>()];
      for (const char* key : {"text", "thinking", "signature"}) {
        if (data["delta"].contains(key)) block[key] = block.value(key, "") + data["delta"][key].get<std::string>();
      }
      if (data["delta"].contains("partial_json")) block["input"] = block.value("input", "") + data["delta"]["partial_json"].get<std::string>();
    }
  }
  ASSERT_EQ(built.size(), 3u);
  EXPECT_EQ(built[0]["thinking"], "Where?");
  EXPECT_EQ(built[0]["signature"], whole["content"][0]["signature"]);
  EXPECT_EQ(built[1]["text"], "I look.");
  EXPECT_EQ(Json::parse(built[2]["input"].get<std::string>()), whole["content"][2]["input"]);
  EXPECT_EQ(names(events), (std::vector<std::string>{"message_start", "content_block_start", "content_block_delta", "content_block_stop", "content_block_start",
                                                     "content_block_delta", "content_block_stop", "content_block_start", "content_block_delta",
                                                     "content_block_stop", "message_delta", "message_stop"}));
  const Json& last = events[events.size() - 2].second;
  EXPECT_EQ(last["delta"]["stop_reason"], "tool_use");
  EXPECT_EQ(last["usage"]["output_tokens"], whole["usage"]["output_tokens"]);
}

TEST(Messages, StopReasonsSayWhatEndedTheAnswer) {
  World world(says("one two three"));
  const auto reason = [&](Json more) {
    const Json reply = post(world, "/v1/messages", message_body(std::move(more))).json();
    return reply["stop_reason"].get<std::string>() + "/" + reply["stop_sequence"].dump() + "/" + reply["content"][0]["text"].get<std::string>();
  };
  EXPECT_EQ(reason(Json::object()), "end_turn/null/one two three");
  EXPECT_EQ(reason({{"max_tokens", 3}}), "max_tokens/null/one");
  EXPECT_EQ(reason({{"stop_sequences", {"two"}}}), "stop_sequence/\"two\"/one ");
  World talker(says(std::string(400, 'x')));  // the context of 200 tokens ends before max_tokens
  const Json cut = post(talker, "/v1/messages", message_body({{"max_tokens", 100'000}})).json();
  EXPECT_EQ(cut["stop_reason"], "model_context_window_exceeded");
}

TEST(Messages, WhatAModelReadsIsTheConversation) {
  World world(says("ok"));
  const Json body = {{"model", "tiny"}, {"max_tokens", 5},
                     {"system", Json::array({{{"type", "text"}, {"text", "x-anthropic-billing-header: cc_version=1; cch=abcde;"}},
                                             {{"type", "text"}, {"text", "Be kind."}, {"cache_control", {{"type", "ephemeral"}}}}})},
                     {"messages", Json::array({user("hi"), {{"role", "assistant"}, {"content", Json::array({{{"type", "text"}, {"text", "Hello"}}})}},
                                               {{"role", "user"}, {"content", Json::array({{{"type", "text"}, {"text", "and"}}, {{"type", "text"}, {"text", "you?"}}})}}})}};
  ASSERT_EQ(post(world, "/v1/messages", body).status, 200);
  const std::vector<TokenId> prompt = world.node.submitted().back().prompt;
  EXPECT_EQ(std::string(prompt.begin(), prompt.end()), "system: Be kind.\nuser: hi\nassistant: Hello\nuser: and\nyou?\nassistant:");
  Json counted = body;
  counted.erase("max_tokens");
  EXPECT_EQ(post(world, "/v1/messages/count_tokens", counted).json(), (Json{{"input_tokens", prompt.size()}}));
}

TEST(Messages, ToolResultsAndEarlierThinkingAreMessagesOfTheirOwn) {
  const auto parsed = parse_messages_request(R"({"model":"m","max_tokens":1,"messages":[
    {"role":"user","content":"weather?"},
    {"role":"assistant","content":[{"type":"thinking","thinking":"Hm.","signature":"s"},{"type":"redacted_thinking","data":"x"},
                                   {"type":"tool_use","id":"t1","name":"f","input":{"a":1}}]},
    {"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"sunny"}]},{"type":"text","text":"so?"}]}]})",
                                             RequestLimits(), false);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  const OrderedJson& messages = *parsed->chat.prompt.messages;
  ASSERT_EQ(messages.size(), 4u) << messages;
  EXPECT_EQ(messages[1]["reasoning_content"], "Hm.");
  EXPECT_EQ(messages[1]["tool_calls"][0]["function"]["arguments"]["a"], 1);
  EXPECT_EQ(messages[2]["role"], "tool");
  EXPECT_EQ(messages[2]["tool_call_id"], "t1");
  EXPECT_EQ(messages[3]["content"], "so?");
}

TEST(Messages, FaultsAreInAnthropicsShapeAndNameTheField) {
  World world(says("ok"));
  const auto refused = [&](Json more, const char* word) {
    Json body = message_body(more);
    for (const auto& [key, value] : more.items()) {
      if (value == "(none)") body.erase(key);
    }
    const Reply reply = post(world, "/v1/messages", body);
    const Json error = reply.json();
    EXPECT_EQ(reply.status, 400) << more;
    EXPECT_EQ(error["type"], "error") << error;
    EXPECT_EQ(error["error"]["type"], "invalid_request_error");
    EXPECT_NE(error["error"]["message"].get<std::string>().find(word), std::string::npos) << error;
    EXPECT_TRUE(error.contains("request_id"));
  };
  refused({{"max_tokens", "(none)"}}, "max_tokens");
  refused({{"max_tokens", "many"}}, "max_tokens");
  refused({{"max_tokens", 0}}, "max_tokens");
  refused({{"messages", Json::array()}}, "messages");
  refused({{"messages", Json::array({{{"role", "assistant"}, {"content", Json::array({{{"type", "redacted_thinking"}}})}}})}}, "nothing");
  refused({{"messages", Json::array({{{"role", "king"}, {"content", "x"}}})}}, "messages.[0].role");
  refused({{"messages", Json::array({{{"role", "user"}, {"content", Json::array({{{"type", "image"}, {"source", Json::object()}}})}}})}}, "image");
  refused({{"messages", Json::array({{{"role", "user"}, {"content", 5}}})}}, "content");
  refused({{"tools", Json::array({{{"name", "f"}}})}}, "input_schema");
  refused({{"tools", messages_tools()}, {"tool_choice", {{"type", "tool"}, {"name", "web_search"}}}}, "web_search");
  refused({{"tool_choice", {{"type", "sometimes"}}}}, "tool_choice");
  refused({{"thinking", {{"type", "loud"}}}}, "thinking");
  refused({{"mcp_servers", Json::array({"x"})}}, "mcp_servers");
  refused({{"max_token", 5}}, "max_tokens");
  const Reply unknown = post(world, "/v1/messages", message_body(Json::object(), "nobody"));
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(unknown.json()["error"]["type"], "not_found_error");
  EXPECT_EQ(ask(world, http_get("/v1/messages")).json()["type"], "error");
}

TEST(Messages, AFailureOfAStreamIsAnErrorEvent) {
  World world(says("a long answer"));
  world.node.fail_with(StatusCode::kInternal, "the node is gone", 3);
  const auto events = named_events(post(world, "/v1/messages", message_body({{"stream", true}})));
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back().first, "error");
  EXPECT_EQ(events.back().second["error"]["type"], "api_error");
}

// ---- OpenAI's responses -------------------------------------------------------------------------------------------------------

Json response_body(Json more, const char* model = "tiny") {
  Json out = {{"model", model}, {"input", "hi"}};
  out.update(more);
  return out;
}

TEST(Responses, ItemsAreTypedAndStreamedTheSame) {
  World world(says(kThinks));
  const Json whole = post(world, "/v1/responses", response_body({{"tools", response_tools()}}, kReasoner)).json();
  EXPECT_EQ(whole["status"], "completed");
  ASSERT_EQ(whole["output"].size(), 3u) << whole;
  EXPECT_EQ(whole["output"][0]["content"][0]["text"], "Where?");
  EXPECT_EQ(whole["output"][1]["content"][0]["text"], "I look.");
  EXPECT_EQ(whole["output"][2]["arguments"], "{\"city\": \"Bern\"}");
  EXPECT_EQ(whole["tools"].size(), 1u);  // what only the vendor could run is not offered

  const auto events = named_events(post(world, "/v1/responses", response_body({{"tools", response_tools()}, {"stream", true}}, kReasoner)));
  for (size_t i = 0; i < events.size(); ++i) EXPECT_EQ(events[i].second["sequence_number"], i);
  EXPECT_EQ(names(events),
            (std::vector<std::string>{
                "response.created", "response.in_progress", "response.output_item.added", "response.content_part.added", "response.reasoning_text.delta",
                "response.reasoning_text.done", "response.content_part.done", "response.output_item.done", "response.output_item.added",
                "response.content_part.added", "response.output_text.delta", "response.output_text.done", "response.content_part.done",
                "response.output_item.done", "response.output_item.added", "response.function_call_arguments.delta",
                "response.function_call_arguments.done", "response.output_item.done", "response.completed"}));
  Json streamed = events.back().second["response"];
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(streamed["output"][i]["type"], whole["output"][i]["type"]);
    for (const char* key : {"content", "arguments", "name"}) {
      if (whole["output"][i].contains(key)) EXPECT_EQ(streamed["output"][i][key], whole["output"][i][key]);
    }
  }
  EXPECT_EQ(streamed["usage"], whole["usage"]);
}

TEST(Responses, AFreeformToolIsAFunctionOfOneText) {
  World world(says("<tool_call>{\"name\": \"patch\", \"arguments\": {\"input\": \"*** Begin\\n\"}}</tool_call>"));
  const Json tools = Json::array({{{"type", "custom"}, {"name", "patch"}, {"format", {{"type", "text"}}}}});
  const Json whole = post(world, "/v1/responses", response_body({{"tools", tools}})).json();
  ASSERT_EQ(whole["output"].size(), 1u) << whole;
  EXPECT_EQ(whole["output"][0]["type"], "custom_tool_call");
  EXPECT_EQ(whole["output"][0]["input"], "*** Begin\n");
  const auto events = named_events(post(world, "/v1/responses", response_body({{"tools", tools}, {"stream", true}})));
  EXPECT_EQ(names(events), (std::vector<std::string>{"response.created", "response.in_progress", "response.output_item.added",
                                                     "response.custom_tool_call_input.delta", "response.custom_tool_call_input.done",
                                                     "response.output_item.done", "response.completed"}));
}

TEST(Responses, AStoredOneGoesOnAndIsItsKeysAlone) {
  World world(says("fine"), {.api_keys = test::keys({"ka", "kb"})});
  const auto send = [&](const char* key, const Json& body) {
    return ask(world, http_post("/v1/responses", body.dump(), absl::StrCat("Authorization: Bearer ", key, "\r\n")));
  };
  const Json first = send("ka", response_body({{"instructions", "Be brief."}})).json();
  const std::string id = first["id"];
  const Reply second = send("ka", response_body({{"previous_response_id", id}, {"input", "and now?"}}));
  ASSERT_EQ(second.status, 200) << second.body;
  const std::vector<TokenId> prompt = world.node.submitted().back().prompt;
  EXPECT_EQ(std::string(prompt.begin(), prompt.end()), "user: hi\nassistant: fine\nuser: and now?\nassistant:");

  const Reply foreign = send("kb", response_body({{"previous_response_id", id}}));
  EXPECT_EQ(foreign.status, 400);
  EXPECT_EQ(foreign.json()["error"]["code"], "previous_response_not_found");
  const auto get = [&](const char* key, const std::string& path) {
    return ask(world, http_get(path, absl::StrCat("Authorization: Bearer ", key, "\r\n")));
  };
  EXPECT_EQ(get("kb", "/v1/responses/" + id).status, 404);
  EXPECT_EQ(get("ka", "/v1/responses/" + id).json()["output"], first["output"]);
  EXPECT_EQ(get("ka", "/v1/responses/" + id + "/input_items").json()["data"].size(), 1u);
  const Json referred = Json::array({{{"type", "item_reference"}, {"id", first["output"][0]["id"]}}, {{"role", "user"}, {"content", "x"}}});
  EXPECT_EQ(send("ka", response_body({{"input", referred}})).status, 200);
  EXPECT_EQ(send("kb", response_body({{"input", referred}})).status, 400);
  const std::string deletion = absl::StrCat("DELETE /v1/responses/", id, " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ka\r\n\r\n");
  EXPECT_EQ(ask(world, deletion).json()["deleted"], true);
  EXPECT_EQ(ask(world, deletion).status, 404);
  const Json unstored = send("ka", response_body({{"store", false}})).json();
  EXPECT_EQ(get("ka", "/v1/responses/" + unstored["id"].get<std::string>()).status, 404);
}

TEST(Responses, TheStoreIsBoundedPerKeyAndTheOldestMakeRoom) {
  ResponseStore store(20'000);
  const auto put = [&](size_t key, const std::string& id) {
    store.put({key}, {id, {{"text", std::string(1000, 'x')}}, Json::array(), OrderedJson::array()});
  };
  put(1, "other");
  for (int i = 0; i < 20; ++i) put(0, "r" + std::to_string(i));
  EXPECT_EQ(store.find({0}, "r0"), nullptr);
  EXPECT_NE(store.find({0}, "r19"), nullptr);
  EXPECT_NE(store.find({1}, "other"), nullptr);  // nobody pushes out another key's
  store.put({0}, {"huge", {{"text", std::string(30'000, 'x')}}, Json::array(), OrderedJson::array()});
  EXPECT_EQ(store.find({0}, "huge"), nullptr);
  EXPECT_NE(store.find({0}, "r19"), nullptr);
}

TEST(Responses, FaultsNameTheField) {
  World world(says("ok"));
  const auto refused = [&](Json more, const char* param) {
    const Reply reply = post(world, "/v1/responses", response_body(more));
    EXPECT_EQ(reply.status, 400) << more;
    EXPECT_EQ(reply.json()["error"]["param"], param) << reply.body;
  };
  refused({{"input", nullptr}}, "input");
  refused({{"input", 5}}, "input");
  refused({{"input", Json::array()}}, "input");
  refused({{"input", Json::array({{{"type", "reasoning"}}})}}, "input");
  refused({{"input", Json::array({{{"role", "king"}, {"content", "x"}}})}}, "input.[0].role");
  refused({{"input", Json::array({{{"type", "web_search_call"}}})}}, "input.[0].type");
  refused({{"input", Json::array({{{"role", "user"}, {"content", Json::array({{{"type", "input_image"}}})}}})}}, "input.[0].content.[0]");
  refused({{"previous_response_id", "resp_nobody"}}, "previous_response_id");
  refused({{"previous_response_id", 7}}, "previous_response_id");
  refused({{"input", Json::array({{{"type", "item_reference"}, {"id", "msg_gone_0"}}})}}, "input.[0].id");
  refused({{"background", true}}, "background");
  refused({{"conversation", "conv_1"}}, "conversation");
  refused({{"tools", Json::array({{{"name", "f"}}})}}, "tools.[0].type");
  refused({{"tool_choice", {{"type", "web_search"}}}}, "tool_choice.type");
  refused({{"text", {{"format", {{"type", "poem"}}}}}}, "text.format");
  refused({{"reasoning", {{"effort", "wild"}}}}, "reasoning.effort");
  refused({{"truncation", "some"}}, "truncation");
  refused({{"max_output_tokens", 0}}, "max_output_tokens");
  refused({{"input", std::string(500, 'x')}}, "input");
}

TEST(Responses, ALengthLimitIsIncompleteAndAFailureFailed) {
  World world(says("a long answer"));
  const Json cut = post(world, "/v1/responses", response_body({{"max_output_tokens", 3}})).json();
  EXPECT_EQ(cut["status"], "incomplete");
  EXPECT_EQ(cut["incomplete_details"]["reason"], "max_output_tokens");
  world.node.fail_with(StatusCode::kInternal, "the node is gone", 3);
  const auto events = named_events(post(world, "/v1/responses", response_body({{"stream", true}})));
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back().first, "response.failed");
  EXPECT_EQ(events.back().second["response"]["status"], "failed");
}

// ---- Ollama's and llama.cpp's -------------------------------------------------------------------------------------------------

std::vector<Json> lines(const Reply& reply) {
  std::vector<Json> out;
  std::istringstream text(reply.body);
  for (std::string line; std::getline(text, line);) out.push_back(Json::parse(line));
  return out;
}

TEST(Ollama, AChatIsLinesWithCallsWholeAndThinkingApart) {
  World world(says(kThinks));
  const Json tools = Json::parse(R"([{"type":"function","function":{"name":"get_weather","parameters":{"type":"object"}}}])");
  Json body = {{"model", kReasoner}, {"messages", Json::array({user("hi")})}, {"tools", tools}};
  const Reply streamed = post(world, "/api/chat", body);
  EXPECT_EQ(streamed.headers.at("content-type"), "application/x-ndjson");
  std::string content, thinking;
  Json calls = Json::array();
  for (const Json& line : lines(streamed)) {
    content += line["message"].value("content", "");
    thinking += line["message"].value("thinking", "");
    for (const Json& call : line["message"].value("tool_calls", Json::array())) calls.push_back(call["function"]);
  }
  EXPECT_EQ(content, "I look.");
  EXPECT_EQ(thinking, "Where?");
  EXPECT_EQ(calls, Json::parse(R"([{"name":"get_weather","arguments":{"city":"Bern"}}])"));
  EXPECT_EQ(lines(streamed).back()["done"], true);
  body["stream"] = false;
  const Json whole = post(world, "/api/chat", body).json();
  EXPECT_EQ(whole["message"]["content"], content);
  EXPECT_EQ(whole["done_reason"], "stop");
  EXPECT_GT(whole["eval_count"], 0);
}

TEST(Ollama, OptionsAreSamplingFieldsAndWhatSizesMemoryIsIgnored) {
  World world(says("one two three"));
  const Json options = {{"num_predict", 5}, {"temperature", 0.5}, {"repeat_penalty", 1.2}, {"num_ctx", 8192}, {"seed", 7}, {"num_gpu", 1}};
  const Json whole = post(world, "/api/generate", {{"model", "tiny:latest"}, {"prompt", "x"}, {"raw", true}, {"stream", false}, {"options", options}}).json();
  EXPECT_EQ(whole["response"], "one t");
  EXPECT_EQ(whole["done_reason"], "length");
  const Request asked = world.node.submitted().back();
  EXPECT_EQ(asked.max_tokens, 5u);
  EXPECT_EQ(asked.sampling.seed, 7u);
  EXPECT_FLOAT_EQ(asked.sampling.repetition_penalty, 1.2f);
  EXPECT_EQ(post(world, "/api/generate", {{"model", "tiny"}}).json()["done_reason"], "load");
}

TEST(Ollama, ModelsAreListedShownAndNotChanged) {
  World world(says("x"));
  EXPECT_EQ(ask(world, http_get("/api/tags")).json()["models"].size(), 2u);
  EXPECT_EQ(post(world, "/api/show", {{"model", "tiny:latest"}}).json()["model_info"]["fake.context_length"], 200);
  EXPECT_EQ(post(world, "/api/pull", {{"model", "tiny"}}).json()["status"], "success");
  const Reply pull = post(world, "/api/pull", {{"model", "new"}});
  EXPECT_EQ(pull.status, 501);
  EXPECT_NE(pull.json()["error"].get<std::string>().find("shoal reload"), std::string::npos);
  EXPECT_EQ(post(world, "/api/create", {{"model", "new"}}).status, 501);
  EXPECT_TRUE(ask(world, http_get("/api/version")).json()["version"].is_string());
  EXPECT_TRUE(ask(world, http_get("/api/nothing")).json()["error"].is_string());
}

TEST(Ollama, FaultsAreInItsShape) {
  World world(says("x"));
  for (const Json& body : {Json{{"model", "tiny"}, {"messages", 5}}, Json{{"messages", Json::array({user("x")})}}, Json{{"model", "tiny"}, {"format", 5}, {"messages", Json::array({user("x")})}},
                           Json{{"model", "tiny"}, {"messages", Json::array({{{"role", "king"}, {"content", "x"}}})}},
                           Json{{"model", "tiny"}, {"options", {{"temperature", 9}}}, {"messages", Json::array({user("x")})}},
                           Json{{"model", "tiny"}, {"messages", Json::array({{{"role", "user"}, {"content", "x"}, {"images", {"aGk="}}}})}}}) {
    const Reply reply = post(world, "/api/chat", body);
    EXPECT_EQ(reply.status, 400) << body;
    EXPECT_TRUE(reply.json()["error"].is_string()) << reply.body;
  }
}

TEST(LlamaCpp, ACompletionStreamsContentAndSaysWhatEndedIt) {
  World world(says("one two three"));
  const Json whole = post(world, "/completion", {{"model", "tiny"}, {"prompt", "x"}, {"n_predict", 50}, {"stop", {"two"}}}).json();
  EXPECT_EQ(whole["content"], "one ");
  EXPECT_EQ(whole["stop_type"], "word");
  EXPECT_EQ(whole["stopping_word"], "two");
  std::string content;
  const auto events = post(world, "/completion", {{"model", "tiny"}, {"prompt", "x"}, {"n_predict", 7}, {"stream", true}}).events();
  for (const Json& event : events) content += event["content"].get<std::string>();
  EXPECT_EQ(content, "one two");
  EXPECT_EQ(events.back()["stop"], true);
  EXPECT_EQ(events.back()["stop_type"], "limit");
  EXPECT_EQ(post(world, "/completion", {{"model", "tiny"}, {"prompt", {"a", "b"}}, {"n_predict", 2}}).json().size(), 2u);
}

TEST(LlamaCpp, IdsOfTokensAreGivenToWhoAsksForThem) {
  World world(says("abc"));
  const Json asked = {{"model", "tiny"}, {"prompt", "x"}, {"n_predict", 3}, {"return_tokens", true}, {"n_probs", 1}};
  const Json whole = post(world, "/completion", asked).json();
  EXPECT_EQ(whole["tokens"], Json({'a', 'b', 'c'}));
  ASSERT_EQ(whole["completion_probabilities"].size(), 3u);
  EXPECT_EQ(whole["completion_probabilities"][1]["id"], 'b');
  EXPECT_TRUE(whole["completion_probabilities"][1]["top_logprobs"][0]["id"].is_number_integer());
  Json streaming = asked, ids = Json::array();
  streaming["stream"] = true;
  for (const Json& event : post(world, "/completion", streaming).events()) ids.insert(ids.end(), event["tokens"].begin(), event["tokens"].end());
  EXPECT_EQ(ids, whole["tokens"]);
  EXPECT_EQ(post(world, "/completion", {{"model", "tiny"}, {"prompt", "x"}, {"n_predict", 3}}).json()["tokens"], Json::array());
}

TEST(LlamaCpp, TheRestOfItsServerIsThereInItsSpelling) {
  World world(says("x"));
  EXPECT_EQ(ask(world, http_get("/props?model=tiny")).json()["default_generation_settings"]["n_ctx"], 200);
  EXPECT_GE(ask(world, http_get("/slots")).json().size(), 2u);
  EXPECT_EQ(post(world, "/tokenize", {{"model", "tiny"}, {"content", "ab"}}).json(), (Json{{"tokens", {97, 98}}}));
  EXPECT_EQ(post(world, "/detokenize", {{"model", "tiny"}, {"tokens", {97, 98}}}).json()["content"], "ab");
  const Reply infill = post(world, "/infill", {{"model", "tiny"}, {"input_prefix", "a"}, {"input_suffix", "b"}});
  EXPECT_EQ(infill.status, 501) << infill.body;
  EXPECT_EQ(infill.json()["error"]["code"], 501);
  const Reply bad = post(world, "/completion", {{"model", "tiny"}, {"prompt", 5}});
  EXPECT_EQ(bad.json()["error"]["code"], 400);
}

TEST(Surfaces, CanBeSwitchedOffEach) {
  World world(says("x"), {.ollama_api = false, .llama_cpp_api = false});
  EXPECT_EQ(ask(world, http_get("/api/tags")).status, 404);
  EXPECT_EQ(ask(world, http_get("/props?model=tiny")).status, 404);
  EXPECT_EQ(post(world, "/v1/messages", message_body(Json::object())).status, 200);
}

}  // namespace
}  // namespace shoal
