// kv_link [--mib N] [--block-kib N] [--runs N] [--ucx] [--json]
//
// KV between processes, as the node that goes on with a request gets it: bytes per second from another node's host tier into the device,
// out of memory that both have and over TCP, beside a plain copy and a plain TCP stream over loopback in the same run (A B A B,
// medians; and the first time, when the memory of both sides is untouched by the reader). The other node is a process of its own. --ucx, in
// a build with UCX: over that instead of TCP, on whatever UCX_TLS says.
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
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/json.h"
#include "device/cpu_device.h"
#include "host/kv_driver.h"
#include "nlohmann/json.hpp"
#if SHOAL_WITH_UCX
#include "transport_ucx/ucx_network.h"
#endif

namespace shoal {
namespace {

constexpr NodeId kServer{1}, kReader{2};
constexpr RequestId kRequest(1);

struct Flags {
  uint64_t mib = 256, block_kib = 384;
  int runs = 7;
  bool json = false, ucx = false;
  uint64_t block_bytes() const { return block_kib * kKiB; }
  uint32_t blocks() const { return static_cast<uint32_t>(std::max<uint64_t>(mib * kMiB / block_bytes(), 1)); }
  uint64_t bytes() const { return blocks() * block_bytes(); }
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

std::byte* mapped(uint64_t bytes, int flags, int fd) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (memory == MAP_FAILED) std::exit(1);
  ::madvise(memory, bytes, MADV_HUGEPAGE);
  std::memset(memory, 1, bytes);
  return static_cast<std::byte*>(memory);
}
std::byte* pages(uint64_t bytes) { return mapped(bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1); }

template <typename T>
T value(StatusOr<T> result) {
  if (result.ok()) return *std::move(result);
  std::fprintf(stderr, "%s\n", std::string(result.status().message()).c_str());
  std::exit(1);
}

// A node's KV: its device, its host tier, and slabs for all blocks on both.
struct Node {
  Node(const Flags& flags, NodeId self, KvDriver::OnCopied on_copied) : slabs(div_up(flags.blocks(), slab_pages_for(flags.block_bytes()) * kPageBytes / flags.block_bytes())) {
    const auto count = static_cast<uint32_t>(slabs * slab_pages_for(flags.block_bytes()));
    memory = value(MemoryFile::make("kv", count * kPageBytes));
    device = value(CpuDevice::make(count));
    driver = std::make_unique<KvDriver>(self, *device, value(device->make_host_tier(count, memory)), std::make_shared<KvPeers>(), std::move(on_copied));
    for (const Tier tier : {Tier::kDevice, Tier::kHost}) {
      RemapSlabs remap{.changes = {}, .tier = tier};
      const uint32_t each = slab_pages_for(flags.block_bytes());
      for (uint32_t i = 0; i < slabs; ++i) remap.changes.push_back({flags.block_bytes(), i, true, {{PageId(i * each), each}}});
      driver->remap(remap);
    }
  }
  const uint64_t slabs;
  std::shared_ptr<const MemoryFile> memory;
  std::unique_ptr<CpuDevice> device;
  std::unique_ptr<KvDriver> driver;
};

std::shared_ptr<BulkNetwork> network_of(const Flags& flags) {
#if SHOAL_WITH_UCX
  if (flags.ucx) return make_bulk_ucx(make_bulk_tcp(), /*listens=*/true);
#else
  if (flags.ucx) std::fprintf(stderr, "--ucx: this build has no UCX (-DSHOAL_UCX=ON)\n"), std::exit(2);
#endif
  return make_bulk_tcp();
}

std::string socket_name() { return "@shoal-kv-bench-" + std::to_string(::getpid()); }

// The process that has the KV: serves it, and a plain stream beside it. Writes its two ports to `out`.
[[noreturn]] void serve(const Flags& flags, const std::string& local, int out) {
  Node node(flags, kServer, [](ModelId, uint64_t, bool) {});
  mapped(node.memory->bytes(), MAP_SHARED, node.memory->fd());
  std::byte* const memory = pages(flags.bytes());
  const auto network = network_of(flags);
  node.driver->link(value(KvListeners::start({.local = local, .network = network})), node.memory, network);
  const auto plain = value(make_bulk_tcp()->listen("127.0.0.1:0"));
  std::vector<BlockId> blocks;
  for (uint32_t i = 0; i < flags.blocks(); ++i) blocks.push_back(BlockId(i));
  node.driver->set_grants({{kRequest, kReader, flags.block_bytes(), blocks}});
  const uint16_t ports[2] = {node.driver->link_port(), plain->port()};
  if (::write(out, ports, sizeof(ports)) != sizeof(ports)) ::_exit(1);
  while (auto socket = plain->accept()) {
    std::byte ask{};
    while (socket->read(std::span(&ask, 1)).ok() && socket->write(std::span(memory, flags.bytes())).ok()) {}
  }
  ::_exit(0);
}

// The process that wants it.
class Reader {
 public:
  // `local`: empty for TCP.
  Reader(const Flags& flags, uint16_t port, const std::string& local)
      : flags_(flags), node_(flags, kReader, [this](ModelId, uint64_t, bool ok) {
          if (!ok) std::exit(1);
          copied_.release();
        }) {
    const auto network = network_of(flags);
    node_.driver->link(value(KvListeners::start({.network = network})), node_.memory, network);
    node_.driver->set_addresses({{kServer, {std::string(network->scheme()) + "127.0.0.1:" + std::to_string(port), local}}});
  }
  void fetch() {
    CopyKv copy{.model = ModelId(0), .move = {.id = 1, .request = kRequest, .remote = true, .to = Tier::kDevice, .block_bytes = flags_.block_bytes()}, .from = kServer};
    for (uint32_t i = 0; i < flags_.blocks(); ++i) copy.move.copies.push_back({BlockId(i), BlockId(i)});
    node_.driver->copy(copy);
    copied_.acquire();
  }

 private:
  const Flags& flags_;
  std::binary_semaphore copied_{0};
  Node node_;
};

Flags parse(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto number = [&] { return i + 1 < argc ? std::strtoull(argv[++i], nullptr, 10) : 0; };
    if (word == "--mib") flags.mib = std::clamp<uint64_t>(number(), 1, 65'536);
    else if (word == "--block-kib") flags.block_kib = std::clamp<uint64_t>(number(), 1, 65'536);
    else if (word == "--runs") flags.runs = static_cast<int>(std::clamp<uint64_t>(number(), 1, 1000));
    else if (word == "--ucx") flags.ucx = true;
    else if (word == "--json") flags.json = true;
    else std::fprintf(stderr, "kv_link [--mib N] [--block-kib N] [--runs N] [--ucx] [--json]\n"), std::exit(2);
  }
  return flags;
}

// GB/s of each way, and shares of their limits.
void print(const Flags& flags, double first, const std::vector<double>& copy, const std::vector<double>& memory, const std::vector<double>& stream, const std::vector<double>& tcp) {
  const auto rate = [&](double time) { return static_cast<double>(flags.bytes()) / time / 1e9; };
  const double c = rate(median(copy)), m = rate(median(memory)), s = rate(median(stream)), t = rate(median(tcp)), f = rate(first);
  double loads[1] = {};
  if (::getloadavg(loads, 1) != 1) loads[0] = 0;
  if (flags.json) {
    std::printf("%s\n", dump_json({{"copy_gb_per_s", c}, {"memory_gb_per_s", m}, {"memory_first_gb_per_s", f}, {"tcp_gb_per_s", s}, {"kv_tcp_gb_per_s", t}, {"load_average", loads[0]}}).c_str());
    return;
  }
  std::printf("%llu MiB in blocks of %llu KiB, medians of %d, load average %.1f\n", static_cast<unsigned long long>(flags.mib), static_cast<unsigned long long>(flags.block_kib), flags.runs, loads[0]);
  std::printf("  plain copy in one process          %6.2f GB/s\n  KV of another process's memory     %6.2f GB/s   %.2f of the copy; %.2f GB/s the first time\n", c, m, m / c, f);
  std::printf("  plain TCP over loopback            %6.2f GB/s\n  KV over %s                        %6.2f GB/s   %.2f of the stream\n", s, flags.ucx ? "UCX" : "TCP", t, t / s);
}

int run(const Flags& flags) {
  int pipe_ends[2];
  if (::pipe(pipe_ends) != 0) return 1;
  const std::string local = socket_name();
  const pid_t child = ::fork();
  if (child == 0) serve(flags, local, pipe_ends[1]);
  uint16_t ports[2] = {};
  if (::read(pipe_ends[0], ports, sizeof(ports)) != sizeof(ports)) return 1;
  std::byte* const from = pages(flags.bytes());
  std::byte* const to = pages(flags.bytes());
  Reader shared(flags, ports[0], local), streamed(flags, ports[0], "");
  const auto plain = value(make_bulk_tcp()->connect("127.0.0.1:" + std::to_string(ports[1])));
  std::vector<double> copy, stream, memory, tcp;
  const double first = seconds([&] { shared.fetch(); });
  streamed.fetch();
  for (int i = 0; i < flags.runs; ++i) {
    copy.push_back(seconds([&] { std::memcpy(to, from, flags.bytes()); }));
    memory.push_back(seconds([&] { shared.fetch(); }));
    stream.push_back(seconds([&] {
      const std::byte ask{};
      if (!plain->write(std::span(&ask, 1)).ok() || !plain->read(std::span(to, flags.bytes())).ok()) std::exit(1);
    }));
    tcp.push_back(seconds([&] { streamed.fetch(); }));
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  print(flags, first, copy, memory, stream, tcp);
  return 0;
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) { return shoal::run(shoal::parse(argc, argv)); }
