// What `shoal top` shows, as JSON: models and nodes as they are now, with counters whose differences are rates.
#pragma once

#include "base/json.h"
#include "base/time.h"
#include "gateway/catalog.h"
#include "gateway/metrics.h"
#include "gateway/router_loop.h"

namespace shoal {

// {"time": seconds of a steady clock, "models": [...], "nodes": [...], "requests": ..}.
Json status_json(const Catalog& catalog, RouterLoop& loop, const Metrics& metrics, TimePoint now);

// The place of a model among those that wait for a device, 1 is the next; 0: it does not wait.
size_t place_in_line(ModelId model, const RouterSnapshot& nodes);

}  // namespace shoal
