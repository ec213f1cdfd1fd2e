// switches [--switches N] [--seconds S] [--seed N] [--model-io mmap|direct]: random turns of six small models on a device for one
// or two of them, with the real engine: random requests, withdrawals, loads ahead and unloads. Every token of every answer
// must be the one that the model gives alone, no page may be missing at the end, and memory must not grow. Ends by itself
// after N switches (default 10,000) or S seconds (default 3,600); exit 1 if anything was wrong.
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "host/node_host.h"
#include "transport/loopback.h"
#include "wire/message.h"

namespace shoal {
namespace {

constexpr NodeId kNode{1}, kClient{2};
constexpr uint32_t kModels = 6, kKinds = 2, kVariants = 6, kTokensMax = 48, kInFlightMax = 10;

struct Flags {
  uint64_t switches = 10'000, seed = 1;
  double seconds = 3600;
  ModelIo io = ModelIo::kMapped;
};

// What this process holds beside mapped files, in bytes.
uint64_t anonymous_bytes() {
  std::ifstream in("/proc/self/smaps_rollup");
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("Anonymous:", 0) == 0) return std::strtoull(line.c_str() + 10, nullptr, 10) * kKiB;
  }
  return 0;
}

Request request_of(uint32_t model, uint32_t variant, uint32_t max_tokens) {
  Request r;
  r.model = ModelId(model);
  for (uint32_t i = 0; i < 20 + 15 * variant; ++i) r.prompt.push_back(static_cast<TokenId>((i * 7919 + variant * 104729) % 700 + 10));
  r.max_tokens = max_tokens;
  r.sampling.temperature = variant % 2 == 0 ? 0.0f : 0.9f;
  r.sampling.seed = 1000 + variant;
  return r;
}

// A gateway that knows every answer.
class Client {
 public:
  explicit Client(LoopbackNetwork& network)
      : transport_(network.connect(kClient, [this](NodeId, std::string bytes) {
          receive(bytes);
          return true;
        })) {}

  RequestId submit(Request request, std::vector<TokenId> expected) {
    std::unique_lock lock(mutex_);
    request.id = RequestId(++next_);
    asked_[request.id] = {{}, std::move(expected)};
    lock.unlock();
    send(Submit{request});
    return request.id;
  }
  void cancel(RequestId id) {
    {
      std::lock_guard lock(mutex_);
      if (asked_.erase(id) == 0) return;
      ++cancelled;
    }
    send(Cancel{id, 0});
  }
  void send(const Message& message) {
    if (!transport_->send(kNode, encode(message)).ok()) wrong("a message could not be sent");
  }
  size_t in_flight() {
    std::lock_guard lock(mutex_);
    return asked_.size();
  }
  // False after a minute without it.
  bool wait(const std::function<bool(const NodeStatus&, size_t in_flight)>& holds) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::minutes(1), [&] { return holds(status_, asked_.size()); });
  }
  std::vector<TokenId> last_answer() {
    std::lock_guard lock(mutex_);
    return last_;
  }
  void wrong(const std::string& what) {
    if (wrong_count++ < 10) std::printf("WRONG: %s\n", what.c_str());
  }
  uint64_t switches() {
    std::lock_guard lock(mutex_);
    return switches_;
  }
  std::atomic<uint64_t> cancelled{0}, finished{0}, tokens{0}, wrong_count{0}, hidden{0}, called_off{0};

 private:
  struct Asked {
    std::vector<TokenId> tokens, expected;
  };
  void receive(const std::string& bytes) {
    const StatusOr<Message> message = decode(bytes);
    std::lock_guard lock(mutex_);
    if (!message.ok()) return wrong(std::string(message.status().message()));
    if (const auto* status = std::get_if<NodeStatus>(&*message)) {
      status_ = *status;
      switches_ = 0;
      for (const ModelStatus& m : status_.models) switches_ += m.loads;
      for (const SwitchRecord& r : status_.switches) {
        hidden += r.end == SwitchEnd::kServed && r.hidden();
        called_off += r.end == SwitchEnd::kCancelled;
      }
    }
    if (const auto* delta = std::get_if<Tokens>(&*message)) take(*delta);
    changed_.notify_all();
  }
  void take(const Tokens& delta) {
    const auto found = asked_.find(delta.id);
    if (found == asked_.end()) return;  // withdrawn
    Asked& asked = found->second;
    if (delta.first_index != asked.tokens.size()) wrong("a gap in an answer");
    for (const SampledToken& token : delta.tokens) {
      const size_t at = asked.tokens.size();
      if (!asked.expected.empty() && (at >= asked.expected.size() || asked.expected[at] != token.token)) wrong("another token at " + std::to_string(at));
      asked.tokens.push_back(token.token);
      ++tokens;
    }
    if (!delta.finish) return;
    if (*delta.finish == FinishReason::kError) wrong("an answer failed: " + delta.error);
    if (!asked.expected.empty() && asked.tokens.size() != asked.expected.size()) wrong("an answer of another length");
    last_ = asked.tokens;
    ++finished;
    asked_.erase(found);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<RequestId, Asked> asked_;
  std::vector<TokenId> last_;
  NodeStatus status_;
  uint64_t next_ = 0, switches_ = 0;
  std::unique_ptr<Transport> transport_;
};

StatusOr<std::unique_ptr<NodeHost>> start(const Flags& flags, uint64_t device_bytes, LoopbackNetwork& network) {
  NodeHostConfig config;
  config.self = kNode;
  config.gateways = {kClient};
  config.device_memory_bytes = device_bytes;
  config.host_memory_bytes = 8 * kMiB;
  config.weight_cache_bytes = flags.io == ModelIo::kDirect ? 8 * kMiB : 0;  // of three models
  config.threads = 2;
  config.tokens_per_step = 64;
  config.sequences_max = 16;
  std::vector<ServedModel> models;
  for (uint32_t i = 0; i < kModels; ++i) {
    const std::string path = std::string(SHOAL_SOURCE_DIR) + "/models/" + (i % kKinds == 0 ? "tiny-llama" : "tiny-qwen3");
    models.push_back({ModelId(i), "m" + std::to_string(i), path, {.io = flags.io}, 256});
  }
  ASSIGN_OR_RETURN(NodePlan plan, plan_node(config, models));
  for (const auto& [id, why] : plan.refused) return why;
  return NodeHost::start(std::move(plan), network);
}

using Answers = std::map<std::pair<uint32_t, uint32_t>, std::vector<TokenId>>;  // by kind and variant

StatusOr<Answers> answers_alone(const Flags& flags) {
  LoopbackNetwork network;
  Client client(network);
  ASSIGN_OR_RETURN(const auto host, start(flags, 256 * kMiB, network));
  Answers answers;
  for (uint32_t kind = 0; kind < kKinds; ++kind) {
    for (uint32_t variant = 0; variant < kVariants; ++variant) {
      client.submit(request_of(kind, variant, kTokensMax), {});
      if (!client.wait([](const NodeStatus&, size_t in_flight) { return in_flight == 0; })) return unavailable("no answer");
      answers[{kind, variant}] = client.last_answer();
    }
  }
  return answers;
}

class Soak {
 public:
  Soak(const Flags& flags, const Answers& answers, Client& client) : flags_(flags), answers_(answers), client_(client), rng_(flags.seed) {}

  void run() {
    const TimePoint begin = steady_now();
    TimePoint told = begin;
    while (client_.switches() < flags_.switches && to_seconds(steady_now() - begin) < flags_.seconds) {
      act();
      if (steady_now() - told < std::chrono::seconds(10)) continue;
      told = steady_now();
      tell(begin);
    }
    if (!client_.wait([](const NodeStatus&, size_t in_flight) { return in_flight == 0; })) client_.wrong("answers are missing after a minute");
    for (uint32_t m = 0; m < kModels; ++m) client_.send(SetResident{ModelId(m), false});
    const bool empty = client_.wait([](const NodeStatus& s, size_t) { return s.device_bytes > 0 && s.device_bytes_free == s.device_bytes; });
    if (!empty) client_.wrong("pages are missing when nothing is loaded any more");
    tell(begin);
  }
  uint64_t memory_early = 0, memory_last = 0;

 private:
  void act() {
    const double what = rng_.uniform();
    if (what < 0.05) {
      client_.send(SetResident{ModelId(static_cast<uint32_t>(rng_.below(kModels))), rng_.chance(0.5)});
    } else if (what < 0.2 && !recent_.empty()) {
      client_.cancel(recent_[rng_.below(recent_.size())]);
    } else if (client_.in_flight() < kInFlightMax) {
      const auto model = static_cast<uint32_t>(rng_.below(kModels)), variant = static_cast<uint32_t>(rng_.below(kVariants));
      const std::vector<TokenId>& whole = answers_.at({model % kKinds, variant});
      const size_t length = 1 + rng_.below(whole.size());
      recent_.push_back(client_.submit(request_of(model, variant, static_cast<uint32_t>(length)), {whole.begin(), whole.begin() + static_cast<ptrdiff_t>(length)}));
      if (recent_.size() > kInFlightMax) recent_.erase(recent_.begin());
    }
    std::this_thread::sleep_for(std::chrono::microseconds(rng_.below(3000)));
  }
  void tell(TimePoint begin) {
    memory_last = anonymous_bytes();
    if (memory_early == 0) memory_early = memory_last;
    std::printf("%6.0f s: %lu switches (%lu hidden, %lu called off), %lu answers, %lu withdrawn, %lu tokens, %lu wrong, %s of anonymous memory\n",
                to_seconds(steady_now() - begin), client_.switches(), client_.hidden.load(), client_.called_off.load(),
                client_.finished.load(), client_.cancelled.load(), client_.tokens.load(), client_.wrong_count.load(), format_bytes(memory_last).c_str());
    std::fflush(stdout);
  }

  const Flags& flags_;
  const Answers& answers_;
  Client& client_;
  Rng rng_;
  std::vector<RequestId> recent_;
};

StatusOr<bool> run(const Flags& flags) {
  ASSIGN_OR_RETURN(const Answers answers, answers_alone(flags));
  LoopbackNetwork network;
  Client client(network);
  ASSIGN_OR_RETURN(auto host, start(flags, 12 * kMiB, network));
  Soak soak(flags, answers, client);
  soak.run();
  host.reset();
  if (soak.memory_last > soak.memory_early + 32 * kMiB) client.wrong("memory has grown from " + format_bytes(soak.memory_early));
  return client.wrong_count == 0;
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) {
  shoal::Flags flags;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--switches") == 0) flags.switches = std::strtoull(argv[i + 1], nullptr, 10);
    if (std::strcmp(argv[i], "--seconds") == 0) flags.seconds = std::strtod(argv[i + 1], nullptr);
    if (std::strcmp(argv[i], "--seed") == 0) flags.seed = std::strtoull(argv[i + 1], nullptr, 10);
    if (std::strcmp(argv[i], "--model-io") == 0 && std::strcmp(argv[i + 1], "direct") == 0) flags.io = shoal::ModelIo::kDirect;
  }
  if (!shoal::configure_log("warning", false).ok()) return 2;
  const shoal::StatusOr<bool> good = shoal::run(flags);
  if (!good.ok()) std::fprintf(stderr, "switches: %s\n", std::string(good.status().message()).c_str());
  return good.ok() && *good ? 0 : 1;
}
