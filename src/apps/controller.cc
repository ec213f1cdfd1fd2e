// shoal controller: decides for a cluster what no gateway may decide alone, and what expert servers hold; and serves the directory of a machine without etcd.
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>

#include "CLI/CLI.hpp"
#include "apps/cluster_flags.h"
#include "apps/notify.h"
#include "apps/served_folder.h"
#include "apps/signals.h"
#include "apps/verbs.h"
#include "apps/version.h"
#include "base/clock.h"
#include "base/log.h"
#include "cluster/controller_loop.h"
#include "experts/keeper.h"
#include "membership_etcd/directory_server.h"

namespace shoal {
namespace {

constexpr char kExamples[] =
    "Examples:\n"
    "  shoal controller --listen unix:/run/shoal/cluster.sock    the directory of one machine, and its controller\n"
    "  shoal controller --join etcd://10.0.0.1:2379 --name controller-1     one of several; one of them decides";

struct ControllerFlags {
  ServeFlags process;
  ClusterFlags cluster;
};

// Models by the names that nodes record: a controller has no files.
class ModelNumbers {
 public:
  explicit ModelNumbers(std::shared_ptr<ModelNames> names) : names_(std::move(names)) {}
  // True if there are new ones.
  bool learn(const std::map<std::string, MemberRecord>& members) {
    bool fresh = false;
    for (const auto& [name, record] : members) {
      for (const RecordedModel& model : record.models) {
        if (!known_.emplace(model.name, model.stamp).second) continue;
        names_->add(ModelId(next_++), {model.name, model.stamp});
        fresh = true;
      }
    }
    return fresh;
  }

 private:
  const std::shared_ptr<ModelNames> names_;
  std::set<std::pair<std::string, uint64_t>> known_;
  uint32_t next_ = 0;
};

StatusOr<int> run_controller(ControllerFlags& flags) {
  RETURN_IF_ERROR(settle(flags.process));
  block_stop_signals();
  const bool serves = flags.cluster.listen.starts_with("unix:");
  if (serves != flags.cluster.join.empty()) return invalid_argument("either --join says where the cluster meets, or --listen unix:PATH makes that place");
  std::random_device random;
  MemoryDirectory directory([] { return steady_now(); }, int64_t{random()} << 24 | 1);
  std::unique_ptr<DirectoryServer> server;
  if (serves) {
    flags.cluster.join = std::exchange(flags.cluster.listen, "127.0.0.1:0");
    ASSIGN_OR_RETURN(server, DirectoryServer::start(flags.cluster.join, directory));
  }
  ASSIGN_OR_RETURN(ClusterOptions options, cluster_options(flags.cluster, Role::kController));
  ASSIGN_OR_RETURN(const std::shared_ptr<BulkNetwork> network, bulk_network(options));
  const auto names = std::make_shared<ModelNames>();
  ModelNumbers numbers(names);
  ASSIGN_OR_RETURN(const auto link, ClusterLink::start(std::move(options), names));
  ControllerLoop loop(ControllerConfig{.self = link->self()}, link->network(), names);
  ExpertKeeper experts({.name = link->name(), .servers = [&] { return expert_members(link->members()); }, .network = network});
  experts.lead(false);
  const ClusterLink::Hooks hooks{.cluster = [&](ClusterState state) { loop.set_cluster(std::move(state)); },
                                 .link = [&](NodeId peer, bool up) { loop.peer_link(peer, up); },
                                 .members = [&](const std::map<std::string, MemberRecord>& members) {
                                   if (numbers.learn(members)) link->renew();
                                   experts.look();
                                 },
                                 .leads = [&](bool leads) {
                                   loop.lead(leads);
                                   experts.lead(leads);
                                 }};
  if (const Status joined = link->join(hooks, 0, {}, [] { return wait_stop_signal(Duration(0)); }); !joined.ok()) {
    link->leave();  // before what the hooks refer to
    return joined;
  }
  std::printf("Shoal %s controller '%s' at %s\n", version_number().c_str(), link->name().c_str(), flags.cluster.join.c_str());
  std::fflush(stdout);
  notify_ready("in the cluster");
  const Watchdog watchdog([] { return true; });
  while (!wait_stop_signal(std::chrono::hours(1))) {}
  notify_stopping();
  link->leave();
  log_info("stopped");
  return kExitOk;
}

}  // namespace

RunVerb add_controller(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("controller", "Decides who computes what in a cluster; serves the directory of a single machine");
  auto flags = std::make_shared<ControllerFlags>();
  add_cluster_flags(*verb, flags->cluster);
  verb->get_option("--join")->required(false);
  verb->get_option("--listen")->description("ADDR:PORT where the nodes reach this one (port 0: any free one); or unix:PATH, to serve the directory of this machine there, which the others --join");
  add_process_flags(*verb, flags->process);
  verb->footer(kExamples);
  return [flags, verb] {
    flags->process.settled = given_options(*verb);
    const auto result = run_controller(*flags);
    return result.ok() ? *result : exit_code(result.status());
  };
}

}  // namespace shoal
