// The host tier of weights: raw bytes of model files that direct reads brought in, in huge pages, so that a second load
// reads nothing from disk. (With mapped files the system's cache is that tier, and this one is not used.)
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "base/ids.h"
#include "base/status.h"
#include "device/host_pages.h"
#include "formats/weight_source.h"
#include "memory/weight_tier.h"

namespace shoal {

// Used by one thread, for one model at a time.
class WeightCache {
 public:
  // Reserves address space of so many bytes, whole pages of them; memory is taken as it is filled.
  static StatusOr<std::unique_ptr<WeightCache>> make(uint64_t bytes);
  ~WeightCache();

  // What is kept of this model, to be handed to its load; counts as a use. Null without a budget. Valid until the next call.
  KeptWeights* use(ModelId model);
  // Reading so many bytes for it took so long: what they are worth.
  void measured(ModelId model, uint64_t bytes, double seconds);

 private:
  struct Kept {
    KeptWeights weights;
    double seconds_per_byte = 0;  // to read it again
  };
  WeightCache(std::unique_ptr<HostPages> memory, uint32_t pages) : memory_(std::move(memory)), tier_(pages) {}
  std::span<std::byte> make_room(ModelId model, uint64_t bytes);
  void forget(ModelId model);

  const std::unique_ptr<HostPages> memory_;
  WeightTier tier_;
  std::map<ModelId, Kept> kept_;
};

}  // namespace shoal
