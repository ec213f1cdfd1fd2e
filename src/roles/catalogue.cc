#include "roles/catalogue.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"

namespace shoal {

void bound_ttft(PoolingSettings& settings) { settings.slo.ttft = std::min(settings.slo.ttft, settings.max_wait); }

Status does_not_fit_beside_pinned(const NodeModel& model) {
  return resource_exhausted("model '", model.name, "' does not fit the device beside the models pinned to it; "
                            "unload one of them, or raise --device-memory");
}

namespace {

// A host tier that was used for more than one page in so many, and is empty, gives its memory back: to touch it anew takes time.
constexpr uint32_t kReturnOneIn = 4;

// States that the prefix index may keep: in an eighth of the device's memory, four at least.
uint32_t states_kept_max(const NodeModel& model, uint32_t pages) {
  const uint64_t bytes = uint64_t{model.state_blocks} * model.kv_block_bytes;
  return static_cast<uint32_t>(std::clamp<uint64_t>(pages * kPageBytes / 8 / bytes, 4, 1024));
}

}  // namespace

Catalogue::Catalogue(const NodeConfig& config) : config_(config), pages_(config.pages, shares_memory() ? config.host_pages : 0), host_tier_(config.host_pages), residency_(pages_) {
  for (const NodeModel& facts : config.models) add(facts);
}

HostedModel& Catalogue::add(const NodeModel& facts) {
  CHECK_LE(uint64_t{shoal::weight_pages(facts)} + kv_pages_min(facts), uint64_t{config_.pages});
  std::unique_ptr<BlockPool>& blocks = shape_classes_[facts.kv_block_bytes];
  if (blocks == nullptr) blocks = std::make_unique<BlockPool>(pages_, facts.kv_block_bytes);
  EngineConfig engine;
  engine.limits = config_.limits;
  engine.waiting_max = config_.waiting_max;
  engine.max_model_len = facts.max_model_len;
  engine.vocab_size = facts.vocab_size;
  engine.prefix_cache = config_.prefix_cache;
  engine.kv_salt_above = facts.kv_salt_above;
  engine.state_blocks = facts.state_blocks;
  if (facts.state_blocks > 0) engine.states_kept_max = states_kept_max(facts, config_.pages);
  HostedModel& hosted = models_[facts.model];
  hosted.facts = facts;
  bound_ttft(hosted.facts.pooling);
  hosted.blocks = blocks.get();
  hosted.kv_pages = kv_pages_min(facts);
  hosted.pinned = facts.pooling.pinned;
  hosted.engine = std::make_unique<Engine>(*blocks, engine, host_tier_.blocks(facts.kv_block_bytes));
  hosted.costs = facts.costs;
  residency_.add_model(facts.model, shoal::weight_pages(facts));
  if (hosted.pinned) activate(hosted);
  return hosted;
}

HostedModel* Catalogue::find(ModelId id) {
  const auto found = models_.find(id);
  return found == models_.end() ? nullptr : &found->second;
}

const HostedModel* Catalogue::find(ModelId id) const { return const_cast<Catalogue*>(this)->find(id); }

std::vector<ModelId> Catalogue::deactivate_unless(const std::function<bool(const HostedModel&)>& keep) {
  std::vector<ModelId> gone;
  std::erase_if(active_, [&](const auto& entry) {
    const HostedModel& hosted = entry.second;
    if (hosted.retired && !hosted.engine->has_work()) hosted.engine->drop_cached();
    const Engine& engine = *hosted.engine;
    const bool holds = !away(hosted) || engine.blocks_cached() > 0 || engine.parking().host_blocks_held() > 0;
    const bool wants = for_later(hosted) || hosted.wanted_since != kForever || hosted.stalled_since != kForever;
    const bool idle = !holds && !wants && !engine.has_work() && engine.parking().moves() == 0 && !keep(hosted);
    if (idle && hosted.retired) gone.push_back(entry.first);
    return idle;
  });
  for (const ModelId id : gone) {
    residency_.remove_model(id);
    models_.erase(id);
  }
  return gone;
}

uint64_t Catalogue::pages_pinned() const {
  uint64_t pages = 0;
  for (const auto& [id, hosted] : active_) pages += hosted.pinned && !away(hosted) ? weight_pages(hosted) : 0;
  return pages;
}

bool Catalogue::fits_beside_pinned(const HostedModel& model, uint64_t pages_pinned) const {
  const uint64_t own = model.pinned && !away(model) ? weight_pages(model) : 0;
  return pages_needed(model) + pages_pinned - own <= pages_.capacity();
}

void Catalogue::drop(HostedModel& model) {
  if (!config_.adopt_weights) residency_.set_whole(model.facts.model, {});
  residency_.drop(model.facts.model);
  residency_.set_awaited(model.facts.model, model.engine->has_work());
}

double Catalogue::copied_share(const HostedModel& model) const {
  if (!away(model)) return model.copied.count == 0 ? 1 : model.copied.value;
  return static_cast<double>(residency_.pages_missing(model.facts.model)) / std::max(weight_pages(model), 1u);
}

uint32_t Catalogue::idle_kv_pages(const HostedModel& model) const {
  if (model.engine->step_in_flight()) return 0;
  const uint32_t slabs = std::min(model.engine->blocks_cached(), model.blocks->slabs_bound());
  return slabs * slab_pages_for(model.facts.kv_block_bytes);
}

uint32_t Catalogue::pages_coming() const {
  uint64_t pages = 0;
  for (const auto& [id, hosted] : active_) {  // about: blocks on their way share slabs with others
    pages += div_up(hosted.engine->parking().blocks_leaving(), hosted.blocks->blocks_per_slab()) * slab_pages_for(hosted.facts.kv_block_bytes);
  }
  return static_cast<uint32_t>(pages);
}

uint64_t Catalogue::pages_reserved() const {
  uint64_t pages = 0;
  for (const auto& [id, hosted] : active_) {
    if (!resident(hosted) || !hosted.engine->has_work()) continue;
    pages += slab_pages_for(hosted.facts.kv_block_bytes) * (1 + div_up(hosted.engine->running(), hosted.blocks->blocks_per_slab()));
  }
  return pages;
}

uint32_t Catalogue::pages_spoken_for() const {
  uint64_t pages = 0;
  for (const auto& [id, hosted] : active_) {
    if (!resident(hosted) || hosted.turn.over()) continue;
    const uint64_t wanted = hosted.engine->blocks_wanted(), there = uint64_t{hosted.engine->blocks_cached()} + hosted.blocks->free_in_slabs();
    if (wanted > there) pages += div_up(wanted - there, hosted.blocks->blocks_per_slab()) * slab_pages_for(hosted.facts.kv_block_bytes);
  }
  return static_cast<uint32_t>(pages);
}

void Catalogue::take_slab_changes(std::vector<Effect>& effects) {
  take_device_changes(effects);
  share_memory(effects);
  if (RemapSlabs host{host_tier_.take_changes(), Tier::kHost}; !host.changes.empty()) effects.push_back(std::move(host));
  const uint32_t reached = host_tier_.pages_reached();
  if (!shares_memory() || host_tier_.pages_free() < host_tier_.pages() || reached * kReturnOneIn <= host_tier_.pages()) return;
  host_tier_.forget_reached();
  effects.push_back(ReturnPages{{{PageId(0), reached}}, Tier::kHost});
  share_memory(effects);
}

// What the host tier has not touched is for weights that stand by; what it is about to touch they give up before.
void Catalogue::share_memory(std::vector<Effect>& effects) {
  if (!shares_memory()) return;
  ReturnPages returned{pages_.set_spare(host_tier_.pages() - host_tier_.pages_reached())};
  if (!returned.pages.empty()) effects.push_back(std::move(returned));
}

void Catalogue::take_device_changes(std::vector<Effect>& effects) {
  RemapSlabs remap;
  for (auto& [bytes, blocks] : shape_classes_) {
    for (SlabChange& change : blocks->take_changes()) remap.changes.push_back(std::move(change));
  }
  if (remap.changes.empty()) return;
  // Pages given back by one class may have gone to another: releases first, they never depend on what is bound here.
  std::stable_partition(remap.changes.begin(), remap.changes.end(), [](const SlabChange& c) { return !c.bound; });
  effects.push_back(std::move(remap));
}

void Catalogue::check(std::map<uint64_t, uint64_t> host_blocks) const {
  pages_.check();
  residency_.check();
  host_tier_.check();
  uint64_t kv_pages = 0;
  for (const auto& [bytes, blocks] : shape_classes_) {
    blocks->check();
    kv_pages += blocks->pages_bound();
  }
  CHECK_EQ(kv_pages + residency_.pages_held() + pages_.free(), uint64_t{pages_.capacity()});
  std::map<uint64_t, uint64_t> held;  // by shape class, as the engines count them
  for (const auto& [id, hosted] : models_) {
    const Engine& engine = *hosted.engine;
    engine.check();
    const uint64_t blocks = engine.blocks_active() + engine.blocks_cached();
    CHECK(active_.contains(id) || (!engine.has_work() && blocks == 0));
    held[hosted.facts.kv_block_bytes] += blocks;
    host_blocks[hosted.facts.kv_block_bytes] += engine.parking().host_blocks_held();
  }
  for (const auto& [bytes, blocks] : host_blocks) CHECK_EQ(blocks, uint64_t{host_tier_.blocks_used(bytes)});
  for (const auto& [bytes, blocks] : shape_classes_) CHECK_EQ(held[bytes], uint64_t{blocks->used()});
}

uint64_t pages_to_return(const Catalogue& catalogue) {
  uint64_t pages = 0;
  for (const auto& [id, hosted] : catalogue.active()) {
    if (!catalogue.resident(hosted) || hosted.turn.over() || !hosted.engine->parking().any_parked()) continue;
    pages += slab_pages_for(hosted.facts.kv_block_bytes) * div_up(hosted.engine->parking().host_blocks_held(), hosted.blocks->blocks_per_slab());
  }
  return pages;
}

}  // namespace shoal
