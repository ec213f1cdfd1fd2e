// Static scheduling: which models are served at all, because they fit the device together. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"

namespace shoal {

struct StaticView {
  ModelId model;
  uint64_t pages = 0;    // weights, and KV of its longest sequence
  bool chosen = false;   // before: it stays
  bool retired = false;  // takes no new requests; never chosen anew
  bool pinned = false;
};

// Those chosen beside who was before: pinned ones first, then in the order of `models`, each if it still fits.
std::vector<ModelId> choose_static(std::span<const StaticView> models, uint64_t pages);

}  // namespace shoal
