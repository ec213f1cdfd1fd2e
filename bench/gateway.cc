// gateway [--json]: the HTTP edge alone, with a node that answers at once, and a client in a process of its own.
//
//   requests   whole answers of one token over kept connections: requests per second
//   streams    N streams open at once, each with a token per tick: resident memory per open stream, and the CPU time of
//              this process (HTTP, router, node double) per token, which must not grow with N
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "gateway/test_support.h"

namespace shoal {
namespace {

using test::http_post;
using test::World;

constexpr uint32_t kRequestConnections = 32;
constexpr int kRounds = 3;
constexpr double kSecondsPerRound = 2;
constexpr uint32_t kStreamCounts[] = {10, 100, 1000, 10'000};
constexpr uint32_t kTokensPerStream = 100;
const std::string kOneToken = R"({"model":"tiny","messages":[{"role":"user","content":"hi"}],"max_tokens":1})";
const std::string kStream = R"({"model":"tiny","messages":[{"role":"user","content":"hi"}],"max_tokens":100,"stream":true})";

// --- the client's process -------------------------------------------------------------------------------------------

int connect_to(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
  if (fd < 0 || connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    std::perror("connect");
    _exit(1);
  }
  return fd;
}

bool write_all(int fd, std::string_view text) { return write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()); }

struct Connections {
  Connections(uint16_t port, uint32_t count) : epoll(epoll_create1(0)), tails(count) {
    for (uint32_t i = 0; i < count; ++i) {
      fds.push_back(connect_to(port));
      epoll_event event{.events = EPOLLIN, .data = {.u32 = i}};
      epoll_ctl(epoll, EPOLL_CTL_ADD, fds[i], &event);
    }
  }
  ~Connections() {
    for (const int fd : fds) close(fd);
    close(epoll);
  }
  // Calls on_bytes(connection, bytes) for what has come; false after 20 s of silence.
  template <typename OnBytes>
  bool wait(const OnBytes& on_bytes) {
    epoll_event events[256];
    const int ready = epoll_wait(epoll, events, 256, 20'000);
    for (int i = 0; i < ready; ++i) {
      char bytes[65536];
      const ssize_t count = read(fds[events[i].data.u32], bytes, sizeof bytes);
      if (count <= 0) return false;
      on_bytes(events[i].data.u32, std::string_view(bytes, static_cast<size_t>(count)));
    }
    return ready > 0;
  }
  int epoll;
  std::vector<int> fds;
  std::vector<std::string> tails;  // the end of what came last, where a mark may be cut
};

// One answer after another on each connection. An answer ends with its body's last brace, which no other byte follows.
double requests_per_second(uint16_t port) {
  Connections connections(port, kRequestConnections);
  const std::string request = http_post("/v1/chat/completions", kOneToken);
  for (const int fd : connections.fds) write_all(fd, request);
  uint64_t answers = 0;
  const TimePoint begin = steady_now(), end = begin + from_seconds(kSecondsPerRound);
  while (steady_now() < end) {
    const bool alive = connections.wait([&](uint32_t i, std::string_view bytes) {
      if (!bytes.ends_with("}}")) return;
      ++answers;
      write_all(connections.fds[i], request);
    });
    if (!alive) _exit(1);
  }
  return static_cast<double>(answers) / to_seconds(steady_now() - begin);
}

// Opens `count` streams, tells the parent when each has begun, and reads them to their ends.
void read_streams(uint16_t port, uint32_t count, int to_parent, int from_parent) {
  Connections connections(port, count);
  const std::string request = http_post("/v1/chat/completions", kStream);
  for (const int fd : connections.fds) write_all(fd, request);
  uint32_t begun = 0, ended = 0;
  std::vector<bool> has_begun(count);
  const auto look = [&](uint32_t i, std::string_view bytes) {
    if (!has_begun[i]) ++begun;
    has_begun[i] = true;
    std::string& tail = connections.tails[i];
    tail.append(bytes);
    if (tail.find("data: [DONE]") != std::string::npos) ++ended;
    tail.erase(0, tail.size() > 16 ? tail.size() - 16 : 0);
  };
  while (begun < count) {
    if (!connections.wait(look)) _exit(1);
  }
  double all_open = 1;
  (void)!write(to_parent, &all_open, sizeof all_open);
  (void)!read(from_parent, &all_open, sizeof all_open);
  while (ended < count) {
    if (!connections.wait(look)) _exit(1);
  }
}

// A command: 0 = measure requests per second, n = read n streams. Each is answered with one number.
void client(int from_parent, int to_parent) {
  uint32_t port = 0, command = 0;
  if (read(from_parent, &port, sizeof port) != sizeof port) _exit(1);
  while (read(from_parent, &command, sizeof command) == sizeof command) {
    double answer = 0;
    if (command == 0) {
      answer = requests_per_second(static_cast<uint16_t>(port));
    } else {
      read_streams(static_cast<uint16_t>(port), command, to_parent, from_parent);
    }
    (void)!write(to_parent, &answer, sizeof answer);
  }
  _exit(0);
}

// --- this process: the gateway ----------------------------------------------------------------------------------------

struct Client {
  Client() {
    int down[2], up[2];
    if (pipe(down) != 0 || pipe(up) != 0) std::abort();
    pid = fork();
    if (pid == 0) {
      close(down[1]);
      close(up[0]);
      client(down[0], up[1]);
    }
    close(down[0]);
    close(up[1]);
    to = down[1];
    from = up[0];
  }
  ~Client() {
    close(to);
    waitpid(pid, nullptr, 0);
  }
  template <typename T>
  void tell(T value) { (void)!write(to, &value, sizeof value); }
  double hear() {
    double answer = 0;
    if (read(from, &answer, sizeof answer) == sizeof answer) return answer;
    std::fprintf(stderr, "the client ended early; are enough files allowed (ulimit -n)?\n");
    std::exit(1);
  }
  pid_t pid = 0;
  int to = -1, from = -1;
};

double resident_bytes() {
  std::ifstream status("/proc/self/statm");
  uint64_t total = 0, resident = 0;
  status >> total >> resident;
  return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE));
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) { return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

struct StreamsResult {
  uint32_t streams = 0;
  double bytes_per_stream = 0;
  double cpu_us_per_token = 0;
};

StreamsResult measure_streams(World& world, Client& client, uint32_t count) {
  const double before = resident_bytes();
  world.node.set_pause(std::chrono::milliseconds(20));
  const double cpu = cpu_seconds();
  client.tell(count);
  client.hear();  // all are open
  StreamsResult result{.streams = count};
  result.bytes_per_stream = std::max(0.0, resident_bytes() - before) / count;
  client.tell(1.0);
  client.hear();  // all have ended
  result.cpu_us_per_token = (cpu_seconds() - cpu) * 1e6 / (static_cast<double>(count) * kTokensPerStream);
  world.loop.wait_idle(std::chrono::seconds(10));
  return result;
}

void allow_files() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

int run(bool json) {
  allow_files();
  Client client;  // forked before the first thread
  (void)configure_log("error", false);
  HttpServerConfig http;
  http.connections_max = 20'000;
  World world([](const Request&) { return test::bytes_of("x"); }, {}, http, 65'536);
  client.tell(static_cast<uint32_t>(world.server->port()));

  std::vector<double> rates;
  for (int i = 0; i < kRounds; ++i) {
    client.tell(0u);
    rates.push_back(client.hear());
  }
  std::sort(rates.begin(), rates.end());
  std::vector<StreamsResult> streams;
  for (const uint32_t count : kStreamCounts) streams.push_back(measure_streams(world, client, count));

  const double rate = rates[rates.size() / 2];
  if (json) {
    Json out = {{"requests_per_second", rate}, {"streams", Json::array()}};
    for (const StreamsResult& s : streams) {
      out["streams"].push_back({{"streams", s.streams}, {"bytes_per_stream", s.bytes_per_stream}, {"cpu_us_per_token", s.cpu_us_per_token}});
    }
    std::printf("%s\n", dump_json(out).c_str());
    return 0;
  }
  std::printf("%-10s %16s %16s\n", "streams", "KiB per stream", "CPU us per token");
  for (const StreamsResult& s : streams) {
    std::printf("%-10u %16.1f %16.1f\n", s.streams, s.bytes_per_stream / 1024, s.cpu_us_per_token);
  }
  std::printf("gateway: %.0f requests/s (median of %d), %.1f KiB per stream at %u streams, %.1f us of CPU per token\n", rate, kRounds,
              streams.back().bytes_per_stream / 1024, streams.back().streams, streams.back().cpu_us_per_token);
  return 0;
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) {
  const std::string flag = argc > 1 ? argv[1] : "";
  if (argc > 2 || (argc == 2 && flag != "--json")) {
    std::fprintf(stderr, "usage: gateway [--json]\n");
    return 2;
  }
  return shoal::run(argc == 2);
}
