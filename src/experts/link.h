// A connected server as the client's side has it: its slots, what it holds, how long it usually takes.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/time.h"
#include "experts/channel.h"
#include "experts/handshake.h"
#include "slots/slot.h"

namespace shoal {

// Round trips of requests with about as many rows: the last 64, for their percentiles. Written by one thread, read by any.
class RoundTrips {
 public:
  void add(uint32_t rows, Duration took);
  // After this long an answer is late; `first` until eight are known of that size.
  Duration timeout(uint32_t rows, Duration min, Duration first) const;
  // Of requests of few rows.
  double percentile(double q) const;

 private:
  static constexpr size_t kKept = 64, kSizes = 12;
  struct Size {
    std::array<std::atomic<int64_t>, kKept> took{};
    std::atomic<uint64_t> count{0};
    std::atomic<int64_t> p99{0};  // of the last ones, renewed now and then
  };
  static size_t size_of(uint32_t rows);
  static int64_t percentile_of(const Size& size, double q);
  std::array<Size, kSizes> sizes_;
};

// What a server holds, as it said last. Any thread.
class HeldExperts {
 public:
  std::shared_ptr<const ExpertSet> get() const {
    std::lock_guard lock(mutex_);
    return set_;
  }
  void set(ExpertSet set) {
    std::lock_guard lock(mutex_);
    set_ = std::make_shared<const ExpertSet>(std::move(set));
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const ExpertSet> set_;
};

struct ExpertLink {
  std::string name, address;
  ExpertWelcome welcome;
  uint32_t hidden = 0;
  std::unique_ptr<SlotChannel> channel;
  std::vector<ClientSlot> slots;          // by lane; of the thread that polls
  std::vector<uint32_t> busy;             // rows that are on their way, by lane; likewise
  RoundTrips trips;
  std::atomic<uint64_t> requests{0};
  std::atomic<bool> suspected{false};     // it let a request time out, and has not answered since
  std::atomic<int64_t> suspected_ns{0};   // since

  bool usable() const { return !channel->broken() && !suspected.load(); }
  bool idle(uint32_t lane) const { return slots[lane].state() == ClientSlot::State::kIdle; }
  std::shared_ptr<const ExpertSet> holds() const { return held->get(); }

  // Shared with the channel's notes, which must not keep a link alive: it would end on its own thread.
  const std::shared_ptr<HeldExperts> held = std::make_shared<HeldExperts>();
};

// A request of no rows through every lane, answered: the connection works both ways. Before anybody else uses the link.
Status probe(ExpertLink& link, Duration most);

}  // namespace shoal
