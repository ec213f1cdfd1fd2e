// HTTP/2 on plain connections, with the client's half of nghttp2.
#include <gtest/gtest.h>

#include <thread>

#include "gateway/test_support.h"
#include "nghttp2/nghttp2.h"

namespace shoal {
namespace {

using test::ask;
using test::http_get;
using test::RawClient;
using test::says;
using test::World;

constexpr char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

struct Answer : test::Reply {
  std::vector<int> interim;        // statuses before the one that counts
  std::optional<uint32_t> closed;  // how the stream ended
  bool reset = false;              // by the server
};

// A client on one connection. Reads only while it waits for something.
class Http2Client {
 public:
  explicit Http2Client(const World& world, bool opens_windows = true) : socket_(*world.server) {
    nghttp2_session_callbacks* callbacks = nullptr;
    nghttp2_session_callbacks_new(&callbacks);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    nghttp2_option* options = nullptr;
    nghttp2_option_new(&options);
    nghttp2_option_set_no_auto_window_update(options, opens_windows ? 0 : 1);
    nghttp2_session_client_new2(&session_, callbacks, this, options);
    nghttp2_option_del(options);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, nullptr, 0);
    if (!opens_windows) nghttp2_session_set_local_window_size(session_, NGHTTP2_FLAG_NONE, 0, 1 << 30);  // only a stream's is shut
  }
  ~Http2Client() { nghttp2_session_del(session_); }

  // `ends`: the body is all there is. Otherwise its end waits for end_body().
  int32_t submit(const std::string& method, const std::string& path, const std::string& body = "", const Headers& more = {}, bool ends = true) {
    Headers fields = {{":method", method}, {":scheme", "http"}, {":authority", "x"}, {":path", path}};
    if (!body.empty()) fields.emplace_back("content-type", "application/json");
    fields.insert(fields.end(), more.begin(), more.end());
    std::vector<nghttp2_nv> nv;
    for (auto& [name, value] : fields) {
      nv.push_back({reinterpret_cast<uint8_t*>(name.data()), reinterpret_cast<uint8_t*>(value.data()), name.size(), value.size(), NGHTTP2_NV_FLAG_NONE});
    }
    auto& out = bodies_.emplace_back(std::make_unique<Body>(Body{body, ends}));
    nghttp2_data_provider provider{.source = {.ptr = out.get()}, .read_callback = read_body};
    const bool has_body = !body.empty() || !ends;
    const int32_t id = nghttp2_submit_request(session_, nullptr, nv.data(), nv.size(), has_body ? &provider : nullptr, nullptr);
    answers_[id];
    body_of_[id] = out.get();
    return id;
  }
  int32_t post(const std::string& path, const Json& body) { return submit("POST", path, body.dump()); }
  void reset(int32_t id) { nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, id, NGHTTP2_CANCEL); }
  void end_body(int32_t id) {
    body_of_[id]->ends = true;
    nghttp2_session_resume_data(session_, id);
  }
  bool ping() { return nghttp2_submit_ping(session_, NGHTTP2_FLAG_NONE, nullptr) == 0; }

  bool flush() {
    const uint8_t* bytes = nullptr;
    ssize_t count = 0;
    while ((count = nghttp2_session_mem_send(session_, &bytes)) > 0) {
      if (!socket_.send_text({reinterpret_cast<const char*>(bytes), static_cast<size_t>(count)})) return false;
    }
    return count == 0;
  }
  // False: the connection ended before.
  template <typename Condition>
  bool wait_for(Condition holds) {
    while (!holds()) {
      if (!flush()) return false;
      const std::string bytes = socket_.read_bytes();
      if (bytes.empty()) return false;
      if (nghttp2_session_mem_recv(session_, reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()) < 0) return false;
    }
    return flush();
  }
  const Answer& wait(int32_t id) {
    wait_for([&] { return answers_[id].closed.has_value(); });
    return answers_[id];
  }
  const Answer& ask(const std::string& method, const std::string& path, const std::string& body = "", const Headers& more = {}) {
    return wait(submit(method, path, body, more));
  }
  Answer& answer(int32_t id) { return answers_[id]; }
  std::optional<uint32_t> goaway() const { return goaway_; }
  uint32_t streams_max() const { return nghttp2_session_get_remote_settings(session_, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS); }
  RawClient& socket() { return socket_; }

 private:
  struct Body {
    std::string text;
    bool ends;
  };
  static Http2Client& self(void* user) { return *static_cast<Http2Client*>(user); }
  static int on_header(nghttp2_session*, const nghttp2_frame* frame, const uint8_t* name, size_t name_length, const uint8_t* value, size_t value_length, uint8_t, void* user) {
    Answer& answer = self(user).answers_[frame->hd.stream_id];
    const std::string text(value, value + value_length);
    if (std::string(name, name + name_length) != ":status") answer.headers[std::string(name, name + name_length)] = text;
    else if (text[0] == '1') answer.interim.push_back(std::stoi(text));
    else answer.status = std::stoi(text);
    return 0;
  }
  static int on_data(nghttp2_session*, uint8_t, int32_t id, const uint8_t* data, size_t length, void* user) {
    self(user).answers_[id].body.append(data, data + length);
    return 0;
  }
  static int on_frame(nghttp2_session*, const nghttp2_frame* frame, void* user) {
    if (frame->hd.type == NGHTTP2_GOAWAY) self(user).goaway_ = frame->goaway.error_code;
    if (frame->hd.type == NGHTTP2_RST_STREAM) self(user).answers_[frame->hd.stream_id].reset = true;
    const bool of_answer = frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS;
    if (of_answer && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0) self(user).answers_[frame->hd.stream_id].complete = true;
    return 0;
  }
  static int on_close(nghttp2_session*, int32_t id, uint32_t error_code, void* user) {
    self(user).answers_[id].closed = error_code;
    return 0;
  }
  static ssize_t read_body(nghttp2_session*, int32_t, uint8_t* out, size_t length, uint32_t* flags, nghttp2_data_source* source, void*) {
    Body& body = *static_cast<Body*>(source->ptr);
    if (body.text.empty() && !body.ends) return NGHTTP2_ERR_DEFERRED;
    const size_t count = std::min(length, body.text.size());
    std::copy_n(body.text.begin(), count, out);
    body.text.erase(0, count);
    if (body.text.empty() && body.ends) *flags |= NGHTTP2_DATA_FLAG_EOF;
    return static_cast<ssize_t>(count);
  }

  RawClient socket_;
  nghttp2_session* session_ = nullptr;
  std::map<int32_t, Answer> answers_;
  std::vector<std::unique_ptr<Body>> bodies_;
  std::map<int32_t, Body*> body_of_;
  std::optional<uint32_t> goaway_;
};

Json completion(Json more = Json::object()) {
  Json body = {{"model", "tiny"}, {"prompt", "hi"}, {"max_tokens", 100}};
  body.update(more);
  return body;
}

std::vector<TokenId> endless(const Request&) { return test::bytes_of("x"); }

std::vector<int> frame_types(std::string_view bytes) {
  std::vector<int> types;
  while (bytes.size() >= 9) {
    const auto byte = [&](size_t i) { return static_cast<size_t>(static_cast<unsigned char>(bytes[i])); };
    types.push_back(static_cast<int>(byte(3)));
    bytes.remove_prefix(std::min(bytes.size(), 9 + (byte(0) << 16 | byte(1) << 8 | byte(2))));
  }
  return types;
}

TEST(Http2, AnswersWholeAndStreamed) {
  World world(says("Hello"));
  Http2Client client(world);
  const Answer& whole = client.ask("POST", "/v1/completions", completion().dump(), {{"x-request-id", "mine"}});
  EXPECT_EQ(whole.status, 200) << whole.body;
  EXPECT_EQ(whole.json()["choices"][0]["text"], "Hello");
  EXPECT_EQ(whole.headers.at("x-request-id"), "mine");
  const Answer& streamed = client.wait(client.post("/v1/completions", completion({{"stream", true}})));
  EXPECT_EQ(streamed.status, 200);
  EXPECT_EQ(streamed.headers.at("content-type"), "text/event-stream; charset=utf-8");
  EXPECT_EQ(streamed.events().back(), "[DONE]");
  for (const Answer* answer : {&whole, &streamed}) {
    EXPECT_TRUE(answer->complete);
    EXPECT_EQ(answer->closed, NGHTTP2_NO_ERROR);
    for (const char* name : {"connection", "transfer-encoding", "keep-alive"}) EXPECT_FALSE(answer->headers.contains(name)) << name;
  }
  EXPECT_EQ(client.ask("GET", "/nothing").status, 404);
  const Answer& head = client.ask("HEAD", "/health");
  EXPECT_EQ(head.status, 200);
  EXPECT_TRUE(head.complete && head.body.empty());
}

TEST(Http2, APrefaceThatComesInPiecesIsStillOne) {
  World world(says("ok"));
  RawClient client(*world.server);
  for (const char c : std::string_view(kPreface)) {
    client.send_text({&c, 1});
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  client.send_text({"\0\0\0\x04\0\0\0\0\0", 9});  // empty settings
  const std::string settings = client.read_bytes();
  ASSERT_GE(settings.size(), 9u);
  EXPECT_EQ(settings[3], NGHTTP2_SETTINGS);
}

TEST(Http2, ManyStreamsShareOneConnection) {
  World world(says(std::string(50, 'x')));
  world.node.set_pause(std::chrono::milliseconds(1));
  Http2Client client(world);
  std::vector<int32_t> ids;
  for (int i = 0; i < 250; ++i) ids.push_back(client.post("/v1/completions", completion({{"stream", i % 2 == 0}})));
  for (const int32_t id : ids) {
    const Answer& answer = client.wait(id);
    ASSERT_EQ(answer.status, 200) << answer.body;
    ASSERT_TRUE(answer.complete);
  }
  EXPECT_EQ(client.streams_max(), 100u) << "the rest waited for its turn";
}

TEST(Http2, AStreamThatIsResetFreesItsWorkAndItsConnectionGoesOn) {
  World world(endless);
  world.node.set_pause(std::chrono::milliseconds(20));
  Http2Client client(world);
  for (const bool stream : {false, true}) {
    const size_t before = world.node.submitted().size();
    const int32_t id = client.post("/v1/completions", completion({{"stream", stream}, {"max_tokens", 150}}));
    ASSERT_TRUE(client.flush());
    while (world.node.submitted().size() == before) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    client.reset(id);
    ASSERT_TRUE(client.flush());
    EXPECT_TRUE(world.node.wait_cancelled(before + 1));
  }
  EXPECT_EQ(client.ask("GET", "/health").status, 200);
}

TEST(Http2, AConnectionThatIsLostFreesTheWorkOfAllItsStreams) {
  World world(endless);
  world.node.set_pause(std::chrono::milliseconds(20));
  Http2Client client(world);
  for (int i = 0; i < 10; ++i) client.post("/v1/completions", completion({{"stream", i % 2 == 0}, {"max_tokens", 150}}));
  client.flush();
  while (world.node.submitted().size() < 10) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  client.socket().hang_up();
  EXPECT_TRUE(world.node.wait_cancelled(10));
  for (int i = 0; i < 500 && world.server->active_requests() > 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(world.server->active_requests(), 0u);
}

TEST(Http2, AStreamWhoseWindowStaysShutIsDroppedAndHoldsUpNobodyElse) {
  World world(endless, {}, {.write_time_max = std::chrono::milliseconds(300)});
  Http2Client client(world, /*opens_windows=*/false);
  const Json long_one = {{"model", "tiny"}, {"prompt", Json(std::vector<std::string>(50, "p"))}, {"stream", true}, {"max_tokens", 150}, {"logprobs", 20}};
  const int32_t stalled = client.post("/v1/completions", long_one);
  ASSERT_TRUE(client.wait_for([&] { return client.answer(stalled).body.size() == 65535; }));
  EXPECT_EQ(client.wait(client.post("/v1/completions", completion({{"max_tokens", 20}}))).status, 200);
  EXPECT_EQ(client.wait(stalled).closed, NGHTTP2_CANCEL);
  EXPECT_TRUE(world.loop.wait_idle(std::chrono::seconds(10)));
  EXPECT_EQ(client.ask("GET", "/health").status, 200);
}

TEST(Http2, BodiesLargerThanEveryWindowComeWithAndWithoutALength) {
  World world(says("ok"));
  Http2Client client(world);
  const std::string body = completion().dump() + std::string(3 << 20, ' ');
  EXPECT_EQ(client.ask("POST", "/v1/completions", body).status, 200);
  EXPECT_EQ(client.ask("POST", "/v1/completions", body, {{"content-length", std::to_string(body.size())}}).status, 200);
}

TEST(Http2, AClientThatWaitsForLeaveToSendItsBodyGetsIt) {
  World world(says("ok"));
  Http2Client client(world);
  const Answer& answer = client.ask("POST", "/v1/completions", completion().dump(), {{"expect", "100-continue"}});
  EXPECT_EQ(answer.interim, std::vector<int>{100});
  EXPECT_EQ(answer.status, 200);
}

TEST(Http2, AnAnswerBeforeTheEndOfItsRequestEndsTheStreamOnly) {
  World world(says("ok"), {}, {.body_bytes_max = 1000, .body_idle_max = std::chrono::milliseconds(100)});
  Http2Client client(world);
  EXPECT_EQ(client.ask("POST", "/v1/completions", std::string(3 << 20, ' ')).status, 413);
  const Answer& slow = client.wait(client.submit("POST", "/v1/completions", "{", {}, /*ends=*/false));
  EXPECT_EQ(slow.status, 408);
  EXPECT_TRUE(slow.complete);
  EXPECT_EQ(slow.closed, NGHTTP2_NO_ERROR);
  EXPECT_EQ(client.ask("GET", "/health").status, 200);
}

TEST(Http2, HeadersThatAreTooLongAreToldTheirLimit) {
  World world(says("ok"));
  Http2Client client(world);
  Headers many;
  for (int i = 0; i < 50; ++i) many.emplace_back("x-" + std::to_string(i), std::string(1000, 'x'));
  EXPECT_EQ(client.ask("GET", "/health", "", many).status, 431);
  EXPECT_EQ(client.ask("GET", "/health").status, 200);
}

TEST(Http2, ARequestMayEndInAFrameOfItsOwnAfterItsAnswer) {
  World world(says("ok"));
  Http2Client client(world);
  const std::string body = completion().dump();
  const int32_t id = client.submit("POST", "/v1/completions", body, {{"content-length", std::to_string(body.size())}}, /*ends=*/false);
  ASSERT_TRUE(client.wait_for([&] { return client.answer(id).complete; }));
  client.end_body(id);
  EXPECT_EQ(client.ask("GET", "/health").status, 200);
  EXPECT_EQ(client.answer(id).closed, NGHTTP2_NO_ERROR);
  EXPECT_FALSE(client.answer(id).reset);
}

TEST(Http2, ARequestCannotHideAnotherOne) {
  World world(says("ok"));
  Http2Client client(world);
  const std::string second = " HTTP/1.1\r\nHost: x\r\n\r\nGET /health";
  EXPECT_EQ(client.ask("GET", "/health" + second).closed, NGHTTP2_PROTOCOL_ERROR);
  EXPECT_EQ(client.ask("GET" + second, "/health").closed, NGHTTP2_PROTOCOL_ERROR);
  EXPECT_EQ(client.ask("GET", "/health", "", {{"x-a", "b\r\nx-b: c"}}).closed, NGHTTP2_PROTOCOL_ERROR);
  EXPECT_EQ(client.ask("POST", "/health", "{}", {{"transfer-encoding", "chunked"}}).closed, NGHTTP2_PROTOCOL_ERROR);
  EXPECT_EQ(client.ask("POST", "/v1/completions", "{} and more", {{"content-length", "2"}}).closed, NGHTTP2_PROTOCOL_ERROR);
  EXPECT_EQ(client.ask("GET", "/health").status, 200);
}

TEST(Http2, GarbageAfterThePrefaceEndsThatConnectionOnly) {
  World world(says("ok"));
  Http2Client other(world);
  EXPECT_EQ(other.ask("GET", "/health").status, 200);
  for (const std::string& garbage : {std::string(100, 'x'), std::string("GET / HTTP/1.1\r\n\r\n"), std::string("\xff\xff\xff\x04\0\0\0\0\0", 9),
                                     std::string("\0\0\x01\x04\0\0\0\0\0x", 10)}) {
    RawClient client(*world.server);
    client.send_text(kPreface + garbage);
    std::string got, piece;
    while (!(piece = client.read_bytes()).empty()) got += piece;
    EXPECT_EQ(frame_types(got).back(), NGHTTP2_GOAWAY);
  }
  EXPECT_EQ(other.ask("GET", "/health").status, 200);
}

TEST(Http2, AFloodOfResetsEndsTheConnection) {
  World world(says("ok"));
  Http2Client client(world);
  const auto calmed = [&] { return client.goaway().has_value(); };
  for (int i = 0; i < 1500; ++i) {
    const int32_t id = client.submit("GET", "/health");
    if (!client.flush()) break;
    client.reset(id);
  }
  client.wait_for(calmed);
  EXPECT_EQ(client.goaway(), NGHTTP2_ENHANCE_YOUR_CALM);
  EXPECT_EQ(ask(world, http_get("/health")).status, 200);
}

TEST(Http2, AClientThatPingsAndDoesNotReadIsDropped) {
  World world(says("ok"), {}, {.write_time_max = std::chrono::milliseconds(300)});
  Http2Client client(world);
  bool connected = true;
  for (int i = 0; i < 3'000'000 && connected; ++i) connected = client.ping() && client.flush();
  EXPECT_FALSE(connected);
}

TEST(Http2, StreamsCountAsConnections) {
  World world(endless, {}, {.connections_max = 4});
  world.node.set_pause(std::chrono::milliseconds(20));
  Http2Client client(world);
  std::vector<int32_t> ids;
  for (int i = 0; i < 3; ++i) ids.push_back(client.post("/v1/completions", completion({{"stream", true}, {"max_tokens", 150}})));
  ASSERT_TRUE(client.wait_for([&] { return client.answer(ids[2]).status != 0; }));
  EXPECT_EQ(client.ask("GET", "/health").status, 503);
  client.reset(ids[0]);
  for (int i = 0; i < 500 && client.ask("GET", "/health").status != 200; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(client.ask("GET", "/health").status, 200);
}

TEST(Http2, AConnectionWithoutStreamsEndsWithAGoodbye) {
  World world(says("ok"), {}, {.idle_time_max = std::chrono::milliseconds(100)});
  Http2Client client(world);
  EXPECT_EQ(client.ask("GET", "/health").status, 200);
  client.wait_for([&] { return client.goaway().has_value(); });
  EXPECT_EQ(client.goaway(), NGHTTP2_NO_ERROR);
  EXPECT_TRUE(client.socket().closed_by_server());
}

TEST(Http2, AServerMayEndUnderItsStreams) {
  World world(endless);
  world.node.set_pause(std::chrono::milliseconds(10));
  Http2Client client(world);
  std::vector<int32_t> ids;
  for (int i = 0; i < 10; ++i) ids.push_back(client.post("/v1/completions", completion({{"stream", i % 2 == 0}, {"max_tokens", 150}})));
  ASSERT_TRUE(client.wait_for([&] { return client.answer(ids[8]).status != 0; }));
  world.server.reset();
  EXPECT_FALSE(client.wait_for([] { return false; })) << "the connection is closed";
  EXPECT_TRUE(world.node.wait_cancelled(10));
}

TEST(Http2, DrainingLetsWhatRunsFinishAndSaysGoodbye) {
  World world(endless);
  world.node.set_pause(std::chrono::milliseconds(10));
  Http2Client client(world);
  const int32_t running = client.post("/v1/completions", completion({{"stream", true}, {"max_tokens", 50}}));
  ASSERT_TRUE(client.wait_for([&] { return client.answer(running).status != 0; }));
  world.service.drain();
  const Answer& answer = client.wait(running);
  EXPECT_TRUE(answer.complete);
  EXPECT_EQ(answer.events().back(), "[DONE]");
  client.wait_for([&] { return client.goaway().has_value(); });
  EXPECT_EQ(client.goaway(), NGHTTP2_NO_ERROR);
  EXPECT_TRUE(client.socket().closed_by_server());
}

}  // namespace
}  // namespace shoal
