#include "host/page_filler.h"

#include <chrono>
#include <utility>

namespace shoal {
namespace {

constexpr auto kBusyWait = std::chrono::milliseconds(20);  // after a page: one takes 0.2-1 ms of a core, tens where the host of a virtual machine lacks it, which the step that touched it first would take
constexpr auto kIdleWait = std::chrono::milliseconds(200);  // more is wanted only after a load

}  // namespace

PageFiller::PageFiller(Device& device, uint32_t ahead, std::function<bool()> busy)
    : device_(device), ahead_(ahead), busy_(std::move(busy)), thread_([this] { work(); }) {}

PageFiller::~PageFiller() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_one();
  thread_.join();
}

void PageFiller::work() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    const bool busy = busy_();
    const bool filled = device_.populate(busy ? ahead_ / 4 : ahead_);
    lock.lock();
    if (busy || !filled) stop_.wait_for(lock, busy ? kBusyWait : kIdleWait, [this] { return stopping_; });
  }
}

}  // namespace shoal
