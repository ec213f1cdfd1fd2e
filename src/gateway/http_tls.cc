#include "gateway/http_tls.h"

#include <array>

#include "boost/asio/as_tuple.hpp"
#include "boost/asio/buffer.hpp"
#include "boost/asio/co_spawn.hpp"
#include "boost/asio/detached.hpp"
#include "boost/asio/local/connect_pair.hpp"
#include "boost/asio/steady_timer.hpp"
#include "boost/asio/use_awaitable.hpp"
#include "boost/asio/write.hpp"
#include "openssl/ssl.h"

namespace shoal {
namespace {

namespace asio = boost::asio;
namespace ssl = asio::ssl;
using boost::system::error_code;

constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);
constexpr size_t kPieceBytes = 16 * 1024;  // one TLS record
constexpr Duration kGoodbyeTime = std::chrono::seconds(2);

// The session tells them apart by their first bytes; clients that offer other protocols choose one of the two.
int choose_protocol(SSL*, const unsigned char** out, unsigned char* out_length, const unsigned char* in, unsigned in_length, void*) {
  static constexpr unsigned char kOffer[] = "\x02h2\x08http/1.1";
  const int found = SSL_select_next_proto(const_cast<unsigned char**>(out), out_length, kOffer, sizeof kOffer - 1, in, in_length);
  return found == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_NOACK;
}

}  // namespace

StatusOr<std::shared_ptr<ssl::context>> make_tls_context(const std::string& certificate_file, const std::string& key_file) {
  auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
  error_code error;
  context->set_options(ssl::context::default_workarounds | ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1, error);
  context->use_certificate_chain_file(certificate_file, error);
  if (error) return invalid_argument("--ssl-certfile ", certificate_file, ": not a PEM certificate: ", error.message());
  context->use_private_key_file(key_file, ssl::context::pem, error);
  if (error) return invalid_argument("--ssl-keyfile ", key_file, ": not the PEM key of the certificate: ", error.message());
  SSL_CTX_set_alpn_select_cb(context->native_handle(), choose_protocol, nullptr);
  return context;
}

TlsPump::TlsPump(asio::ip::tcp::socket socket, std::shared_ptr<ssl::context> context)
    : context_(std::move(context)), tls_(std::move(socket), *context_), plain_(tls_.get_executor()) {}

asio::awaitable<bool> TlsPump::handshake(Duration time_max) {
  asio::steady_timer timer(tls_.get_executor(), time_max);
  timer.async_wait([self = shared_from_this()](error_code cancelled) {
    error_code ignored;
    if (!cancelled) self->tls_.lowest_layer().close(ignored);
  });
  auto [error] = co_await tls_.async_handshake(ssl::stream_base::server, kTuple);
  timer.cancel();
  co_return !error;
}

bool TlsPump::connect(Plain& session_end) {
  error_code error;
  asio::local::connect_pair(plain_, session_end, error);
  return !error;
}

asio::awaitable<void> TlsPump::run() {
  auto self = shared_from_this();
  asio::co_spawn(tls_.get_executor(), [self]() { return self->decrypt(); }, asio::detached);
  co_await encrypt();
}

// Client to session. When the client goes, the session sees its own peer go, both ways: nobody would read its answer.
asio::awaitable<void> TlsPump::decrypt() {
  const auto self = shared_from_this();
  std::array<char, kPieceBytes> piece;
  while (true) {
    auto [error, count] = co_await tls_.async_read_some(asio::buffer(piece), kTuple);
    if (error) break;
    auto [failed, written] = co_await asio::async_write(plain_, asio::buffer(piece.data(), count), kTuple);
    (void)written;
    if (failed) break;
  }
  error_code ignored;
  plain_.shutdown(asio::socket_base::shutdown_both, ignored);
}

asio::awaitable<void> TlsPump::encrypt() {
  std::array<char, kPieceBytes> piece;
  while (true) {
    auto [error, count] = co_await plain_.async_read_some(asio::buffer(piece), kTuple);
    if (error) break;
    auto [failed, written] = co_await asio::async_write(tls_, asio::buffer(piece.data(), count), kTuple);
    (void)written;
    if (failed) break;
  }
  asio::steady_timer timer(tls_.get_executor(), kGoodbyeTime);
  timer.async_wait([self = shared_from_this()](error_code cancelled) {
    error_code ignored;
    if (!cancelled) self->tls_.lowest_layer().close(ignored);
  });
  co_await tls_.async_shutdown(kTuple);
  timer.cancel();
  error_code ignored;
  tls_.lowest_layer().close(ignored);
}

}  // namespace shoal
