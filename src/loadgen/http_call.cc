#include "loadgen/http_call.h"

#include <algorithm>

#include "boost/asio/co_spawn.hpp"
#include "boost/asio/detached.hpp"
#include "workload/views.h"

namespace shoal {
namespace {

namespace asio = boost::asio;
constexpr size_t kBodyBytesMax = 64u << 20;
constexpr int kOk = 200;

struct Collected final : AnswerSink {
  void on_head(const AnswerHead& head) override { answer.status = head.status; }
  bool on_body(std::string_view bytes) override {
    if (on_bytes && answer.status == kOk) return !(ended = !on_bytes(bytes));
    answer.body.append(bytes);
    return answer.body.size() <= kBodyBytesMax;
  }
  HttpAnswer answer;
  std::function<bool(std::string_view)> on_bytes;
  bool ended = false;
};

// One exchange on `connection`, opened first if it is new; what came of it goes to `end`. Begins nothing once it is cancelled.
asio::awaitable<void> converse(Connection& connection, bool fresh, std::string request, Collected& sink, ExchangeEnd& end, bool& over,
                               const std::atomic<bool>& cancelled) {
  if (cancelled.load()) co_return void(over = true);
  if (fresh) end.problem = co_await connection.open();
  if (end.problem.empty()) end = co_await connection.exchange(request, sink);
  over = true;
}

}  // namespace

std::string http_request(const HttpTarget& target, std::string_view method, std::string_view path, const HttpHeaders& headers,
                         std::string_view body) {
  std::string out = absl::StrCat(own(method), " ", target.base_path, own(path), " HTTP/1.1\r\nHost: ", target.host_header(),
                                 "\r\nUser-Agent: shoal\r\nAccept: */*\r\n");
  for (const auto& [name, value] : headers) absl::StrAppend(&out, name, ": ", value, "\r\n");
  if (!body.empty() || method == "POST") {
    absl::StrAppend(&out, "Content-Type: application/json\r\nContent-Length: ", body.size(), "\r\n");
  }
  absl::StrAppend(&out, "\r\n", own(body));
  return out;
}

Status check_headers(const HttpHeaders& headers) {
  const auto plain = [](std::string_view text) {
    return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x20 && c != 0x7f; });
  };
  for (const auto& [name, value] : headers) {
    if (name.empty() || !plain(name) || name.find_first_of(": ") != std::string::npos || !plain(value)) {
      return invalid_argument("the header '", name, "' has an empty name or holds a control character");
    }
  }
  return OkStatus();
}

StatusOr<HttpAnswer> HttpCaller::call(std::string_view method, std::string_view path, std::string_view body, Duration timeout,
                                      const std::function<bool(std::string_view)>& on_body) {
  const std::string request = http_request(destination_.target, method, path, headers_, body);
  const std::string where = destination_.target.shown();
  while (true) {
    const bool fresh = kept_ == nullptr;
    if (fresh) kept_ = std::make_unique<Connection>(io_, destination_);
    Collected sink;
    sink.on_bytes = on_body;
    ExchangeEnd end;
    bool over = false;
    io_.restart();
    asio::co_spawn(io_, converse(*kept_, fresh, request, sink, end, over, cancelled_), asio::detached);
    io_.poll();  // begins, or close() would find nothing to end
    io_.run_for(timeout);
    const bool late = !over;
    if (late) kept_->close();  // ends what is under way
    while (!over) {  // cancel() stops a run at any time
      io_.restart();
      io_.run();
    }
    if (late || cancelled_.load()) {
      kept_.reset();
      if (cancelled_.load()) return absl::CancelledError(where + ": the call was ended");
      return absl::DeadlineExceededError(absl::StrCat(where, ": no answer within ", to_seconds(timeout), " s"));
    }
    if (!end.reusable) kept_.reset();
    if (end.problem.empty() || sink.ended) return std::move(sink.answer);
    if (!fresh && !end.answered) continue;  // the server closed a connection that was kept
    return unavailable(where, ": ", end.problem);
  }
}

void HttpCaller::cancel() {
  cancelled_.store(true);
  io_.stop();
}

}  // namespace shoal
