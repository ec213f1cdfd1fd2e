#include "transport/bulk_tcp.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "transport/resolve.h"

namespace shoal {

namespace {

// Certificates read once, for any number of streams.
class TlsContext {
 public:
  explicit TlsContext(SSL_CTX* c) : context(c) {}
  ~TlsContext() { SSL_CTX_free(context); }
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;
  SSL_CTX* const context;
};

constexpr int kConnectMs = 2'000;
constexpr int kBacklog = 64;

struct BioFree {
  void operator()(BIO* bio) const { BIO_free(bio); }
};
using BioRef = std::unique_ptr<BIO, BioFree>;
BioRef memory_bio(const std::string& text) { return BioRef(BIO_new_mem_buf(text.data(), static_cast<int>(text.size()))); }

std::string tls_error() {
  char text[256] = "unknown";
  if (const unsigned long code = ERR_get_error(); code != 0) ERR_error_string_n(code, text, sizeof(text));
  ERR_clear_error();
  return text;
}

class Socket : public BulkSocket {
 public:
  Socket(int fd, std::shared_ptr<const TlsContext> tls, bool server) : fd_(fd), tls_(std::move(tls)), server_(server) {
    const int on = 1;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    timeval timeout{.tv_sec = std::chrono::duration_cast<std::chrono::seconds>(kBulkTimeout).count(), .tv_usec = 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
    if (!server) ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));  // who serves waits for what is asked next
  }
  ~Socket() override {
    if (ssl_ != nullptr) SSL_free(ssl_);
    ::close(fd_);
  }

  Status write(std::span<const std::byte> bytes) override {
    RETURN_IF_ERROR(shake_hands());
    while (!bytes.empty()) {
      const ssize_t n = ssl_ != nullptr ? SSL_write(ssl_, bytes.data(), static_cast<int>(std::min<size_t>(bytes.size(), 1 << 20)))
                                        : ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR && ssl_ == nullptr) continue;
      if (n <= 0) return broken();
      bytes = bytes.subspan(static_cast<size_t>(n));
    }
    return OkStatus();
  }
  Status read(std::span<std::byte> bytes) override {
    RETURN_IF_ERROR(shake_hands());
    while (!bytes.empty()) {
      const ssize_t n = ssl_ != nullptr ? SSL_read(ssl_, bytes.data(), static_cast<int>(std::min<size_t>(bytes.size(), 1 << 20)))
                                        : ::recv(fd_, bytes.data(), bytes.size(), 0);
      if (n < 0 && errno == EINTR && ssl_ == nullptr) continue;
      if (n <= 0) return broken();
      bytes = bytes.subspan(static_cast<size_t>(n));
    }
    return OkStatus();
  }
  void shut_down() override { ::shutdown(fd_, SHUT_RDWR); }
  std::string_view kind() const override { return "TCP"; }

 private:
  Status shake_hands() {
    if (tls_ == nullptr || ssl_ != nullptr) return OkStatus();
    ssl_ = SSL_new(tls_->context);
    if (ssl_ == nullptr || SSL_set_fd(ssl_, fd_) != 1) return unavailable("TLS: ", tls_error());
    if ((server_ ? SSL_accept(ssl_) : SSL_connect(ssl_)) != 1) return unavailable("TLS hand-shake for KV failed: ", tls_error());
    return OkStatus();
  }
  Status broken() {
    ERR_clear_error();
    return unavailable("the stream of KV broke");
  }

  const int fd_;
  const std::shared_ptr<const TlsContext> tls_;
  const bool server_;
  SSL* ssl_ = nullptr;
};

// Connects within kConnectMs.
int connect_to(const addrinfo& address) {
  const int fd = ::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  int result = ::connect(fd, address.ai_addr, address.ai_addrlen);
  if (result != 0 && errno == EINPROGRESS) {
    pollfd wait{.fd = fd, .events = POLLOUT, .revents = 0};
    int error = ETIMEDOUT;
    socklen_t size = sizeof(error);
    if (::poll(&wait, 1, kConnectMs) == 1) ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    result = error == 0 ? 0 : -1;
    errno = error;
  }
  if (result == 0 && ::fcntl(fd, F_SETFL, 0) == 0) return fd;  // blocking from here on
  ::close(fd);
  return -1;
}

class Listener : public BulkListener {
 public:
  Listener(int fd, int wake, uint16_t port, std::shared_ptr<const TlsContext> tls) : fd_(fd), wake_(wake), port_(port), tls_(std::move(tls)) {}
  ~Listener() override {
    ::close(fd_);
    ::close(wake_);
  }
  uint16_t port() const override { return port_; }
  std::unique_ptr<BulkSocket> accept() override {
    while (!over_) {
      pollfd wait[2] = {{.fd = fd_, .events = POLLIN, .revents = 0}, {.fd = wake_, .events = POLLIN, .revents = 0}};
      if (::poll(wait, 2, -1) < 0 && errno != EINTR) return nullptr;
      if (over_) break;
      const int fd = ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd >= 0) return std::make_unique<Socket>(fd, tls_, /*server=*/true);
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) ::poll(nullptr, 0, 50);  // others may close some
    }
    return nullptr;
  }
  void shut_down() override {
    over_ = true;
    const uint64_t one = 1;
    if (::write(wake_, &one, sizeof(one)) < 0) log_debug("a listener could not be woken");
  }

 private:
  const int fd_, wake_;
  const uint16_t port_;
  const std::shared_ptr<const TlsContext> tls_;
  std::atomic<bool> over_{false};
};

StatusOr<std::shared_ptr<const TlsContext>> read_identity(const TlsIdentity& tls) {
  const auto context = std::make_shared<const TlsContext>(SSL_CTX_new(TLS_method()));
  SSL_CTX* c = context->context;
  SSL_CTX_set_min_proto_version(c, TLS1_2_VERSION);
  SSL_CTX_set_mode(c, SSL_MODE_AUTO_RETRY);
  SSL_CTX_set_verify(c, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  const BioRef certificate = memory_bio(tls.certificate), key = memory_bio(tls.key), ca = memory_bio(tls.ca);
  X509* own = PEM_read_bio_X509(certificate.get(), nullptr, nullptr, nullptr);
  if (own == nullptr || SSL_CTX_use_certificate(c, own) != 1) return invalid_argument("--tls-cert: no certificate in PEM (", tls_error(), ")");
  X509_free(own);
  EVP_PKEY* private_key = PEM_read_bio_PrivateKey(key.get(), nullptr, nullptr, nullptr);
  if (private_key == nullptr) return invalid_argument("--tls-key: no private key in PEM (", tls_error(), ")");
  const bool fits = SSL_CTX_use_PrivateKey(c, private_key) == 1 && SSL_CTX_check_private_key(c) == 1;
  EVP_PKEY_free(private_key);
  if (!fits) return invalid_argument("--tls-key: not the key of --tls-cert (", tls_error(), ")");
  X509_STORE* store = SSL_CTX_get_cert_store(c);
  int authorities = 0;
  while (X509* authority = PEM_read_bio_X509(ca.get(), nullptr, nullptr, nullptr)) {
    X509_STORE_add_cert(store, authority);
    X509_free(authority);
    ++authorities;
  }
  ERR_clear_error();
  if (authorities == 0) return invalid_argument("--tls-ca: no certificate in PEM");
  return context;
}

class Tcp : public BulkNetwork {
 public:
  explicit Tcp(std::shared_ptr<const TlsContext> tls) : tls_(std::move(tls)) {}
  StatusOr<std::unique_ptr<BulkSocket>> connect(const std::string& address) override {
    if (address.starts_with(kUcxScheme)) return unavailable(address, ": this process has no UCX; a build with -DSHOAL_UCX=ON has, where nothing is encrypted");
    ASSIGN_OR_RETURN(const auto found, resolve(address, /*passive=*/false));
    for (const addrinfo* at = found.get(); at != nullptr; at = at->ai_next) {
      const int fd = connect_to(*at);
      if (fd >= 0) return std::make_unique<Socket>(fd, tls_, /*server=*/false);
    }
    return unavailable(address, ": ", std::strerror(errno));
  }

  StatusOr<std::unique_ptr<BulkListener>> listen(const std::string& address) override {
    ASSIGN_OR_RETURN(const auto found, resolve(address, /*passive=*/true));
    const int fd = ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return unavailable(address, ": ", std::strerror(errno));
    const int on = 1;
    ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    sockaddr_storage bound{};
    socklen_t size = sizeof(bound);
    if (::bind(fd, found->ai_addr, found->ai_addrlen) != 0 || ::listen(fd, kBacklog) != 0 || ::getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
      const Status why = unavailable(address, ": ", std::strerror(errno));
      ::close(fd);
      return why;
    }
      return std::make_unique<Listener>(fd, ::eventfd(0, EFD_CLOEXEC), port_of(bound), tls_);
  }
  std::string_view scheme() const override { return ""; }

 private:
  const std::shared_ptr<const TlsContext> tls_;  // null: in clear
};

}  // namespace

std::shared_ptr<BulkNetwork> make_bulk_tcp() { return std::make_shared<Tcp>(nullptr); }

StatusOr<std::shared_ptr<BulkNetwork>> make_bulk_tcp(const TlsIdentity& tls) {
  ASSIGN_OR_RETURN(auto context, read_identity(tls));
  return std::make_shared<Tcp>(std::move(context));
}

}  // namespace shoal
