// A node for real: performs the effects of roles/node.h on one device, with its own loop thread, one compute thread
// (that drives the device's pool) and one loader thread.
#pragma once

#include <memory>

#include "base/status.h"
#include "host/node_plan.h"
#include "transport/loopback.h"

namespace shoal {

class NodeHost {
 public:
  // Reserves the device memory and starts the threads; no model is loaded yet.
  static StatusOr<std::unique_ptr<NodeHost>> start(NodePlan plan, LoopbackNetwork& network);
  virtual ~NodeHost() = default;  // stops the threads; work in flight is abandoned

  // Seconds since the last step ended while work is queued; 0 when idle. Health means progress.
  virtual double stalled_seconds() const = 0;
};

}  // namespace shoal
