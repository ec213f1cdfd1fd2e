#include "loadgen/http_call.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <string>
#include <thread>

namespace shoal {
namespace {

// A server that accepts and never says anything.
class Silent {
 public:
  Silent() {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path_.copy(address.sun_path, sizeof(address.sun_path) - 1);
    unlink(path_.c_str());
    bind(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
    listen(socket_, 8);
  }
  ~Silent() {
    close(socket_);
    unlink(path_.c_str());
  }
  Destination destination() const { return *find_destination({.unix_socket = path_}, false); }

 private:
  const std::string path_ = "/tmp/shoal-silent-" + std::to_string(getpid()) + ".sock";
  const int socket_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
};

TEST(HttpCaller, NoAnswerInTimeIsToldFromNoServer) {
  auto silent = std::make_unique<Silent>();
  const Destination destination = silent->destination();
  HttpCaller caller(destination, {});
  EXPECT_EQ(caller.call("GET", "/", "", std::chrono::milliseconds(20)).status().code(), StatusCode::kDeadlineExceeded);
  silent.reset();
  EXPECT_EQ(caller.call("GET", "/", "", std::chrono::seconds(10)).status().code(), StatusCode::kUnavailable);
}

TEST(HttpCaller, ACallThatIsEndedReturnsAndSoDoAllThatCome) {
  const Silent silent;
  const Destination destination = silent.destination();
  HttpCaller caller(destination, {});
  std::thread other([&] { caller.cancel(); });
  EXPECT_EQ(caller.call("GET", "/", "", std::chrono::hours(1)).status().code(), StatusCode::kCancelled);
  other.join();
  EXPECT_EQ(caller.call("GET", "/", "", std::chrono::hours(1)).status().code(), StatusCode::kCancelled);
}

}  // namespace
}  // namespace shoal
