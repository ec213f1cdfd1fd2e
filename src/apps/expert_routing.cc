#include "apps/expert_routing.h"

#include <unistd.h>

#include <algorithm>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/log.h"
#include "formats/checkpoint.h"
#include "host/weights_identity.h"
#include "models/expert_plan.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr uint32_t kProcessesMax = 64;
constexpr unsigned kManyCores = 8;
// On a machine whose processes wait for cores, a request of a healthy server takes now and then as long as a slice of the scheduler.
Duration least_timeout() { return std::thread::hardware_concurrency() >= kManyCores ? std::chrono::milliseconds(2) : std::chrono::milliseconds(20); }

}  // namespace

StatusOr<ExpertProcesses> expert_processes(const std::string& flag) {
  if (!flag.starts_with("auto:")) return ExpertProcesses{};
  const std::vector<std::string> numbers = absl::StrSplit(flag.substr(5), absl::MaxSplits('-', 1));
  ExpertProcesses range;
  const auto read = [](const std::string& text, uint32_t& number) { return absl::SimpleAtoi(text, &number) && number >= 1 && number <= kProcessesMax; };
  if (!read(numbers.front(), range.min) || !read(numbers.back(), range.max) || range.min > range.max) {
    return invalid_argument("--experts ", flag, ": write auto:N or auto:MIN-MAX, with numbers of 1 to ", kProcessesMax, " and the smaller one first");
  }
  return range;
}

StatusOr<std::vector<ExpertAddress>> expert_addresses(const std::string& flag) {
  std::vector<ExpertAddress> result;
  if (flag == "here" || flag == "cluster") return result;
  for (const std::string& address : std::vector<std::string>(absl::StrSplit(flag, ','))) {
    const size_t colon = address.rfind(':');
    const bool plain = address.starts_with("unix:") ? address.size() > 5 : colon != std::string::npos && colon > 0 && colon + 1 < address.size();
    if (!plain) return invalid_argument("--experts: '", address, "' is neither here, auto:N, auto:MIN-MAX or cluster nor the unix:PATH or HOST:PORT of an expert server");
    result.push_back({.address = address});
  }
  return result;
}

StatusOr<uint64_t> expert_stamp(const Checkpoint& checkpoint, const LoadOptions& load) {
  ASSIGN_OR_RETURN(const ModelDigest::Content sketch, sketch_of(checkpoint));
  return weights_stamp(sketch, {.quantization = load.quantization});  // types of KV are nothing to experts
}

StatusOr<std::unique_ptr<ExpertRouting>> ExpertRouting::start(Options options) {
  std::vector<std::shared_ptr<Bell>> bells;
  for (size_t node = 0; node < options.nodes; ++node) {
    ASSIGN_OR_RETURN(bells.emplace_back(), Bell::make());
  }
  return std::unique_ptr<ExpertRouting>(new ExpertRouting(std::move(options), std::move(bells)));
}

ExpertRouting::ExpertRouting(Options options, std::vector<std::shared_ptr<Bell>> bells) : options_(std::move(options)), bells_(std::move(bells)) {
  if (!options_.keeps) return;
  keeper_ = std::make_unique<ExpertKeeper>(ExpertKeeper::Options{.name = absl::StrCat(options_.client, "-", ::getpid()), .servers = [this] { return addresses(); }, .network = options_.network});
}

ExpertFleet ExpertRouting::fleet() {
  ExpertFleet fleet{.servers = [this] { return addresses(); }, .network = options_.network, .seen = [this] { return seen(); }, .counts = [this] { return counts(); }};
  if (options_.keeps) {
    fleet.set_servers = [this](std::vector<ExpertAddress> servers) { set_servers(std::move(servers)); };
    fleet.keeper = [this] { return keeper_->status(); };
  }
  return fleet;
}

Status ExpertRouting::add(const ServedModel& model) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const Checkpoint> checkpoint, open_checkpoint(model.path));
  ASSIGN_OR_RETURN(const std::unique_ptr<ModelPlan> plan, plan_model(checkpoint, model.load));
  const std::shared_ptr<const ExpertPlan> experts = plan->expert_plan();
  if (experts == nullptr) return OkStatus();
  ASSIGN_OR_RETURN(const uint64_t stamp, expert_stamp(*checkpoint, model.load));
  for (size_t node = 0; node < options_.nodes; ++node) {
    const std::string name = options_.nodes > 1 ? absl::StrCat(options_.client, "/", node) : options_.client;
    ASSIGN_OR_RETURN(std::unique_ptr<RemoteExperts> client,
                     RemoteExperts::start({.client = name, .model = model.name, .stamp = stamp, .plan = experts, .lanes = options_.lanes, .choose_lanes = options_.choose_lanes, .network = options_.network, .bell = bells_[node], .timeout_min = least_timeout(), .hedge_min = least_timeout() / 4}));
    std::lock_guard lock(mutex_);
    client->set_servers(servers_);
    clients_[{node, model.id}] = std::move(client);
  }
  return OkStatus();
}

ExchangePartner* ExpertRouting::partner(size_t node, ModelId model) const {
  std::lock_guard lock(mutex_);
  const auto found = clients_.find({node, model});
  return found == clients_.end() ? nullptr : found->second.get();
}

void ExpertRouting::set_servers(std::vector<ExpertAddress> servers) {
  std::lock_guard lock(mutex_);
  if (servers == servers_) return;
  servers_ = std::move(servers);
  for (const auto& [key, client] : clients_) client->set_servers(servers_);
  if (keeper_ != nullptr) keeper_->look();
}

std::vector<ExpertAddress> ExpertRouting::addresses() const {
  std::lock_guard lock(mutex_);
  return servers_;
}

Status ExpertRouting::wait_complete(Duration most) const {
  std::vector<RemoteExperts*> clients;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [key, client] : clients_) clients.push_back(client.get());
  }
  for (RemoteExperts* client : clients) RETURN_IF_ERROR(client->wait_complete(most));
  return OkStatus();
}

std::vector<RemoteExpertServer> ExpertRouting::seen() const {
  std::lock_guard lock(mutex_);
  std::vector<RemoteExpertServer> result;
  for (const auto& [key, client] : clients_) {
    for (RemoteExpertServer& server : client->servers()) result.push_back(std::move(server));
  }
  return result;
}

RemoteExpertsCounts ExpertRouting::counts() const {
  std::lock_guard lock(mutex_);
  RemoteExpertsCounts sum;
  for (const auto& [key, client] : clients_) {
    const RemoteExpertsCounts of = client->all_counts();
    for (const auto& [what, field] : kRemoteExpertsCounts) sum.*field += of.*field;
  }
  return sum;
}

}  // namespace shoal
