#include "apps/local_cluster.h"

#include <chrono>
#include <thread>

#include "base/clock.h"

namespace shoal {
namespace {

constexpr NodeId kGatewayId{1};
constexpr uint32_t kFirstNode = 2;  // the ids of the nodes rise from here
constexpr size_t kRouterQueueMax = 8192;

}  // namespace

StatusOr<std::unique_ptr<LocalCluster>> LocalCluster::start(const EngineFlags& flags, std::vector<FoundModel> models) {
  std::unique_ptr<LocalCluster> cluster(new LocalCluster());
  LocalCluster* self = cluster.get();
  const LocalNodes::Where where{.id = [](size_t i) { return NodeId(static_cast<uint32_t>(kFirstNode + i)); }, .gateways = {kGatewayId}};
  ASSIGN_OR_RETURN(self->nodes_, LocalNodes::plan(flags, std::move(models), where));
  // The router's endpoint exists before the nodes report to it.
  self->router_ = std::make_unique<RouterLoop>(
      RouterConfig{.self = kGatewayId, .life = 1}, kRouterQueueMax,
      [self](Transport::OnMessage on_message) { return self->network_.connect(kGatewayId, std::move(on_message)); }, self->nodes_->names());
  RETURN_IF_ERROR(self->nodes_->start(self->network_));
  RETURN_IF_ERROR(self->join());
  return cluster;
}

Status LocalCluster::join() {
  for (size_t i = 0; i < nodes_->size(); ++i) {
    ASSIGN_OR_RETURN(const uint32_t epoch, membership_.join({.id = nodes_->id(i), .role = Role::kNode, .models = nodes_->models()}));
    epochs_.push_back(epoch);
  }
  membership_.watch([this](const ClusterState& state) {
    router_->set_cluster(state);
    for (size_t i = 0; i < nodes_->size(); ++i) nodes_->host(i).set_cluster(state);
  });
  return OkStatus();
}

ModelChanges LocalCluster::update(const EngineFlags& flags, std::vector<FoundModel> models) {
  return nodes_->update(flags, std::move(models), {
      .configure = [this](Configure settings) { router_->configure(std::move(settings)); },
      .serve = [this](const std::vector<ModelId>& ids) {
        for (size_t i = 0; i < nodes_->size(); ++i) membership_.serve(nodes_->id(i), epochs_[i], ids).IgnoreError();  // it joined above
      },
      .replaced = [this] { router_->timeline().name_models(catalog().models()); }});
}

bool LocalCluster::wait_ready(Duration timeout) {
  const TimePoint until = steady_now() + timeout;
  while (router_->snapshot()->nodes.size() < nodes_->size()) {
    if (steady_now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

}  // namespace shoal
