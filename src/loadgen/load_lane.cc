#include "loadgen/load_lane.h"

#include <algorithm>

#include "base/clock.h"
#include "boost/asio/as_tuple.hpp"
#include "boost/asio/co_spawn.hpp"
#include "boost/asio/detached.hpp"
#include "boost/asio/use_awaitable.hpp"
#include "loadgen/answer_reader.h"

namespace shoal {
namespace {

namespace asio = boost::asio;
constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);
constexpr Duration kLook = std::chrono::milliseconds(100);
constexpr double kRetryPauseS = 1;      // where the server names none
constexpr double kRetryPauseMaxS = 60;

// Moves an answer from the connection to its reader, with the time at which it came.
struct Timed final : AnswerSink {
  Timed(RequestRecord& record, bool keep_text, TimePoint sent, LoadCounters& counters)
      : reader(record, keep_text), record(record), sent(sent), counters(counters) {}
  void on_head(const AnswerHead& head) override {
    retry_after_s = head.retry_after_s;
    reader.head(head.status, head.event_stream);
  }
  bool on_body(std::string_view bytes) override {
    const size_t before = record.gaps_s.size() + (record.ttft_s > 0);
    const bool more = reader.body(bytes, now_s());
    counters.tokens.fetch_add(record.gaps_s.size() + (record.ttft_s > 0) - before, std::memory_order_relaxed);
    return more;
  }
  double now_s() const { return to_seconds(steady_now() - sent); }

  AnswerReader reader;
  RequestRecord& record;
  TimePoint sent;
  LoadCounters& counters;
  std::optional<double> retry_after_s;
};

}  // namespace

asio::awaitable<void> Slots::take() {
  if (open_) co_return;
  if (free_ > 0) {
    --free_;
    co_return;
  }
  asio::steady_timer turn(io_, asio::steady_timer::time_point::max());
  waiting_.push_back(&turn);
  co_await turn.async_wait(kTuple);
}

void Slots::give() {
  if (waiting_.empty()) {
    ++free_;
  } else {
    waiting_.front()->cancel();
    waiting_.pop_front();
  }
}

void Slots::open_for_all() {
  open_ = true;
  while (!waiting_.empty()) give();
}

LoadLane::LoadLane(const LoadSpec& spec, const Destination& destination, const WordBook& words, Share share, TimePoint begin,
                   LoadCounters& counters)
    : spec_(spec), destination_(destination), words_(words), share_(share), begin_(begin), counters_(counters), io_(1), due_(io_),
      look_(io_), running_(io_, share.concurrency), connecting_(io_, spec.connects_at_once) {}

void LoadLane::run() {
  asio::co_spawn(io_, dispatch(), asio::detached);
  asio::co_spawn(io_, watch(), asio::detached);
  io_.run();
}

double LoadLane::since_begin_s() const { return to_seconds(steady_now() - begin_); }

bool LoadLane::may_send() const { return !stopped_ && (spec_.duration_s <= 0 || since_begin_s() < spec_.duration_s); }

LoadLane::Task<void> LoadLane::dispatch() {
  for (size_t i = share_.index; i < share_.requests.size() && may_send(); i += share_.lanes) {
    const double wait_s = share_.requests[i].due_s - since_begin_s();
    if (wait_s > 0) {
      const double until_end_s = spec_.duration_s > 0 ? spec_.duration_s - since_begin_s() : wait_s;
      due_.expires_after(from_seconds(std::min(wait_s, until_end_s)));
      co_await due_.async_wait(kTuple);
      lag_max_s_ = std::max(lag_max_s_, since_begin_s() - share_.requests[i].due_s);
    }
    co_await running_.take();
    if (!may_send()) break;
    asio::co_spawn(io_, request(i), asio::detached);
  }
  dispatched_ = true;
  if (active_.empty()) look_.cancel();
}

// Ends what takes too long, and everything when the run is stopped.
LoadLane::Task<void> LoadLane::watch() {
  while (!dispatched_ || !active_.empty()) {
    look_.expires_after(kLook);
    co_await look_.async_wait(kTuple);
    if (counters_.stop.load() && !stopped_) stop_all();
    const TimePoint now = steady_now();
    for (Active* active : active_) {
      if (now < active->deadline || active->timed_out) continue;
      active->timed_out = true;
      if (active->connection != nullptr) active->connection->close();
      if (active->pause != nullptr) active->pause->cancel();
    }
  }
}

void LoadLane::stop_all() {
  stopped_ = true;
  due_.cancel();
  for (Active* active : active_) {
    active->interrupted = true;
    if (active->connection != nullptr) active->connection->close();
    if (active->pause != nullptr) active->pause->cancel();
  }
  running_.open_for_all();
  connecting_.open_for_all();
}

LoadLane::Task<void> LoadLane::request(size_t index) {
  RequestRecord& record = share_.records[index];
  const LoadRequest& wanted = share_.requests[index];
  const std::string bytes = http_request(destination_.target, "POST", spec_.path, spec_.headers,
                                         request_body(spec_, wanted, write_prompt(wanted.prompt, words_)));
  const TimePoint sent = steady_now();
  Active active{.deadline = sent + spec_.request_timeout};
  active_.insert(&active);
  record.start_s = to_seconds(sent - begin_);
  record.input_tokens = wanted.input_tokens;
  record.model = wanted.model.empty() ? spec_.model : wanted.model;
  counters_.sent.fetch_add(1, std::memory_order_relaxed);
  while (true) {
    const std::optional<double> again_s = co_await attempt(bytes, active, record);
    if (!again_s || record.retries >= spec_.retries_max || stopped_) break;
    co_await pause(*again_s, active);
    if (active.interrupted || active.timed_out) break;
    ++record.retries;
    record.failure.clear();
    record.message.clear();
  }
  (record.ok() ? counters_.completed : counters_.failed).fetch_add(1, std::memory_order_relaxed);
  active_.erase(&active);
  running_.give();
  if (dispatched_ && active_.empty()) look_.cancel();
}

LoadLane::Task<void> LoadLane::pause(double seconds, Active& active) {
  asio::steady_timer timer(io_, from_seconds(std::min(seconds, kRetryPauseMaxS)));
  active.pause = &timer;
  co_await timer.async_wait(kTuple);
  active.pause = nullptr;
}

// Null with a problem, or an open connection.
LoadLane::Task<std::unique_ptr<Connection>> LoadLane::connect(std::string& problem, Active& active) {
  auto connection = std::make_unique<Connection>(io_, destination_);
  co_await connecting_.take();
  if (active.interrupted || active.timed_out) {
    problem = "no connection yet";
  } else {
    active.connection = connection.get();
    problem = co_await connection->open();
    active.connection = nullptr;
  }
  connecting_.give();
  if (!problem.empty()) connection.reset();
  co_return connection;
}

// One try. The seconds to wait before another one, if the server asked for that.
LoadLane::Task<std::optional<double>> LoadLane::attempt(const std::string& bytes, Active& active, RequestRecord& record) {
  Timed sink(record, spec_.keep_text, begin_ + from_seconds(record.start_s), counters_);
  ExchangeEnd end;
  std::unique_ptr<Connection> connection;
  bool kept = true;
  while (true) {
    kept = !idle_.empty();
    if (kept) {
      connection = std::move(idle_.back());
      idle_.pop_back();
    } else {
      std::string problem;
      connection = co_await connect(problem, active);
      if (!connection) {
        sink.reader.fail(active.interrupted ? "interrupted" : active.timed_out ? "timeout" : "connect", problem, sink.now_s());
        co_return std::nullopt;
      }
    }
    active.connection = connection.get();
    end = co_await connection->exchange(bytes, sink);
    active.connection = nullptr;
    const bool stale = kept && !end.answered && !end.problem.empty();  // closed by the server while it was idle
    if (!stale || active.timed_out || active.interrupted) break;
  }
  if (active.interrupted) sink.reader.fail("interrupted", "the run was stopped", sink.now_s());
  if (active.timed_out) sink.reader.fail("timeout", absl::StrCat("no end within ", to_seconds(spec_.request_timeout), " s"), sink.now_s());
  sink.reader.end(end.problem, sink.now_s());
  if (end.reusable) idle_.push_back(std::move(connection));
  const bool busy = sink.reader.status() == 429 || sink.reader.status() == 503;
  co_return busy ? std::optional(sink.retry_after_s.value_or(kRetryPauseS)) : std::nullopt;
}

}  // namespace shoal
