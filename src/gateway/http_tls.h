// TLS in front of a session: bytes are decrypted into, and encrypted out of, one end of a socket pair whose other end
// the session holds. The session stays the same code for TCP, UNIX sockets and TLS. Internal to the gateway.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "base/time.h"
#include "boost/asio/awaitable.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "boost/asio/local/stream_protocol.hpp"
#include "boost/asio/ssl/context.hpp"
#include "boost/asio/ssl/stream.hpp"

namespace shoal {

// TLS 1.2 or newer. InvalidArgument names the file that cannot be used and why.
StatusOr<std::shared_ptr<boost::asio::ssl::context>> make_tls_context(const std::string& certificate_file,
                                                                      const std::string& key_file);

// Runs on the strand of its socket.
class TlsPump : public std::enable_shared_from_this<TlsPump> {
 public:
  using Plain = boost::asio::local::stream_protocol::socket;

  TlsPump(boost::asio::ip::tcp::socket socket, std::shared_ptr<boost::asio::ssl::context> context);

  boost::asio::awaitable<bool> handshake(Duration time_max);
  bool connect(Plain& session_end);          // makes the pair
  boost::asio::awaitable<void> run();        // until both directions have ended

 private:
  boost::asio::awaitable<void> decrypt();
  boost::asio::awaitable<void> encrypt();

  const std::shared_ptr<boost::asio::ssl::context> context_;
  boost::asio::ssl::stream<boost::asio::ip::tcp::socket> tls_;
  Plain plain_;
};

}  // namespace shoal
