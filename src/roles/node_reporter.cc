#include "roles/node_reporter.h"

#include <algorithm>
#include <utility>

namespace shoal {
namespace {

constexpr uint32_t kTypicalPrompt = 256;
constexpr int64_t kReportsPerSecond = 1000;

}  // namespace

void NodeReporter::tell(const HostedModel& hosted, const TurnsAhead& turns, ModelStatus& m) const {
  const Engine& engine = *hosted.engine;
  const EngineCounters& counters = engine.counters();
  m.model = hosted.facts.model;
  switch (catalogue_.state(hosted)) {
    case WeightsState::kOnDisk: m.state = hosted.load_error.empty() ? ModelState::kUnloaded : ModelState::kFailed; break;
    case WeightsState::kLoading: m.state = ModelState::kLoading; break;
    case WeightsState::kOnDevice: m.state = ModelState::kLoaded; break;
  }
  m.progress = hosted.progress;
  m.error = hosted.load_error;
  m.held_up = hosted.deferred_why;
  m.waiting = static_cast<uint32_t>(engine.waiting());
  m.running = static_cast<uint32_t>(engine.running());
  m.weight_bytes = m.state == ModelState::kLoaded ? hosted.facts.weight_bytes : 0;
  m.kv_bytes_active = engine.blocks_active() * hosted.facts.kv_block_bytes;
  m.kv_bytes_used = m.kv_bytes_active + engine.blocks_cached() * hosted.facts.kv_block_bytes;
  m.max_model_len = hosted.facts.max_model_len;
  m.prompt_tokens = counters.prompt_tokens;
  m.generated_tokens = counters.generated_tokens;
  m.prefix_queries = counters.prefix_queries;
  m.prefix_hits = counters.prefix_hits;
  m.preemptions = counters.preemptions;
  m.experts = counters.experts;
  m.steps = counters.steps;
  m.steps_by_tokens = counters.steps_by_tokens;
  m.step_tokens = counters.step_tokens;
  m.loads = hosted.loads;
  m.wait_seconds = to_seconds(quotas_.wait(hosted, turns));
  m.switch_seconds = catalogue_.resident(hosted) || engine.has_work() ? 0 : quotas_.switch_to(hosted);
  m.prompt_token_seconds = quotas_.prompt(hosted, 0, kTypicalPrompt) / kTypicalPrompt;
  m.room = !catalogue_.away(hosted) || engine.has_work() || catalogue_.pages().free() >= catalogue_.pages_needed(hosted);
  m.slo = quotas_.slo(hosted);
  const Prospects expected = quotas_.prospects(hosted);
  m.answer_tokens = expected.answer_tokens;
  m.answer_pressure = quotas_.answer_pressure(hosted);
  m.parkings = counters.parkings;
  m.kv_bytes_host = engine.parking().host_blocks_held() * hosted.facts.kv_block_bytes;
}

NodeStatus NodeReporter::status(InstanceRole instance_role) const {
  NodeStatus status;
  status.version = version_;
  const PagePool& pages = catalogue_.pages();
  status.device_bytes = pages.capacity() * kPageBytes;
  status.device_bytes_free = pages.free() * kPageBytes;
  status.workspace_bytes = config_.workspace_bytes;
  for (const auto& [bytes, blocks] : catalogue_.shape_classes()) {
    status.kv_bytes_bound += blocks->pages_bound() * kPageBytes;
    status.kv_bytes_free += blocks->free_in_slabs() * bytes;
  }
  status.host_bytes = catalogue_.host_tier().pages() * kPageBytes;
  status.kv_bytes_out = journal_.device.bytes_out();
  status.kv_bytes_in = journal_.device.bytes_in();
  status.instance_role = instance_role;
  status.prompt_pressure = quotas_.prompt_pressure(scheduler_.in_flight().first());
  status.decode_pressure = quotas_.decode_pressure();
  const TurnsAhead turns = quotas_.turns_ahead();
  status.models.reserve(catalogue_.all().size());
  for (const auto& [id, hosted] : catalogue_.all()) tell(hosted, turns, status.models.emplace_back());
  return status;
}

void NodeReporter::learn(const ClusterState& state) {
  std::vector<NodeId> listeners = config_.gateways;
  for (const auto& [id, member] : state.members) {
    const bool listens = member.role == Role::kGateway || member.role == Role::kController;
    if (listens && std::find(listeners.begin(), listeners.end(), id) == listeners.end()) listeners.push_back(id);
  }
  const auto nodes = std::count_if(state.members.begin(), state.members.end(), [](const auto& member) { return member.second.role == Role::kNode; });
  interval_ = interval(static_cast<size_t>(nodes), config_.status_interval);
  if (std::exchange(listeners_, std::move(listeners)) != listeners_) journal_.residency();
}

Duration NodeReporter::interval(size_t nodes, Duration least) {
  return std::max(least, Duration(std::chrono::seconds(nodes)) / kReportsPerSecond);
}

void NodeReporter::report(InstanceRole instance_role, TimePoint now, std::vector<Effect>& effects) {
  if (!journal_.changed) return;
  const bool now_due = journal_.residency_changed || now >= next_;
  if (!now_due) {
    effects.push_back(WakeAt{next_});
    return;
  }
  ++version_;
  NodeStatus snapshot = status(instance_role);
  snapshot.at = now;
  snapshot.switches = journal_.switches.take();
  snapshot.events = journal_.device.take();
  snapshot.next = scheduler_.next_models(now);
  for (const NodeId listener : listeners_) effects.push_back(Send{listener, listener == listeners_.back() ? std::move(snapshot) : snapshot});
  journal_.changed = journal_.residency_changed = false;
  next_ = now + interval_;
}

}  // namespace shoal
