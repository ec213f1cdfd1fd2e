// shoal expert: a server of experts. It holds some of the experts of the models of a folder, and computes what nodes ask for.
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "apps/cluster_flags.h"
#include "apps/expert_routing.h"
#include "apps/model_scan.h"
#include "apps/notify.h"
#include "apps/settings.h"
#include "apps/signals.h"
#include "apps/verbs.h"
#include "apps/version.h"
#include "base/bytes.h"
#include "base/log.h"
#include "device/memory_limits.h"
#include "experts/handshake.h"
#include "experts/server.h"
#include "formats/checkpoint.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr char kExamples[] =
    "Examples:\n"
    "  shoal expert models/ --listen unix:/run/shoal/expert-0.sock --experts '*:0-7'\n"
    "  shoal expert models/ --join etcd://10.0.0.1:2379 --listen 10.0.0.9:7100 --name expert-0 --experts auto";
constexpr Duration kGoodbye = std::chrono::milliseconds(500);  // for nodes to hear that it leaves

struct ExpertFlags {
  std::string path = "models";
  std::string experts = "auto";
  std::string memory;
  std::string cores;
  std::string peers;
  uint32_t threads = 0;
  std::string batch_rule = "adaptive";
  uint32_t batch_wait_us = 100;
  bool no_shrink = false, no_regroup = false;
  EngineFlags engine;
  ClusterFlags cluster;
  LogFlags log;
};

// Models with experts, and which of those are to be here to begin with.
StatusOr<std::vector<ExpertModel>> models_to_hold(const ExpertFlags& flags) {
  ASSIGN_OR_RETURN(const LoadOptions load, load_options(flags.engine));
  ASSIGN_OR_RETURN(const ScanResult scan, scan_models(flags.path, load, 0));
  RETURN_IF_ERROR(check_any_model(flags.path, scan));
  std::vector<ExpertModel> models;
  for (const FoundModel& found : scan.models) {
    ASSIGN_OR_RETURN(const std::shared_ptr<const Checkpoint> checkpoint, open_checkpoint(found.path));
    ASSIGN_OR_RETURN(const std::unique_ptr<ModelPlan> plan, plan_model(checkpoint, load));
    ExpertModel model{.name = found.entry.name, .plan = plan->expert_plan()};
    if (model.plan == nullptr) continue;
    ASSIGN_OR_RETURN(model.stamp, expert_stamp(*checkpoint, load));
    models.push_back(std::move(model));
  }
  if (models.empty()) return not_found("none of the models of ", flags.path, " has experts; `shoal serve` computes those without");
  for (ExpertModel& model : models) {
    const ExpertShape shape = shape_of(*model.plan);
    model.holds = ExpertSet(shape);
    if (flags.experts == "auto") continue;  // whoever keeps the servers says
    auto set = parse_experts(shape, flags.experts);
    if (!set.ok()) return annotate(set.status(), absl::StrCat("--experts, of '", model.name, "'"));
    model.holds = *std::move(set);
  }
  return models;
}

StatusOr<ExpertServerConfig> server_config(const ExpertFlags& flags, uint64_t memory) {
  ExpertServerConfig config{.name = flags.cluster.name, .domain = flags.cluster.failure_domain, .memory_bytes = memory, .regroup = !flags.no_regroup, .shrink = !flags.no_shrink};
  if (config.domain.empty()) config.domain = machine_name();
  const auto rule = parse_batch_rule(flags.batch_rule);
  if (!rule) return invalid_argument("--batch-rule ", flags.batch_rule, " is unknown");
  config.batch = {.rule = *rule, .wait_max = std::chrono::microseconds(flags.batch_wait_us)};
  EngineFlags cores = flags.engine;
  if (!flags.cores.empty()) cores.devices = {flags.cores};
  ASSIGN_OR_RETURN(const std::vector<DeviceSpec> devices, device_specs(cores));
  config.cpus = devices.front().cpus;
  config.threads = static_cast<int>(flags.threads > 0 ? flags.threads : !config.cpus.empty() ? config.cpus.size() : std::max(1u, std::thread::hardware_concurrency()));
  for (const std::string& place : std::vector<std::string>(absl::StrSplit(flags.cluster.listen, ','))) {
    std::string& address = place.starts_with("unix:") ? config.unix_address : config.network_address;
    if (!address.empty()) return invalid_argument("--listen: one ADDR:PORT and one unix:PATH at most");
    address = place.starts_with("unix:") ? place.substr(5) : place;
  }
  if (flags.peers.empty()) return config;
  ASSIGN_OR_RETURN(config.peers, expert_addresses(flags.peers));
  const bool local = std::all_of(config.peers.begin(), config.peers.end(), [](const ExpertAddress& peer) { return is_unix_address(peer.address); });
  if (!local || config.unix_address.empty()) return invalid_argument("--peers: name unix:PATH of other servers of this machine, and one in --listen where they reach this one");
  return config;
}

// Its place in the cluster, by which nodes find it. Models are recorded by those who serve them.
StatusOr<std::unique_ptr<ClusterLink>> join_cluster(ClusterOptions options, ExpertServer& server) {
  const std::string host = options.listen.substr(0, options.listen.rfind(':'));
  options.listen = host + ":0";
  ASSIGN_OR_RETURN(std::unique_ptr<ClusterLink> link, ClusterLink::start(std::move(options), std::make_shared<ModelNames>()));
  const auto peers = [&server, self = link->name()](const std::map<std::string, MemberRecord>& members) {
    std::vector<ExpertAddress> others = expert_members(members);
    std::erase_if(others, [&](const ExpertAddress& other) { return other.name == self || !is_unix_address(other.address); });
    for (ExpertAddress& other : others) other.other.clear();  // by shared memory, or not at all
    server.set_peers(std::move(others));
  };
  RETURN_IF_ERROR(link->join({.members = peers}, server.port(), {}, [] { return wait_stop_signal(Duration(0)); }));
  return link;
}

void announce(const ClusterFlags& flags, const ExpertServerConfig& config, uint32_t held, uint16_t port) {
  const std::string address = port > 0 ? absl::StrCat(std::string(config.network->scheme()), config.network_address.substr(0, config.network_address.rfind(':')), ":", port) : flags.listen;
  std::printf("Shoal %s expert server '%s' holds %u experts at %s\n", version_number().c_str(), flags.name.c_str(), held, address.c_str());
  std::fflush(stdout);
}

StatusOr<int> run_expert(ExpertFlags& flags) {
  RETURN_IF_ERROR(apply(flags.log));
  block_stop_signals();
  ASSIGN_OR_RETURN(const uint64_t memory, flags.memory.empty() ? StatusOr<uint64_t>(available_memory_bytes() / 10 * 8) : parse_bytes(flags.memory));
  ASSIGN_OR_RETURN(std::vector<ExpertModel> models, models_to_hold(flags));
  const bool joins = !flags.cluster.join.empty();
  std::optional<ClusterOptions> options;
  if (joins) {
    if (flags.cluster.listen.find("unix:") != std::string::npos) return invalid_argument("--listen: with --join, say ADDR:PORT; processes of this machine need none");
    ASSIGN_OR_RETURN(options, cluster_options(flags.cluster, Role::kExpert));
    flags.cluster.name = options->name;
  }
  if (flags.cluster.name.empty()) flags.cluster.name = absl::StrCat("expert-", ::getpid());
  ASSIGN_OR_RETURN(ExpertServerConfig config, server_config(flags, memory));
  config.network = clear_bulk_network(flags.cluster);
  if (joins) {
    config.unix_address = bulk_socket(::getpid(), flags.cluster.name);
    ASSIGN_OR_RETURN(config.network, bulk_network(*options));
  }
  uint32_t held = 0;
  for (const ExpertModel& model : models) held += model.holds.count();
  std::unique_ptr<ClusterLink> link;
  std::atomic<ClusterLink*> joined{nullptr};
  config.on_drain = [&joined] {
    if (ClusterLink* const there = joined) there->drain();
  };
  ASSIGN_OR_RETURN(const auto server, ExpertServer::start(config, std::move(models)));
  if (joins) {
    ASSIGN_OR_RETURN(link, join_cluster(*std::move(options), *server));
    joined = link.get();
  }
  announce(flags.cluster, config, held, server->port());
  notify_ready("serving experts");
  const Watchdog watchdog([] { return true; });
  while (!wait_stop_signal(std::chrono::hours(1))) {}
  notify_stopping();
  if (link != nullptr) {
    link->drain();
    wait_stop_signal(kGoodbye);
    link->leave();
  }
  log_info("stopped");
  return kExitOk;
}

}  // namespace

RunVerb add_expert(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("expert", "A server of experts: computes them for nodes that have the rest of the model");
  auto flags = std::make_shared<ExpertFlags>();
  verb->add_option("path", flags->path, "Folder of models, one model folder, or one GGUF file: the same files as the nodes'")->capture_default_str();
  add_cluster_flags(*verb, flags->cluster);
  verb->get_option("--join")->required(false);
  add_bulk_flag(*verb, flags->cluster);
  verb->get_option("--listen")->description("ADDR:PORT (port 0: any free one) or unix:PATH where nodes reach this server, or both with a comma between them");
  verb->add_option("--peers", flags->peers, "unix:PATH,...: other expert servers of this machine; what nodes ask of several of them over the network comes once, to one (in a cluster they are known)");
  verb->add_option("--experts", flags->experts, "What it holds: LAYERS:IDS as in '0-3:0-7,12;5:*' ('*:*': all), and stays; or auto: what `shoal serve --experts` or the cluster's controller gives it, by load and --memory")->capture_default_str();
  verb->add_option("--memory", flags->memory, "For weights, e.g. 8GiB (default: most of what is free)");
  verb->add_option("--cores", flags->cores, "Cores to compute on, e.g. cpu:4-7 (default: all)");
  verb->add_option("--threads", flags->threads, "Compute threads (0: one per core)")->capture_default_str()->check(CLI::Range(0, 1024));
  verb->add_option("--quantization", flags->engine.quantization, "Quantise unquantised weights at load; as the nodes do")->capture_default_str();
  verb->add_option("--batch-rule", flags->batch_rule, "When it begins: adaptive (when those have come who are expected), deadline, greedy (at once), all (a barrier; for comparison)")
      ->capture_default_str()->check(CLI::IsMember({"adaptive", "deadline", "greedy", "all"}));
  verb->add_option("--batch-wait-us", flags->batch_wait_us, "Longest wait of a request for others, in microseconds")->capture_default_str()->check(CLI::Range(0, 100'000));
  verb->add_flag("--no-shrink", flags->no_shrink, "Visit experts that have no rows too; for comparison");
  verb->add_flag("--no-regroup", flags->no_regroup, "Compute each request alone; for comparison");
  add_log_flags(*verb, flags->log, "info");
  verb->footer(kExamples);
  return [flags] {
    const auto result = run_expert(*flags);
    return result.ok() ? *result : exit_code(result.status());
  };
}

}  // namespace shoal
