// shoal gateway: the endpoint of a cluster.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "apps/cluster_flags.h"
#include "apps/front.h"
#include "apps/notify.h"
#include "apps/remote_models.h"
#include "apps/served_folder.h"
#include "apps/signals.h"
#include "apps/verbs.h"
#include "apps/version.h"
#include "base/clock.h"
#include "base/log.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr char kExamples[] =
    "Examples:\n"
    "  shoal gateway --join unix:/run/shoal/cluster.sock --port 8080\n"
    "  shoal gateway --join etcd://10.0.0.1:2379,10.0.0.2:2379 --listen 10.0.0.5:7000 --name edge-1 --api-key-file keys.txt";
constexpr size_t kRouterQueueMax = 8192;
constexpr Duration kModelsWait = std::chrono::seconds(10);  // for what nodes that are there serve
constexpr Duration kLook = std::chrono::milliseconds(20);

struct GatewayFlags {
  ServeFlags serve;
  ClusterFlags cluster;
};

std::string text_folder() {
  const char* base = std::getenv("XDG_RUNTIME_DIR");
  return absl::StrCat(base != nullptr && *base == '/' ? base : "/tmp", "/shoal-text-", ::getuid(), "-", ::getpid());
}

// Every node reads its folder again; what came of it, by node.
StatusOr<Json> reload_nodes(ClusterLink& link) {
  Json nodes = Json::object();
  bool success = true;
  for (const auto& [name, record] : link.members()) {
    if (record.role != Role::kNode) continue;
    const auto answer = link.peers().operate(link.peer(record), "reload");
    const auto json = answer.ok() ? parse_json(*answer) : StatusOr<Json>(answer.status());
    success &= json.ok();
    nodes[name] = json.ok() ? *json : Json{{"success", false}, {"error", std::string(json.status().message())}};
  }
  log_info("settings reloaded: ", dump_json(nodes));
  return Json{{"success", success}, {"nodes", std::move(nodes)}};
}

void announce(const HttpServer& server, const ClusterLink& link, RemoteModels& models) {
  std::vector<std::string> nodes;
  for (const auto& [name, record] : link.members()) {
    if (record.role == Role::kNode) nodes.push_back(name);
  }
  std::printf("Shoal %s gateway serves %zu models of %zu node%s (%s) at %s\n", version_number().c_str(), models.catalog().models().size(), nodes.size(),
              nodes.size() == 1 ? "" : "s", nodes.empty() ? "none yet; they may come" : absl::StrJoin(nodes, ", ").c_str(), server.address().c_str());
  std::fflush(stdout);
}

// A gateway of a cluster: its link, the models that nodes serve, and the router, which begins when the cluster is joined: its life is in
// the names of its requests. Until then the latest picture waits.
class GatewayProcess {
 public:
  static StatusOr<std::unique_ptr<GatewayProcess>> start(const GatewayFlags& flags) {
    ASSIGN_OR_RETURN(ClusterOptions options, cluster_options(flags.cluster, Role::kGateway));
    std::unique_ptr<GatewayProcess> process(new GatewayProcess());
    ASSIGN_OR_RETURN(process->bulk_, bulk_network(options));
    ASSIGN_OR_RETURN(process->link_, ClusterLink::start(std::move(options), process->names_));
    return process;
  }
  ~GatewayProcess() {
    if (link_ != nullptr) link_->leave();
    models_.stop();
    router_.reset();
  }

  Status join() {
    const ClusterLink::Hooks hooks{.cluster = [this](ClusterState state) { set_cluster(std::move(state)); },
                                   .link = [this](NodeId peer, bool up) {
                                     std::lock_guard lock(mutex_);
                                     if (router_ != nullptr) router_->peer_link(peer, up);
                                   },
                                   .members = [this](const std::map<std::string, MemberRecord>& members) { meet(members); }};
    RETURN_IF_ERROR(link_->join(hooks, 0, {}, [] { return wait_stop_signal(Duration(0)); }));
    {
      std::lock_guard lock(mutex_);
      router_ = std::make_unique<RouterLoop>(RouterConfig{.self = link_->self(), .balance_interval = Duration::max(), .life = link_->life()}, kRouterQueueMax,
                                             [&](Transport::OnMessage on_message) { return link_->network().connect(link_->self(), std::move(on_message)); }, names_);
      router_->set_cluster(state_);
      router_->name_nodes(node_names_);
    }
    models_.follow(*link_, [this] { router_->timeline().name_models(models_.catalog().models()); });
    models_.members(link_->members());
    return OkStatus();
  }

  // Who asks before it is known what is served would hear that there is no such model. False: a signal came.
  bool wait_models() {
    for (const TimePoint until = steady_now() + kModelsWait; !models_.settled() && steady_now() < until;) {
      if (wait_stop_signal(kLook)) return false;
    }
    return true;
  }

  // It outlives what it gives.
  ExpertFleet experts() {
    return {.servers = [this] { return expert_members(link_->members()); }, .network = bulk_};
  }
  ClusterLink& link() { return *link_; }
  RemoteModels& models() { return models_; }
  RouterLoop& router() { return *router_; }

 private:
  GatewayProcess() : models_(names_, text_folder()) {}

  void set_cluster(ClusterState state) {
    std::lock_guard lock(mutex_);
    if (router_ != nullptr) router_->set_cluster(state);
    state_ = std::move(state);
  }
  void meet(const std::map<std::string, MemberRecord>& members) {
    models_.members(members);
    std::lock_guard lock(mutex_);
    for (const auto& [name, record] : members) node_names_[id_of_member(name)] = name;  // who left is still in the timeline
    if (router_ != nullptr) router_->name_nodes(node_names_);
  }

  const std::shared_ptr<ModelNames> names_ = std::make_shared<ModelNames>();
  RemoteModels models_;
  std::shared_ptr<BulkNetwork> bulk_;
  std::unique_ptr<ClusterLink> link_;
  std::mutex mutex_;
  std::unique_ptr<RouterLoop> router_;  // guarded by mutex_, as are the next two
  ClusterState state_;
  std::map<NodeId, std::string> node_names_;
};

StatusOr<int> run_gateway(GatewayFlags& flags) {
  RETURN_IF_ERROR(settle(flags.serve));
  block_stop_signals();
  block_reload_signal();
  RETURN_IF_ERROR(api_keys(flags.serve).status());
  ASSIGN_OR_RETURN(const auto process, GatewayProcess::start(flags));
  RETURN_IF_ERROR(process->join());
  if (!process->wait_models()) return kExitOk;
  ASSIGN_OR_RETURN(const auto front, Front::start(flags.serve, {.catalog = process->models().catalog(), .router = process->router(),
                                                                .stalled_seconds = [] { return 0.0; }, .experts = process->experts(), .reload = [&] { return reload_nodes(process->link()); }}));
  announce(front->server(), process->link(), process->models());
  notify_ready(absl::StrCat("serving at ", front->server().address()));
  const Watchdog watchdog([&] { return process->router().alive(); });
  front->run();
  notify_stopping();
  return kExitOk;
}

}  // namespace

RunVerb add_gateway(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("gateway", "Endpoint of a cluster: what clients ask goes to its nodes");
  auto flags = std::make_shared<GatewayFlags>();
  add_cluster_flags(*verb, flags->cluster);
  add_edge_flags(*verb, flags->serve);
  add_process_flags(*verb, flags->serve);
  verb->footer(kExamples);
  return [flags, verb] {
    flags->serve.settled = given_options(*verb);
    const auto result = run_gateway(*flags);
    return result.ok() ? *result : exit_code(result.status());
  };
}

}  // namespace shoal
