// A connected server as the client's side has it: its slots, what it holds, how long it usually takes.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/time.h"
#include "experts/channel.h"
#include "experts/handshake.h"
#include "policy/expert_calls.h"
#include "slots/slot.h"

namespace shoal {

// Round trips of requests, those with about as many rows together. Written by one thread, its percentiles read by any.
class RoundTrips {
 public:
  void add(uint32_t rows, Duration took);
  // After this long an answer is late; `unknown` while little is known of that size.
  Duration timeout(uint32_t rows, Duration least, Duration unknown) const { return sizes_[size_of(rows)].timeout(least, unknown); }
  Duration hedge(uint32_t rows, Duration least) const { return sizes_[size_of(rows)].hedge(least); }
  Duration p50() const { return Duration(p50_.load()); }  // of all sizes
  Duration p99() const { return Duration(p99_.load()); }

 private:
  static constexpr size_t kSizes = 12;
  static size_t size_of(uint32_t rows);
  std::array<ExpertAnswerTimes, kSizes> sizes_;
  ExpertAnswerTimes all_;
  uint64_t count_ = 0;
  std::atomic<int64_t> p50_{0}, p99_{0};
};

// What a server holds, as it said last, by the version of that. Any thread.
class HeldExperts {
 public:
  std::shared_ptr<const ExpertSet> get() const {
    std::lock_guard lock(mutex_);
    return set_;
  }
  void set(ExpertSet set, uint32_t version) {
    std::lock_guard lock(mutex_);
    if (set_ != nullptr && static_cast<int32_t>(version - version_) < 0) return;
    set_ = std::make_shared<const ExpertSet>(std::move(set));
    version_ = version;
  }
  // The servers of its machine that it gives rows to, itself among them.
  std::vector<std::string> relays() const {
    std::lock_guard lock(mutex_);
    return relays_;
  }
  void set_relays(std::vector<std::string> names) {
    std::lock_guard lock(mutex_);
    relays_ = std::move(names);
  }
  // It said so at that version, or a later one: if it said something newer since, that counts.
  void remove(std::span<const uint32_t> indices, uint32_t version) {
    std::lock_guard lock(mutex_);
    if (static_cast<int32_t>(version - version_) < 0) return;
    ExpertSet set = *set_;
    for (const uint32_t index : indices) set.remove(index);
    set_ = std::make_shared<const ExpertSet>(std::move(set));
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const ExpertSet> set_;
  uint32_t version_ = 0;
  std::vector<std::string> relays_;
};

struct ExpertLink {
  NodeId id;                              // of this connection among all that there were
  std::string name, address;
  ExpertWelcome welcome;
  uint32_t hidden = 0;
  std::unique_ptr<SlotChannel> channel;
  std::vector<ClientSlot> slots;          // by lane; of the thread that polls
  double work = 0;                        // that it was asked for and has not answered, in rows' worth; likewise
  RoundTrips trips;
  TimePoint relays_from{};                // it is not asked to give rows to others before; of the thread that polls
  std::atomic<uint64_t> requests{0};
  std::atomic<bool> suspected{false};     // it let a request time out, and has not answered since
  std::atomic<int64_t> suspected_ns{0};   // since

  bool usable() const { return !channel->broken() && !suspected.load(); }
  bool usable(uint32_t lane) const { return usable() && slots[lane].state() != ClientSlot::State::kQuarantined; }
  bool idle(uint32_t lane) const { return slots[lane].state() == ClientSlot::State::kIdle; }
  std::shared_ptr<const ExpertSet> holds() const { return held->get(); }

  // Shared with the channel's notes, which must not keep a link alive: it would end on its own thread.
  const std::shared_ptr<HeldExperts> held = std::make_shared<HeldExperts>();
};

// A request of no rows through every lane, answered: the connection works both ways. Before anybody else uses the link.
Status probe(ExpertLink& link, Duration most);

}  // namespace shoal
