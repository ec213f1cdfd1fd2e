#include "policy/placement.h"

#include <algorithm>
#include <tuple>

#include "policy/rehearsal.h"

namespace shoal {
namespace {

constexpr double kAsGood = 0.02;   // of its tokens: less is no reason for a switch
constexpr double kWaitDoubt = 2;   // a wait may be so many times as long as predicted

using Key = std::tuple<bool, bool, bool, double, uint32_t, uint32_t>;  // the least is chosen

bool of_other_role(const NodeView& n, Phase phase) {
  return n.instance_role == (phase == Phase::kPrompt ? InstanceRole::kDecode : InstanceRole::kPrefill);
}

// Of the device, with it.
double pressure(const NodeView& n) { return n.decode_pressure + n.answer_pressure; }

double end_seconds(const NodeView& n) { return n.wait_seconds + n.prompt_seconds + n.answer_tokens * n.tbt_seconds * pressure(n); }

Key key(const NodeView& n, Phase phase) {
  const bool comes = n.switch_seconds > 0;
  return {of_other_role(n, phase), comes && !n.room, comes, end_seconds(n), n.requests_live + n.requests_queued, n.node.value};
}

Key key_by_load(const NodeView& n, Phase phase) {
  const uint32_t load = n.requests_live + n.requests_queued;
  if (phase == Phase::kPrompt) return {of_other_role(n, phase), false, false, n.wait_seconds + n.switch_seconds, load, n.node.value};
  return {of_other_role(n, phase), !n.decodes_model, n.decode_pressure > 1, n.decode_pressure, load, n.node.value};
}

}  // namespace

void agree_on_answers(std::span<NodeView> nodes) {
  double sum = 0, seen = 0;
  for (const NodeView& n : nodes) {
    if (n.answer_tokens <= 0) continue;
    sum += (1 + n.answer_tokens_seen) * n.answer_tokens;
    seen += 1 + n.answer_tokens_seen;
  }
  for (NodeView& n : nodes) n.answer_tokens = seen > 0 ? sum / seen : 0;
}

double share_on_time(const NodeView& n) {
  if (n.answer_tokens <= 0) return 1;
  const double start = kWaitDoubt * n.wait_seconds + n.prompt_seconds;
  return tokens_in_time(n.answer_tokens, start, n.tbt_seconds * pressure(n), n.slack_seconds, n.tbt_seconds) / n.answer_tokens;
}

Placement place(const ClusterView& view, Phase phase) {
  if (view.requests_live >= view.requests_max) return Reject{Reject::Why::kFull, std::chrono::seconds(1)};
  const auto able = [](const NodeView& node) { return node.serves_model && !node.draining; };
  double most[2] = {0, 0};  // of those of the role, of the others
  for (const NodeView& node : view.nodes) {
    if (able(node) && !view.by_load) most[of_other_role(node, phase)] = std::max(most[of_other_role(node, phase)], share_on_time(node));
  }
  const NodeView* best = nullptr;
  Key least;
  for (const NodeView& node : view.nodes) {
    if (!able(node) || (!view.by_load && share_on_time(node) < most[of_other_role(node, phase)] - kAsGood)) continue;
    const Key own = view.by_load ? key_by_load(node, phase) : key(node, phase);
    if (best != nullptr && own >= least) continue;
    best = &node;
    least = own;
  }
  if (best == nullptr) return Reject{Reject::Why::kNoNode, std::chrono::seconds(5)};
  return PlaceOn{best->node};
}

}  // namespace shoal
