// HTTP as proxies, old clients and people with netcat speak it.
#include <gtest/gtest.h>

#include <thread>

#include "gateway/http_headers.h"
#include "gateway/test_support.h"

namespace shoal {
namespace {

using test::ask;
using test::chat_body;
using test::http_get;
using test::http_post;
using test::RawClient;
using test::Reply;
using test::says;
using test::World;

TEST(Protocol, ATargetInAbsoluteFormIsServed) {
  World world(says("ok"));
  EXPECT_EQ(ask(world, "GET http://somewhere.example:80/v1/models HTTP/1.1\r\nHost: somewhere.example\r\n\r\n").status, 200);
}

TEST(Protocol, ARequestHasOneHostUnlessItIsOld) {
  World world(says("ok"));
  EXPECT_EQ(ask(world, "GET /health HTTP/1.1\r\n\r\n").status, 400);
  EXPECT_EQ(ask(world, "GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n").status, 400);
  EXPECT_EQ(ask(world, "GET /health HTTP/1.0\r\n\r\n").status, 200);
}

TEST(Protocol, EveryAnswerHasADate) {
  World world(says("ok"));
  EXPECT_TRUE(ask(world, http_get("/health")).headers.at("date").ends_with(" GMT"));
  EXPECT_TRUE(ask(world, http_get("/nothing")).headers.contains("date"));
  EXPECT_TRUE(ask(world, http_post("/v1/chat/completions", chat_body({{"stream", true}}).dump())).headers.contains("date"));
  EXPECT_EQ(http_date(std::chrono::system_clock::from_time_t(784111777)), "Sun, 06 Nov 1994 08:49:37 GMT");  // RFC 9110's own
}

TEST(Protocol, AnEncodedBodyIsRefusedByTheNameOfItsEncoding) {
  World world(says("ok"));
  const Reply reply = ask(world, http_post("/v1/chat/completions", "\x1f\x8b rest", "Content-Encoding: gzip\r\n"));
  EXPECT_EQ(reply.status, 415);
  EXPECT_NE(reply.body.find("gzip"), std::string::npos) << reply.body;
  EXPECT_EQ(reply.headers.at("accept-encoding"), "identity");
  EXPECT_EQ(ask(world, http_post("/v1/chat/completions", chat_body().dump(), "Content-Encoding: identity\r\n")).status, 200);
}

TEST(Protocol, OtherProtocolsAreToldWhatIsSpokenHere) {
  World world(says("ok"));
  EXPECT_EQ(ask(world, "PRI * HTTP/2.0\r\n\r\nXY\r\n\r\n").status, 400) << "almost HTTP/2";
  const Reply tls = ask(world, std::string("\x16\x03\x01\x02\x00\x01\x00", 7) + std::string(300, 'x'));
  EXPECT_EQ(tls.status, 400);
  EXPECT_NE(tls.body.find("TLS"), std::string::npos) << tls.body;
}

TEST(Protocol, TheFrontPageSaysWhatThisIsAlsoWithoutAKey) {
  World world(says("ok"), {.api_keys = {*parse_api_key("secret", {})}});
  const Reply reply = ask(world, http_get("/"));
  EXPECT_EQ(reply.status, 200);
  for (const char* word : {"Shoal", "/v1/models", "/v1/chat/completions", "/openapi.json"}) EXPECT_NE(reply.body.find(word), std::string::npos) << word;
  EXPECT_EQ(ask(world, http_get("/tokenizer_info?model=tiny")).status, 401);
}

TEST(Protocol, TheTokenizersInfoIsOfTheModelThatIsNamed) {
  World world(says("ok"));
  EXPECT_EQ(ask(world, http_get("/tokenizer_info?model=tiny")).status, 200);
  const Reply unnamed = ask(world, http_get("/tokenizer_info"));
  EXPECT_EQ(unnamed.status, 400);
  EXPECT_EQ(unnamed.json()["error"]["param"], "model");
}

TEST(Protocol, AnUnknownModelNamesTheNearest) {
  World world(says("ok"));
  const Reply reply = ask(world, http_post("/v1/completions", R"({"model":"tiyn","prompt":"x"})"));
  EXPECT_EQ(reply.status, 404);
  EXPECT_NE(reply.body.find("did you mean 'tiny'?"), std::string::npos) << reply.body;
}

TEST(Protocol, AClientThatClosesItsSendingSideGetsItsAnswer) {
  for (const bool stream : {false, true}) {
    World world(says("an answer"));
    world.node.set_pause(std::chrono::milliseconds(30));
    RawClient client(*world.server);
    client.send_text(http_post("/v1/chat/completions", chat_body({{"stream", stream}}).dump()));
    client.close_sending();
    EXPECT_TRUE(client.read_until("HTTP/1.1 200 OK")) << "past interim answers";
    EXPECT_TRUE(client.read_until(stream ? "[DONE]" : "an answer"));
    EXPECT_TRUE(world.loop.wait_idle(std::chrono::seconds(5)));
  }
}

TEST(Protocol, AnOldClientThatClosesItsSendingSideGetsNothingButItsAnswer) {
  World world(says("an answer"));
  world.node.set_pause(std::chrono::milliseconds(10));
  RawClient client(*world.server);
  const std::string body = chat_body().dump();
  client.send_text("POST /v1/chat/completions HTTP/1.0\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
  client.close_sending();
  EXPECT_EQ(client.read_reply().status, 200);
}

TEST(Protocol, AClientThatGoesAfterItClosedItsSendingSideFreesItsWork) {
  World world([](const Request&) { return test::bytes_of("x"); });
  world.node.set_pause(std::chrono::milliseconds(20));
  RawClient client(*world.server);
  client.send_text(http_post("/v1/chat/completions", chat_body({{"max_tokens", 150}}).dump()));
  client.close_sending();
  while (world.node.submitted().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  client.hang_up();
  EXPECT_TRUE(world.node.wait_cancelled(1));
}

}  // namespace
}  // namespace shoal
