// Touches memory of a device before it is wanted: as fast as it goes while nothing is to be done, a page at a time while the node computes and little is
// ready. A request whose KV or state lies in fresh memory otherwise waits in its first step for the pages to be cleared.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

#include "device/device.h"

namespace shoal {

class PageFiller {
 public:
  // Keeps `ahead` pages beyond those ever used ready, or none; a quarter of them while the node computes (`busy`), which has one core less meanwhile.
  // `busy` is called from a thread of its own, now and then. `device` outlives it.
  PageFiller(Device& device, uint32_t ahead, std::function<bool()> busy);
  ~PageFiller();  // within milliseconds

 private:
  void work();

  Device& device_;
  const uint32_t ahead_;
  const std::function<bool()> busy_;
  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace shoal
