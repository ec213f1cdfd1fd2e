// What a slot costs above the memory that it lies in: round trips between two processes that spin, each on a core of its own, of a bare word in shared
// memory and of a request of no rows through a server of experts; and what it takes to write, seal and read a request, beside copying its bytes.
//
//   expert_slots [MODEL]      a folder with experts; default: the bundled one. Prints medians and 99th percentiles, and ends.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "device/thread_pool.h"
#include "experts/handshake.h"
#include "experts/link.h"
#include "experts/server.h"
#include "formats/checkpoint.h"
#include "models/model.h"

namespace shoal {
namespace {

constexpr int kTrips = 20'000;

// As they were when this process began.
const std::vector<int>& cores() {
  static const std::vector<int> all = allowed_cpus();
  return all;
}

struct Times {
  double p50, p99;  // microseconds
};
Times measure(int count, const std::function<void()>& once) {
  std::vector<double> us;
  for (int i = 0; i < count; ++i) {
    const TimePoint begun = steady_now();
    once();
    us.push_back(to_seconds(steady_now() - begun) * 1e6);
  }
  std::sort(us.begin(), us.end());
  return {us[us.size() / 2], us[us.size() * 99 / 100]};
}

// A process of its own on the last core, which ends with this one.
pid_t beside(const std::function<void()>& work) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (!cores().empty()) bind_this_thread({cores().back()});
  work();
  ::_exit(0);
}
void end(pid_t pid) {
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
}

Times bare_word() {
  const auto there = *Region::make_shared({1, 4096}), back = *Region::make_shared({1, 4096});
  const pid_t pid = beside([&] {
    for (uint64_t next = 1;; ++next) {
      while (there->control(0) != next) {}
      back->store_control(0, next);
    }
  });
  uint64_t next = 0;
  const Times times = measure(kTrips, [&] {
    there->store_control(0, ++next);
    while (back->control(0) != next) {}
  });
  end(pid);
  return times;
}

Times slot(const std::string& path) {
  const std::string address = absl::StrCat("@shoal-bench-", ::getpid());
  const auto checkpoint = *open_checkpoint(path);
  const auto plan = (*plan_model(checkpoint, {}))->expert_plan();
  CHECK(plan != nullptr);
  const pid_t pid = beside([&] {
    const ExpertServerConfig config{.name = "bench", .unix_address = address, .memory_bytes = 1 << 30, .spin = std::chrono::seconds(60)};
    const auto server = ExpertServer::start(config, {{"bench", 1, plan, ExpertSet(shape_of(*plan))}});
    CHECK(server.ok());
    while (true) ::pause();
  });
  const ExpertHello hello{.client = "bench", .pid = ::getpid(), .model = "bench", .stamp = 1, .shape = shape_of(*plan), .hidden = plan->hidden(), .used = plan->used(), .lanes = 1};
  const auto bell = *Bell::make();
  StatusOr<Dialed> dialed = unavailable("");
  for (int i = 0; i < 500 && !dialed.ok(); ++i) {
    dialed = dial_experts("unix:" + address, nullptr, hello, bell, nullptr);
    if (!dialed.ok()) ::usleep(10'000);
  }
  CHECK(dialed.ok());
  SlotChannel& channel = *dialed->channel;
  ClientSlot end_here;
  end_here.connect(dialed->welcome.epoch, dialed->welcome.client, 0);
  const Times times = measure(kTrips, [&] {
    const ControlWord word = end_here.submit(SlotKind::kEmpty, 0, 0, 0);
    CHECK(write_request({.client = dialed->welcome.client, .seq = word.seq, .epoch = word.epoch}, {}, channel.outbox(0)).ok());
    seal_request(channel.outbox(0));
    channel.publish(0, word, request_bytes(0, 0, 0));
    ResponseView view;
    Status why;
    while (end_here.hear(channel.control(0), channel.inbox(0), view, why) != ClientSlot::Heard::kAnswer) {}
  });
  dialed->channel.reset();
  end(pid);
  return times;
}

void bytes(uint32_t tokens, uint32_t rows, uint32_t width) {
  const size_t size = request_bytes(tokens, rows, width);
  std::vector<std::byte> half(size), copy(size);
  std::vector<SlotRoute> routes(rows);
  for (uint32_t i = 0; i < rows; ++i) routes[i] = {static_cast<uint16_t>(i % tokens), 0, 1.0f};
  const std::vector<float> hidden(size_t{tokens} * width, 0.5f);
  const Times plain = measure(2'000, [&] { std::memcpy(copy.data(), half.data(), size); });
  const Times sealed = measure(2'000, [&] {
    std::memcpy(write_request({.tokens = tokens, .rows = rows, .width = width, .seq = 1, .epoch = 1}, routes, half)->data(), hidden.data(), hidden.size() * sizeof(float));
    seal_request(half);
    RequestView view;
    CHECK(read_request({1, 1, SlotKind::kRequest, SlotState::kWritten}, half, {width, 1, 1}, view).ok());
  });
  std::printf("write, seal and read %3u rows of %3u tokens x %5u  %8.2f us   a copy of as many bytes (%zu KiB) %8.2f us\n", rows, tokens, width, sealed.p50, size >> 10, plain.p50);
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) {
  using namespace shoal;
  configure_log("error", false).IgnoreError();
  if (!cores().empty()) bind_this_thread({cores().front()});
  const Times word = bare_word(), request = slot(argc > 1 ? argv[1] : "models/tiny-qwen3-moe");
  std::printf("round trip of a bare word in shared memory      p50 %7.2f us   p99 %7.2f us\n", word.p50, word.p99);
  std::printf("round trip of a request of no rows, by a server p50 %7.2f us   p99 %7.2f us   above: %.2f us\n", request.p50, request.p99, request.p50 - word.p50);
  bytes(1, 4, 128);
  bytes(8, 32, 2048);
  bytes(64, 256, 2048);
  bytes(128, 1024, 7168);
  return 0;
}
