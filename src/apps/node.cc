// shoal node: a device of a cluster, with the models that it serves.
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "apps/cluster_flags.h"
#include "apps/local_nodes.h"
#include "apps/notify.h"
#include "apps/served_folder.h"
#include "apps/signals.h"
#include "apps/text_files.h"
#include "apps/verbs.h"
#include "apps/version.h"
#include "base/clock.h"
#include "base/log.h"
#include "gateway/model_card.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr char kExamples[] =
    "Examples:\n"
    "  shoal node --join unix:/run/shoal/cluster.sock /srv/models --name node-1\n"
    "  shoal node --join etcd://10.0.0.1:2379 /srv/models --listen 10.0.0.7:7000 --role prefill --tls-cert n.pem --tls-key n.key --tls-ca ca.pem";
constexpr Duration kLook = std::chrono::milliseconds(50);
constexpr Duration kGoodbye = std::chrono::milliseconds(300);  // for a gateway to hear that this node is leaving
constexpr double kStalledSecondsMax = 30;

struct NodeFlags {
  ServeFlags serve;
  ClusterFlags cluster;
  std::string role = "both";
};

void add_node_flags(CLI::App& verb, ServeFlags& flags) {
  add_model_flags(verb, flags);
  add_process_flags(verb, flags);
}

// A node of a cluster: the nodes of this process (one), and its link. The latest picture waits for whoever is not there yet.
class NodeProcess {
 public:
  static StatusOr<std::unique_ptr<NodeProcess>> start(NodeFlags& flags) {
    ASSIGN_OR_RETURN(ClusterOptions options, cluster_options(flags.cluster, Role::kNode));
    ASSIGN_OR_RETURN(std::vector<FoundModel> models, models_to_serve(flags.serve));
    ASSIGN_OR_RETURN(const std::vector<ModelId> preload, models_to_preload(flags.serve.preload, models));
    std::unique_ptr<NodeProcess> process(new NodeProcess(flags));
    NodeProcess* self = process.get();
    const std::string host = flags.cluster.listen.substr(0, flags.cluster.listen.rfind(':'));
    KvLinkConfig kv{.listen = absl::StrCat(host, ":0"), .local = bulk_socket(::getpid(), options.name)};
    ASSIGN_OR_RETURN(kv.network, bulk_network(options));
    LocalNodes::Where where{.id = [id = id_of_member(options.name)](size_t) { return id; }, .kv_link = kv, .name = options.name, .network = kv.network};
    ASSIGN_OR_RETURN(self->nodes_, LocalNodes::plan(flags.serve.engine, std::move(models), where));
    if (self->nodes_->size() != 1) return invalid_argument("--devices: a node is one device; start a node for each");
    PeerHandlers handlers{.cards = [self] { return self->cards(); }, .operate = [self](const std::string& verb) { return self->operate(verb); },
                          .text = [self](const std::string& model, uint64_t stamp, const PeerHandlers::Emit& emit) { return self->text(model, stamp, emit); }};
    ASSIGN_OR_RETURN(self->link_, ClusterLink::start(std::move(options), self->nodes_->names(), std::move(handlers)));
    RETURN_IF_ERROR(self->nodes_->start(self->link_->network()));
    for (const ModelId id : preload) self->host().tell(SetResident{id, true});
    return process;
  }

  Status join() {
    const ClusterLink::Hooks hooks{
        .cluster = [this](ClusterState state) { host().set_cluster(std::move(state)); },
        .link = [this](NodeId peer, bool up) { host().peer_link(peer, up); },
        .members = [this](const std::map<std::string, MemberRecord>& members) {
          if (nodes_->experts() != nullptr && flags_.serve.engine.experts == "cluster") nodes_->experts()->set_servers(expert_members(members));
        },
        .bulk = [this](const std::map<NodeId, BulkAddress>& peers) {
          std::map<NodeId, BulkAddress> addresses;
          for (const auto& [id, peer] : peers) addresses[id] = {peer.address, flags_.cluster.kv_transport == "tcp" ? "" : peer.local};
          host().set_kv_addresses(std::move(addresses));
        }};
    return link_->join(hooks, host().kv_port(), recorded(nodes_->models()), [] { return wait_stop_signal(Duration(0)); });
  }

  StatusOr<std::string> reload() {
    std::lock_guard lock(reloading_);
    ASSIGN_OR_RETURN(const Json json, reload_folder(flags_.serve, add_node_flags, {
        .catalog = nodes_->catalog(),
        .update = [this](std::vector<FoundModel> found) {
          return nodes_->update(flags_.serve.engine, std::move(found), {
              .configure = [this](Configure settings) { host().tell(std::move(settings)); },
              .serve = [this](const std::vector<ModelId>& ids) { link_->serve(recorded(ids)); },
              .replaced = [] {}});
        },
        .load = [this](ModelId id) { host().tell(SetResident{id, true}); }}));
    return dump_json(json);
  }

  // Takes nothing new, and ends what it has in its time.
  void drain(Duration patience) {
    log_info("draining; a second signal ends this node now, and its requests go on elsewhere");
    link_->drain();
    host().drain();
    const TimePoint until = steady_now() + patience;
    wait_stop_signal(kGoodbye);
    while (!host().idle() && steady_now() < until && !wait_stop_signal(kLook)) {}
  }

  NodeHost& host() { return nodes_->host(0); }
  LocalNodes& nodes() { return *nodes_; }
  const ClusterLink& link() const { return *link_; }
  ~NodeProcess() {
    if (link_ != nullptr) link_->leave();
    nodes_.reset();
  }

 private:
  explicit NodeProcess(NodeFlags& flags) : flags_(flags) {}

  std::vector<RecordedModel> recorded(const std::vector<ModelId>& ids) const {
    std::vector<RecordedModel> models;
    for (const ModelId id : ids) {
      if (const auto name = nodes_->names()->find(id)) models.push_back({name->name, name->stamp});
    }
    return models;
  }
  std::string cards() const {
    std::vector<ModelCard> cards;
    for (const ModelRef& model : nodes_->catalog().models()) {
      const auto name = nodes_->names()->find(model->id);
      cards.push_back({*model, name ? name->stamp : 0});
    }
    return write_cards(cards);
  }
  StatusOr<std::string> operate(const std::string& verb) {
    if (verb == "reload") return reload();
    return unimplemented("a node takes no '", verb, "'; it takes 'reload'");
  }
  Status text(const std::string& model, uint64_t stamp, const PeerHandlers::Emit& emit) const {
    const ModelRef found = nodes_->catalog().find(model);
    const auto name = found == nullptr ? std::nullopt : nodes_->names()->find(found->id);
    if (!name || name->stamp != stamp) return not_found("no model '", model, "' with these files is served here");
    return read_text_files(found->path, emit);
  }

  NodeFlags& flags_;
  std::mutex reloading_;
  std::unique_ptr<LocalNodes> nodes_;
  std::unique_ptr<ClusterLink> link_;
};

StatusOr<int> run_node(NodeFlags& flags) {
  flags.serve.engine.partition = "both";
  RETURN_IF_ERROR(settle(flags.serve));
  block_stop_signals();
  block_reload_signal();
  ASSIGN_OR_RETURN(const auto process, NodeProcess::start(flags));
  if (flags.role != "both") process->host().tell(SetInstanceRole{flags.role == "prefill" ? InstanceRole::kPrefill : InstanceRole::kDecode});
  RETURN_IF_ERROR(process->join());
  std::printf("Shoal %s node '%s' serves %zu models at %s\n", version_number().c_str(), process->link().name().c_str(), process->nodes().catalog().models().size(),
              process->link().address().c_str());
  std::fflush(stdout);
  notify_ready("serving");
  const Watchdog watchdog([&] { return process->host().stalled_seconds() < kStalledSecondsMax; });
  for (Signal signal = Signal::kNone; signal != Signal::kStop; signal = wait_signal(std::chrono::hours(1))) {
    if (signal == Signal::kReload) process->reload().status().IgnoreError();  // it logs what came of it
  }
  notify_stopping();
  process->drain(from_seconds(flags.serve.shutdown_timeout_s));
  log_info("stopped");
  return kExitOk;
}

}  // namespace

RunVerb add_node(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("node", "One device of a cluster, with a folder of models");
  auto flags = std::make_shared<NodeFlags>();
  add_cluster_flags(*verb, flags->cluster);
  add_node_flags(*verb, flags->serve);
  verb->add_option("--role", flags->role, "What it computes, to begin with")->capture_default_str()->check(CLI::IsMember({"both", "prefill", "decode"}));
  add_bulk_flag(*verb, flags->cluster);
  verb->add_option("--kv-transport", flags->cluster.kv_transport, "How KV comes from other nodes: auto (from the memory of processes of this machine, else TCP) or tcp")
      ->capture_default_str()->check(CLI::IsMember({"auto", "tcp"}));
  verb->footer(kExamples);
  return [flags, verb] {
    flags->serve.settled = given_options(*verb);
    const auto result = run_node(*flags);
    return result.ok() ? *result : exit_code(result.status());
  };
}

}  // namespace shoal
