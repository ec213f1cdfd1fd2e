// The thread of a role: pops events, hands them on one after the other, and ticks when the role asked to be woken. Time
// stands still within one turn.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/queue.h"
#include "base/time.h"

namespace shoal {

template <typename Event>
class EventLoop {
 public:
  using OnEvent = std::function<void(Event event, TimePoint now)>;
  using OnTick = std::function<void(TimePoint now)>;

  explicit EventLoop(size_t refusable_max) : events_(refusable_max) {}
  ~EventLoop() { stop(); }

  // Both run on the thread. The first tick is due at once.
  void start(OnEvent on_event, OnTick on_tick) {
    thread_ = std::thread([this, on_event = std::move(on_event), on_tick = std::move(on_tick)] { work(on_event, on_tick); });
  }
  // What was pushed is handled, then the thread ends. Called by the thread that called start().
  void stop() {
    events_.close();
    if (thread_.joinable()) thread_.join();
  }

  // Completions and commands of this process: never refused. Any thread.
  void push(Event event) { events_.push(std::move(event)); }

  // A tick at this instant, unless one is due before. From within on_event and on_tick only.
  void wake_at(TimePoint at) { wake_ = std::min(wake_, at); }

 private:
  void work(const OnEvent& on_event, const OnTick& on_tick) {
    while (true) {
      const Duration wait = std::clamp<Duration>(wake_ - steady_now(), Duration(0), std::chrono::seconds(1));
      std::optional<Event> event = events_.pop(wait);
      if (!event && events_.closed()) return;
      const TimePoint now = steady_now();
      if (event) on_event(*std::move(event), now);
      if (now < wake_) continue;
      wake_ = kForever;
      on_tick(now);
    }
  }

  BoundedQueue<Event> events_;
  TimePoint wake_{};
  std::thread thread_;
};

}  // namespace shoal
