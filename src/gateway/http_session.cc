#include "gateway/http_session.h"

#include <algorithm>

#include "base/clock.h"
#include "base/log.h"
#include "boost/asio/as_tuple.hpp"
#include "boost/asio/co_spawn.hpp"
#include "boost/asio/steady_timer.hpp"
#include "boost/asio/this_coro.hpp"
#include "boost/asio/use_awaitable.hpp"
#include "boost/asio/write.hpp"
#include "boost/beast/http/empty_body.hpp"
#include "boost/beast/http/parser.hpp"
#include "boost/beast/http/read.hpp"
#include "boost/beast/http/write.hpp"
#include "gateway/http2_pump.h"
#include "gateway/http_headers.h"
#include "gateway/strings.h"

namespace shoal {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;
using Parser = http::request_parser<http::string_body>;

constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);
// Arguments of a co_await below are named values, never braced temporaries: GCC 12 destroys those twice.
constexpr size_t kRequestIdBytesMax = 128;
constexpr size_t kReadBytes = 4096;  // of a head
constexpr Duration kAdminPoll = std::chrono::milliseconds(50);
constexpr Duration kLingerTime = std::chrono::seconds(2);
constexpr size_t kLingerBytesMax = 64u << 20;

std::string_view view(beast::string_view text) { return {text.data(), text.size()}; }

ApiError bad_http(int status, std::string message, const char* code) {
  return {.http_status = status, .type = "invalid_request_error", .message = std::move(message), .code = code};
}

ApiError error_for(error_code error, const HttpServerConfig& config) {
  if (error == http::error::header_limit) {
    return bad_http(431, absl::StrCat("The request's headers are longer than ", config.header_bytes_max, " bytes."),
                    "headers_too_large");
  }
  if (error == http::error::body_limit) {
    return bad_http(413, absl::StrCat("The request's body is longer than ", config.body_bytes_max, " bytes."),
                    "request_too_large");
  }
  return bad_http(400, "This is not a valid HTTP request: " + error.message() + ".", "invalid_http");
}

ApiError too_slow(const char* what, Duration limit) {
  return bad_http(408, absl::StrCat("The request's ", what, " did not come within ", to_seconds(limit), " s."), "request_timeout");
}

ApiError wrong_hosts(size_t count) {
  return bad_http(400, absl::StrCat("An HTTP/1.1 request has one Host header, this one has ", count, "."), "invalid_http");
}

// What speaks another protocol than HTTP, told by its first bytes.
std::optional<ApiError> other_protocol(std::string_view begin) {
  if (begin.starts_with("\x16\x03")) {
    return bad_http(400, "This is plain HTTP, and the client began with TLS: use http://, or start the server with --ssl-certfile and --ssl-keyfile.", "invalid_http");
  }
  return std::nullopt;
}

HttpReply unknown_encoding(std::string_view encoding, Surface surface) {
  HttpReply reply = error_reply(bad_http(415, absl::StrCat("The body is encoded as '", str(encoding), "'; send it as it is, without Content-Encoding."),
                                         "unsupported_content_encoding"), surface);
  reply.headers.emplace_back("Accept-Encoding", "identity");
  return reply;
}

ApiError no_key() {
  return {.http_status = 401, .type = "authentication_error",
          .message = "A valid API key is needed: send 'Authorization: Bearer KEY'.", .code = "invalid_api_key"};
}

bool is_json_type(std::string_view content_type) {
  const std::string_view type = trimmed(content_type.substr(0, content_type.find(';')));
  return type.empty() || equal_ignoring_case(type, "application/json") ||
         (type.starts_with("application/") && type.ends_with("+json"));
}

// Ollama's users send JSON with curl, which calls it a form. Not a browser's page, though, whose script could then write here unasked.
bool as_ollama_takes_it(const HttpSession::BeastRequest& request) {
  return surface_of(view(request.target())) == Surface::kOllama && request.find(http::field::origin) == request.end();
}

std::string request_id_of(std::string_view given) {
  const bool usable = !given.empty() && given.size() <= kRequestIdBytesMax &&
                      std::all_of(given.begin(), given.end(), [](char c) { return c > ' ' && c < 0x7f; });
  return usable ? std::string(given) : "req-" + mint_id();
}

}  // namespace

HttpSession::HttpSession(Stream::socket_type socket, HttpShared& shared) : stream_(std::move(socket)), shared_(shared) {
  shared_.connections.fetch_add(1);
  shared_.service.metrics().connections(1);
}

HttpSession::~HttpSession() {
  release_body();
  shared_.connections.fetch_sub(1);
  shared_.service.metrics().connections(-1);
}

HttpSession::Task<void> HttpSession::run() {
  if (shared_.connections.load() > shared_.config.connections_max) {
    request_id_ = "req-" + mint_id();
    ApiError full = overloaded_error("The server is at its limit of connections.", std::chrono::seconds(1));
    co_await refuse(std::move(full));
    co_return;
  }
  for (bool first = true; keep_alive_; first = false) {
    if (!co_await wait_for_first_byte()) break;
    if (first && may_be_http2() && co_await is_http2()) co_return co_await serve_http2();
    shared_.active_requests.fetch_add(1);
    BeastRequest request;
    const Read read = co_await read_request(request);
    if (read == Read::kRequest) co_await answer(request);
    release_body();
    shared_.active_requests.fetch_sub(1);
    if (read != Read::kRequest || write_failed_) break;
  }
  error_code ignored;
  stream_.socket().shutdown(asio::socket_base::shutdown_send, ignored);
}

// Idle between requests: allowed for longer than a started header may take.
HttpSession::Task<bool> HttpSession::wait_for_first_byte() {
  if (buffer_.size() > 0) co_return true;  // the next request of a pipeline
  stream_.expires_after(shared_.config.idle_time_max);
  auto [error, count] = co_await stream_.async_read_some(buffer_.prepare(kReadBytes), kTuple);
  if (error) co_return false;
  buffer_.commit(count);
  co_return true;
}

struct HttpSession::ReadLimit {
  explicit ReadLimit(const asio::any_io_executor& executor) : timer(executor) {}
  asio::steady_timer timer;
  bool over = false;   // the time came first
  bool ended = false;  // the reading came first
  bool end() {         // true: over
    ended = true;
    timer.cancel();
    return over;
  }
};

std::shared_ptr<HttpSession::ReadLimit> HttpSession::limit_reading(Duration time) {
  stream_.expires_never();
  auto limit = std::make_shared<ReadLimit>(stream_.get_executor());
  limit->timer.expires_after(time);
  limit->timer.async_wait([limit, self = shared_from_this()](error_code cancelled) {
    if (cancelled || limit->ended) return;
    limit->over = true;
    self->stream_.cancel();
  });
  return limit;
}

// Told by what has been read. No request of HTTP/1 begins with the whole preface, few with its first letter.
bool HttpSession::may_be_http2() const {
  const std::string_view begin(static_cast<const char*>(buffer_.data().data()), buffer_.size());
  return kHttp2Preface.starts_with(begin.substr(0, kHttp2Preface.size()));
}

// Reads on until it is known.
HttpSession::Task<bool> HttpSession::is_http2() {
  const auto limit = limit_reading(shared_.config.header_time_max);
  while (may_be_http2() && buffer_.size() < kHttp2Preface.size()) {
    auto [error, count] = co_await stream_.async_read_some(buffer_.prepare(kReadBytes), kTuple);
    if (error) break;
    buffer_.commit(count);
  }
  limit->end();
  co_return may_be_http2() && buffer_.size() >= kHttp2Preface.size();
}

HttpSession::Task<void> HttpSession::serve_http2() {
  std::string begin(static_cast<const char*>(buffer_.data().data()), buffer_.size());
  const auto pump = std::make_shared<Http2Pump>(stream_.release_socket(), shared_);
  co_await pump->run(std::move(begin));
}

ApiError HttpSession::full_of_bodies() const {
  return overloaded_error("The server holds as many request bodies as it can.", shared_.service.retry_after());
}

// What is wrong with a head that could be read.
std::optional<ApiError> HttpSession::check_head(const BeastRequest& head, std::optional<uint64_t> length) {
  const size_t hosts = head.count(http::field::host);
  if (hosts > 1 || (hosts == 0 && head.version() >= 11)) return wrong_hosts(hosts);
  if (length && !hold_body(*length)) return full_of_bodies();
  return std::nullopt;
}

HttpSession::Task<HttpSession::Read> HttpSession::read_request(BeastRequest& request) {
  Parser parser;
  parser.header_limit(shared_.config.header_bytes_max);
  parser.body_limit(shared_.config.body_bytes_max);
  request_id_ = "req-" + mint_id();
  auto refusal = other_protocol({static_cast<const char*>(buffer_.data().data()), buffer_.size()});
  if (!refusal) {
    const auto limit = limit_reading(shared_.config.header_time_max);
    const error_code error = co_await read_head(&parser);
    if (limit->end()) {
      refusal = too_slow("headers", shared_.config.header_time_max);
    } else if (error == asio::error::connection_reset) {
      co_return Read::kClosed;
    } else if (error) {
      refusal = error_for(error, shared_.config);
    } else {
      const auto length = parser.content_length();
      refusal = check_head(parser.get(), length ? std::optional<uint64_t>(*length) : std::nullopt);
    }
  }
  if (refusal) {
    co_await refuse(*std::move(refusal));
    co_return Read::kRefused;
  }
  const auto& head = parser.get();
  request_id_ = request_id_of(view(head["X-Request-Id"]));
  http_1_0_ = head.version() < 11;
  keep_alive_ = head.keep_alive() && !shared_.service.admission().draining();
  if (equal_ignoring_case(view(head[http::field::expect]), "100-continue")) {
    const std::string go_on(kGoOn);
    co_await send_bytes(go_on);
  }
  const Read read = co_await read_body(&parser);
  if (read == Read::kRequest) request = parser.release();
  co_return read;
}

// Beast holds its limit against what it has not taken yet, which fields that come a few at a time would pass.
HttpSession::Task<error_code> HttpSession::read_head(void* opaque) {
  Parser& parser = *static_cast<Parser*>(opaque);
  for (size_t taken = 0;;) {
    error_code error;
    const size_t count = parser.put(buffer_.data(), error);
    buffer_.consume(count);
    taken += count;
    if (taken > shared_.config.header_bytes_max) co_return http::error::header_limit;
    if (parser.is_header_done() || error != http::error::need_more) co_return error;
    auto [failed, more] = co_await stream_.async_read_some(buffer_.prepare(kReadBytes), kTuple);
    buffer_.commit(more);
    if (failed) co_return failed == asio::error::eof ? error_code(http::error::partial_message) : failed;
  }
}

// Every read must bring something within body_idle_max, and all of it within body_time_max.
HttpSession::Task<HttpSession::Read> HttpSession::read_body(void* opaque) {
  Parser& parser = *static_cast<Parser*>(opaque);
  const TimePoint until = steady_now() + shared_.config.body_time_max;
  while (!parser.is_done()) {
    const Duration time = std::clamp(until - steady_now(), Duration(0), shared_.config.body_idle_max);
    const auto limit = limit_reading(time);
    auto [error, count] = co_await http::async_read_some(stream_, buffer_, parser, kTuple);
    (void)count;
    std::optional<ApiError> refusal;
    if (limit->end()) {
      refusal = too_slow("body", std::min(shared_.config.body_idle_max, shared_.config.body_time_max));
    } else if (error == asio::error::connection_reset || error == http::error::partial_message) {
      co_return Read::kClosed;
    } else if (error) {
      refusal = error_for(error, shared_.config);
    } else if (!hold_body(parser.get().body().size())) {
      refusal = full_of_bodies();
    }
    if (!refusal) continue;
    co_await refuse(*std::move(refusal));
    co_return Read::kRefused;
  }
  co_return Read::kRequest;
}

// A promise of the header first, then what has come; the larger of the two counts.
bool HttpSession::hold_body(uint64_t bytes) {
  if (bytes <= body_held_) return true;
  const uint64_t more = bytes - body_held_;
  if (shared_.body_bytes.fetch_add(more) + more > shared_.config.body_bytes_total_max) {
    shared_.body_bytes.fetch_sub(more);
    return false;
  }
  body_held_ = bytes;
  return true;
}

void HttpSession::release_body() { shared_.body_bytes.fetch_sub(std::exchange(body_held_, 0)); }

void HttpSession::read_context(const BeastRequest& request) {
  rate_headers_.clear();
  const std::string_view trace = view(request["traceparent"]);
  traceparent_ = is_traceparent(trace) ? std::string(trace) : "";
  cors_headers_ = cors_headers(view(request[http::field::origin]), shared_.config.cors_origins);
}

Headers HttpSession::answer_headers() const {
  Headers headers = cors_headers_;
  headers.insert(headers.end(), rate_headers_.begin(), rate_headers_.end());
  if (!traceparent_.empty()) headers.emplace_back("traceparent", traceparent_);
  return headers;
}

HttpSession::Task<void> HttpSession::answer(const BeastRequest& request) {
  read_context(request);
  if (shared_.admin != nullptr) co_return co_await dispatch_admin(request);
  if (request.method() == http::verb::options && !cors_headers_.empty() &&
      !view(request["Access-Control-Request-Method"]).empty()) {  // a browser asks first, and without its key
    HttpReply preflight = preflight_reply(view(request["Access-Control-Request-Headers"]));
    co_await send_reply(std::move(preflight), false);
    co_return;
  }
  surface_ = surface_of(view(request.target()));
  auto routed = route_request(view(request.method_string()), view(request.target()));
  const Route* route = std::get_if<Route>(&routed);
  last_status_ = 0;
  co_await dispatch(request, route, std::get_if<HttpReply>(&routed));
  shared_.service.metrics().http_request(route == nullptr ? "other" : endpoint_name(route->endpoint), last_status_);
}

// Exactly one of `route` and `refusal` is set.
HttpSession::Task<void> HttpSession::dispatch(const BeastRequest& request, const Route* route, HttpReply* refusal) {
  Service& service = shared_.service;
  const bool post = request.method() == http::verb::post;
  const bool head_only = request.method() == http::verb::head;
  const auto caller = service.admission().authenticate(view(request[http::field::authorization]), view(request["X-Api-Key"]));
  if (!caller && (route == nullptr || !route->open)) co_return co_await send_error(no_key(), head_only);
  caller_ = caller.value_or(Caller());
  HttpReply reply;
  if (route == nullptr) {
    reply = std::move(*refusal);
  } else if (!service.serves(route->endpoint)) {
    reply = error_reply(unknown_url(view(request.method_string()), view(request.target())), surface_, request_id_);
  } else if (post && !is_json_type(view(request[http::field::content_type])) && !as_ollama_takes_it(request)) {
    reply = error_reply(bad_http(415, "The body must be JSON: send 'Content-Type: application/json'.", "unsupported_media_type"), surface_, request_id_);
  } else if (const std::string_view encoding = view(request[http::field::content_encoding]); post && !encoding.empty() && !equal_ignoring_case(encoding, "identity")) {
    reply = unknown_encoding(encoding, surface_);
  } else if (generates(route->endpoint)) {
    co_return co_await generate(route->endpoint, request);
  } else if (post) {  // tokenising may take a while: not on a thread that moves other clients' bytes
    auto task = [&]() -> Task<HttpReply> { co_return service.reply(*route, request.body(), caller_); };
    reply = co_await asio::co_spawn(shared_.work.lane(request.body().size()), task(), asio::use_awaitable);
  } else {
    reply = service.reply(*route, "", caller_);
  }
  co_await send_reply(std::move(reply), head_only);
}

HttpSession::Task<void> HttpSession::dispatch_admin(const BeastRequest& request) {
  const bool head_only = request.method() == http::verb::head;
  if (!shared_.admin->authorized(view(request[http::field::authorization]), view(request["X-Api-Key"]))) {
    co_return co_await send_error(no_key(), head_only);
  }
  AdminReply reply = shared_.admin->reply(view(request.method_string()), view(request.target()), request.body());
  if (auto* pending = std::get_if<PendingReply>(&reply)) {
    asio::steady_timer pause(stream_.get_executor());
    std::optional<HttpReply> done;
    while (!(done = (*pending)())) {
      pause.expires_after(kAdminPoll);
      co_await pause.async_wait(kTuple);
    }
    reply = *std::move(done);
  }
  co_await send_reply(std::get<HttpReply>(std::move(reply)), head_only);
}

HttpSession::Task<void> HttpSession::refuse(ApiError error) {
  keep_alive_ = false;
  co_await send_error(std::move(error), false);
  co_await linger();
}

HttpSession::Task<void> HttpSession::send_error(ApiError error, bool head_only) {
  HttpReply reply = error_reply(error, surface_, request_id_);
  co_await send_reply(std::move(reply), head_only);
}

// Closing while the client still sends would reset the connection and take the answer with it: read a while longer.
HttpSession::Task<void> HttpSession::linger() {
  error_code ignored;
  stream_.socket().shutdown(asio::socket_base::shutdown_send, ignored);
  stream_.expires_after(kLingerTime);
  std::string sink(64 * 1024, '\0');
  for (size_t total = 0; total < kLingerBytesMax;) {
    auto [error, count] = co_await stream_.async_read_some(asio::buffer(sink), kTuple);
    if (error) break;
    total += count;
  }
}

HttpSession::Task<bool> HttpSession::send_reply(HttpReply reply, bool head_only) {
  http::response<http::string_body> response;
  response.result(static_cast<unsigned>(reply.status));
  response.version(http_1_0_ ? 10 : 11);
  if (reply.status != 204) response.set(http::field::content_type, reply.content_type);
  response.set(http::field::date, http_date(std::chrono::system_clock::now()));
  response.set("X-Request-Id", request_id_);
  for (const auto& [name, value] : answer_headers()) response.set(name, value);
  for (const auto& [name, value] : reply.headers) response.set(name, value);
  if (shared_.service.admission().draining()) keep_alive_ = false;
  response.keep_alive(keep_alive_);
  response.content_length(reply.status == 204 ? boost::optional<std::uint64_t>(boost::none)
                                              : boost::optional<std::uint64_t>(reply.body.size()));
  if (!head_only) response.body() = std::move(reply.body);
  stream_.expires_after(shared_.config.write_time_max);
  http::serializer<false, http::string_body> serializer(response);
  error_code error;
  if (head_only) {
    auto [e, count] = co_await http::async_write_header(stream_, serializer, kTuple);
    error = e;
  } else {
    auto [e, count] = co_await http::async_write(stream_, serializer, kTuple);
    error = e;
  }
  last_status_ = reply.status;
  if (error) write_failed_ = true;
  co_return !error;
}

HttpSession::Task<bool> HttpSession::send_bytes(const std::string& bytes) {
  if (bytes.empty()) co_return true;
  stream_.expires_after(shared_.config.write_time_max);
  auto [error, count] = co_await asio::async_write(stream_, asio::buffer(bytes), kTuple);
  (void)count;
  if (error == beast::error::timeout) shared_.service.metrics().streams_dropped();
  if (error) write_failed_ = true;
  co_return !error;
}

boost::asio::awaitable<void> serve_session(HttpSession::Stream::socket_type socket, HttpShared& shared) {
  const auto session = std::make_shared<HttpSession>(std::move(socket), shared);
  try {
    co_await session->run();
  } catch (const std::exception& e) {  // out of memory at worst: this connection ends, the others go on
    log_error("connection ended by ", e.what());
  }
}

}  // namespace shoal
