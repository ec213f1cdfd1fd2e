// switch --model A.gguf|FOLDER --model B.gguf|FOLDER [--threads N] [--rounds N] [--quantization none|q8_0|q4_0] [--json]
//
// A -> B -> A on a device with memory for one and a half of them: what a switch takes from the begin of the load to the weights being there, and
// until the first token, without adoption, with what the other model leaves of the device's memory, and with a host tier that has room
// for both. The three take turns in one run; beside each switch a plain copy of as many bytes, by as many threads. Medians.
#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "bench/flags.h"
#include "bench/peer.h"
#include "device/thread_pool.h"
#include "host/node_host.h"
#include "nlohmann/json.hpp"
#include "tensor/tensor.h"
#include "transport/loopback.h"
#include "wire/message.h"

namespace shoal {
namespace {

constexpr NodeId kNode{1}, kClient{2};
constexpr uint32_t kContext = 256;
constexpr uint64_t kCopyBytes = 256 * kMiB;  // more than caches hold

struct Flags {
  std::vector<std::string> models;
  int threads = 2, rounds = 10;
  bool json = false;
  Quantization quantization = Quantization::kNone;
};

// One device, and a client that asks it for a token at a time.
class Device {
 public:
  static StatusOr<std::unique_ptr<Device>> make(const Flags& flags, uint64_t device_bytes, uint64_t host_bytes, bool adopt) {
    auto device = std::make_unique<Device>();
    NodeHostConfig config;
    config.self = kNode;
    config.gateways = {kClient};
    config.device_memory_bytes = device_bytes;
    config.host_memory_bytes = host_bytes;
    config.threads = static_cast<uint32_t>(flags.threads);
    config.sequences_max = 4;
    config.tokens_per_step = 64;
    config.prefix_cache = false;
    std::vector<ServedModel> models;
    for (uint32_t i = 0; i < flags.models.size(); ++i) models.push_back({ModelId(i), "m" + std::to_string(i), flags.models[i], {.quantization = flags.quantization}, kContext});
    ASSIGN_OR_RETURN(NodePlan plan, plan_node(config, models));
    for (const auto& [id, why] : plan.refused) return why;
    plan.node.adopt_weights = adopt;
    device->pages_ = plan.node.pages;
    for (const NodeModel& model : plan.node.models) {
      device->needed_ = std::max(device->needed_, weight_pages(model) + kv_pages_min(model));
      device->weights_ += weight_pages(model);
    }
    device->workspace_ = plan.workspace_bytes;
    ASSIGN_OR_RETURN(device->host_, NodeHost::start(std::move(plan), device->network_));
    return device;
  }
  // Of a device that holds either model with KV for its longest sequence, and half as much again, but not both.
  StatusOr<uint64_t> bytes_for_one() const {
    if (weights_ < needed_) return invalid_argument("--model: the two models stay on a device that has place for the larger one: name two whose weights differ less");
    return workspace_ + std::min(uint64_t{needed_} * 3 / 2, weights_) * kPageBytes;
  }

  // Seconds to a token of the model.
  double ask(uint32_t model) {
    std::unique_lock lock(mutex_);
    Request request;
    request.id = RequestId(++asked_);
    request.model = ModelId(model);
    request.prompt = {1, 2, 3};
    request.max_tokens = 1;
    request.sampling.temperature = 0;
    const TimePoint begin = steady_now();
    lock.unlock();
    (void)transport_->send(kNode, encode(Submit{request}));
    lock.lock();
    changed_.wait(lock, [&] { return ended_ == asked_; });
    return to_seconds(steady_now() - begin);
  }
  // The switches since the last call.
  std::vector<SwitchRecord> switches(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(5), [&] { return switches_.size() >= count; });
    return std::exchange(switches_, {});
  }

 private:
  bool receive(const std::string& bytes) {
    const StatusOr<Message> message = decode(bytes);
    std::lock_guard lock(mutex_);
    if (message.ok()) {
      if (const auto* tokens = std::get_if<Tokens>(&*message); tokens != nullptr && tokens->finish) ended_ = tokens->id.sequence;
      if (const auto* status = std::get_if<NodeStatus>(&*message)) switches_.insert(switches_.end(), status->switches.begin(), status->switches.end());
    }
    changed_.notify_all();
    return true;
  }

  LoopbackNetwork network_;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t asked_ = 0, ended_ = 0, workspace_ = 0, weights_ = 0;
  uint32_t pages_ = 0, needed_ = 0;
  std::vector<SwitchRecord> switches_;
  std::unique_ptr<Transport> transport_ = network_.connect(kClient, [this](NodeId, std::string bytes) { return receive(bytes); });
  std::unique_ptr<NodeHost> host_;
};

struct Seen {
  std::vector<double> load, first_token, written, adopted, copy;  // seconds and bytes
};

double copy_rate(ThreadPool& threads, int count, std::byte* memory) {
  const uint64_t share = kCopyBytes / static_cast<uint64_t>(count) / 4096 * 4096;
  const TimePoint begin = steady_now();
  threads.parallel_for(static_cast<size_t>(count), [&](size_t i, int) { std::memcpy(memory + kCopyBytes + i * share, memory + i * share, share); });
  return static_cast<double>(share) * count / to_seconds(steady_now() - begin);
}

void note(Device& device, uint32_t model, double copy_bytes_per_second, Seen& seen) {
  const double seconds = device.ask(model);
  for (const SwitchRecord& record : device.switches(1)) {
    const auto bytes = static_cast<double>(record.stages.bytes_written + record.stages.bytes_adopted);
    seen.load.push_back(to_seconds(record.ready - record.begun));
    seen.first_token.push_back(seconds);
    seen.written.push_back(static_cast<double>(record.stages.bytes_written));
    seen.adopted.push_back(static_cast<double>(record.stages.bytes_adopted));
    seen.copy.push_back(bytes / copy_bytes_per_second);
  }
}

StatusOr<std::map<std::string, Seen>> measure(const Flags& flags) {
  ASSIGN_OR_RETURN(const auto any, Device::make(flags, 64 * kGiB, 0, false));  // addresses only
  ASSIGN_OR_RETURN(const uint64_t one, any->bytes_for_one());
  struct Way {
    const char* name;
    uint64_t host_bytes;
    bool adopt;
  };
  const Way ways[] = {{"1 none", 0, false}, {"2 device only", 0, true}, {"3 device and host tier", 2 * one, true}};
  std::vector<std::unique_ptr<Device>> devices;
  for (const Way& way : ways) {
    ASSIGN_OR_RETURN(devices.emplace_back(), Device::make(flags, one, way.host_bytes, way.adopt));
    for (const uint32_t model : {0u, 1u, 0u, 1u}) (void)devices.back()->ask(model);  // memory is touched
    (void)devices.back()->switches(4);
  }
  ThreadPool threads(flags.threads);
  ASSIGN_OR_RETURN(Buffer copied, Buffer::allocate(2 * kCopyBytes));
  std::memset(copied.data(), 1, copied.size());
  std::map<std::string, Seen> out;
  for (int round = 0; round < flags.rounds; ++round) {
    for (size_t i = 0; i < std::size(ways); ++i) {
      for (const uint32_t model : {0u, 1u}) note(*devices[i], model, copy_rate(threads, flags.threads, copied.data()), out[ways[i].name]);
    }
  }
  return out;
}

void print(const Flags& flags, const std::map<std::string, Seen>& ways) {
  if (flags.json) {
    Json json = Json::object();
    for (const auto& [name, s] : ways) {
      json[name.substr(2)] = {{"load_s", median(s.load)}, {"first_token_s", median(s.first_token)}, {"bytes_written", median(s.written)}, {"bytes_adopted", median(s.adopted)}, {"copy_s", median(s.copy)}};
    }
    std::printf("%s\n", dump_json(json).c_str());
    return;
  }
  std::printf("%-22s %10s %14s %12s %12s %10s %14s\n", "adoption", "load, ms", "first token, ms", "copied", "adopted", "copy, ms", "load / copy");
  for (const auto& [name, s] : ways) {
    std::printf("%-22s %10.2f %14.2f %12s %12s %10.2f %14.3f\n", name.c_str() + 2, median(s.load) * 1e3, median(s.first_token) * 1e3,
                format_bytes(static_cast<uint64_t>(median(s.written))).c_str(), format_bytes(static_cast<uint64_t>(median(s.adopted))).c_str(), median(s.copy) * 1e3,
                median(s.load) / median(s.copy));
  }
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) {
  shoal::Flags flags;
  CLI::App app("What a switch between two models takes, beside a copy of its bytes");
  app.add_option("--model", flags.models, "FILE.gguf or FOLDER; twice")->required()->allow_extra_args(false)->check(CLI::ExistingPath);
  app.add_option("--threads", flags.threads, "Threads")->check(CLI::Range(1, 1024));
  app.add_option("--rounds", flags.rounds, "Switches to each, of which the median counts")->check(CLI::Range(1, 10'000));
  shoal::add_quantization(app, flags.quantization);
  app.add_flag("--json", flags.json, "Prints JSON");
  app.final_callback([&] {
    if (flags.models.size() != 2) throw CLI::ValidationError("--model", "twice: one for each of the two models");
  });
  CLI11_PARSE(app, argc, argv);
  if (!shoal::configure_log("warning", false).ok()) return 1;
  const auto ways = shoal::measure(flags);
  if (!ways.ok()) std::fprintf(stderr, "switch: %s\n", std::string(ways.status().message()).c_str());
  if (ways.ok()) shoal::print(flags, *ways);
  return ways.ok() ? 0 : 1;
}
