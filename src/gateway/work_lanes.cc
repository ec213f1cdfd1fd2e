#include "gateway/work_lanes.h"

#include <sys/resource.h>

#include <algorithm>

#include "boost/asio/post.hpp"

namespace shoal {
namespace {

constexpr int kNicePerLane = 5;

}  // namespace

WorkLanes::WorkLanes(uint32_t threads) {
  for (size_t i = 0; i < lanes_.size(); ++i) {
    const bool large = i >= kLargeFrom;
    lanes_[i] = std::make_unique<boost::asio::thread_pool>(large ? 1 : threads);
    if (!large) continue;
    // The lane's one thread runs this first. On Linux each thread has a priority of its own.
    boost::asio::post(*lanes_[i], [i] {
      (void)::setpriority(PRIO_PROCESS, 0, ::getpriority(PRIO_PROCESS, 0) + kNicePerLane * static_cast<int>(i));
    });
  }
}

boost::asio::thread_pool& WorkLanes::lane(uint64_t body_bytes) {
  const auto fits = std::find_if(kBodyBytesMax.begin(), kBodyBytesMax.end(), [&](uint64_t max) { return body_bytes <= max; });
  return *lanes_[static_cast<size_t>(fits - kBodyBytesMax.begin())];
}

void WorkLanes::join() {
  for (const auto& lane : lanes_) lane->join();
}

}  // namespace shoal
