// instant_server --port N [--gap-ms G] [--threads T]: an OpenAI server without a model, to measure clients against. Every
// request is answered at once with as many tokens as it asks for, one every G milliseconds (0: all in one write). What it
// costs a client to load it is the client's own cost.
#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "boost/asio/as_tuple.hpp"
#include "boost/asio/co_spawn.hpp"
#include "boost/asio/detached.hpp"
#include "boost/asio/io_context.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "boost/asio/ip/v6_only.hpp"
#include "boost/asio/read_until.hpp"
#include "boost/asio/steady_timer.hpp"
#include "boost/asio/use_awaitable.hpp"
#include "boost/asio/write.hpp"

namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);
constexpr int kTickMs = 5;
constexpr size_t kHeadBytesMax = 64 << 10;

std::string chunked(const std::string& data) {
  char size[20];
  std::snprintf(size, sizeof size, "%zx\r\n", data.size());
  return size + data + "\r\n";
}

std::string event(const char* delta, const char* tail) {
  return chunked(std::string("data: {\"id\":\"chatcmpl-0123456789abcdef\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,"
                             "\"model\":\"instant\",\"choices\":[{\"index\":0,") + delta + ",\"logprobs\":null,\"finish_reason\":null}]" + tail + "}\n\n");
}

size_t number_after(const std::string& text, const char* key, size_t fallback) {
  const size_t at = text.find(key);
  if (at == std::string::npos) return fallback;
  return static_cast<size_t>(std::strtoul(text.c_str() + at + std::strlen(key), nullptr, 10));
}

std::string last_words(size_t tokens) {
  return chunked("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":8,\"completion_tokens\":" + std::to_string(tokens) + ",\"total_tokens\":" +
                 std::to_string(tokens + 8) + "}}\n\n") + chunked("data: [DONE]\n\n") + "0\r\n\r\n";
}

constexpr char kStreamHead[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

std::string plain(const std::string& body) {
  return "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

// One event loop with its streams. A wheel of ticks writes to all streams of a slot at once, so that the server itself
// costs one write per token and nothing else.
class Lane {
 public:
  Lane(uint16_t port, int gap_ms) : io_(1), acceptor_(io_), wheel_(std::max(1, gap_ms / kTickMs)), gap_ms_(gap_ms) {
    acceptor_.open(tcp::v4());
    acceptor_.set_option(asio::socket_base::reuse_address(true));
    const int on = 1;
    setsockopt(acceptor_.native_handle(), SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
    acceptor_.bind({asio::ip::address_v4::loopback(), port});
    acceptor_.listen(4096);
  }
  void run() {
    asio::co_spawn(io_, accept(), asio::detached);
    if (gap_ms_ > 0) asio::co_spawn(io_, tick(), asio::detached);
    io_.run();
  }

 private:
  struct Stream {
    explicit Stream(tcp::socket s) : socket(std::move(s)), done(socket.get_executor(), asio::steady_timer::time_point::max()) {}
    tcp::socket socket;
    asio::steady_timer done;
    size_t left = 0;
  };

  asio::awaitable<void> accept() {
    while (true) {
      auto [error, socket] = co_await acceptor_.async_accept(kTuple);
      if (error) continue;
      socket.set_option(tcp::no_delay(true));
      socket.non_blocking(true);
      asio::co_spawn(io_, serve(std::make_shared<Stream>(std::move(socket))), asio::detached);
    }
  }

  asio::awaitable<void> tick() {
    asio::steady_timer timer(io_);
    timer.expires_after(std::chrono::milliseconds(0));
    for (size_t now = 0;; now = (now + 1) % wheel_.size()) {
      timer.expires_at(timer.expiry() + std::chrono::milliseconds(kTickMs));
      co_await timer.async_wait(kTuple);
      std::vector<std::shared_ptr<Stream>> here;
      here.swap(wheel_[now]);
      for (auto& stream : here) {
        error_code error;
        asio::write(stream->socket, asio::buffer(token_), error);
        if (error || --stream->left == 0) {
          stream->done.cancel();
        } else {
          wheel_[now].push_back(std::move(stream));
        }
      }
    }
  }

  asio::awaitable<void> serve(std::shared_ptr<Stream> stream) {
    std::string in;
    while (true) {
      auto [error, head] = co_await asio::async_read_until(stream->socket, asio::dynamic_buffer(in, kHeadBytesMax), "\r\n\r\n", kTuple);
      if (error) co_return;
      const bool post = in.compare(0, 5, "POST ") == 0;
      const size_t whole = head + number_after(in, "Content-Length: ", 0);
      while (in.size() < whole) {
        const size_t had = in.size();
        in.resize(whole);
        auto [read_error, count] = co_await stream->socket.async_read_some(asio::buffer(in.data() + had, whole - had), kTuple);
        if (read_error) co_return;
        in.resize(had + count);
      }
      const std::string body = in.substr(head, whole - head);
      in.erase(0, whole);
      if (!co_await answer(stream, post, body)) co_return;
    }
  }

  asio::awaitable<bool> answer(std::shared_ptr<Stream> stream, bool post, const std::string& body) {
    std::string out = plain("{\"object\":\"list\",\"data\":[{\"id\":\"instant\",\"object\":\"model\"}]}");
    const size_t tokens = std::max<size_t>(1, number_after(body, "_tokens\":", 16));
    if (post) {
      out = kStreamHead + event("\"delta\":{\"role\":\"assistant\",\"content\":\"\"}", "");
      if (gap_ms_ == 0) {
        for (size_t i = 0; i < tokens; ++i) out += token_;
        out += last_words(tokens);
      }
    }
    auto [error, count] = co_await asio::async_write(stream->socket, asio::buffer(out), kTuple);
    if (error || !post || gap_ms_ == 0) co_return !error;
    stream->left = tokens;
    wheel_[next_slot_++ % wheel_.size()].push_back(stream);
    stream->done.expires_at(asio::steady_timer::time_point::max());
    co_await stream->done.async_wait(kTuple);
    const std::string end = last_words(tokens);
    auto [end_error, end_count] = co_await asio::async_write(stream->socket, asio::buffer(end), kTuple);
    co_return !end_error && stream->left == 0;
  }

  const std::string token_ = event("\"delta\":{\"content\":\" word\"}", "");
  asio::io_context io_;
  tcp::acceptor acceptor_;
  std::vector<std::vector<std::shared_ptr<Stream>>> wheel_;
  size_t next_slot_ = 0;
  int gap_ms_;
};

long flag(int argc, char** argv, const char* name, long fallback) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::strcmp(argv[i], name) == 0) return std::strtol(argv[i + 1], nullptr, 10);
  }
  return fallback;
}

}  // namespace

int main(int argc, char** argv) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  const auto port = static_cast<uint16_t>(flag(argc, argv, "--port", 8000));
  const int gap_ms = static_cast<int>(flag(argc, argv, "--gap-ms", 0));
  std::vector<std::unique_ptr<Lane>> lanes;
  std::vector<std::thread> threads;
  for (long i = 0; i < flag(argc, argv, "--threads", 1); ++i) lanes.push_back(std::make_unique<Lane>(port, gap_ms));
  for (auto& lane : lanes) threads.emplace_back([&lane] { lane->run(); });
  std::printf("http://127.0.0.1:%u answers; %llu files at most\n", port, static_cast<unsigned long long>(limit.rlim_cur));
  std::fflush(stdout);
  for (std::thread& thread : threads) thread.join();
}
