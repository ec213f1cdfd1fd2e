// One HTTP request and its whole answer, waited for: for command line verbs and the questions before a run.
#pragma once

#include <atomic>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/time.h"
#include "loadgen/connection.h"

namespace shoal {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

// The bytes of a request; a body is JSON. `path` is put behind the target's prefix.
std::string http_request(const HttpTarget& target, std::string_view method, std::string_view path, const HttpHeaders& headers,
                         std::string_view body);
// No control character may get into a header. InvalidArgument names the header.
Status check_headers(const HttpHeaders& headers);

struct HttpAnswer {
  int status = 0;
  std::string body;
};

// A client that keeps its connection. Belongs to one thread.
class HttpCaller {
 public:
  // `destination` outlives the caller.
  HttpCaller(const Destination& destination, HttpHeaders headers) : destination_(destination), headers_(std::move(headers)) {}

  // Unavailable: no connection, or an answer longer than 64 MiB; DeadlineExceeded: no answer within `timeout`; Cancelled: by
  // cancel(). `on_body`, if given, gets the
  // body of a 200 as it comes instead; false ends the call, which is no error.
  StatusOr<HttpAnswer> call(std::string_view method, std::string_view path, std::string_view body, Duration timeout,
                            const std::function<bool(std::string_view)>& on_body = {});
  // Ends the call that is under way, and all that come. From any thread.
  void cancel();

 private:
  const Destination& destination_;
  HttpHeaders headers_;
  boost::asio::io_context io_;
  std::unique_ptr<Connection> kept_;
  std::atomic<bool> cancelled_{false};
};

}  // namespace shoal
