// The whole edge over real sockets, with a node that answers at once.
#include <gtest/gtest.h>

#include "base/clock.h"
#include "gateway/test_support.h"

namespace shoal {
namespace {

using test::ask;
using test::chat_body;
using test::http_get;
using test::http_post;
using test::post;
using test::RawClient;
using test::Reply;
using test::says;
using test::World;

void expect_error(const Reply& reply, int status, const Json& code, const Json& param = nullptr) {
  EXPECT_EQ(reply.status, status) << reply.body;
  const Json body = reply.json();
  ASSERT_TRUE(body.contains("error")) << reply.body;
  const Json& error = body["error"];
  for (const char* key : {"message", "type", "param", "code"}) EXPECT_TRUE(error.contains(key)) << key;
  EXPECT_EQ(error["code"], code) << reply.body;
  EXPECT_EQ(error["param"], param) << reply.body;
}

TEST(Chat, AnswersWithEveryFieldThatTheSchemaRequires) {
  World world(says("Hello"));
  const Reply reply = post(world, "/v1/chat/completions", chat_body());
  ASSERT_EQ(reply.status, 200) << reply.body;
  const Json body = reply.json();
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_EQ(body["model"], "tiny");
  EXPECT_EQ(body["id"].get<std::string>().rfind("chatcmpl-", 0), 0u);
  const Json& choice = body["choices"][0];
  EXPECT_EQ(choice["message"], (Json{{"role", "assistant"}, {"content", "Hello"}, {"refusal", nullptr}}));
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_TRUE(choice.contains("logprobs") && choice["logprobs"].is_null());
  EXPECT_EQ(body["usage"]["prompt_tokens"], 19);  // "user: hi\nassistant:"
  EXPECT_EQ(body["usage"]["completion_tokens"], 6);
  EXPECT_EQ(body["usage"]["total_tokens"], 25);
  EXPECT_FALSE(reply.headers.at("x-request-id").empty());
}

TEST(Chat, StreamsRoleThenTextThenOneFinishThenUsageThenDone) {
  World world(says("Hé"));
  const Reply reply = post(world, "/v1/chat/completions",
                           chat_body({{"stream", true}, {"stream_options", {{"include_usage", true}}}}));
  EXPECT_EQ(reply.headers.at("content-type"), "text/event-stream; charset=utf-8");
  const auto events = reply.events();
  ASSERT_GE(events.size(), 5u) << reply.body;
  EXPECT_EQ(events[0]["choices"][0]["delta"], (Json{{"role", "assistant"}, {"content", ""}}));
  std::string text;
  size_t finishes = 0;
  for (size_t i = 1; i + 2 < events.size(); ++i) {
    const Json& choice = events[i]["choices"][0];
    EXPECT_TRUE(events[i].contains("usage") && events[i]["usage"].is_null());
    text += choice["delta"].value("content", "");
    if (!choice["finish_reason"].is_null()) {
      ++finishes;
      EXPECT_TRUE(choice["delta"].empty());
    }
  }
  EXPECT_EQ(text, "Hé");
  EXPECT_EQ(finishes, 1u);
  const Json& usage = events[events.size() - 2];
  EXPECT_TRUE(usage["choices"].empty());
  EXPECT_EQ(usage["usage"]["completion_tokens"], 4);
  EXPECT_EQ(events.back(), "[DONE]");
}

TEST(Chat, AStopStringIsNeverShownAndFreesTheNode) {
  World world([](const Request&) { return test::bytes_of("one STOP two "); });
  const Reply reply = post(world, "/v1/chat/completions", chat_body({{"stop", "STOP"}, {"max_tokens", 100}}));
  const Json choice = reply.json()["choices"][0];
  EXPECT_EQ(choice["message"]["content"], "one ");
  EXPECT_EQ(choice["finish_reason"], "stop");
}

TEST(Chat, ChoicesSampleWithConsecutiveSeeds) {
  World world(says("x"));
  const Reply reply = post(world, "/v1/chat/completions", chat_body({{"n", 3}, {"seed", 40}}));
  EXPECT_EQ(reply.json()["choices"].size(), 3u) << reply.body;
  std::vector<uint64_t> seeds;
  for (const Request& request : world.node.submitted()) seeds.push_back(request.sampling.seed);
  EXPECT_EQ(seeds, (std::vector<uint64_t>{40, 41, 42}));
}

TEST(Chat, LogprobsCarryBytesAndAlternatives) {
  World world(says("é"));
  const Reply reply = post(world, "/v1/chat/completions", chat_body({{"logprobs", true}, {"top_logprobs", 2}}));
  const Json content = reply.json()["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 2u) << reply.body;
  EXPECT_EQ(content[0]["bytes"], Json::array({0xc3}));
  EXPECT_EQ(content[1]["bytes"], Json::array({0xa9}));
  ASSERT_EQ(content[0]["top_logprobs"].size(), 2u);
  EXPECT_EQ(content[0]["top_logprobs"][0]["token"], "a");
}

TEST(Chat, AnAnswerThatIsTooLongForTheContextIsRefusedInTheWellKnownWords) {
  World world(says("x"));
  const Json long_message = Json::array({{{"role", "user"}, {"content", std::string(500, 'x')}}});
  const Reply reply = post(world, "/v1/chat/completions", chat_body({{"messages", long_message}}));
  expect_error(reply, 400, "context_length_exceeded", "messages");
  EXPECT_NE(reply.body.find("This model's maximum context length is 200 tokens. However, "), std::string::npos);
  EXPECT_EQ(reply.json()["error"]["n_ctx"], 200);
  expect_error(post(world, "/v1/chat/completions", chat_body({{"max_tokens", 1000}})), 400, "context_length_exceeded",
               "messages");
}

TEST(Chat, TheTemplatesOwnRefusalReachesTheClient) {
  World world(says("x"));
  const Json messages = Json::array({{{"role", "user"}, {"content", "refuse me"}}});
  const Reply reply = post(world, "/v1/chat/completions", chat_body({{"messages", messages}}));
  expect_error(reply, 400, "invalid_value", "messages");
  EXPECT_NE(reply.body.find("this template refuses"), std::string::npos);
}

TEST(Chat, TheFinalMessageIsContinuedWhereItEnds) {
  World world(says("x"));
  const Json messages = Json::array({{{"role", "user"}, {"content", "go"}}, {{"role", "assistant"}, {"content", "Sure, "}}});
  const Reply reply = post(world, "/v1/chat/completions",
                           chat_body({{"messages", messages}, {"continue_final_message", true}}));
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(world.node.submitted()[0].prompt, test::bytes_of("user: go\nassistant: Sure, "));
}

TEST(Completions, ManyPromptsAndChoicesComeBackInOrder) {
  World world([](const Request& r) { return std::vector<TokenId>{r.prompt.back(), static_cast<TokenId>('0' + r.sampling.seed), test::kEos}; });
  const Reply reply = post(world, "/v1/completions", {{"model", "tiny"}, {"prompt", {"a", "b"}}, {"n", 2}, {"seed", 0}});
  std::string texts;
  const Json body = reply.json();
  for (const Json& choice : body["choices"]) texts += choice["text"].get<std::string>() + " ";
  EXPECT_EQ(texts, "a0 a1 b0 b1 ") << reply.body;
}

TEST(Completions, EchoWithoutAnAnswerScoresThePrompt) {
  World world(says("zzz"));
  const Reply reply = post(world, "/v1/completions",
                           {{"model", "tiny"}, {"prompt", "abc"}, {"max_tokens", 0}, {"echo", true}, {"logprobs", 1}});
  ASSERT_EQ(reply.status, 200) << reply.body;
  const Json choice = reply.json()["choices"][0];
  EXPECT_EQ(choice["text"], "abc");
  EXPECT_EQ(choice["finish_reason"], "length");
  const Json& logprobs = choice["logprobs"];
  EXPECT_EQ(logprobs["tokens"], (Json{"<s>", "a", "b", "c"}));
  EXPECT_TRUE(logprobs["token_logprobs"][0].is_null());
  EXPECT_FLOAT_EQ(logprobs["token_logprobs"][3].get<float>(), -0.5f);
  EXPECT_EQ(logprobs["top_logprobs"][2], (Json{{"a", -0.10000000149011612}, {"b", -0.5}}));
  EXPECT_EQ(reply.json()["usage"]["completion_tokens"], 0);
  EXPECT_EQ(world.node.submitted()[0].max_tokens, 1u);
}

TEST(Completions, TokensCanBeSpelledAsIds) {
  World world(says("hi"));
  const Reply reply = post(world, "/v1/completions", {{"model", "tiny"}, {"prompt", {1, 2}}, {"logprobs", 20}, {"max_tokens", 2},
                                                      {"ignore_eos", true}, {"return_tokens_as_token_ids", true}});
  const Json logprobs = reply.json()["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["tokens"], (Json{"token_id:104", "token_id:105"})) << reply.body;
  EXPECT_GE(logprobs["top_logprobs"][0].size(), 20u);
  EXPECT_EQ(logprobs["text_offset"], (Json{0, 1}));
}

TEST(Completions, IdsOutsideTheVocabularyAreRefused) {
  World world(says("x"));
  expect_error(post(world, "/v1/completions", {{"model", "tiny"}, {"prompt", {1, 300}}}), 400, "invalid_value", "prompt");
  expect_error(post(world, "/v1/completions", {{"model", "tiny"}, {"prompt", "x"}, {"logit_bias", {{"999", 1}}}}), 400,
               "invalid_value", "logit_bias");
  expect_error(post(world, "/v1/completions", {{"model", "tiny"}, {"prompt", ""}, {"add_special_tokens", false}}), 400,
               "invalid_value", "prompt");
}

TEST(Failures, BeforeTheFirstTokenAreAStatusAndLaterAnEvent) {
  World early(says("abc"));
  early.node.fail_with(StatusCode::kInternal, "the weights are damaged", 0);
  const Reply status = post(early, "/v1/chat/completions", chat_body({{"stream", true}}));
  expect_error(status, 500, "internal_error");

  World late(says("abc"));
  late.node.fail_with(StatusCode::kInternal, "the device fell off", 2);
  late.node.set_pause(std::chrono::milliseconds(5));
  const auto events = post(late, "/v1/chat/completions", chat_body({{"stream", true}})).events();
  ASSERT_GE(events.size(), 3u);
  EXPECT_EQ(events[events.size() - 2]["error"]["message"], "the device fell off");
  EXPECT_EQ(events.back(), "[DONE]");
}

TEST(Models, AreListedWithStateAndFoundUnderNamesWithSlashes) {
  World world(says("x"));
  const Json list = ask(world, http_get("/v1/models")).json();
  EXPECT_EQ(list["object"], "list");
  ASSERT_EQ(list["data"].size(), 2u);
  EXPECT_EQ(list["data"][0]["id"], "tiny");
  EXPECT_EQ(list["data"][0]["status"]["value"], "loaded");
  EXPECT_EQ(list["data"][1]["status"]["value"], "unloaded");
  EXPECT_EQ(ask(world, http_get("/v1/models/org/other")).json()["id"], "org/other");
  EXPECT_EQ(ask(world, http_get("/v1/models/org%2Fother")).json()["id"], "org/other");
  expect_error(ask(world, http_get("/v1/models/none")), 404, "model_not_found", "model");
  expect_error(post(world, "/v1/chat/completions", chat_body({{"model", "none"}})), 404, "model_not_found", "model");
  EXPECT_EQ(post(world, "/v1/chat/completions", chat_body({{"model", "alias-0"}})).status, 200);
}

TEST(Tokenize, CountsTextAndConversationsAndGoesBack) {
  World world(says("x"));
  const Json text = post(world, "/tokenize", {{"model", "tiny"}, {"prompt", "ab"}, {"return_token_strs", true}}).json();
  EXPECT_EQ(text["tokens"], (Json{256, 97, 98}));
  EXPECT_EQ(text["count"], 3);
  EXPECT_EQ(text["max_model_len"], 200);
  EXPECT_EQ(text["token_strs"], (Json{"<s>", "a", "b"}));
  EXPECT_EQ(post(world, "/tokenize", chat_body()).json()["count"], 19);
  EXPECT_EQ(post(world, "/detokenize", {{"model", "tiny"}, {"tokens", {104, 105}}}).json(), (Json{{"prompt", "hi"}, {"content", "hi"}}));
  expect_error(post(world, "/detokenize", {{"model", "tiny"}, {"tokens", {999}}}), 400, "invalid_value", "tokens");
  expect_error(post(world, "/tokenize", {{"model", "tiny"}}), 400, "invalid_value", "prompt");
}

TEST(Http, UnknownPathsMethodsAndMediaTypesAreToldApart) {
  World world(says("x"));
  expect_error(ask(world, http_get("/v1/nothing")), 404, "unknown_url");
  const Reply wrong = ask(world, http_get("/v1/chat/completions"));
  expect_error(wrong, 405, "method_not_allowed");
  EXPECT_EQ(wrong.headers.at("allow"), "POST, OPTIONS");
  expect_error(post(world, "/v1/models", Json::object()), 405, "method_not_allowed");
  EXPECT_EQ(ask(world, "OPTIONS /v1/models HTTP/1.1\r\nHost: x\r\n\r\n").status, 204);
  expect_error(ask(world, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}"),
               415, "unsupported_media_type");
}

TEST(Http, HeadGivesTheHeadersAlone) {
  World world(says("x"));
  RawClient client(*world.server);
  client.send_text("HEAD /v1/models HTTP/1.1\r\nHost: x\r\n\r\n" + http_get("/health"));
  const Reply head = client.read_reply(/*head_only=*/true);
  EXPECT_EQ(head.status, 200);
  EXPECT_GT(std::stoi(head.headers.at("content-length")), 10);
  EXPECT_EQ(client.read_reply().status, 200);
}

TEST(Http, KeepsTheConnectionAndEchoesTheRequestId) {
  World world(says("x"));
  RawClient client(*world.server);
  for (int i = 0; i < 3; ++i) {
    client.send_text(http_get("/health", "X-Request-Id: my-id\r\n"));
    const Reply reply = client.read_reply();
    EXPECT_EQ(reply.status, 200);
    EXPECT_EQ(reply.headers.at("x-request-id"), "my-id");
  }
  client.send_text(http_post("/v1/chat/completions", chat_body({{"stream", true}}).dump()));
  EXPECT_EQ(client.read_reply().status, 200);
  client.send_text(http_get("/health"));
  EXPECT_EQ(client.read_reply().status, 200);
}

TEST(Http, HeadersAndBodiesAreBounded) {
  World world(says("x"), {}, {.body_bytes_max = 1000});
  const Reply headers = ask(world, http_get("/health", "X-Long: " + std::string(20'000, 'x') + "\r\n"));
  expect_error(headers, 431, "headers_too_large");
  expect_error(post(world, "/v1/chat/completions", chat_body({{"user", std::string(2000, 'x')}})), 413, "request_too_large");
}

TEST(Http, FieldsThatComeOneByOneAreBoundedTogether) {
  World world(says("x"));
  RawClient client(*world.server);
  client.send_text("GET /health HTTP/1.1\r\nHost: x\r\n");
  for (int i = 0; i < 40; ++i) {
    client.send_text("X-Long: " + std::string(1000, 'x') + "\r\n");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  client.send_text("\r\n");
  expect_error(client.read_reply(), 431, "headers_too_large");
  RawClient modest(*world.server);
  std::string fields;
  for (int i = 0; i < 15; ++i) fields += "X-Long: " + std::string(1000, 'x') + "\r\n";
  modest.send_text(http_get("/health", fields));
  EXPECT_EQ(modest.read_reply().status, 200);
}

TEST(Http, MalformedRequestsAreAnsweredWith400AndClosed) {
  World world(says("x"));
  for (const char* raw : {"GET / HTTP/9.9\r\n\r\n", "NONSENSE\r\n\r\n", "GET /health HTTP/1.1\r\nBad Header\r\n\r\n",
                          "POST /v1/completions HTTP/1.1\r\nContent-Length: abc\r\n\r\n",
                          "POST /v1/completions HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"}) {
    RawClient client(*world.server);
    client.send_text(raw);
    const Reply reply = client.read_reply();
    EXPECT_EQ(reply.status, 400) << raw << reply.body;
    EXPECT_TRUE(client.closed_by_server()) << raw;
  }
}

TEST(Http, SlowHeadersAndBodiesAreCutOff) {
  World world(says("x"), {}, {.header_time_max = std::chrono::milliseconds(200), .body_idle_max = std::chrono::milliseconds(200)});
  RawClient slow_header(*world.server);
  slow_header.send_text("GET /health HT");
  EXPECT_EQ(slow_header.read_reply().status, 408);
  EXPECT_TRUE(slow_header.closed_by_server());
  RawClient slow_body(*world.server);
  slow_body.send_text("POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{");
  EXPECT_EQ(slow_body.read_reply().status, 408);
  EXPECT_TRUE(slow_body.closed_by_server());
}

TEST(Http, ConnectionsBeyondTheLimitAreRefused) {
  World world(says("x"), {}, {.connections_max = 2});
  RawClient a(*world.server), b(*world.server);
  a.send_text(http_get("/health"));
  b.send_text(http_get("/health"));
  EXPECT_EQ(a.read_reply().status, 200);
  EXPECT_EQ(b.read_reply().status, 200);
  expect_error(ask(world, http_get("/health")), 503, "server_overloaded");
}

TEST(Keys, GuardEverythingButHealth) {
  World world(says("x"), {.api_keys = test::keys({"secret", "other"})});
  EXPECT_EQ(ask(world, http_get("/health")).status, 200);
  EXPECT_EQ(ask(world, http_get("/readyz")).status, 200);
  for (const char* path : {"/v1/models", "/metrics", "/version", "/nothing"}) {
    const Reply reply = ask(world, http_get(path));
    expect_error(reply, 401, "invalid_api_key");
    EXPECT_EQ(reply.headers.at("www-authenticate"), "Bearer");
  }
  EXPECT_EQ(ask(world, http_get("/v1/models", "Authorization: Bearer secret\r\n")).status, 200);
  EXPECT_EQ(ask(world, http_get("/v1/models", "X-Api-Key: other\r\n")).status, 200);
  EXPECT_EQ(ask(world, http_get("/v1/models", "Authorization: Bearer secre\r\n")).status, 401);
}

TEST(Clients, ThatGoAwayFreeTheirWork) {
  for (const bool stream : {false, true}) {
    World world([](const Request&) { return test::bytes_of("x"); });
    world.node.set_pause(std::chrono::milliseconds(20));
    RawClient client(*world.server);
    client.send_text(http_post("/v1/chat/completions", chat_body({{"stream", stream}, {"max_tokens", 150}, {"n", 2}}).dump()));
    if (stream) {
      ASSERT_TRUE(client.read_until("data: "));
    } else {
      while (world.node.submitted().size() < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    client.hang_up();
    EXPECT_TRUE(world.node.wait_cancelled(2)) << "stream " << stream;
    EXPECT_TRUE(world.loop.wait_idle(std::chrono::seconds(5)));
  }
}

TEST(Clients, ThatPipelineAreStillNoticedWhenTheyGo) {
  World world([](const Request&) { return test::bytes_of("x"); });
  world.node.set_pause(std::chrono::milliseconds(20));
  RawClient client(*world.server);
  client.send_text(http_post("/v1/chat/completions", chat_body({{"max_tokens", 150}}).dump()));
  while (world.node.submitted().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  client.send_text(http_get("/health"));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  client.hang_up();
  EXPECT_TRUE(world.node.wait_cancelled(1));
}

TEST(Clients, ThatDoNotReadAreDroppedAndDelayNobody) {
  World world([](const Request&) { return test::bytes_of("x"); }, {},
              {.write_time_max = std::chrono::milliseconds(300), .unread_bytes_max = 1 << 16});
  // Much more than the socket's buffers hold: many choices with many alternatives each.
  RawClient deaf(*world.server, /*receive_buffer=*/4096);
  deaf.send_text(http_post("/v1/completions", Json{{"model", "tiny"}, {"prompt", Json(std::vector<std::string>(400, "p"))},
                                                   {"stream", true}, {"max_tokens", 150}, {"logprobs", 20}}.dump()));
  const Reply other = post(world, "/v1/chat/completions", chat_body({{"max_tokens", 20}}));
  EXPECT_EQ(other.status, 200) << other.body;
  EXPECT_TRUE(world.loop.wait_idle(std::chrono::seconds(10)));
}

TEST(Ready, NotBeforeTheServerHasStarted) {
  std::atomic<bool> starting = true;
  World world(says("x"), {.starting = [&] { return starting.load(); }});
  const Reply early = ask(world, http_get("/readyz"));
  expect_error(early, 503, "server_overloaded");
  EXPECT_NE(early.body.find("still starting"), std::string::npos) << early.body;
  EXPECT_EQ(ask(world, http_get("/health")).status, 200);
  starting = false;
  EXPECT_EQ(ask(world, http_get("/readyz")).status, 200);
}

TEST(Drain, IsVisibleAtOnceAndLetsWhatRunsFinish) {
  World world([](const Request&) { return test::bytes_of("x"); });
  world.node.set_pause(std::chrono::milliseconds(10));
  EXPECT_EQ(ask(world, http_get("/readyz")).status, 200);
  RawClient running(*world.server);
  running.send_text(http_post("/v1/chat/completions", chat_body({{"stream", true}, {"max_tokens", 30}}).dump()));
  ASSERT_TRUE(running.read_until("data: "));
  world.service.drain();
  EXPECT_EQ(ask(world, http_get("/readyz")).status, 503);
  EXPECT_EQ(ask(world, http_get("/health")).status, 200);
  const Reply late = post(world, "/v1/chat/completions", chat_body());
  expect_error(late, 503, "draining");
  EXPECT_EQ(late.headers.at("connection"), "close");
  EXPECT_FALSE(late.headers.at("retry-after").empty());
  const Reply reply = running.read_reply();
  EXPECT_TRUE(reply.complete);
  EXPECT_NE(reply.body.find("\"finish_reason\":\"length\""), std::string::npos);
  EXPECT_TRUE(world.loop.wait_idle(std::chrono::seconds(5)));
}

TEST(Drain, EndsWithErrorEventsWhenItsTimeIsUp) {
  World world([](const Request&) { return test::bytes_of("x"); });
  world.node.set_pause(std::chrono::milliseconds(50));
  RawClient running(*world.server);
  running.send_text(http_post("/v1/chat/completions", chat_body({{"stream", true}, {"max_tokens", 150}}).dump()));
  ASSERT_TRUE(running.read_until("data: "));
  world.loop.abort_all(absl::AbortedError("the server is shutting down"));
  const auto events = running.read_reply().events();
  ASSERT_GE(events.size(), 2u);
  EXPECT_EQ(events[events.size() - 2]["error"]["message"], "the server is shutting down");
  EXPECT_EQ(events[events.size() - 2]["error"]["code"], "shutting_down");
  EXPECT_EQ(events.back(), "[DONE]");
}

TEST(Metrics, CarryOwnAndCompatibleNames) {
  World world(says("hello"));
  ASSERT_EQ(post(world, "/v1/chat/completions", chat_body()).status, 200);
  const auto missing = [](const Reply& reply) -> std::string {
    for (const char* line : {"vllm:num_requests_running{model_name=\"tiny\"} 3", "vllm:kv_cache_usage_perc{model_name=\"tiny\"} 0.1",
                             "vllm:request_success_total{finished_reason=\"stop\",model_name=\"tiny\"} 1",
                             "vllm:time_to_first_token_seconds_bucket{model_name=\"tiny\",le=\"0.001\"}",
                             "vllm:request_queue_time_seconds_count{model_name=\"tiny\"} 1",
                             "vllm:request_prefill_time_seconds_count{model_name=\"tiny\"} 1",
                             "vllm:request_inference_time_seconds_count{model_name=\"tiny\"} 1",
                             "vllm:iteration_tokens_total_bucket{model_name=\"tiny\",le=\"+Inf\"} 5",
                             "vllm:iteration_tokens_total_bucket{model_name=\"tiny\",le=\"8\"} 4",
                             "vllm:iteration_tokens_total_sum{model_name=\"tiny\"} 40",
                             "vllm:request_generation_tokens_sum{model_name=\"tiny\"} 6",
                             "shoal_requests_total{code=\"200\",model=\"tiny\"} 1",
                             "shoal_http_requests_total{code=\"200\",route=\"chat\"} 1",
                             "shoal_model_state{model=\"tiny\",node=\"2\",state=\"loaded\"} 1"}) {
      if (reply.body.find(line) == std::string::npos) return line;
    }
    return "";
  };
  // A request is counted when its answer is written, which may be a moment after the client has read it.
  Reply reply = ask(world, http_get("/metrics"));
  const TimePoint until = steady_now() + std::chrono::seconds(20);
  while (!missing(reply).empty() && steady_now() < until) reply = ask(world, http_get("/metrics"));
  EXPECT_EQ(missing(reply), "") << reply.body;
  EXPECT_EQ(reply.headers.at("content-type"), "text/plain; version=0.0.4; charset=utf-8");
}

}  // namespace
}  // namespace shoal
