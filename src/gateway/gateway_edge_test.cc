// What operators and browsers see of the edge: keys and their limits, cross-origin calls, tracing, TLS, the operator's
// listener, bodies that would not fit.
#include <gtest/gtest.h>

#include <fstream>

#include "absl/strings/ascii.h"
#include "base/clock.h"
#include "boost/asio/connect.hpp"
#include "boost/asio/io_context.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "boost/asio/read.hpp"
#include "boost/asio/ssl.hpp"
#include "boost/asio/write.hpp"
#include "gateway/admin.h"
#include "gateway/http_headers.h"
#include "gateway/model_totals.h"
#include "gateway/openapi.h"
#include "gateway/routes.h"
#include "gateway/test_support.h"
#include "openssl/evp.h"
#include "openssl/pem.h"
#include "openssl/x509.h"

namespace shoal {
namespace {

using test::ask;
using test::http_get;
using test::http_post;
using test::keys;
using test::RawClient;
using test::Reply;
using test::says;
using test::World;

const std::string kAsk = R"({"model":"tiny","prompt":"hi","max_tokens":4})";

std::string bearer(const std::string& key, const std::string& more = "") { return "Authorization: Bearer " + key + "\r\n" + more; }

TEST(Keys, AKeyOverItsRequestLimitGets429WithRetryAfterAndItsBudget) {
  World world(says("ok"), {.api_keys = keys({"a rpm=1", "b"})});
  const Reply first = ask(world, http_post("/v1/completions", kAsk, bearer("a")));
  EXPECT_EQ(first.status, 200) << first.body;
  EXPECT_EQ(first.headers.at("x-ratelimit-limit-requests"), "1");
  EXPECT_EQ(first.headers.at("x-ratelimit-remaining-requests"), "0");
  const Reply second = ask(world, http_post("/v1/completions", kAsk, bearer("a")));
  EXPECT_EQ(second.status, 429) << second.body;
  EXPECT_EQ(second.json()["error"]["code"], "rate_limit_exceeded");
  EXPECT_EQ(second.json()["error"]["type"], "rate_limit_error");
  EXPECT_GE(std::stoi(second.headers.at("retry-after")), 1);
  EXPECT_EQ(ask(world, http_post("/v1/completions", kAsk, bearer("b"))).status, 200);
}

TEST(Keys, AKeyOfOtherModelsSeesAndUsesOnlyThose) {
  World world(says("ok"), {.api_keys = keys({"a models=alias-1"})});
  const Reply listed = ask(world, http_get("/v1/models", bearer("a")));
  ASSERT_EQ(listed.json()["data"].size(), 1u) << listed.body;
  EXPECT_EQ(listed.json()["data"][0]["id"], "org/other");
  for (const std::string& raw : {http_post("/v1/completions", kAsk, bearer("a")), http_get("/v1/models/tiny", bearer("a")),
                                 http_post("/tokenize", R"({"model":"tiny","prompt":"x"})", bearer("a"))}) {
    const Reply refused = ask(world, raw);
    EXPECT_EQ(refused.status, 403);
    EXPECT_EQ(refused.json()["error"]["code"], "model_forbidden");
  }
  EXPECT_EQ(ask(world, http_post("/v1/completions", R"({"model":"org/other","prompt":"x"})", bearer("a"))).status, 200);
}

TEST(Keys, RequestsUnderWayAreLimitedAndCountedDownWhenTheClientGoes) {
  World world(says(std::string(150, 'x')), {.api_keys = keys({"a concurrency=1"})});
  world.node.set_pause(std::chrono::milliseconds(20));
  RawClient running(*world.server);
  running.send_text(http_post("/v1/completions", R"({"model":"tiny","prompt":"hi","max_tokens":150,"stream":true})", bearer("a")));
  ASSERT_TRUE(running.read_until("data:"));
  EXPECT_EQ(ask(world, http_post("/v1/completions", kAsk, bearer("a"))).status, 429);
  running.hang_up();
  ASSERT_TRUE(world.node.wait_cancelled(1));
  int status = 429;
  for (int i = 0; i < 200 && status == 429; ++i) {
    status = ask(world, http_post("/v1/completions", kAsk, bearer("a"))).status;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(status, 200);
}

TEST(Cors, APageOfAnAllowedOriginMayAskAndRead) {
  World world(says("ok"), {.api_keys = keys({"a"})}, {.cors_origins = {"https://chat.example"}});
  const Reply preflight = ask(world, "OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: x\r\nOrigin: https://chat.example\r\n"
                                     "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization,x-stainless-os\r\n\r\n");
  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(preflight.headers.at("access-control-allow-origin"), "https://chat.example");
  EXPECT_EQ(preflight.headers.at("access-control-allow-headers"), "authorization,x-stainless-os");
  EXPECT_EQ(preflight.headers.at("vary"), "Origin");
  const Reply answer = ask(world, http_post("/v1/completions", kAsk, bearer("a", "Origin: https://chat.example\r\n")));
  EXPECT_EQ(answer.headers.at("access-control-allow-origin"), "https://chat.example");
  const std::string stream = R"({"model":"tiny","prompt":"hi","stream":true})";
  const Reply streamed = ask(world, http_post("/v1/completions", stream, bearer("a", "Origin: https://chat.example\r\n")));
  EXPECT_EQ(streamed.headers.at("access-control-allow-origin"), "https://chat.example");
  const Reply unauthorized = ask(world, http_post("/v1/completions", kAsk, "Origin: https://chat.example\r\n"));
  EXPECT_EQ(unauthorized.status, 401);
  EXPECT_EQ(unauthorized.headers.count("access-control-allow-origin"), 1u) << "or the page could not read the error";
}

TEST(Cors, OtherOriginsGetNoLeave) {
  World world(says("ok"), {}, {.cors_origins = {"https://chat.example"}});
  const Reply answer = ask(world, http_post("/v1/completions", kAsk, "Origin: https://evil.example\r\n"));
  EXPECT_EQ(answer.headers.count("access-control-allow-origin"), 0u);
  EXPECT_TRUE(cors_headers("https://x.example", {}).empty());
  EXPECT_TRUE(cors_headers("https://x\r\nSet-Cookie: a", {"*"}).empty());
  EXPECT_EQ(cors_headers("https://x.example", {"*"})[0].second, "*");
}

TEST(Tracing, AValidTraceContextIsHandedBack) {
  World world(says("ok"));
  const std::string trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  EXPECT_EQ(ask(world, http_post("/v1/completions", kAsk, "traceparent: " + trace + "\r\n")).headers.at("traceparent"), trace);
  for (const char* bad : {"", "00-00000000000000000000000000000000-b7ad6b7169203331-01", "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                          "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x"}) {
    EXPECT_FALSE(is_traceparent(bad)) << bad;
  }
}

TEST(Deadlines, AClientMayNameItsOwnAndGets504OrAnErrorEvent) {
  World world(says(std::string(150, 'x')));
  world.node.set_pause(std::chrono::milliseconds(20));
  const std::string body = R"({"model":"tiny","prompt":"hi","max_tokens":150})";
  const Reply late = ask(world, http_post("/v1/completions", body, "X-Request-Timeout: 0.1\r\n"));
  EXPECT_EQ(late.status, 504) << late.body;
  EXPECT_EQ(late.json()["error"]["code"], "deadline_exceeded");
  EXPECT_TRUE(world.node.wait_cancelled(1));
  const std::string stream = R"({"model":"tiny","prompt":"hi","max_tokens":150,"stream":true})";
  const auto events = ask(world, http_post("/v1/completions", stream, "X-Request-Timeout: 0.7\r\n")).events();
  ASSERT_GE(events.size(), 3u);
  EXPECT_EQ(events[events.size() - 2]["error"]["code"], "deadline_exceeded");
  for (const char* bad : {"soon", "-1", "0", "nan"}) {
    const Reply refused = ask(world, http_post("/v1/completions", body, absl::StrCat("X-Request-Timeout: ", bad, "\r\n")));
    EXPECT_EQ(refused.status, 400) << bad;
    EXPECT_EQ(refused.json()["error"]["param"], "X-Request-Timeout");
  }
}

TEST(Deadlines, AClientMayTightenTheModelsInBodyAndHeaders) {
  World world(says("ok"));
  const std::string body = R"({"model":"tiny","prompt":"hi","slo":{"ttft_ms":500,"tbt_ms":40}})";
  EXPECT_EQ(ask(world, http_post("/v1/completions", body, "X-Shoal-Ttft-Ms: 700\r\nX-Shoal-Tbt-Ms: 25.5\r\n")).status, 200);
  EXPECT_EQ(ask(world, http_post("/v1/completions", R"({"model":"tiny","prompt":"hi"})")).status, 200);
  const auto submitted = world.node.submitted();
  ASSERT_EQ(submitted.size(), 2u);
  EXPECT_EQ(submitted[0].ttft_max, std::chrono::milliseconds(500));
  EXPECT_EQ(submitted[0].tbt_max, std::chrono::microseconds(25500));
  EXPECT_EQ(submitted[1].ttft_max, Duration::max());
  for (const char* bad : {"soon", "-1", "0", "nan", "1e12"}) {
    const Reply refused = ask(world, http_post("/v1/completions", body, absl::StrCat("X-Shoal-Ttft-Ms: ", bad, "\r\n")));
    EXPECT_EQ(refused.status, 400) << bad;
    EXPECT_EQ(refused.json()["error"]["param"], "X-Shoal-Ttft-Ms");
  }
  const Reply refused = post(world, "/v1/completions", {{"model", "tiny"}, {"prompt", "hi"}, {"slo", {{"tbt_ms", "fast"}}}});
  EXPECT_EQ(refused.json()["error"]["param"], "slo.tbt_ms") << refused.body;
}

TEST(Deadlines, WhatIsLateFailedOrOnTimeIsInTheMetrics) {
  World world(says("four"));  // and the end: five tokens
  const Json ask_once = {{"model", "tiny"}, {"prompt", "hi"}, {"max_tokens", 9}};
  EXPECT_EQ(post(world, "/v1/completions", ask_once).status, 200);
  world.node.set_pause(std::chrono::milliseconds(30));
  Json hurried = ask_once;
  hurried["slo"] = {{"ttft_ms", 1}, {"tbt_ms", 1}};
  EXPECT_EQ(post(world, "/v1/completions", hurried).status, 200);
  world.node.fail_with(StatusCode::kFailedPrecondition, "model 'tiny' could not be loaded: truncated", 0);
  const Reply failed = post(world, "/v1/completions", ask_once);
  EXPECT_EQ(failed.status, 503);
  EXPECT_EQ(failed.json()["error"]["code"], "model_load_failed");
  Attainment seen;
  for (int i = 0; i < 500 && seen.requests < 3; ++i) {  // counted when the answer has been sent
    seen = world.service.metrics().attainment(*world.catalog.find("tiny"));
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  EXPECT_EQ(seen.requests, 3u);
  EXPECT_EQ(seen.tokens, 5u + 5u + 1u);
  EXPECT_EQ(seen.requests_on_time, 1u);
  EXPECT_LT(seen.tokens_on_time, 10u);
  const std::string page = ask(world, http_get("/metrics")).body;
  for (const char* line : {"shoal_slo_tokens_total{model=\"tiny\"} 11", "shoal_slo_requests_on_time_total{model=\"tiny\"} 1",
                           "shoal_slo_target_seconds{model=\"tiny\",kind=\"ttft\"} 10", "shoal_token_lateness_seconds_count{model=\"tiny\"} 10",
                           "shoal_slo_attainment{model=\"org/other\",figure=\"tokens\"} 1"}) {
    EXPECT_NE(page.find(line), std::string::npos) << line;
  }
}

TEST(Bodies, ThatTogetherWouldNotFitAreRefusedBeforeTheyAreRead) {
  World world(says("ok"), {}, {.body_bytes_total_max = 10'000});
  RawClient half(*world.server);
  half.send_text("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9000\r\n\r\n{");
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const Reply refused = ask(world, http_post("/v1/completions", kAsk + std::string(5000, ' ')));
  EXPECT_EQ(refused.status, 503) << refused.body;
  EXPECT_EQ(ask(world, http_post("/v1/completions", kAsk)).status, 200) << "a small one still fits";
  half.hang_up();
  int status = 503;
  for (int i = 0; i < 200 && status == 503; ++i) {
    status = ask(world, http_post("/v1/completions", kAsk + std::string(5000, ' '))).status;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(status, 200);
}

TEST(OpenApi, IsServedAndIsJson) {
  World world(says("ok"));
  const Reply reply = ask(world, http_get("/openapi.json"));
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.json()["openapi"], "3.1.0");
  EXPECT_TRUE(reply.json()["paths"].contains("/v1/chat/completions"));
}

TEST(OpenApi, DescribesWhatIsServedAndNothingElse) {
  const Json paths = parse_json(openapi_json())->at("paths");
  for (const auto& [path, methods] : paths.items()) {
    std::string target = path;
    if (const size_t id = target.find('{'); id != std::string::npos) target.replace(id, target.find('}') - id + 1, "some");
    for (const auto& [method, operation] : methods.items()) {
      EXPECT_TRUE(std::holds_alternative<Route>(route_request(absl::AsciiStrToUpper(method), target))) << method << " " << path;
      EXPECT_TRUE(operation["responses"].contains("200")) << path;
    }
  }
  for (const char* line : {"/v1/models", "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings", "/v1/rerank", "/v1/score", "/v1/messages",
                           "/v1/messages/count_tokens", "/api/chat", "/api/generate", "/api/embed", "/api/show", "/api/tags", "/api/ps", "/api/version", "/completion",
                           "/infill", "/props", "/slots", "/tokenize", "/detokenize", "/apply-template", "/tokenizer_info", "/health", "/readyz", "/metrics", "/version"}) {
    EXPECT_NE(root_page().find(line), std::string::npos) << line;
    EXPECT_TRUE(paths.contains(line)) << line;
  }
}

// The operator's listener in front of the same service.
struct AdminWorld {
  explicit AdminWorld(AdminConfig config = {}) : world(says("ok")), admin(std::move(config), world.service, world.catalog, world.loop) {
    HttpServerConfig http;
    http.port = 0;
    server = *HttpServer::start(http, world.service, &admin);
  }
  Reply ask(const std::string& raw) const {
    RawClient client(*server);
    client.send_text(raw);
    return client.read_reply();
  }
  World world;
  Admin admin;
  std::unique_ptr<HttpServer> server;
};

TEST(Admin, ListsModelsInTheShapesOfItsPeers) {
  AdminWorld admin;
  const Json models = admin.ask(http_get("/models")).json();
  ASSERT_EQ(models["data"].size(), 2u);
  EXPECT_EQ(models["data"][0]["status"]["value"], "loaded");
  EXPECT_EQ(models["data"][0]["requests"]["running"], 3);
  EXPECT_EQ(models["data"][0]["memory"], (Json{{"weights", 500}, {"kv_used", 100}}));
  EXPECT_EQ(models["data"][1]["status"]["value"], "unloaded");
  EXPECT_TRUE(models["data"][1]["last_used_seconds_ago"].is_null());
  EXPECT_EQ(models["device"], (Json{{"memory", 1000}, {"free", 400}, {"workspace", 0}}));
  const Json running = admin.ask(http_get("/running")).json();
  EXPECT_EQ(running["running"], Json::array({{{"model", "tiny"}, {"state", "ready"}}}));
  const Json ps = admin.ask(http_get("/api/ps")).json();
  ASSERT_EQ(ps["models"].size(), 1u);
  EXPECT_EQ(ps["models"][0]["size"], 600);
}

TEST(Admin, LoadsUnloadsAndNamesWhatIsUnknown) {
  AdminWorld admin;
  EXPECT_EQ(admin.ask(http_post("/models/load", R"({"model":"tiny","wait":true})")).status, 200);
  EXPECT_EQ(admin.ask(http_post("/models/load", R"({"model":"alias-1"})")).status, 202);
  const Reply unload = admin.ask(http_post("/models/unload", R"({"model":"tiny"})"));
  EXPECT_EQ(unload.json(), (Json{{"success", true}, {"model", "tiny"}, {"requests_under_way", 0}})) << "a node's last report may be of requests that have ended";
  const Reply unknown = admin.ask(http_post("/models/load", R"({"model":"nope"})"));
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(unknown.json()["error"]["code"], "model_not_found");
  EXPECT_EQ(admin.ask(http_post("/models/load", R"({"model":3})")).json()["error"]["param"], "model");
  EXPECT_EQ(admin.ask(http_get("/health")).status, 200);
  EXPECT_EQ(admin.ask(http_post("/v1/completions", kAsk)).status, 404);
}

TEST(Admin, ALoadThatFailsIsAnErrorWithItsReason) {
  AdminWorld admin;
  NodeStatus status{.version = 2, .device_bytes = 1000, .device_bytes_free = 400};
  status.models.push_back({.model = ModelId(1), .state = ModelState::kFailed, .error = "model.safetensors is truncated"});
  admin.world.node.report(status);
  const Reply reply = admin.ask(http_post("/models/load", R"({"model":"org/other","wait":true})"));
  EXPECT_EQ(reply.status, 503);
  EXPECT_EQ(reply.json()["error"]["code"], "model_load_failed");
  EXPECT_NE(reply.json()["error"]["message"].get<std::string>().find("truncated"), std::string::npos);
}

TEST(ModelTotals, TheBestStateOfAllNodesIsShown) {
  RouterSnapshot nodes;
  const auto on = [&](uint32_t node, ModelStatus status) {
    status.model = ModelId(1);
    nodes.nodes[NodeId(node)].models = {std::move(status)};
  };
  EXPECT_EQ(totals_of(ModelId(1), nodes).state, ModelState::kUnloaded);
  on(1, {.state = ModelState::kFailed, .error = "cut", .running = 1});
  on(2, {.state = ModelState::kUnloaded, .running = 2});
  EXPECT_EQ(totals_of(ModelId(1), nodes).state, ModelState::kFailed) << "whoever waits must hear of it";
  EXPECT_EQ(totals_of(ModelId(1), nodes).error, "cut");
  EXPECT_EQ(totals_of(ModelId(1), nodes).running, 3u);
  on(2, {.state = ModelState::kLoading, .progress = 0.25f});
  on(3, {.state = ModelState::kLoading, .progress = 0.5f});
  EXPECT_EQ(totals_of(ModelId(1), nodes).state, ModelState::kLoading);
  EXPECT_EQ(totals_of(ModelId(1), nodes).progress, 0.5f);
  on(1, {.state = ModelState::kLoaded, .weight_bytes = 7});
  EXPECT_EQ(totals_of(ModelId(1), nodes).state, ModelState::kLoaded);
  EXPECT_EQ(totals_of(ModelId(2), nodes).state, ModelState::kUnloaded);
}

TEST(Admin, AsksForItsKeyAndStopsTheServer) {
  std::optional<Duration> patience;
  int stops = 0;
  AdminWorld admin({.key = "operator", .shutdown = [&](std::optional<Duration> p) { patience = p; ++stops; }});
  EXPECT_EQ(admin.ask(http_get("/models")).status, 401);
  EXPECT_EQ(admin.ask(http_post("/admin/shutdown", "{}", bearer("wrong"))).status, 401);
  EXPECT_EQ(stops, 0);
  EXPECT_EQ(admin.ask(http_post("/admin/shutdown", R"({"timeout_s":1.5})", bearer("operator"))).status, 202);
  EXPECT_EQ(stops, 1);
  EXPECT_EQ(patience, std::optional<Duration>(from_seconds(1.5)));
}

// A self-signed certificate and its key, as PEM files in the test's folder.
struct Certificate {
  Certificate() {
    EVP_PKEY* pair = EVP_RSA_gen(2048);
    X509* x509 = X509_new();
    ASN1_INTEGER_set(X509_get_serialNumber(x509), 1);
    X509_gmtime_adj(X509_getm_notBefore(x509), 0);
    X509_gmtime_adj(X509_getm_notAfter(x509), 3600);
    X509_set_pubkey(x509, pair);
    X509_NAME* name = X509_get_subject_name(x509);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("localhost"), -1, -1, 0);
    X509_set_issuer_name(x509, name);
    X509_sign(x509, pair, EVP_sha256());
    FILE* file = std::fopen(certificate.c_str(), "w");
    PEM_write_X509(file, x509);
    std::fclose(file);
    file = std::fopen(key.c_str(), "w");
    PEM_write_PrivateKey(file, pair, nullptr, nullptr, 0, nullptr, nullptr);
    std::fclose(file);
    X509_free(x509);
    EVP_PKEY_free(pair);
  }
  ~Certificate() {
    unlink(certificate.c_str());
    unlink(key.c_str());
  }
  const std::string certificate = absl::StrCat(testing::TempDir(), "shoal_edge_cert_", getpid(), ".pem");
  const std::string key = absl::StrCat(testing::TempDir(), "shoal_edge_key_", getpid(), ".pem");
};

TEST(Tls, TheSameAnswersAndStreamsEncrypted) {
  namespace asio = boost::asio;
  const Certificate files;
  World world(says("Hello"), {}, {.tls_certificate_file = files.certificate, .tls_key_file = files.key});
  ASSERT_NE(world.server, nullptr);
  EXPECT_EQ(world.server->address().rfind("https://", 0), 0u);
  RawClient plain(*world.server);  // speaks no TLS: gets nothing, and holds nobody up
  plain.send_text(http_get("/health"));

  asio::io_context io;
  asio::ssl::context context(asio::ssl::context::tls_client);
  asio::ssl::stream<asio::ip::tcp::socket> client(io, context);
  client.lowest_layer().connect({asio::ip::make_address("127.0.0.1"), world.server->port()});
  client.handshake(asio::ssl::stream_base::client);
  const std::string stream = R"({"model":"tiny","prompt":"hi","stream":true})";
  for (int round = 0; round < 2; ++round) {  // the connection is kept
    asio::write(client, asio::buffer(http_post("/v1/completions", stream)));
    std::string got;
    char piece[4096];
    while (got.find("[DONE]\n\n\r\n0\r\n\r\n") == std::string::npos) {
      boost::system::error_code error;
      const size_t count = client.read_some(asio::buffer(piece), error);
      ASSERT_FALSE(error) << error.message() << "\n" << got;
      got.append(piece, count);
    }
    EXPECT_EQ(got.rfind("HTTP/1.1 200 OK", 0), 0u);
  }
}

TEST(Tls, AClientThatOffersHttp2IsSpokenToInIt) {
  namespace asio = boost::asio;
  const Certificate files;
  World world(says("Hello"), {}, {.tls_certificate_file = files.certificate, .tls_key_file = files.key});
  const std::string offers[] = {"\x08http/1.1\x02h2", "\x08http/1.1", "\x06gopher"};
  const std::string chosen[] = {"h2", "http/1.1", ""};
  for (size_t i = 0; i < std::size(offers); ++i) {
    asio::io_context io;
    asio::ssl::context context(asio::ssl::context::tls_client);
    asio::ssl::stream<asio::ip::tcp::socket> client(io, context);
    SSL_set_alpn_protos(client.native_handle(), reinterpret_cast<const unsigned char*>(offers[i].data()), static_cast<unsigned>(offers[i].size()));
    client.lowest_layer().connect({asio::ip::make_address("127.0.0.1"), world.server->port()});
    client.handshake(asio::ssl::stream_base::client);
    const unsigned char* name = nullptr;
    unsigned length = 0;
    SSL_get0_alpn_selected(client.native_handle(), &name, &length);
    EXPECT_EQ(std::string(name, name + length), chosen[i]);
    if (chosen[i] != "h2") continue;
    asio::write(client, asio::buffer(std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0", 33)));  // with empty settings
    char header[9];  // of the first frame: the server's settings
    asio::read(client, asio::buffer(header));
    EXPECT_EQ(header[3], 4);
  }
}

TEST(Tls, AClientThatGoesAwayFreesItsWork) {
  namespace asio = boost::asio;
  const Certificate files;
  World world(says(std::string(150, 'x')), {}, {.tls_certificate_file = files.certificate, .tls_key_file = files.key});
  world.node.set_pause(std::chrono::milliseconds(20));
  {
    asio::io_context io;
    asio::ssl::context context(asio::ssl::context::tls_client);
    asio::ssl::stream<asio::ip::tcp::socket> client(io, context);
    client.lowest_layer().connect({asio::ip::make_address("127.0.0.1"), world.server->port()});
    client.handshake(asio::ssl::stream_base::client);
    asio::write(client, asio::buffer(http_post("/v1/completions", R"({"model":"tiny","prompt":"hi","max_tokens":150,"stream":true})")));
    char piece[512];
    client.read_some(asio::buffer(piece));
  }
  EXPECT_TRUE(world.node.wait_cancelled(1));
}

TEST(Tls, FilesThatAreNoCertificateAreNamed) {
  const std::string path = testing::TempDir() + "shoal_no_cert.pem";
  std::ofstream(path) << "nothing";
  World world(says("x"));
  const auto started = HttpServer::start({.port = 0, .tls_certificate_file = path, .tls_key_file = path}, world.service);
  ASSERT_FALSE(started.ok());
  EXPECT_NE(std::string(started.status().message()).find(path), std::string::npos);
}

}  // namespace
}  // namespace shoal
