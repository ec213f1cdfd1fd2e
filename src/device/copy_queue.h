// Copies of a device that the host's processor does, on a thread of their own.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "device/device.h"

namespace shoal {

class CopyQueue {
 public:
  // Where the host finds an address.
  using Locate = std::byte* (*)(DeviceAddress);

  explicit CopyQueue(Locate locate);
  ~CopyQueue() { end(); }

  // As Device's copy(), give_way() and end_copies().
  void start(CopyJob job);
  void give_way() const;
  void end();

 private:
  void work();
  std::optional<CopyJob> next(CopyLane last_lane, bool wait);
  void run(const CopyJob& job);
  bool overtaken(CopyLane lane) const;

  const Locate locate_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::array<std::deque<CopyJob>, kCopyLanes> waiting_;
  std::atomic<bool> ended_{false};
  std::array<std::atomic<int>, kCopyLanes> left_{};  // jobs, begun or not
  std::thread thread_;
};

}  // namespace shoal
