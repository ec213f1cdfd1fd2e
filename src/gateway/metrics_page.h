// The families of the metrics page that nobody counts: read from what the nodes report, when the page is made.
#pragma once

#include <functional>
#include <vector>

#include "gateway/catalog.h"
#include "gateway/router_loop.h"
#include "gateway/timeline.h"
#include "policy/slo.h"
#include "prometheus/metric_family.h"

namespace shoal {

// What the page is made of.
struct MetricsView {
  const std::vector<ModelRef>& models;
  const RouterSnapshot& nodes;
  size_t live_requests = 0;     // choices accepted by the router and not ended
  const NodeTimeline& timeline;
};

using AttainmentOf = std::function<Attainment(const ModelEntry&)>;

// Appends them to `out`, in the order of the page.
void add_reported_families(const MetricsView& view, const AttainmentOf& attainment, std::vector<prometheus::MetricFamily>& out);

}  // namespace shoal
