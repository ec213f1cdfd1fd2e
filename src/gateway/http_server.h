// HTTP/1.1 and HTTP/2 in front of a Service (or of an Admin): connections, TLS, limits, time-outs, streams.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/time.h"
#include "gateway/admin.h"
#include "gateway/service.h"

namespace shoal {

struct HttpServerConfig {
  std::string host = "127.0.0.1";
  uint16_t port = 8080;              // 0: any free one
  std::string unix_socket;           // path; used instead of host and port when not empty
  std::string tls_certificate_file;  // PEM chain; with the key: TLS 1.2 or newer instead of plain TCP
  std::string tls_key_file;          // PEM
  std::vector<std::string> cors_origins;  // pages that browsers may call from; "*": any
  uint32_t io_threads = 2;
  uint32_t work_threads = 2;         // parse, render, tokenise; large bodies have their own (work_lanes.h)
  uint32_t connections_max = 10'000; // and streams of HTTP/2 together
  uint32_t header_bytes_max = 16 * 1024;
  uint64_t body_bytes_max = 32ull << 20;
  uint64_t body_bytes_total_max = 512ull << 20;         // of all requests being read or answered
  Duration idle_time_max = std::chrono::seconds(75);    // between requests of one connection
  Duration header_time_max = std::chrono::seconds(10);
  Duration body_idle_max = std::chrono::seconds(20);    // without a byte of the body
  Duration body_time_max = std::chrono::seconds(300);
  Duration write_time_max = std::chrono::seconds(30);   // a reader that takes nothing for so long is dropped
  Duration ping_interval = std::chrono::seconds(15);    // comment in a silent stream
  size_t unread_bytes_max = 16u << 20;                   // tokens kept for a paused stream
};

class HttpServer {
 public:
  // Listens and serves `service`, or `admin` instead of it where one is given; both outlive the server. Unavailable if
  // the address cannot be had, InvalidArgument for a certificate or key that is none.
  static StatusOr<std::unique_ptr<HttpServer>> start(const HttpServerConfig& config, Service& service,
                                                     Admin* admin = nullptr);
  virtual ~HttpServer() = default;   // closes everything that is still open

  virtual std::string address() const = 0;          // "http://127.0.0.1:8080", "https://..." or "unix:/path"
  virtual uint16_t port() const = 0;                // 0 for a unix socket
  virtual uint32_t active_requests() const = 0;     // being read, answered or written
};

}  // namespace shoal
