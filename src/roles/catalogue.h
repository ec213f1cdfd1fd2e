// The models of a node and the memory they share: pages of the device for weights and KV, and the host tier under it. Says
// who has what and what is free; decides nothing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "memory/block_pool.h"
#include "memory/host_tier.h"
#include "memory/page_pool.h"
#include "memory/residency.h"
#include "roles/effect.h"
#include "roles/hosted_model.h"
#include "roles/likeness.h"

namespace shoal {

// So that its requests have their turn within the wait that they allow.
void bound_ttft(PoolingSettings& settings);
Status does_not_fit_beside_pinned(const NodeModel& model);

class Catalogue {
 public:
  explicit Catalogue(const NodeConfig& config);  // which outlives it

  // REQUIRES: its id was never used here, and it fits the device alone.
  HostedModel& add(const NodeModel& facts);
  HostedModel& at(ModelId id) { return models_.at(id); }  // REQUIRES: it is there
  const HostedModel& at(ModelId id) const { return models_.at(id); }
  HostedModel* find(ModelId id);  // null if it is not served
  const HostedModel* find(ModelId id) const;
  std::map<ModelId, HostedModel>& all() { return models_; }
  const std::map<ModelId, HostedModel>& all() const { return models_; }

  // The active ones have work, hold or want something: all that a decision looks at.
  const std::map<ModelId, HostedModel&>& active() const { return active_; }
  bool any_active(const std::function<bool(const HostedModel&)>& holds) const {
    return std::any_of(active_.begin(), active_.end(), [&](const auto& entry) { return holds(entry.second); });
  }
  void activate(HostedModel& model) { active_.emplace(model.facts.model, model); }
  // Those that hold and want nothing and for which `keep` is false are not active any more; retired ones of them are
  // removed, and returned.
  std::vector<ModelId> deactivate_unless(const std::function<bool(const HostedModel&)>& keep);

  Likeness& likeness() { return likeness_; }
  const Likeness& likeness() const { return likeness_; }

  bool resident(const HostedModel& model) const { return state(model) == WeightsState::kOnDevice; }
  bool away(const HostedModel& model) const { return state(model) == WeightsState::kOnDisk; }
  WeightsState state(const HostedModel& model) const { return residency_.state(model.facts.model); }
  uint32_t weight_pages(const HostedModel& model) const { return residency_.weight_pages(model.facts.model); }
  // Pages that it needs to compute anything, whatever comes: its weights, and KV of its longest sequence.
  uint64_t pages_needed(const HostedModel& model) const { return uint64_t{weight_pages(model)} + model.kv_pages; }
  // Of its weights, what a switch to it copies, 0..1: of one that is away as it is now, else as it used to be.
  double copied_share(const HostedModel& model) const;
  uint64_t pages_pinned() const;  // weights of pinned models that are on the device, or on their way
  bool fits_beside_pinned(const HostedModel& model) const { return fits_beside_pinned(model, pages_pinned()); }
  bool fits_beside_pinned(const HostedModel& model, uint64_t pages_pinned) const;
  // From above: each cached block may have a slab to itself, or share one with a busy block. What is missing shows when
  // the load cannot begin.
  uint32_t idle_kv_pages(const HostedModel& model) const;
  uint32_t pages_coming() const;      // about: free when the copies under way are done
  uint64_t pages_reserved() const;    // that the resident models are about to write: a slab each, and one for every so many answers
  uint32_t pages_spoken_for() const;  // of these, what they lack for their very next tokens, unless their turn is over

  // Its weights leave the device; its next load may adopt them. REQUIRES: resident.
  void drop(HostedModel& model);

  PagePool& pages() { return pages_; }
  const PagePool& pages() const { return pages_; }
  HostTier& host_tier() { return host_tier_; }
  const HostTier& host_tier() const { return host_tier_; }
  Residency& residency() { return residency_; }
  const Residency& residency() const { return residency_; }
  const std::map<uint64_t, std::unique_ptr<BlockPool>>& shape_classes() const { return shape_classes_; }  // by bytes per block
  void take_slab_changes(std::vector<Effect>& effects);

  // I5: weights + KV + free == device pages, and the engines hold the blocks that the pools have given out.
  // `host_blocks`: held on the host tier beside those of the engines, by bytes per block.
  void check(std::map<uint64_t, uint64_t> host_blocks) const;

 private:
  bool shares_memory() const { return config_.one_memory && config_.adopt_weights; }
  void share_memory(std::vector<Effect>& effects);
  void take_device_changes(std::vector<Effect>& effects);

  const NodeConfig& config_;
  PagePool pages_;
  HostTier host_tier_;
  Residency residency_;
  std::map<uint64_t, std::unique_ptr<BlockPool>> shape_classes_;
  std::map<ModelId, HostedModel> models_;
  std::map<ModelId, HostedModel&> active_;
  Likeness likeness_;
};

// Pages that what the resident models have on the host tier would take, but for those whose turn is over.
uint64_t pages_to_return(const Catalogue& catalogue);

}  // namespace shoal
