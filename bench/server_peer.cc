// server_peer --shoal PATH --model FILE.gguf [--peer-server PATH] [--threads N] [--runs N] [--input N] [--output N] [--json]
//
// Serving the same file with the same client: `shoal serve` and llama-server of llama.cpp (by path), each asked by
// `shoal bench` for 1, 8 and 32 streams in turn (A B A B). Both servers run all the time and only one has work. Also the
// cold start: process start to the first token, files in the page cache.
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "bench/peer.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr uint32_t kStreams[] = {1, 8, 32};
constexpr uint32_t kStreamsMax = 32;
constexpr int kReadySeconds = 120;

struct Flags {
  std::string shoal, model, peer_server;
  int threads = 2, runs = 3, input = 128, output = 64, port = 18'700;
  bool json = false;
};

// A child process that ends with this object.
class Server {
 public:
  Server(std::vector<std::string> command, int port) : port_(port) {
    pid_ = fork();
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGTERM);  // also when this program ends early
    if (freopen("/dev/null", "w", stdout) == nullptr || freopen("/dev/null", "w", stderr) == nullptr) _exit(127);
    std::vector<char*> words;
    for (std::string& word : command) words.push_back(word.data());
    words.push_back(nullptr);
    execv(words[0], words.data());
    _exit(127);
  }
  ~Server() {
    kill(pid_, SIGTERM);
    waitpid(pid_, nullptr, 0);
  }
  Server(const Server&) = delete;

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }

  // Seconds until it has answered with one token; nothing if it ends or takes too long.
  std::optional<double> first_token() {
    const TimePoint begin = steady_now();
    const std::string ask = "curl -sf -m 60 " + url() + "/v1/completions -H 'Content-Type: application/json' "
                            "-d '{\"model\":\"bench\",\"prompt\":\"a\",\"max_tokens\":1}' >/dev/null 2>&1";
    while (to_seconds(steady_now() - begin) < kReadySeconds) {
      if (std::system(ask.c_str()) == 0) return to_seconds(steady_now() - begin);
      if (waitpid(pid_, nullptr, WNOHANG) != 0) return std::nullopt;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return std::nullopt;
  }

 private:
  int port_;
  pid_t pid_ = 0;
};

struct Side {
  std::string name;
  std::vector<std::string> command;
  int port;
  std::vector<double> first_token;
  std::map<uint32_t, std::vector<double>> tokens_per_s, p99_gap_ms, ttft_ms;  // by streams
};

Side ours(const Flags& f) {
  return {"shoal", {f.shoal, "serve", f.model, "--port", std::to_string(f.port), "--threads", std::to_string(f.threads), "--alias", "bench",
                    "--admin-socket", "none", "--log-level", "error"}, f.port, {}, {}, {}, {}};
}

Side peer(const Flags& f) {
  const int context = (f.input + f.output + 32) * static_cast<int>(kStreamsMax);
  return {"peer", {f.peer_server, "-m", f.model, "--port", std::to_string(f.port + 1), "-t", std::to_string(f.threads), "-tb",
                   std::to_string(f.threads), "-np", std::to_string(kStreamsMax), "-c", std::to_string(context), "--alias", "bench"},
          f.port + 1, {}, {}, {}, {}};
}

// One run of the client; its JSON.
Json load(const Flags& f, const Side& side, uint32_t streams) {
  const std::string command = "'" + f.shoal + "' bench --base-url http://127.0.0.1:" + std::to_string(side.port) +
      " --model bench --tokenizer '" + f.model + "' --random-input-len " + std::to_string(f.input) + " --random-output-len " +
      std::to_string(f.output) + " --num-prompts " + std::to_string(2 * streams) + " --max-concurrency " + std::to_string(streams) +
      " --ignore-eos --seed " + std::to_string(streams) + " --json --no-progress";
  const auto text = output_of(command);
  const Json json = text ? Json::parse(*text, nullptr, false) : Json();
  if (!json.is_object() || json.value("failed", 1) != 0) {
    std::fprintf(stderr, "server_peer: not every request to %s was answered: %s\n", side.name.c_str(), command.c_str());
    std::exit(1);
  }
  return json;
}

std::string ratio(double a, double b) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2fx", b > 0 ? a / b : 0);
  return b > 0 ? text : "-";
}

void measure(const Flags& flags, std::vector<Side>& sides) {
  for (int run = 0; run < flags.runs; ++run) {
    for (Side& side : sides) {
      Server server(side.command, side.port);
      const auto seconds = server.first_token();
      if (!seconds) {
        std::fprintf(stderr, "server_peer: %s did not answer\n", side.command[0].c_str());
        std::exit(1);
      }
      side.first_token.push_back(*seconds);
    }
  }
  std::vector<std::unique_ptr<Server>> servers;
  for (Side& side : sides) {
    servers.push_back(std::make_unique<Server>(side.command, side.port));
    servers.back()->first_token();
  }
  for (int run = 0; run < flags.runs; ++run) {
    for (const uint32_t streams : kStreams) {
      for (Side& side : sides) {
        const Json result = load(flags, side, streams);
        side.tokens_per_s[streams].push_back(result.value("output_throughput", 0.0));
        side.p99_gap_ms[streams].push_back(result.value("p99_itl_ms", 0.0));
        side.ttft_ms[streams].push_back(result.value("median_ttft_ms", 0.0));
      }
    }
  }
}

void print_table(const Flags& flags, const std::vector<Side>& sides) {
  std::printf("%s, %d threads, prompts of %d, answers of %d tokens, medians of %d\n\n", flags.model.c_str(), flags.threads, flags.input,
              flags.output, flags.runs);
  const bool both = sides.size() == 2;
  std::printf("%-24s %10s %10s %8s\n", "", "shoal", "peer", "ratio");
  const auto row = [&](const std::string& what, double a, double b) {
    std::printf("%-24s %10.2f %10.2f %8s\n", what.c_str(), a, b, ratio(a, b).c_str());
  };
  row("first token, cold, s", median(sides[0].first_token), both ? median(sides[1].first_token) : 0);
  for (const uint32_t n : kStreams) {
    const std::string streams = std::to_string(n) + " streams, ";
    row(streams + "tokens/s", median(sides[0].tokens_per_s.at(n)), both ? median(sides[1].tokens_per_s.at(n)) : 0);
    row(streams + "p99 gap ms", median(sides[0].p99_gap_ms.at(n)), both ? median(sides[1].p99_gap_ms.at(n)) : 0);
    row(streams + "TTFT p50 ms", median(sides[0].ttft_ms.at(n)), both ? median(sides[1].ttft_ms.at(n)) : 0);
  }
}

void print_json(const std::vector<Side>& sides) {
  Json out = Json::object();
  for (const Side& side : sides) {
    Json streams = Json::array();
    for (const uint32_t n : kStreams) {
      streams.push_back({{"streams", n}, {"output_tokens_per_s", median(side.tokens_per_s.at(n))},
                         {"p99_itl_ms", median(side.p99_gap_ms.at(n))}, {"median_ttft_ms", median(side.ttft_ms.at(n))}});
    }
    out[side.name] = {{"first_token_s", median(side.first_token)}, {"streams", std::move(streams)}};
  }
  std::printf("%s\n", dump_json(out).c_str());
}

int run(const Flags& flags) {
  std::vector<Side> sides = {ours(flags)};
  if (!flags.peer_server.empty()) sides.push_back(peer(flags));
  measure(flags, sides);
  if (flags.json) {
    print_json(sides);
  } else {
    print_table(flags, sides);
  }
  return 0;
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) {
  shoal::Flags flags;
  std::map<std::string, std::string*> texts = {{"--shoal", &flags.shoal}, {"--model", &flags.model}, {"--peer-server", &flags.peer_server}};
  std::map<std::string, int*> numbers = {{"--threads", &flags.threads}, {"--runs", &flags.runs}, {"--input", &flags.input},
                                         {"--output", &flags.output}, {"--port", &flags.port}};
  bool good = true;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--json") {
      flags.json = true;
    } else if (i + 1 < argc && texts.contains(flag)) {
      *texts[flag] = argv[++i];
    } else if (i + 1 < argc && numbers.contains(flag)) {
      *numbers[flag] = std::atoi(argv[++i]);
    } else {
      good = false;
    }
  }
  if (!good || flags.shoal.empty() || flags.model.empty() || flags.runs < 1) {
    std::fprintf(stderr, "usage: server_peer --shoal PATH --model FILE.gguf [--peer-server PATH] [--threads N] [--runs N] [--input N] [--output N] "
                         "[--port N] [--json]\n");
    return 2;
  }
  return shoal::run(flags);
}
