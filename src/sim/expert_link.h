// One client's connection to one expert server: the memory of both halves of every lane, and the writes that are under way.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "base/rng.h"
#include "policy/expert_calls.h"
#include "sim/event_heap.h"
#include "sim/expert_setup.h"
#include "slots/slot.h"

namespace shoal {

// What the parts of a world of experts share.
struct ExpertWorldState {
  explicit ExpertWorldState(const ExpertWorldSetup& s) : setup(s), rng(s.seed) {}
  void after(double seconds, EventHeap::Act act, bool work = true) { heap.at(now + from_seconds(seconds), std::move(act), work); }
  double seconds() const { return to_seconds(now.time_since_epoch()); }
  void note(uint64_t a, uint64_t b, uint64_t c) {
    outcome.trace_hash = mix64(outcome.trace_hash ^ mix64(a ^ mix64(b ^ mix64(c ^ static_cast<uint64_t>(now.time_since_epoch().count())))));
  }
  void violate(std::string what);

  const ExpertWorldSetup& setup;
  TimePoint now{};
  EventHeap heap;
  Rng rng;
  ExpertWorldOutcome outcome;
};

// What an expert makes of a row of one value: exact in f32, another for every layer, expert and value.
inline float expert_value(uint32_t layer, uint32_t expert, float hidden) { return hidden * 3 + static_cast<float>(layer * 1009 + expert * 17); }

class SimExpertLink {
 public:
  struct Lane {
    ClientSlot client;
    ServerSlot server;
    std::vector<std::byte> request, response;  // as they lie in the memory of who reads them
    std::optional<ExpertAsk> under_way;        // what the client waits for
    std::deque<ExpertAsk> queue;               // behind it
    TimePoint submitted{};
  };

  SimExpertLink(ExpertWorldState& world, uint32_t client, uint32_t server) : world_(world), client_(client), server_(server), lanes_(world.setup.lanes) {}

  uint32_t client() const { return client_; }
  uint32_t server() const { return server_; }
  uint64_t life() const { return life_; }
  bool up() const { return up_; }
  Lane& lane(uint32_t lane) { return lanes_[lane]; }

  // A new epoch in fresh memory. What is still written in the one before lands nowhere.
  void connect(uint64_t client_number);
  void disconnect();

  // Writes a half: pieces, then the word. `arrived`: told at each of them, while the connection lives. A half that was begun and
  // whose writer died ends where it was: see cut_short().
  struct Leaving {
    double begins = 0, takes = 0;  // seconds from now; on the way
  };
  void write(bool to_server, uint32_t lane, std::vector<std::byte> half, uint64_t word, const Leaving& leaving, std::function<void()> arrived);
  // The writer of one side died: what has not arrived never does.
  void cut_short(bool to_server) { ++generation_[to_server]; }

  bool lossy() const { return world_.now < lossy_until_; }
  bool cut() const { return world_.now < cut_until_; }
  void lose_until(TimePoint until) { lossy_until_ = std::max(lossy_until_, until); }
  void cut_until(TimePoint until) { cut_until_ = std::max(cut_until_, until); }
  TimePoint passable_at() const { return std::max(cut_until_, lossy_until_); }

  static uint64_t word_of(const std::vector<std::byte>& half);

 private:
  ExpertWorldState& world_;
  const uint32_t client_, server_;
  std::vector<Lane> lanes_;
  uint64_t life_ = 0;
  uint64_t generation_[2] = {0, 0};
  uint16_t epoch_ = 0;
  bool up_ = false;
  TimePoint lossy_until_{}, cut_until_{};
};

}  // namespace shoal
