#include "loadgen/connection.h"

#include "boost/asio/as_tuple.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "boost/asio/local/stream_protocol.hpp"
#include "boost/asio/ssl/host_name_verification.hpp"
#include "boost/asio/use_awaitable.hpp"
#include "boost/asio/write.hpp"
#include "boost/beast/core/buffers_range.hpp"
#include "boost/beast/http/parser.hpp"
#include "workload/views.h"

namespace shoal {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;
using Generic = asio::generic::stream_protocol;

constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);
constexpr size_t kReadBytes = 8192;
constexpr size_t kSocketPathBytesMax = 100;

std::string_view view(beast::string_view text) { return {text.data(), text.size()}; }

// A Beast body that keeps nothing: what comes is handed on.
struct HandedOn {
  struct value_type {
    AnswerSink* sink = nullptr;
    bool refused = false;
  };
  class reader {
   public:
    // Made before the head has come, so what it says is read in init().
    template <bool kRequest, class Fields>
    reader(http::header<kRequest, Fields>& head, value_type& value) : value_(value) {
      if constexpr (!kRequest) {
        read_head_ = [&head] {
          return AnswerHead{.status = static_cast<int>(head.result_int()),
                            .event_stream = view(head[http::field::content_type]).starts_with("text/event-stream"),
                            .retry_after_s = number_in<uint32_t>(view(head[http::field::retry_after]))};
        };
      }
    }
    void init(const boost::optional<std::uint64_t>&, error_code& error) {
      error = {};
      if (read_head_) value_.sink->on_head(read_head_());
    }
    template <class Buffers>
    size_t put(const Buffers& buffers, error_code& error) {
      size_t count = 0;
      for (const auto buffer : beast::buffers_range_ref(buffers)) {
        const asio::const_buffer bytes(buffer);
        value_.refused |= !value_.sink->on_body({static_cast<const char*>(bytes.data()), bytes.size()});
        count += bytes.size();
      }
      error = value_.refused ? http::error::body_limit : error_code();
      return count;
    }
    void finish(error_code& error) { error = {}; }

   private:
    value_type& value_;
    std::function<AnswerHead()> read_head_;
  };
};

Status resolve(const HttpTarget& target, std::vector<Generic::endpoint>& endpoints) {
  if (!target.unix_socket.empty()) {
    if (target.unix_socket.size() > kSocketPathBytesMax) return invalid_argument(target.unix_socket, ": longer than a socket path may be");
    endpoints.emplace_back(asio::local::stream_protocol::endpoint(target.unix_socket));
    return OkStatus();
  }
  asio::io_context io;
  error_code error;
  asio::ip::tcp::resolver resolver(io);
  for (const auto& entry : resolver.resolve(target.host, target.port, error)) endpoints.emplace_back(entry.endpoint());
  if (error || endpoints.empty()) return unavailable("the name '", target.host, "' cannot be resolved: ", error.message());
  return OkStatus();
}

}  // namespace

StatusOr<Destination> find_destination(const HttpTarget& target, bool verify) {
  Destination out{.target = target};
  RETURN_IF_ERROR(resolve(target, out.endpoints));
  if (!target.tls) return out;
  out.tls = std::make_unique<asio::ssl::context>(asio::ssl::context::tls_client);
  error_code error;
  if (verify) out.tls->set_default_verify_paths(error);
  if (!error) out.tls->set_verify_mode(verify ? asio::ssl::verify_peer : asio::ssl::verify_none, error);
  if (verify && !error) out.tls->set_verify_callback(asio::ssl::host_name_verification(target.host), error);
  if (error) return unavailable("TLS cannot be set up: ", error.message());
  return out;
}

Connection::Connection(asio::io_context& io, const Destination& destination) : destination_(destination), socket_(io) {
  if (destination.tls) tls_ = std::make_unique<asio::ssl::stream<Socket&>>(socket_, *destination.tls);
}

Connection::Task<std::string> Connection::open() {
  error_code error;
  for (const Generic::endpoint& endpoint : destination_.endpoints) {
    error_code ignored;
    socket_.close(ignored);
    socket_.open(endpoint.protocol(), error);
    if (error) continue;
    std::tie(error) = co_await socket_.async_connect(endpoint, kTuple);
    if (!error || error == asio::error::operation_aborted) break;
  }
  if (error) co_return error.message();
  error_code ignored;
  if (destination_.target.unix_socket.empty()) socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  if (!tls_) co_return "";
  SSL_set_tlsext_host_name(tls_->native_handle(), destination_.target.host.c_str());
  std::tie(error) = co_await tls_->async_handshake(asio::ssl::stream_base::client, kTuple);
  co_return error ? "TLS: " + error.message() : "";
}

Connection::Task<Connection::Count> Connection::read_some() {
  const auto room = buffer_.prepare(kReadBytes);
  if (tls_) {
    auto [error, count] = co_await tls_->async_read_some(room, kTuple);
    co_return Count(error, count);
  }
  auto [error, count] = co_await socket_.async_read_some(room, kTuple);
  co_return Count(error, count);
}

Connection::Task<error_code> Connection::write(const std::string& bytes) {
  const auto buffer = asio::buffer(bytes);
  if (tls_) {
    auto [error, count] = co_await asio::async_write(*tls_, buffer, kTuple);
    co_return error;
  }
  auto [error, count] = co_await asio::async_write(socket_, buffer, kTuple);
  co_return error;
}

Connection::Task<ExchangeEnd> Connection::exchange(const std::string& request, AnswerSink& sink) {
  ExchangeEnd end;
  // A server may refuse before it has read everything: its answer is read even if the request could not be sent.
  const error_code unsent = co_await write(request);
  http::response_parser<HandedOn> parser;
  parser.eager(true);
  parser.body_limit(boost::none);
  parser.get().body().sink = &sink;
  error_code error;
  while (!parser.is_done()) {
    auto [trouble, count] = co_await read_some();
    end.answered |= count > 0;
    if (trouble) {
      parser.put_eof(error);
      if (!end.answered || !parser.is_done() || error) end.problem = unsent ? unsent.message() : trouble.message();
      break;
    }
    buffer_.commit(count);
    buffer_.consume(parser.put(buffer_.data(), error));
    if (error == http::error::need_more) error = {};
    if (error) {
      end.problem = error.message();
      break;
    }
  }
  end.reusable = end.problem.empty() && !unsent && parser.is_done() && parser.keep_alive() && buffer_.size() == 0;
  co_return end;
}

void Connection::close() {
  error_code ignored;
  socket_.close(ignored);
}

}  // namespace shoal
