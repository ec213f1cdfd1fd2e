// kv_link [--mib N] [--block-kib N] [--runs N] [--json]
//
// KV between processes: bytes per second of what a node fetches from another's memory, and of what it gets over TCP, beside a plain copy
// and a plain TCP stream over loopback in the same run (A B A B, medians). The other node is a process of its own.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/json.h"
#include "host/kv_link.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr NodeId kServer{1}, kReader{2};

struct Flags {
  uint64_t mib = 256, block_kib = 384;
  int runs = 7;
  bool json = false;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

template <typename Work>
double seconds(const Work& work) {
  const TimePoint begin = steady_now();
  work();
  return to_seconds(steady_now() - begin);
}

std::byte* pages(uint64_t bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::exit(1);
  ::madvise(memory, bytes, MADV_HUGEPAGE);
  std::memset(memory, 1, bytes);
  return static_cast<std::byte*>(memory);
}

// The process that has the KV: serves it, and a plain stream beside it. Writes its two ports to `out`.
[[noreturn]] void serve(const Flags& flags, int out) {
  const uint64_t bytes = flags.mib * kMiB, block_bytes = flags.block_kib * 1024;
  std::byte* const memory = pages(bytes);
  auto listener = BulkListener::start("127.0.0.1:0", nullptr);
  auto plain = BulkListener::start("127.0.0.1:0", nullptr);
  if (!listener.ok() || !plain.ok()) ::_exit(1);
  const uint16_t plain_port = (*plain)->port();
  const auto server = KvServer::make(*std::move(listener), [&](uint64_t size, BlockId id) { return host_address(memory + id.value * size); });
  std::vector<BlockId> blocks;
  for (uint64_t i = 0; i < bytes / block_bytes; ++i) blocks.push_back(BlockId(static_cast<uint32_t>(i)));
  server->set_grants({{RequestId(1), kReader, block_bytes, blocks}});
  const uint16_t ports[2] = {server->port(), plain_port};
  if (::write(out, ports, sizeof(ports)) != sizeof(ports)) ::_exit(1);
  while (auto socket = (*plain)->accept()) {
    std::byte ask{};
    while (socket->read(std::span(&ask, 1)).ok() && socket->write(std::span(memory, bytes / block_bytes * block_bytes)).ok()) {}
  }
  ::_exit(0);
}

Flags parse(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto number = [&] { return i + 1 < argc ? std::strtoull(argv[++i], nullptr, 10) : 0; };
    if (word == "--mib") flags.mib = std::clamp<uint64_t>(number(), 1, 65'536);
    else if (word == "--block-kib") flags.block_kib = std::clamp<uint64_t>(number(), 1, 65'536);
    else if (word == "--runs") flags.runs = static_cast<int>(std::clamp<uint64_t>(number(), 1, 1000));
    else if (word == "--json") flags.json = true;
    else std::fprintf(stderr, "kv_link [--mib N] [--block-kib N] [--runs N] [--json]\n"), std::exit(2);
  }
  return flags;
}

// GB/s of each way, and shares of their limits.
int print(const Flags& flags, uint64_t bytes, const std::vector<double>& copy, const std::vector<double>& memory, const std::vector<double>& stream, const std::vector<double>& tcp) {
  const auto rate = [&](const std::vector<double>& times) { return static_cast<double>(bytes) / median(times) / 1e9; };
  if (flags.json) {
    std::printf("%s\n", dump_json({{"copy_gb_per_s", rate(copy)}, {"memory_gb_per_s", rate(memory)}, {"tcp_gb_per_s", rate(stream)}, {"kv_tcp_gb_per_s", rate(tcp)}}).c_str());
    return 0;
  }
  std::printf("%llu MiB in blocks of %llu KiB, medians of %d\n", static_cast<unsigned long long>(flags.mib), static_cast<unsigned long long>(flags.block_kib), flags.runs);
  std::printf("  plain copy in one process          %6.2f GB/s\n  from another process's memory      %6.2f GB/s   %.2f of the copy\n", rate(copy), rate(memory), rate(memory) / rate(copy));
  std::printf("  plain TCP over loopback            %6.2f GB/s\n  KV over TCP                        %6.2f GB/s   %.2f of the stream\n", rate(stream), rate(tcp), rate(tcp) / rate(stream));
  return 0;
}

int run(const Flags& flags) {
  int pipe_ends[2];
  if (::pipe(pipe_ends) != 0) return 1;
  const pid_t child = ::fork();
  if (child == 0) serve(flags, pipe_ends[1]);
  uint16_t ports[2] = {};
  if (::read(pipe_ends[0], ports, sizeof(ports)) != sizeof(ports)) return 1;
  const uint64_t block_bytes = flags.block_kib * 1024, count = flags.mib * kMiB / block_bytes, bytes = count * block_bytes;
  std::byte* const from = pages(bytes);
  std::byte* const to = pages(bytes);
  const auto fetcher = KvFetcher::make(kReader, nullptr);
  const auto fetch = [&](bool same_machine) {
    fetcher->set_addresses({{kServer, {"127.0.0.1:" + std::to_string(ports[0]), same_machine}}});
    std::binary_semaphore done(0);
    KvFetch job{.from = kServer, .request = RequestId(1), .block_bytes = block_bytes};
    for (uint64_t i = 0; i < count; ++i) job.blocks.push_back(BlockId(static_cast<uint32_t>(i)));
    job.sink = [&](size_t i, std::span<const std::byte> block) { std::memcpy(to + i * block_bytes, block.data(), block.size()); };
    job.done = [&](const Status& status) {
      if (!status.ok()) std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
      done.release();
    };
    fetcher->fetch(std::move(job));
    done.acquire();
  };
  auto plain = bulk_connect("127.0.0.1:" + std::to_string(ports[1]), nullptr);
  if (!plain.ok()) return 1;
  std::vector<double> copy, stream, memory, tcp;
  for (int i = 0; i < flags.runs; ++i) {
    copy.push_back(seconds([&] { std::memcpy(to, from, bytes); }));
    memory.push_back(seconds([&] { fetch(true); }));
    stream.push_back(seconds([&] {
      const std::byte ask{};
      if (!(*plain)->write(std::span(&ask, 1)).ok() || !(*plain)->read(std::span(to, bytes)).ok()) std::exit(1);
    }));
    tcp.push_back(seconds([&] { fetch(false); }));
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  return print(flags, bytes, copy, memory, stream, tcp);
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) { return shoal::run(shoal::parse(argc, argv)); }
