#include "gateway/routes.h"

#include <gtest/gtest.h>

namespace shoal {
namespace {

std::string message(std::string_view method, std::string_view target) {
  const auto routed = route_request(method, target);
  const auto* reply = std::get_if<HttpReply>(&routed);
  return reply == nullptr ? "" : reply->body;
}

Endpoint endpoint(std::string_view method, std::string_view target) {
  const auto routed = route_request(method, target);
  const auto* route = std::get_if<Route>(&routed);
  EXPECT_NE(route, nullptr) << target << ": " << message(method, target);
  return route == nullptr ? Endpoint::kRoot : route->endpoint;
}

TEST(Routes, ATargetInAbsoluteFormIsTheSameAsItsPath) {
  EXPECT_EQ(endpoint("POST", "http://example.org:8080/v1/chat/completions"), Endpoint::kChat);
  EXPECT_EQ(endpoint("GET", "https://example.org/v1/models?x=1"), Endpoint::kModels);
  EXPECT_EQ(endpoint("GET", "http://example.org"), Endpoint::kRoot);
}

TEST(Routes, AWrongPathIsAnsweredWithTheRightOne) {
  const std::pair<const char*, const char*> rows[] = {
      {"/v1/v1/chat/completions", "/v1/chat/completions?"}, {"//v1/chat/completions", "/v1/chat/completions?"},
      {"/v1//chat/completions", "/v1/chat/completions?"},   {"/v1/chat/completions/", "/v1/chat/completions?"},
      {"/v1/chat/completion", "/v1/chat/completions?"},     {"/v1/tokenize", "/tokenize?"},
      {"/v1", "/v1/models?"},                               {"/v1/", "/v1/models?"},
      {"/v1/models/tiny/", "/v1/models/tiny?"},             {"/v1/models//tiny", "/v1/models/tiny?"}};
  for (const auto& [given, meant] : rows) {
    EXPECT_NE(message("POST", given).find(std::string("did you mean ") + meant), std::string::npos) << given << ": " << message("POST", given);
  }
  EXPECT_NE(message("GET", "/no/such/thing/at/all").find("GET / lists"), std::string::npos);
}

TEST(Routes, AModelMayBeNamedInThePathOrInTheQuery) {
  const auto by_path = route_request("GET", "/v1/models/org%2Fname");
  EXPECT_EQ(std::get<Route>(by_path).argument, "org/name");
  EXPECT_EQ(std::get<Route>(route_request("GET", "/v1/models/org/name")).argument, "org/name");
  EXPECT_EQ(std::get<Route>(route_request("GET", "/tokenizer_info?x=1&model=a%20b#c")).argument, "a b");
  EXPECT_EQ(std::get<Route>(route_request("GET", "/tokenizer_info?models=a")).argument, "");
}

TEST(Routes, OnlyHealthAndTheFrontPageAreOpen) {
  for (const char* path : {"/", "/health", "/readyz"}) EXPECT_TRUE(std::get<Route>(route_request("GET", path)).open) << path;
  for (const char* path : {"/v1/models", "/metrics", "/version", "/tokenizer_info"}) EXPECT_FALSE(std::get<Route>(route_request("GET", path)).open) << path;
}

TEST(Routes, AWrongMethodIsToldTheRightOnes) {
  const auto routed = route_request("GET", "/v1/chat/completions");
  EXPECT_EQ(std::get<HttpReply>(routed).status, 405);
  EXPECT_EQ(std::get<HttpReply>(route_request("OPTIONS", "*")).status, 204);
}

}  // namespace
}  // namespace shoal
