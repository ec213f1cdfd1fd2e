#include "gateway/http2_pump.h"

#include <array>
#include <vector>

#include "base/clock.h"
#include "boost/asio/as_tuple.hpp"
#include "boost/asio/co_spawn.hpp"
#include "boost/asio/detached.hpp"
#include "boost/asio/local/connect_pair.hpp"
#include "boost/asio/local/stream_protocol.hpp"
#include "boost/asio/use_awaitable.hpp"
#include "boost/asio/write.hpp"

namespace shoal {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);
constexpr uint32_t kStreamsMax = 100;                 // at once, as RFC 9113 recommends at least
constexpr uint32_t kStreamWindowBytes = 256 * 1024;   // of a request's body on its way to the session
constexpr int32_t kConnectionWindowBytes = 1 << 20;
constexpr size_t kPieceBytes = 16 * 1024;             // one DATA frame
constexpr size_t kWriteBytes = 64 * 1024;
constexpr size_t kQueuedFramesMax = 256;              // answers to a client that sends and does not read
constexpr double kResetsMax = 500;                    // of streams; more at a time is no client that changes its mind
constexpr double kResetsPerSecond = 33;
constexpr Duration kTendInterval = std::chrono::seconds(1);
constexpr Duration kGoodbyeTime = std::chrono::seconds(2);

// Holds up the end of a draining server.
class Busy {
 public:
  explicit Busy(HttpShared& shared) : shared_(shared) { shared_.active_requests.fetch_add(1); }
  ~Busy() { shared_.active_requests.fetch_sub(1); }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  HttpShared& shared_;
};

nghttp2_nv field(std::string_view name, std::string_view value) {
  const auto bytes = [](std::string_view text) { return const_cast<uint8_t*>(reinterpret_cast<const uint8_t*>(text.data())); };
  return {bytes(name), bytes(value), name.size(), value.size(), NGHTTP2_NV_FLAG_NONE};
}

bool ends_stream(const nghttp2_frame& frame) { return (frame.hd.flags & NGHTTP2_FLAG_END_STREAM) != 0; }

bool begins_request(const nghttp2_frame& frame) {
  return frame.hd.type == NGHTTP2_HEADERS && frame.headers.cat == NGHTTP2_HCAT_REQUEST;
}

}  // namespace

struct Http2Pump::Stream {
  Stream(int32_t number, const asio::any_io_executor& executor, const Http1RequestHead& head, bool has_body, HttpShared& shared)
      : id(number), chunked(head.chunked(has_body)), request_ended(!has_body), request(head.text(has_body)), request_came(executor),
        answer(head.asks_for_head_only()), body_taken(executor), session(executor), busy(shared) {}

  // The session sees its client go: what it works at ends within a step.
  void close() {
    error_code ignored;
    closed = true;
    session.close(ignored);
    request_came.raise();
    body_taken.raise();
  }

  const int32_t id;
  const bool chunked;
  bool request_ended;
  std::string request;         // not yet written to the session
  size_t request_body_bytes = 0;  // of them, what the client's window is short of
  Signal request_came;
  Http1AnswerReader answer;
  std::string body;            // of the answer, not yet framed
  Signal body_taken;
  asio::local::stream_protocol::socket session;
  const Busy busy;
  bool closed = false;
};

// nghttp2 is C: each of these finds the pump and says what happened. A frame that is wrong in itself does not come here, it is
// answered by nghttp2.
struct Http2Pump::Callbacks {
  static Http2Pump& pump(void* user) { return *static_cast<Http2Pump*>(user); }

  static int begin_headers(nghttp2_session*, const nghttp2_frame* frame, void* user) {
    if (begins_request(*frame)) pump(user).head_ = Http1RequestHead();
    return 0;
  }

  static int header(nghttp2_session*, const nghttp2_frame* frame, const uint8_t* name, size_t name_length, const uint8_t* value,
                    size_t value_length, uint8_t, void* user) {
    if (!begins_request(*frame)) return 0;  // a trailer
    pump(user).head_.add({reinterpret_cast<const char*>(name), name_length}, {reinterpret_cast<const char*>(value), value_length},
                         pump(user).shared_.config.header_bytes_max);
    return 0;
  }

  static int data(nghttp2_session*, uint8_t, int32_t id, const uint8_t* data, size_t length, void* user) {
    return pump(user).take_body(id, {reinterpret_cast<const char*>(data), length});
  }

  static int received(nghttp2_session*, const nghttp2_frame* frame, void* user) {
    if (frame->hd.type == NGHTTP2_RST_STREAM) pump(user).count_reset();
    if (begins_request(*frame)) return pump(user).open_stream(frame->hd.stream_id, !ends_stream(*frame));
    const bool carries_body = frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS;
    return carries_body && ends_stream(*frame) ? pump(user).end_body(frame->hd.stream_id) : 0;
  }

  static int sent(nghttp2_session*, const nghttp2_frame* frame, void* user) {
    if (frame->hd.type == NGHTTP2_RST_STREAM && frame->rst_stream.error_code != NGHTTP2_NO_ERROR) pump(user).count_reset();
    return 0;
  }

  static int stream_closed(nghttp2_session*, int32_t id, uint32_t, void* user) {
    pump(user).close_stream(id);
    return 0;
  }

  static ssize_t body(nghttp2_session*, int32_t id, uint8_t* out, size_t length, uint32_t* flags, nghttp2_data_source*, void* user) {
    const auto found = pump(user).streams_.find(id);
    if (found == pump(user).streams_.end()) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    return pump(user).give_body(*found->second, out, length, flags);
  }

  static nghttp2_session* make_session(Http2Pump& pump) {
    nghttp2_session_callbacks* callbacks = nullptr;
    nghttp2_option* options = nullptr;
    nghttp2_session* session = nullptr;
    if (nghttp2_session_callbacks_new(&callbacks) != 0 || nghttp2_option_new(&options) != 0) throw std::bad_alloc();
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, received);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, sent);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, stream_closed);
    nghttp2_option_set_no_auto_window_update(options, 1);
    const int failed = nghttp2_session_server_new2(&session, callbacks, &pump, options);
    nghttp2_option_del(options);
    nghttp2_session_callbacks_del(callbacks);
    if (failed != 0) throw std::bad_alloc();
    return session;
  }
};

void Http2Pump::Signal::raise() {
  raised_ = true;
  timer_.cancel();
}

Http2Pump::Task<bool> Http2Pump::Signal::wait(Duration at_most) {
  if (!raised_) {
    timer_.expires_after(at_most);
    co_await timer_.async_wait(kTuple);
  }
  co_return std::exchange(raised_, false);
}

Http2Pump::Http2Pump(Socket client, HttpShared& shared)
    : client_(std::move(client)), shared_(shared), session_(Callbacks::make_session(*this)), to_send_(client_.get_executor()),
      sent_(client_.get_executor()), hung_up_(client_.get_executor()), idle_since_(steady_now()), resets_at_(idle_since_) {}

Http2Pump::~Http2Pump() { nghttp2_session_del(session_); }

Http2Pump::Task<void> Http2Pump::run(std::string begin) {
  greet();
  take_frames(begin);
  start(write_frames(), nullptr);
  co_await read_frames();
  ended_ = true;
  end_streams();
  to_send_.raise();
  hung_up_.raise();
}

void Http2Pump::greet() {
  const std::array<nghttp2_settings_entry, 4> settings = {{
      {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, kStreamsMax},
      {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, kStreamWindowBytes},
      {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, shared_.config.header_bytes_max},
      {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1},  // streams take turns
  }};
  nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, settings.data(), settings.size());
  nghttp2_session_set_local_window_size(session_, NGHTTP2_FLAG_NONE, 0, kConnectionWindowBytes);
}

// The client's frames become events (Callbacks), until it goes.
Http2Pump::Task<void> Http2Pump::read_frames() {
  std::array<char, kPieceBytes> piece;
  while (true) {
    while (!ended_ && nghttp2_session_get_outbound_queue_size(session_) > kQueuedFramesMax) co_await sent_.wait();
    auto [error, count] = co_await client_.async_read_some(asio::buffer(piece), kTuple);
    if (error) break;
    take_frames({piece.data(), count});
  }
}

void Http2Pump::take_frames(std::string_view bytes) {
  if (ended_) return;
  const ssize_t taken = nghttp2_session_mem_recv(session_, reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  if (taken < 0) nghttp2_session_terminate_session(session_, NGHTTP2_PROTOCOL_ERROR);
  to_send_.raise();
}

// Sends what there is to send, until no more can come: goodbye was said, or the client is gone or does not read.
Http2Pump::Task<void> Http2Pump::write_frames() {
  const auto self = shared_from_this();
  while (!ended_ && (nghttp2_session_want_read(session_) != 0 || nghttp2_session_want_write(session_) != 0)) {
    tend();
    if (!collect_frames()) {
      co_await to_send_.wait(kTendInterval);
    } else if (!co_await send_frames()) {
      break;
    }
  }
  co_await say_goodbye();
}

bool Http2Pump::collect_frames() {
  out_.clear();
  const uint8_t* frame = nullptr;
  ssize_t length = 0;
  while (out_.size() < kWriteBytes && (length = nghttp2_session_mem_send(session_, &frame)) > 0) {
    out_.append(reinterpret_cast<const char*>(frame), static_cast<size_t>(length));
  }
  if (length < 0) throw std::bad_alloc();
  return !out_.empty();
}

Http2Pump::Task<bool> Http2Pump::send_frames() {
  const Busy busy(shared_);
  asio::steady_timer limit(client_.get_executor(), shared_.config.write_time_max);
  limit.async_wait([self = shared_from_this()](error_code cancelled) {
    error_code ignored;
    if (!cancelled) self->client_.close(ignored);
  });
  auto [error, count] = co_await asio::async_write(client_, asio::buffer(out_), kTuple);
  (void)count;
  limit.cancel();
  sent_.raise();
  co_return !error;
}

// Closing while the client still sends would reset the connection and take the last frames with it: read a while longer.
Http2Pump::Task<void> Http2Pump::say_goodbye() {
  error_code ignored;
  ended_ = true;
  end_streams();
  sent_.raise();
  client_.shutdown(asio::socket_base::shutdown_send, ignored);
  co_await hung_up_.wait(kGoodbyeTime);
  client_.close(ignored);
}

void Http2Pump::tend() {
  const TimePoint now = steady_now();
  if (!streams_.empty()) idle_since_ = now;
  if (now - idle_since_ > shared_.config.idle_time_max) nghttp2_session_terminate_session(session_, NGHTTP2_NO_ERROR);
  if (!shared_.service.admission().draining() || std::exchange(draining_, true)) return;
  nghttp2_submit_goaway(session_, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(session_), NGHTTP2_NO_ERROR, nullptr, 0);
}

void Http2Pump::end_streams() {
  for (const auto& [id, stream] : std::exchange(streams_, {})) stream->close();
}

int Http2Pump::open_stream(int32_t id, bool has_body) {
  const auto stream = std::make_shared<Stream>(id, client_.get_executor(), head_, has_body, shared_);
  asio::local::stream_protocol::socket inner(client_.get_executor());
  error_code error;
  asio::local::connect_pair(stream->session, inner, error);
  if (error) return nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, id, NGHTTP2_REFUSED_STREAM);
  streams_[id] = stream;
  asio::co_spawn(client_.get_executor(), serve_session(Socket(std::move(inner)), shared_), asio::detached);
  start(write_request(stream), stream);
  start(read_answer(stream), stream);
  return 0;
}

// The connection's window opens at once: how much is held is bound by the streams' windows, and none can block the others.
int Http2Pump::take_body(int32_t id, std::string_view data) {
  const auto found = streams_.find(id);
  if (found != streams_.end() && !data.empty()) {
    Stream& stream = *found->second;
    stream.request += stream.chunked ? http1_chunk(data) : std::string(data);
    stream.request_body_bytes += data.size();
    stream.request_came.raise();
  }
  return nghttp2_session_consume_connection(session_, data.size());
}

int Http2Pump::end_body(int32_t id) {
  const auto found = streams_.find(id);
  if (found == streams_.end()) return 0;
  Stream& stream = *found->second;
  if (stream.chunked) stream.request += kHttp1LastChunk;
  stream.request_ended = true;
  stream.request_came.raise();
  return 0;
}

void Http2Pump::close_stream(int32_t id) {
  const auto found = streams_.find(id);
  if (found == streams_.end()) return;
  found->second->close();
  streams_.erase(found);
}

// Opening streams only to have them reset costs a client next to nothing, and the server each time a request.
void Http2Pump::count_reset() {
  const TimePoint now = steady_now();
  resets_ = std::max(0.0, resets_ - to_seconds(now - resets_at_) * kResetsPerSecond) + 1;
  resets_at_ = now;
  if (resets_ > kResetsMax) nghttp2_session_terminate_session(session_, NGHTTP2_ENHANCE_YOUR_CALM);
}

// A session that reads no more has answered already: the rest is taken and goes nowhere.
Http2Pump::Task<void> Http2Pump::write_request(std::shared_ptr<Stream> stream) {
  while (!stream->closed) {
    if (stream->request.empty() && stream->request_ended) break;
    if (stream->request.empty()) co_await stream->request_came.wait();
    const std::string piece = std::exchange(stream->request, "");
    const size_t body_bytes = std::exchange(stream->request_body_bytes, 0);
    co_await asio::async_write(stream->session, asio::buffer(piece), kTuple);
    if (stream->closed || body_bytes == 0) continue;
    nghttp2_session_consume_stream(session_, stream->id, body_bytes);
    to_send_.raise();
  }
}

Http2Pump::Task<void> Http2Pump::read_answer(std::shared_ptr<Stream> stream) {
  std::array<char, kPieceBytes> piece;
  while (!stream->closed && !stream->answer.done()) {
    auto [error, count] = co_await stream->session.async_read_some(asio::buffer(piece), kTuple);
    if (stream->closed) break;
    if (error || !frame_answer(*stream, {piece.data(), count})) co_return reset(*stream, NGHTTP2_INTERNAL_ERROR);
    while (!stream->closed && !stream->body.empty()) {
      if (co_await stream->body_taken.wait(shared_.config.write_time_max)) continue;
      shared_.service.metrics().streams_dropped();
      co_return reset(*stream, NGHTTP2_CANCEL);
    }
  }
  co_await end_request(stream);
}

// An answer may be over before its request, whose rest is not wanted (section 8.1). Often that is but the end in a frame of its
// own, and a client that has yet to send it would take a reset for a failure: it is given a moment.
Http2Pump::Task<void> Http2Pump::end_request(std::shared_ptr<Stream> stream) {
  bool waited = false;
  while (!stream->closed && !(waited && nghttp2_session_get_stream_local_close(session_, stream->id) == 1)) {
    waited = !co_await stream->body_taken.wait(kGoodbyeTime);
  }
  if (!stream->closed) reset(*stream, NGHTTP2_NO_ERROR);
}

// False: the session said what is no answer.
bool Http2Pump::frame_answer(Stream& stream, std::string_view bytes) {
  std::vector<Http1AnswerReader::Head> heads;
  if (!stream.answer.read(bytes, heads, stream.body)) return false;
  for (const auto& head : heads) submit_head(stream, head);
  nghttp2_session_resume_data(session_, stream.id);  // refused where it is under way anyway
  to_send_.raise();
  return true;
}

void Http2Pump::submit_head(Stream& stream, const Http1AnswerReader::Head& head) {
  const std::string status = std::to_string(head.status);
  std::vector<nghttp2_nv> fields = {field(":status", status)};
  for (const auto& [name, value] : head.fields) fields.push_back(field(name, value));
  if (head.interim()) {
    nghttp2_submit_headers(session_, NGHTTP2_FLAG_NONE, stream.id, nullptr, fields.data(), fields.size(), nullptr);
    return;
  }
  nghttp2_data_provider body{.source = {}, .read_callback = Callbacks::body};
  const bool has_body = !stream.answer.done() || !stream.body.empty();
  nghttp2_submit_response(session_, stream.id, fields.data(), fields.size(), has_body ? &body : nullptr);
}

ssize_t Http2Pump::give_body(Stream& stream, uint8_t* out, size_t length, uint32_t* flags) {
  if (stream.body.empty() && !stream.answer.done()) return NGHTTP2_ERR_DEFERRED;
  const size_t count = std::min(length, stream.body.size());
  std::copy_n(stream.body.begin(), count, out);
  stream.body.erase(0, count);
  stream.body_taken.raise();
  if (stream.body.empty() && stream.answer.done()) *flags |= NGHTTP2_DATA_FLAG_EOF;
  return static_cast<ssize_t>(count);
}

void Http2Pump::reset(Stream& stream, uint32_t error_code) {
  stream.close();
  nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, stream.id, error_code);
  to_send_.raise();
}

// A task that cannot go on takes its stream with it, or the connection.
void Http2Pump::start(Task<void> task, std::shared_ptr<Stream> stream) {
  asio::co_spawn(client_.get_executor(), std::move(task), [self = shared_from_this(), stream](std::exception_ptr failure) {
    error_code ignored;
    if (failure && stream) self->reset(*stream, NGHTTP2_INTERNAL_ERROR);
    if (failure && !stream) self->client_.close(ignored);
  });
}

}  // namespace shoal
