// The generating half of HttpSession: waits for tokens and for the client to go away at the same time.
#include <poll.h>

#include <sstream>

#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "base/log.h"
#include "boost/asio/as_tuple.hpp"
#include "boost/asio/co_spawn.hpp"
#include "boost/asio/detached.hpp"
#include "boost/asio/post.hpp"
#include "boost/asio/use_awaitable.hpp"
#include "boost/beast/core/buffers_to_string.hpp"
#include "boost/beast/http/chunk_encode.hpp"
#include "boost/beast/http/empty_body.hpp"
#include "boost/beast/http/write.hpp"
#include "gateway/http_headers.h"
#include "gateway/http_session.h"
#include "gateway/strings.h"

namespace shoal {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;

constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);
constexpr Duration kAdmissionWait = std::chrono::milliseconds(500);  // a refusal within it is a status, not an event
constexpr Duration kPollWithBytesWaiting = std::chrono::milliseconds(200);
constexpr Duration kProbeInterval = std::chrono::seconds(1);
constexpr Duration kFirstLook = std::chrono::milliseconds(1);  // after bytes were sent to a client that sends no more
constexpr int kClientGone = 499;  // in logs and metrics only

enum class Peer { kThere, kHalfClosed, kGone };

// Also with bytes of a next request still unread. A client that has closed its sending side may wait for its answer, or be
// gone: over TCP both look alike until bytes are sent to it.
Peer peer_state(int fd) {
  pollfd state{fd, POLLRDHUP, 0};
  if (poll(&state, 1, 0) <= 0) return Peer::kThere;
  if ((state.revents & (POLLHUP | POLLERR)) != 0) return Peer::kGone;
  return (state.revents & POLLRDHUP) != 0 ? Peer::kHalfClosed : Peer::kThere;
}

// However the coroutine ends, also with the server: the nodes stop, and nothing wakes the connection any more.
struct CancelAtExit {
  std::shared_ptr<Generation> generation;
  ~CancelAtExit() { generation->cancel(); }
};

}  // namespace

HttpSession::Task<void> HttpSession::generate(Endpoint endpoint, const BeastRequest& request) {
  Service& service = shared_.service;
  const TimePoint arrived = steady_now();
  const auto time_max = request_timeout(std::string_view(request["X-Request-Timeout"].data(), request["X-Request-Timeout"].size()));
  if (!time_max.ok()) co_return co_await send_error(time_max.error(), false);
  time_max_ = *time_max;
  const auto ttft_max = deadline_header("X-Shoal-Ttft-Ms", std::string_view(request["X-Shoal-Ttft-Ms"].data(), request["X-Shoal-Ttft-Ms"].size()));
  if (!ttft_max.ok()) co_return co_await send_error(ttft_max.error(), false);
  const auto tbt_max = deadline_header("X-Shoal-Tbt-Ms", std::string_view(request["X-Shoal-Tbt-Ms"].data(), request["X-Shoal-Tbt-Ms"].size()));
  if (!tbt_max.ok()) co_return co_await send_error(tbt_max.error(), false);
  ApiResult<PreparedAnswer> prepared = ApiError();
  auto prepare = [&]() -> Task<void> {
    prepared = service.prepare(endpoint, request.body(), caller_);
    if (!prepared.ok()) co_return;
    Request& shared = prepared->request.request;
    shared.ttft_max = std::min(shared.ttft_max, *ttft_max);
    shared.tbt_max = std::min(shared.tbt_max, *tbt_max);
    shared.payer = service.admission().payer(caller_);
    co_return;
  };
  co_await asio::co_spawn(shared_.work.lane(request.body().size()), prepare(), asio::use_awaitable);
  if (prepared.ok() && prepared->ready) {
    HttpReply reply{.body = *std::move(prepared->ready)};
    co_await send_reply(std::move(reply), false);
    co_return;
  }
  if (prepared.ok()) co_return co_await run_answer(*prepared, arrived);
  const ApiError& error = prepared.error();
  log_info("request id=", request_id_, log_context(), " status=", error.http_status, " error=",
           error.code.value_or("none"), " param=", error.param.value_or("none"));
  if (error.http_status == 503) service.metrics().refused(error.code.value_or("unavailable"));
  co_await send_error(error, false);
}

HttpSession::Task<void> HttpSession::run_answer(PreparedAnswer& answer, TimePoint arrived) {
  Service& service = shared_.service;
  const ModelEntry& model = *answer.request.model;
  RequestRecord record{.n = answer.request.n, .max_tokens = answer.request.request.max_tokens};
  service.metrics().request_started(model);
  auto lease = service.admission().admit(caller_, answer.request);
  rate_headers_ = service.admission().rate_headers(caller_);
  if (!lease.ok()) {
    record.http_status = lease.error().http_status;
    log_info("request id=", request_id_, log_context(), " model=", model.name, " status=", record.http_status, " error=",
             lease.error().code.value_or("none"));
    service.metrics().request_ended(model, record);
    co_return co_await send_error(lease.error(), false);
  }
  auto wake = std::make_shared<Wake>(stream_.get_executor());
  auto notify = [executor = stream_.get_executor(), wake] { asio::post(executor, [wake] { wake->raise(); }); };
  // An answer that is not streamed is collected whole whatever its size; only a stream can be left unread.
  const size_t unread_bytes_max = answer.stream ? shared_.config.unread_bytes_max : SIZE_MAX;
  auto started = service.start(std::move(answer.request), notify, unread_bytes_max, time_max_);
  if (!started.ok()) {
    record.http_status = started.error().http_status;
    co_await send_failure(started.error());
    co_return service.metrics().request_ended(model, record);
  }
  Generation& generation = **started;
  {
    const CancelAtExit guard{*started};
    asio::co_spawn(stream_.get_executor(), watch_client(wake), asio::detached);
    if (answer.stream) {
      co_await answer_stream(answer, generation, wake, record);
    } else {
      co_await answer_whole(answer, generation, wake, record);
    }
  }
  wake->finished = true;
  error_code ignored;
  stream_.socket().cancel(ignored);  // ends the watcher's wait
  if (record.http_status == kClientGone) last_status_ = kClientGone;
  record.total_s = to_seconds(steady_now() - arrived);
  complete(generation, record);
  lease->charge_tokens(record.completion_tokens, steady_now());
  service.admission().answer_ended();
  log_answer(answer, generation, record);
  service.metrics().request_ended(model, record);
}

// What the roles below refused. They say that it is too much; when it may work again, the gateway knows better.
HttpSession::Task<void> HttpSession::send_failure(ApiError error) {
  if (error.code == "server_overloaded") {
    error.retry_after_s = std::max(error.retry_after_s.value_or(1), retry_seconds(shared_.service.retry_after()));
  }
  co_await send_error(std::move(error), false);
}

void HttpSession::complete(const Generation& generation, RequestRecord& record) const {
  const Usage usage = generation.usage();
  record.prompt_tokens = usage.prompt_tokens;
  record.completion_tokens = usage.completion_tokens;
  if (const auto first = generation.first_token_after()) record.first_token_s = to_seconds(*first);
  record.queued_s = to_seconds(generation.queued());
  if (record.http_status == 200) record.finish_reason = finish_reason_name(generation.last_finish());
}

// Lives on its own until the answer ends: closing the connection takes effect within a step of the model.
HttpSession::Task<void> HttpSession::watch_client(std::shared_ptr<Wake> wake) {
  const auto self = shared_from_this();
  asio::steady_timer pause(stream_.get_executor());
  Duration next_look = kPollWithBytesWaiting;
  while (!wake->finished) {
    auto [error] = co_await stream_.socket().async_wait(asio::socket_base::wait_read, kTuple);
    if (wake->finished) break;
    const Peer peer = error ? Peer::kGone : peer_state(stream_.socket().native_handle());
    if (peer == Peer::kGone) {
      wake->client_gone = true;
      wake->raise();
      break;
    }
    if (peer == Peer::kHalfClosed && !wake->half_closed) {
      wake->half_closed = true;
      wake->raise();
      next_look = kFirstLook;
    }
    // Bytes of a next request, or their end, make the socket readable for good; look again now and then instead.
    pause.expires_after(next_look);
    next_look = std::min(2 * next_look, kPollWithBytesWaiting);
    co_await pause.async_wait(kTuple);
  }
}

HttpSession::Task<void> HttpSession::sleep(std::shared_ptr<Wake> wake, Duration at_most) {
  if (!wake->raised) {
    wake->timer.expires_after(at_most);
    co_await wake->timer.async_wait(kTuple);
  }
  wake->raised = false;
}

HttpSession::Task<void> HttpSession::answer_whole(PreparedAnswer& answer, Generation& generation,
                                                  std::shared_ptr<Wake> wake, RequestRecord& record) {
  std::vector<CollectedChoice> choices(generation.choices());
  TimePoint probed{};
  while (true) {
    Progress progress = generation.poll();
    if (wake->client_gone) {
      record.http_status = kClientGone;
      keep_alive_ = false;
      co_return;
    }
    const bool done = progress.done, more = progress.more;
    if (progress.failure) {
      record.http_status = progress.failure->http_status;
      co_return co_await send_failure(*progress.failure);
    }
    collect(std::move(progress), choices);
    if (done) break;
    const bool probes = wake->half_closed && !http_1_0_;
    if (probes && steady_now() - probed >= kProbeInterval) {  // who is gone resets the connection, who waits skips it
      probed = steady_now();
      const std::string go_on(kGoOn);
      co_await send_bytes(go_on);
    }
    if (!more) co_await sleep(wake, probes ? kProbeInterval : shared_.config.ping_interval);
  }
  HttpReply reply{.body = answer.writer->body(choices, generation)};
  const bool sent = co_await send_reply(std::move(reply), false);
  if (!sent) record.http_status = kClientGone;
}

// Waits a moment for the router's first word, so that a refusal still becomes a status code.
HttpSession::Task<Progress> HttpSession::first_progress(Generation& generation, std::shared_ptr<Wake> wake) {
  Progress progress = generation.poll();
  if (progress.updates.empty() && !progress.done) {
    co_await sleep(wake, kAdmissionWait);
    progress = generation.poll();
  }
  co_return progress;
}

HttpSession::Task<void> HttpSession::answer_stream(PreparedAnswer& answer, Generation& generation,
                                                   std::shared_ptr<Wake> wake, RequestRecord& record) {
  Progress progress = co_await first_progress(generation, wake);
  if (progress.failure) {
    record.http_status = progress.failure->http_status;
    co_return co_await send_failure(*progress.failure);
  }
  if (http_1_0_) keep_alive_ = false;  // the end of the stream is the end of the connection
  AnswerWriter& events = *answer.writer;
  std::string text;
  events.begin(generation, text);
  std::string out = stream_head(events.stream_type());
  last_status_ = 200;
  bool probed = false;
  while (true) {
    events.push(progress, generation, text);
    if (!text.empty()) out += stream_frame(text);
    text.clear();
    if (progress.done) out += stream_end();
    const bool sent = co_await send_bytes(out);
    out.clear();
    if (!sent || wake->client_gone) {
      record.http_status = kClientGone;
      keep_alive_ = false;
      co_return;
    }
    if (progress.done) break;
    if (!progress.more) co_await sleep(wake, shared_.config.ping_interval);
    const bool probe = wake->half_closed && !std::exchange(probed, true);
    progress = generation.poll();
    const bool silent = progress.updates.empty() && !progress.done && !wake->client_gone;
    if (silent || probe) events.ping(text);
  }
  if (progress.failure) record.http_status = progress.failure->http_status;
}

std::string HttpSession::stream_head(std::string_view content_type) const {
  http::response<http::empty_body> head(http::status::ok, http_1_0_ ? 10 : 11);
  head.set(http::field::content_type, boost::beast::string_view(content_type.data(), content_type.size()));
  head.set(http::field::cache_control, "no-cache");
  head.set("X-Accel-Buffering", "no");
  head.set(http::field::date, http_date(std::chrono::system_clock::now()));
  head.set("X-Request-Id", request_id_);
  for (const auto& [name, value] : answer_headers()) head.set(name, value);
  if (!http_1_0_) head.chunked(true);
  head.keep_alive(keep_alive_);
  std::ostringstream text;
  text << head.base();
  return text.str();
}

std::string HttpSession::stream_frame(std::string_view data) const {
  if (http_1_0_) return std::string(data);
  return boost::beast::buffers_to_string(http::make_chunk(asio::buffer(data.data(), data.size())));
}

std::string HttpSession::stream_end() const { return http_1_0_ ? "" : boost::beast::buffers_to_string(http::make_chunk_last()); }

// " key=NAME trace_id=HEX", of what there is.
std::string HttpSession::log_context() const {
  const std::string_view key = shared_.service.admission().name(caller_);
  return absl::StrCat(key.empty() ? "" : " key=", str(key), traceparent_.empty() ? "" : " trace_id=",
                      traceparent_.empty() ? "" : traceparent_.substr(3, 32));
}

void HttpSession::log_answer(const PreparedAnswer& answer, const Generation& generation,
                             const RequestRecord& record) const {
  const Usage usage = generation.usage();
  log_info("request id=", request_id_, log_context(), " model=", generation.request().model->name, " status=", record.http_status,
           " stream=", answer.stream ? 1 : 0, " prompt_tokens=", usage.prompt_tokens, " cached_tokens=",
           usage.cached_tokens, " completion_tokens=", usage.completion_tokens, " ttft_ms=",
           absl::StrFormat("%.1f", record.first_token_s < 0 ? 0 : record.first_token_s * 1e3), " total_ms=",
           absl::StrFormat("%.1f", record.total_s * 1e3), " finish_reason=",
           record.finish_reason.empty() ? "none" : str(record.finish_reason));
}

}  // namespace shoal
