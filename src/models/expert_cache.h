// Experts of a model that is larger than its memory: those that are used most stay in slots, the others are packed from the
// mapped files when rows are routed to them. Where an expert is changes no bit of what it computes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/expert_counts.h"
#include "device/thread_pool.h"
#include "models/backend.h"
#include "models/step.h"
#include "models/weights.h"

namespace shoal {

// Used by the thread that advances passes.
class ExpertCache {
 public:
  // Slots lie in the model's memory from the layout's experts_at() on, as many as `bytes` of memory have room for.
  // REQUIRES: bytes >= least_bytes(*layout, per_layer).
  ExpertCache(std::shared_ptr<const WeightLayout> layout, uint32_t per_layer, DeviceAddress memory, uint64_t bytes, std::unique_ptr<WeightSink> sink);

  // Of a slot: the largest expert.
  static uint64_t slot_bytes(const WeightLayout& layout);
  // A model's memory with slots for the experts of one layer.
  static uint64_t least_bytes(const WeightLayout& layout, uint32_t per_layer);

  // Experts `wanted` of the layer, ascending, are in slots until the next call. `places` outlive the cache.
  void require(const ExpertPlaces& places, std::span<const uint32_t> wanted, ThreadPool& threads);
  // A matrix of expert `index` of the layer lies at this plus its place's offset. REQUIRES: it was required.
  DeviceAddress base(const ExpertPlaces& places, uint32_t index) const;

  // The next layer, once it has been seen; null otherwise.
  const ExpertPlaces* after(const ExpertPlaces& places) const;
  // These will probably be required: the system reads them from disk meanwhile.
  void expect(const ExpertPlaces& places, std::span<const uint32_t> wanted) const;

  // What lies in the slots, for a cache of the same layout in the same memory.
  ExpertSlots slots() const;
  // Experts that lie in their slots already, as far as all of their bytes are `present` in the model's memory. REQUIRES: nothing was
  // required yet.
  void adopt(const ExpertSlots& slots, std::span<const ByteRange> present);

  const ExpertCounts& counts() const { return counts_; }
  // DataLoss if what was fetched is not to be believed.
  Status check() const { return layout_->check(); }

 private:
  static constexpr uint32_t kNowhere = UINT32_MAX;
  // How much later uses count more: twice as much after so many passes through a layer.
  static constexpr double kHalfLife = 256;

  struct Slot {
    uint32_t expert = kNowhere;
    uint64_t needed_at = 0;  // the last requirement
  };
  std::vector<uint32_t> victims(uint32_t layer, size_t count) const;
  void fetch(std::span<const uint32_t> experts, ThreadPool& threads);
  double weight_now(uint32_t layer);

  const std::shared_ptr<const WeightLayout> layout_;
  const uint32_t per_layer_, layers_;
  const uint64_t slot_bytes_;
  const DeviceAddress slots_at_;
  const std::unique_ptr<WeightSink> sink_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> slot_of_;   // by expert
  std::vector<double> uses_;        // by expert, in units that grow as time goes on
  std::vector<uint64_t> passes_;    // by layer
  double scale_ = 1;                // of what uses_ holds
  std::vector<const ExpertPlaces*> seen_;  // by layer
  uint64_t requirements_ = 0;
  ExpertCounts counts_;
};

}  // namespace shoal
