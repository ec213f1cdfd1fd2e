// The HTTP side of `serve` and `gateway`: clients' endpoint, operator's listeners, reload and shutdown, in front of a router.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "apps/expert_fleet.h"
#include "apps/serve_flags.h"
#include "gateway/catalog.h"
#include "gateway/http_server.h"
#include "gateway/router_loop.h"

namespace shoal {

class Front {
 public:
  // All outlive the front.
  struct Parts {
    Catalog& catalog;
    RouterLoop& router;
    std::function<double()> stalled_seconds;
    std::optional<ExpertFleet> experts;  // none: none are elsewhere
    std::function<StatusOr<Json>()> reload;  // reads settings and models again: what changed, or why nothing did
  };

  // Listens. REQUIRES: stop and reload signals are blocked.
  static StatusOr<std::unique_ptr<Front>> start(const ServeFlags& flags, Parts parts);
  virtual ~Front() = default;

  virtual const HttpServer& server() const = 0;
  // Serves until a signal, or the operator, ends it; then drains. SIGHUP reloads.
  virtual void run() = 0;
};

}  // namespace shoal
