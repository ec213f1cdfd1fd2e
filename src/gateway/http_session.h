// One connection: a coroutine on its own strand that reads requests and writes answers until somebody is done.
// Internal to the gateway; pulls in Beast.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "boost/asio/any_io_executor.hpp"
#include "boost/asio/awaitable.hpp"
#include "boost/asio/generic/stream_protocol.hpp"
#include "boost/asio/steady_timer.hpp"
#include "boost/beast/core/basic_stream.hpp"
#include "boost/beast/core/flat_buffer.hpp"
#include "boost/beast/http/message.hpp"
#include "boost/beast/http/string_body.hpp"
#include "gateway/http_server.h"
#include "gateway/work_lanes.h"

namespace shoal {

// What all connections of a server share.
struct HttpShared {
  const HttpServerConfig config;
  Service& service;
  Admin* const admin;                     // the listener is the operator's, if set
  WorkLanes work;
  std::atomic<uint32_t> connections{0};
  std::atomic<uint32_t> active_requests{0};
  std::atomic<uint64_t> body_bytes{0};    // of all requests being read or answered
};

class HttpSession : public std::enable_shared_from_this<HttpSession> {
 public:
  using Protocol = boost::asio::generic::stream_protocol;
  using Stream = boost::beast::basic_stream<Protocol, boost::asio::any_io_executor>;
  using BeastRequest = boost::beast::http::request<boost::beast::http::string_body>;
  template <typename T>
  using Task = boost::asio::awaitable<T>;

  // `socket` runs on a strand of its own.
  HttpSession(Stream::socket_type socket, HttpShared& shared);
  ~HttpSession();

  Task<void> run();

 private:
  enum class Read { kRequest, kClosed, kRefused };  // kRefused: an error was answered, close

  // A consumer asleep on the strand, to be woken from any thread.
  struct Wake {
    explicit Wake(const boost::asio::any_io_executor& executor) : timer(executor) {}
    boost::asio::steady_timer timer;
    bool raised = false;  // strand only, as is the next
    bool client_gone = false;
    bool half_closed = false;  // the client sends no more, and may be gone: only bytes sent to it can tell
    bool finished = false;
    void raise() {
      raised = true;
      timer.cancel();
    }
  };

  // Cancels what is being read when its time is over and leaves the connection open for an answer, which the time-outs of
  // the stream itself do not.
  struct ReadLimit;

  std::shared_ptr<ReadLimit> limit_reading(Duration time);
  Task<Read> read_request(BeastRequest& request);
  Task<boost::system::error_code> read_head(void* parser);
  Task<Read> read_body(void* parser);
  std::optional<ApiError> check_head(const BeastRequest& head, std::optional<uint64_t> length);
  Task<bool> wait_for_first_byte();
  bool may_be_http2() const;
  Task<bool> is_http2();
  Task<void> serve_http2();                         // a session of its own for each stream
  Task<void> answer(const BeastRequest& request);
  Task<void> dispatch(const BeastRequest& request, const Route* route, HttpReply* refusal);
  Task<void> dispatch_admin(const BeastRequest& request);
  Task<void> generate(Endpoint endpoint, const BeastRequest& request);
  bool hold_body(uint64_t bytes);                   // false: all bodies together would be too much
  void release_body();
  void read_context(const BeastRequest& request);   // CORS and tracing
  Headers answer_headers() const;
  Task<void> run_answer(PreparedAnswer& answer, TimePoint arrived);
  Task<void> answer_whole(PreparedAnswer& answer, Generation& generation, std::shared_ptr<Wake> wake, RequestRecord& record);
  Task<void> answer_stream(PreparedAnswer& answer, Generation& generation, std::shared_ptr<Wake> wake, RequestRecord& record);
  Task<Progress> first_progress(Generation& generation, std::shared_ptr<Wake> wake);
  Task<void> watch_client(std::shared_ptr<Wake> wake);
  Task<void> sleep(std::shared_ptr<Wake> wake, Duration at_most);
  Task<bool> send_reply(HttpReply reply, bool head_only);
  Task<bool> send_bytes(const std::string& bytes);  // false: the client is gone or does not read
  Task<void> linger();
  Task<void> send_error(ApiError error, bool head_only);
  Task<void> send_failure(ApiError error);
  Task<void> refuse(ApiError error);                // answers, then closes
  std::string log_context() const;
  ApiError full_of_bodies() const;
  std::string stream_head(std::string_view content_type) const;
  std::string stream_frame(std::string_view data) const;
  std::string stream_end() const;
  void complete(const Generation& generation, RequestRecord& record) const;
  void log_answer(const PreparedAnswer& answer, const Generation& generation, const RequestRecord& record) const;

  Stream stream_;
  HttpShared& shared_;
  boost::beast::flat_buffer buffer_;
  std::string request_id_;
  std::string traceparent_;                         // of the request, if it is a valid one
  Caller caller_;
  Surface surface_ = Surface::kOpenAi;              // whose errors the client reads
  Duration time_max_ = Duration::max();             // X-Request-Timeout
  Headers cors_headers_;
  Headers rate_headers_;
  uint64_t body_held_ = 0;
  int last_status_ = 0;                             // of the answer under way, for metrics
  bool http_1_0_ = false;
  bool keep_alive_ = true;
  bool write_failed_ = false;
};

// Serves one connection, or one stream of HTTP/2, until it ends. `socket` runs on a strand.
boost::asio::awaitable<void> serve_session(HttpSession::Stream::socket_type socket, HttpShared& shared);

}  // namespace shoal
