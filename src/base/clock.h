// The real clock. May be included by device, host, gateway, cluster, transport_grpc, transport_ucx, apps and bench only (tools/tidy.py checks).
#pragma once

#include "base/time.h"

namespace shoal {

inline TimePoint steady_now() {
  return TimePoint(std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch()));
}

}  // namespace shoal
