// What a node says of itself.
#include <algorithm>
#include <utility>

#include "roles/node.h"

namespace shoal {
namespace {

constexpr uint32_t kTypicalPrompt = 256;

}  // namespace

// Those of one model at a time are one switch: about what computing all of them takes.
double Node::prompt_pressure() const {
  Duration due = Duration::max();
  for (const auto& [id, hosted] : awake_) {
    if (hosted.prompts_queued > 0) due = std::min(due, hosted.facts.pooling.slo.ttft);
  }
  if (due == Duration::max()) return 0;
  const auto switching = [this](ModelId m) { return resident(models_.at(m)) ? 0 : switch_seconds(models_.at(m)); };
  return prompts_.load_seconds(stepping_, 0, switching) / std::max(to_seconds(due), 1e-3);
}

// Of the round, or while everybody has room: the share of time that keeping everybody's pace takes.
double Node::decode_alpha() const {
  if (contended_ && token_level()) return round_plan_.alpha;
  double share = 0;
  for (const auto& [id, hosted] : awake_) {
    const auto sequences = hosted.engine->running();
    if (sequences > 0) share += hosted.costs.decode_seconds(sequences, 0) / std::max(to_seconds(hosted.facts.pooling.slo.tbt), 1e-3);
  }
  return share;
}

void Node::tell(const Hosted& hosted, const TurnsAhead& turns, ModelStatus& m) const {
  const Engine& engine = *hosted.engine;
  const EngineCounters& counters = engine.counters();
  m.model = hosted.facts.model;
  switch (residency_.state(m.model)) {
    case WeightsState::kOnDisk: m.state = hosted.load_error.empty() ? ModelState::kUnloaded : ModelState::kFailed; break;
    case WeightsState::kLoading: m.state = ModelState::kLoading; break;
    case WeightsState::kOnDevice: m.state = ModelState::kLoaded; break;
  }
  m.progress = hosted.progress;
  m.error = hosted.load_error;
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
  m.steps = counters.steps;
  m.steps_by_tokens = counters.steps_by_tokens;
  m.step_tokens = counters.step_tokens;
  m.loads = hosted.loads;
  m.wait_seconds = to_seconds(predicted_wait(hosted, turns));
  m.switch_seconds = resident(hosted) || engine.has_work() ? 0 : switch_seconds(hosted);
  m.prompt_token_seconds = hosted.costs.prefill_seconds(0, kTypicalPrompt, config_.limits.tokens_per_step) / kTypicalPrompt;
  m.parkings = counters.parkings;
  m.kv_bytes_host = engine.parking().host_blocks_held() * hosted.facts.kv_block_bytes;
}

NodeStatus Node::status() const {
  NodeStatus status;
  status.version = status_version_;
  status.device_bytes = pages_.capacity() * kPageBytes;
  status.device_bytes_free = pages_.free() * kPageBytes;
  status.workspace_bytes = config_.workspace_bytes;
  for (const auto& [bytes, blocks] : shape_classes_) {
    status.kv_bytes_bound += blocks->pages_bound() * kPageBytes;
    status.kv_bytes_free += blocks->free_in_slabs() * bytes;
  }
  status.host_bytes = host_.pages() * kPageBytes;
  status.kv_bytes_out = log_.bytes_out();
  status.kv_bytes_in = log_.bytes_in();
  status.duty = duty_;
  status.prompt_pressure = prompt_pressure();
  status.alpha = decode_alpha();
  const TurnsAhead turns = turns_ahead();
  status.models.reserve(models_.size());
  for (const auto& [id, hosted] : models_) tell(hosted, turns, status.models.emplace_back());
  return status;
}

// Those that wait for the device, the next one first.
std::vector<ModelId> Node::next_models(TimePoint now) const {
  std::vector<ModelView> views;
  for (const auto& [id, hosted] : awake_) {
    if (hosted.wanted_since != kForever) views.push_back(view_of(hosted, now));
  }
  return waiting_order(views, token_level() ? config_.turns : TurnOptions{.least_slack_first = false});
}

void Node::report(TimePoint now, std::vector<Effect>& effects) {
  if (!changed_) return;
  const bool now_due = residency_changed_ || now >= next_report_;
  if (!now_due) {
    effects.push_back(WakeAt{next_report_});
    return;
  }
  ++status_version_;
  NodeStatus snapshot = status();
  snapshot.at = now;
  snapshot.switches = switches_.take();
  snapshot.events = log_.take();
  snapshot.next = next_models(now);
  for (const NodeId gateway : config_.gateways) effects.push_back(Send{gateway, gateway == config_.gateways.back() ? std::move(snapshot) : snapshot});
  changed_ = residency_changed_ = false;
  next_report_ = now + config_.status_interval;
}

}  // namespace shoal
