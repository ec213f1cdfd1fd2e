// A client connection (TCP, TLS over it, or a UNIX socket) and one HTTP/1.1 exchange over it, as coroutines.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "boost/asio/awaitable.hpp"
#include "boost/asio/generic/stream_protocol.hpp"
#include "boost/asio/io_context.hpp"
#include "boost/asio/ssl/context.hpp"
#include "boost/asio/ssl/stream.hpp"
#include "boost/beast/core/flat_buffer.hpp"
#include "loadgen/http_target.h"

namespace shoal {

// Where to connect, with its name resolved and its certificates read; shared by all connections of a run.
struct Destination {
  HttpTarget target;
  std::vector<boost::asio::generic::stream_protocol::endpoint> endpoints;
  std::unique_ptr<boost::asio::ssl::context> tls;  // null: plain
};
// Unavailable if the name does not resolve. `verify`: check the server's certificate (https only).
StatusOr<Destination> find_destination(const HttpTarget& target, bool verify);

// What of an answer's head matters here.
struct AnswerHead {
  int status = 0;
  bool event_stream = false;
  std::optional<double> retry_after_s;
};

class AnswerSink {
 public:
  virtual ~AnswerSink() = default;
  virtual void on_head(const AnswerHead& head) = 0;
  // False: read no more.
  virtual bool on_body(std::string_view bytes) = 0;
};

struct ExchangeEnd {
  bool answered = false;     // at least one byte of an answer came
  bool reusable = false;     // the connection may carry another exchange
  std::string problem;       // "" if the answer came to its end
};

class Connection {
 public:
  template <typename T>
  using Task = boost::asio::awaitable<T>;

  // `destination` outlives the connection.
  Connection(boost::asio::io_context& io, const Destination& destination);

  // Tries each endpoint in turn; "" or what went wrong.
  Task<std::string> open();
  // Sends `request`, a whole HTTP message, and gives the answer to `sink`.
  Task<ExchangeEnd> exchange(const std::string& request, AnswerSink& sink);
  // Ends what is under way; it returns with a problem.
  void close();

 private:
  using Socket = boost::asio::generic::stream_protocol::socket;
  using Count = std::pair<boost::system::error_code, size_t>;
  Task<Count> read_some();
  Task<boost::system::error_code> write(const std::string& bytes);

  const Destination& destination_;
  Socket socket_;
  std::unique_ptr<boost::asio::ssl::stream<Socket&>> tls_;
  boost::beast::flat_buffer buffer_;
};

}  // namespace shoal
