#include "experts/relay.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "experts/request_rows.h"
#include "models/expert_plan.h"

namespace shoal {
namespace {

constexpr Duration kPatience = std::chrono::milliseconds(50);  // with a server that nobody can stand in for: then its client asks by itself

}  // namespace

StatusOr<std::unique_ptr<ExpertRelay>> ExpertRelay::start(const std::string& server, const ExpertHello& hello, std::shared_ptr<const ExpertPlan> plan, std::shared_ptr<Bell> bell) {
  if (hello.lanes > kLanesMax) return invalid_argument("a relay takes ", kLanesMax, " lanes of a client at most");
  ASSIGN_OR_RETURN(std::unique_ptr<RemoteExperts> remote,
                   RemoteExperts::start({.client = server + " for " + hello.client, .model = hello.model, .stamp = hello.stamp, .plan = plan, .lanes = hello.lanes, .bell = std::move(bell),
                                         .defer_after = kPatience, .wishes = false}));
  return std::unique_ptr<ExpertRelay>(new ExpertRelay(std::move(remote), std::move(plan)));
}

std::vector<std::string> ExpertRelay::servers() const {
  std::vector<std::string> names;
  for (const RemoteExpertServer& server : remote_->servers()) {
    if (server.connected) names.push_back(server.name);
  }
  return names;
}

void ExpertRelay::ask(const RequestView& view) {
  Lane& lane = lanes_[view.head.lane];
  CHECK(!lane.asked);
  lane.asked = true;
  lane.of = view;
  const auto rows = static_cast<uint32_t>(view.routes.size());
  lane.order.resize(rows);
  for (uint32_t row = 0; row < rows; ++row) lane.order[row] = row;
  std::stable_sort(lane.order.begin(), lane.order.end(), [&](uint32_t a, uint32_t b) { return view.routes[a].expert < view.routes[b].expert; });
  lane.routes = {};
  for (const uint32_t row : lane.order) {
    const SlotRoute& route = view.routes[row];
    auto& active = lane.routes.active;
    if (active.empty() || active.back().expert != route.expert) active.push_back({route.expert, static_cast<uint32_t>(lane.routes.routed.size()), 0});
    ++active.back().rows;
    lane.routes.routed.push_back({route.token, route.weight});
  }
  lane.computed.resize(uint64_t{rows} * view.head.width);
  remote_->ask(view.head.lane, {.layer = view.head.layer, .rows = view.head.tokens, .width = view.head.width,
                                .input = {reinterpret_cast<uint64_t>(view.hidden.data())}, .output = {reinterpret_cast<uint64_t>(lane.computed.data())},
                                .routes = &lane.routes, .experts = plan_->experts(), .grouped = plan_->experts()});
}

std::optional<ExpertRelay::Answer> ExpertRelay::answered() {
  if (failed_) {
    const auto next = std::find_if(lanes_.begin(), lanes_.end(), [](const Lane& lane) { return lane.asked; });
    failed_ = next != lanes_.end();
    if (!failed_) return std::nullopt;
    next->asked = false;
    return Answer{next->of.head, {}};
  }
  if (std::none_of(lanes_.begin(), lanes_.end(), [](const Lane& lane) { return lane.asked; })) return std::nullopt;
  const auto which = remote_->answered();
  failed_ = !which.ok();
  if (failed_) return answered();
  if (!*which) return std::nullopt;
  Lane& lane = lanes_[**which];
  lane.asked = false;
  const uint64_t width = lane.of.head.width;
  lane.outputs.resize(lane.computed.size());
  for (size_t i = 0; i < lane.order.size(); ++i) std::memcpy(lane.outputs.data() + lane.order[i] * width, lane.computed.data() + i * width, width * sizeof(float));
  if (lane.of.head.sums) lane.outputs = summed_rows(lane.of, plan_->weigh_input(), lane.outputs);
  return Answer{lane.of.head, lane.outputs};
}

}  // namespace shoal
