// HTTP/2 (RFC 9113) in front of sessions: every stream is one end of a socket pair whose other end a session of its own
// holds, which speaks HTTP/1.1 and does not know. The session stays the same code for both protocols. Internal to the gateway.
//
//   client  <- frames ->  pump  <- HTTP/1.1 ->  HttpSession, one per stream
//
// Nothing is kept without bound. Up: a stream's window opens as its session takes the body. Down: of each answer one piece is
// held, and the session is read on when the client has taken it, so that its own limits on slow readers hold. A stream counts
// as a connection of the server for as long as it lasts: it costs what one costs.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/time.h"
#include "boost/asio/awaitable.hpp"
#include "boost/asio/generic/stream_protocol.hpp"
#include "boost/asio/steady_timer.hpp"
#include "gateway/http1_text.h"
#include "gateway/http_session.h"
#include "nghttp2/nghttp2.h"

namespace shoal {

// What the client of HTTP/2 says first (section 3.4).
constexpr std::string_view kHttp2Preface(NGHTTP2_CLIENT_MAGIC, NGHTTP2_CLIENT_MAGIC_LEN);

// Runs on the strand of its socket.
class Http2Pump : public std::enable_shared_from_this<Http2Pump> {
 public:
  using Socket = boost::asio::generic::stream_protocol::socket;
  template <typename T>
  using Task = boost::asio::awaitable<T>;

  Http2Pump(Socket client, HttpShared& shared);
  ~Http2Pump();

  // Until the connection has ended. `begin`: what has been read of it, from the preface on.
  Task<void> run(std::string begin);

 private:
  struct Callbacks;  // nghttp2's, which call the methods below
  struct Stream;

  // One coroutine waits for it, others of the strand raise it.
  class Signal {
   public:
    explicit Signal(const boost::asio::any_io_executor& executor) : timer_(executor) {}
    void raise();
    Task<bool> wait(Duration at_most = Duration::max());  // false: the time is over

   private:
    boost::asio::steady_timer timer_;
    bool raised_ = false;
  };

  void greet();
  Task<void> read_frames();
  void take_frames(std::string_view bytes);
  Task<void> write_frames();
  bool collect_frames();                       // into out_; false: nothing is to be sent
  Task<bool> send_frames();
  Task<void> say_goodbye();
  void tend();                                 // what nobody's frame brings about
  void end_streams();

  int open_stream(int32_t id, bool has_body);  // the three return what a callback does
  int take_body(int32_t id, std::string_view data);
  int end_body(int32_t id);
  void close_stream(int32_t id);
  void count_reset();
  Task<void> write_request(std::shared_ptr<Stream> stream);
  Task<void> read_answer(std::shared_ptr<Stream> stream);
  Task<void> end_request(std::shared_ptr<Stream> stream);
  bool frame_answer(Stream& stream, std::string_view bytes);
  void submit_head(Stream& stream, const Http1AnswerReader::Head& head);
  ssize_t give_body(Stream& stream, uint8_t* out, size_t length, uint32_t* flags);
  void reset(Stream& stream, uint32_t error_code);
  void start(Task<void> task, std::shared_ptr<Stream> stream);

  Socket client_;
  HttpShared& shared_;
  nghttp2_session* session_ = nullptr;
  Http1RequestHead head_;                      // being received; frames of other streams cannot come between
  std::map<int32_t, std::shared_ptr<Stream>> streams_;
  std::string out_;                            // frames being sent
  Signal to_send_;
  Signal sent_;
  Signal hung_up_;                             // by the client
  TimePoint idle_since_;
  TimePoint resets_at_;
  double resets_ = 0;                          // counted down with time
  bool draining_ = false;
  bool ended_ = false;                         // what still comes is not looked at
};

}  // namespace shoal
