#include "gateway/http_server.h"

#include <thread>
#include <vector>

#include "base/log.h"
#include "boost/asio/as_tuple.hpp"
#include "boost/asio/co_spawn.hpp"
#include "boost/asio/detached.hpp"
#include "boost/asio/io_context.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "boost/asio/local/stream_protocol.hpp"
#include "boost/asio/strand.hpp"
#include "boost/asio/use_awaitable.hpp"
#include "boost/asio/this_coro.hpp"
#include "gateway/http_session.h"
#include "gateway/http_tls.h"
#include "gateway/listen.h"

namespace shoal {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using asio::local::stream_protocol;
using boost::system::error_code;

constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);
constexpr Duration kAcceptPause = std::chrono::milliseconds(100);  // after running out of file descriptors

class Server final : public HttpServer {
 public:
  Server(const HttpServerConfig& config, Service& service, Admin* admin)
      : shared_{config, service, admin, WorkLanes(config.work_threads)}, flags_(admin == nullptr ? ListenFlags() : kAdminListenFlags), tcp_(io_), local_(io_) {}

  ~Server() override {
    io_.stop();
    for (std::thread& thread : threads_) thread.join();
    shared_.work.join();
    file_.reset();
  }

  Status listen() {
    if (!shared_.config.tls_certificate_file.empty()) {
      ASSIGN_OR_RETURN(tls_, make_tls_context(shared_.config.tls_certificate_file, shared_.config.tls_key_file));
    }
    RETURN_IF_ERROR(shared_.config.unix_socket.empty() ? listen_tcp() : listen_local());
    for (uint32_t i = 0; i < shared_.config.io_threads; ++i) threads_.emplace_back([this] { io_.run(); });
    return OkStatus();
  }

  std::string address() const override {
    if (!shared_.config.unix_socket.empty()) return "unix:" + shared_.config.unix_socket;
    const auto& host = shared_.config.host;
    return absl::StrCat(tls_ ? "https://" : "http://", host.find(':') == std::string::npos ? host : "[" + host + "]", ":", port_);
  }
  uint16_t port() const override { return port_; }
  uint32_t active_requests() const override { return shared_.active_requests.load(); }

 private:
  Status listen_tcp() {
    const HttpServerConfig& config = shared_.config;
    error_code error;
    tcp::resolver resolver(io_);
    const auto found = resolver.resolve(config.host, std::to_string(config.port),
                                        tcp::resolver::passive | tcp::resolver::numeric_service, error);
    if (error || found.empty()) return invalid_argument(std::string(flags_.host), " ", config.host, ": ", error.message(), "; give an address of this machine");
    const tcp::endpoint endpoint = found.begin()->endpoint();
    tcp_.open(endpoint.protocol(), error);
    if (!error) tcp_.set_option(asio::socket_base::reuse_address(true), error);
    if (!error) tcp_.bind(endpoint, error);
    if (!error) tcp_.listen(asio::socket_base::max_listen_connections, error);
    if (error) return cannot_listen(config.host, config.port, error.value(), flags_);
    port_ = tcp_.local_endpoint(error).port();
    asio::co_spawn(io_, accept(tcp_), asio::detached);
    return OkStatus();
  }

  Status listen_local() {
    ASSIGN_OR_RETURN(file_, UnixListener::open(shared_.config.unix_socket, /*owner_only=*/shared_.admin != nullptr, flags_));
    error_code error;
    local_.assign(stream_protocol(), file_->release(), error);
    if (error) return unavailable("cannot listen on ", shared_.config.unix_socket, ": ", error.message());
    asio::co_spawn(io_, accept(local_), asio::detached);
    return OkStatus();
  }

  template <typename Acceptor>
  asio::awaitable<void> accept(Acceptor& acceptor) {
    asio::steady_timer pause(io_);
    while (true) {
      const asio::any_io_executor strand = asio::make_strand(io_);
      auto [error, socket] = co_await acceptor.async_accept(strand, kTuple);
      if (error == asio::error::operation_aborted) co_return;
      if (error) {
        log_warning("a connection could not be accepted: ", error.message());
        pause.expires_after(kAcceptPause);
        co_await pause.async_wait(kTuple);
        continue;
      }
      error_code ignored;
      if constexpr (std::is_same_v<Acceptor, tcp::acceptor>) socket.set_option(tcp::no_delay(true), ignored);
      if constexpr (std::is_same_v<Acceptor, tcp::acceptor>) {
        if (tls_) {
          asio::co_spawn(strand, serve_tls(std::move(socket)), asio::detached);
          continue;
        }
      }
      asio::co_spawn(strand, serve_session(HttpSession::Stream::socket_type(std::move(socket)), shared_), asio::detached);
    }
  }

  // TLS ends in front of the session, which sees a plain socket.
  asio::awaitable<void> serve_tls(tcp::socket socket) {
    if (shared_.connections.load() > shared_.config.connections_max) co_return;
    const auto strand = co_await asio::this_coro::executor;
    auto pump = std::make_shared<TlsPump>(std::move(socket), tls_);
    if (!co_await pump->handshake(shared_.config.header_time_max)) co_return;
    stream_protocol::socket inner(strand);
    if (!pump->connect(inner)) co_return;
    asio::co_spawn(strand, pump->run(), asio::detached);
    co_await serve_session(HttpSession::Stream::socket_type(std::move(inner)), shared_);
  }

  // The connections go (with the io_context's queue) before what they refer to: io_ is declared after shared_.
  HttpShared shared_;
  const ListenFlags flags_;
  std::shared_ptr<asio::ssl::context> tls_;  // null: plain
  asio::io_context io_;
  tcp::acceptor tcp_;
  stream_protocol::acceptor local_;
  std::unique_ptr<UnixListener> file_;
  uint16_t port_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace

StatusOr<std::unique_ptr<HttpServer>> HttpServer::start(const HttpServerConfig& config, Service& service,
                                                        Admin* admin) {
  auto server = std::make_unique<Server>(config, service, admin);
  RETURN_IF_ERROR(server->listen());
  return server;
}

}  // namespace shoal
