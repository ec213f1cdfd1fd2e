// The models of a node: which it has, under which settings, and which of them a decision looks at.
#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "roles/node.h"

namespace shoal {
namespace {

// So that its requests have their turn within the wait that they allow.
void bound_ttft(PoolingSettings& settings) { settings.slo.ttft = std::min(settings.slo.ttft, settings.max_wait); }

}  // namespace

void Node::host_model(const NodeModel& facts) {
  CHECK_LE(uint64_t{weight_pages(facts)} + kv_pages_min(facts), uint64_t{config_.pages});
  std::unique_ptr<BlockPool>& blocks = shape_classes_[facts.kv_block_bytes];
  if (blocks == nullptr) blocks = std::make_unique<BlockPool>(pages_, facts.kv_block_bytes);
  EngineConfig engine;
  engine.limits = config_.limits;
  engine.waiting_max = config_.waiting_max;
  engine.max_model_len = facts.max_model_len;
  engine.vocab_size = facts.vocab_size;
  engine.prefix_cache = config_.prefix_cache;
  engine.kv_salt_above = facts.kv_salt_above;
  Hosted& hosted = models_[facts.model];
  hosted.facts = facts;
  bound_ttft(hosted.facts.pooling);
  hosted.blocks = blocks.get();
  hosted.kv_pages = kv_pages_min(facts);
  hosted.pinned = facts.pooling.pinned;
  hosted.engine = std::make_unique<Engine>(*blocks, engine, host_.blocks(facts.kv_block_bytes));
  residency_.add_model(facts.model, weight_pages(facts));
  hosted.costs = facts.costs;
  if (hosted.pinned) wake(hosted);
  changed_ = residency_changed_ = true;
}

void Node::on_model_retired(const ModelRetired& event) {
  const auto found = models_.find(event.model);
  if (found == models_.end()) return;
  Hosted& hosted = found->second;
  hosted.retired = hosted.unload_asked = true;  // a load under way is called off
  hosted.pinned = hosted.asked = false;
  wake(hosted);
  changed_ = residency_changed_ = true;
}

const NodeModel* Node::model(ModelId id) const {
  const auto found = models_.find(id);
  return found == models_.end() ? nullptr : &found->second.facts;
}

std::map<ModelId, ModelEstimator> Node::costs() const {
  std::map<ModelId, ModelEstimator> out;
  for (const auto& [id, hosted] : models_) out.emplace(id, hosted.costs);
  return out;
}

void Node::wake(Hosted& hosted) { awake_.emplace(hosted.facts.model, hosted); }

// Whoever has nothing to do, wants nothing and holds nothing is not looked at again until somebody asks for it.
void Node::let_sleep(TimePoint now, std::vector<Effect>& effects) {
  std::vector<ModelId> gone;
  std::erase_if(awake_, [&](const auto& entry) {
    Hosted& hosted = entry.second;
    if (hosted.retired && !hosted.engine->has_work()) hosted.engine->drop_cached();
    const Engine& engine = *hosted.engine;
    const bool holds = residency_.state(entry.first) != WeightsState::kOnDisk || engine.blocks_cached() > 0 || engine.parking().host_blocks_held() > 0;
    const bool wants = hosted.pinned || hosted.asked || hosted.wanted_since != kForever || hosted.stalled_since != kForever;
    const bool offers = hosted.retired && std::any_of(offers_.begin(), offers_.end(), [&](const auto& o) { return o.second.model == entry.first; });
    const bool sleeps = !holds && !wants && !offers && !engine.has_work() && engine.parking().moves() == 0 && (!pressure_ || pressure_->model != entry.first);
    if (sleeps && hosted.retired) gone.push_back(entry.first);
    return sleeps;
  });
  for (const ModelId id : gone) {
    switches_.abandoned(id);
    residency_.remove_model(id);
    models_.erase(id);
    changed_ = residency_changed_ = true;
  }
  if (gone.empty() || config_.scheduling != Scheduling::kStatic) return;
  choose_static();
  effects.push_back(WakeAt{now});  // one that was left out may have its place
}

// Those that fit together, each with the KV of its longest sequence: who was chosen before, then pinned ones, then in the
// order of their ids.
void Node::choose_static() {
  if (config_.scheduling != Scheduling::kStatic) return;
  uint64_t pages = 0;
  const auto needed = [](const NodeModel& facts) { return uint64_t{weight_pages(facts)} + kv_pages_min(facts); };
  for (const auto& [id, hosted] : models_) pages += hosted.chosen ? needed(hosted.facts) : 0;
  for (const bool pinned : {true, false}) {
    for (auto& [id, hosted] : models_) {
      const NodeModel& facts = hosted.facts;
      if (hosted.chosen || hosted.retired || facts.pooling.pinned != pinned) continue;
      hosted.chosen = hosted.pinned = pages + needed(facts) <= pages_.capacity();
      changed_ = true;
      if (hosted.chosen) {
        pages += needed(facts);
        hosted.excluded = OkStatus();
        hosted.load_error.clear();
        wake(hosted);
        continue;
      }
      hosted.excluded = resource_exhausted("model '", facts.name, "' is not served: with static scheduling only models that fit the device together "
                                           "are; raise --device-memory, serve fewer models, or choose --scheduling token");
      hosted.load_error = std::string(hosted.excluded.message());
    }
  }
}

void Node::on_set_resident(const SetResident& message, TimePoint now) {
  const auto found = models_.find(message.model);
  if (found == models_.end() || !found->second.excluded.ok()) return;
  wake(found->second);
  found->second.asked = message.resident && !resident(found->second);
  if (!message.resident) found->second.pinned = false;
  if (message.resident && found->second.wanted_since == kForever) found->second.wanted_since = now;
  if (!message.resident) found->second.unload_asked = true;
  changed_ = true;
}

void Node::on_configure(const Configure& message) {
  const auto found = models_.find(message.model);
  if (found == models_.end()) return;
  Hosted& hosted = found->second;
  PoolingSettings& settings = hosted.facts.pooling;
  // What an operator unpinned by hand stays so until the settings say something new.
  if (settings.pinned != message.settings.pinned && config_.scheduling != Scheduling::kStatic) hosted.pinned = message.settings.pinned;
  settings = message.settings;
  bound_ttft(settings);
  wake(hosted);
  changed_ = true;
}

}  // namespace shoal
