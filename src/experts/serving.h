// What a server's thread does: looks into the slots of all clients, forms batches, computes them, answers. One thread; what it did is read
// by others.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "device/thread_pool.h"
#include "experts/busy_share.h"
#include "experts/channel.h"
#include "experts/handshake.h"
#include "experts/holdings.h"
#include "experts/relay.h"
#include "slots/slot.h"

namespace shoal {

// What a client said of itself last. Any thread.
class LastOverlap {
 public:
  void said(const ExpertOverlap& overlap, TimePoint now);
  ExpertOverlap lately(TimePoint now) const;  // of no lanes: it has said nothing for a while

 private:
  mutable std::mutex mutex_;
  ExpertOverlap overlap_;
  TimePoint at_{};
};

// A connected client.
struct ExpertClientSide {
  LastOverlap overlap;                // its channel's notes come there, so it outlives that
  uint64_t id = 0;
  size_t model = 0;
  ExpertHello hello;
  std::unique_ptr<SlotChannel> channel;
  std::unique_ptr<ExpertRelay> relay; // to the servers of this machine, for what it asks over the network; null: there are no others
  std::vector<std::string> told_relays;  // servers that it was told it reaches that way; of the thread that tidies up
  std::vector<ServerSlot> slots;      // of the serving thread, as the next
  std::vector<size_t> answer_bytes;   // by lane, of the last answer
  std::atomic<uint64_t> requests{0};
  std::atomic<bool> left{false};      // it said so
  SlotChannel::OnNote hears();        // for its channel
  uint32_t welcomed_at = 0;           // the version of what is held that it was welcomed with
};

// What was done, since the start.
struct ServingCounts {
  uint64_t requests = 0, rows = 0, batches = 0, active = 0;  // active: distinct experts, summed over batches
  uint64_t relayed = 0;      // requests that were given to others of this machine
  uint64_t refused = 0;      // requests, for whatever reason
  uint64_t damaged = 0;      // looks at a torn slot
  double busy_seconds = 0;
  double busy = 0;           // share of the last seconds
};

class Serving {
 public:
  // Both outlive it. `bell` is rung when something comes.
  Serving(const ExpertServerConfig& config, const Holdings& holdings, std::shared_ptr<Bell> bell);
  ~Serving();

  void add(std::shared_ptr<ExpertClientSide> client);  // any thread, as the next ones
  std::vector<std::shared_ptr<ExpertClientSide>> clients() const;
  // Those whose connection ended, which the thread does not touch any more.
  std::vector<std::shared_ptr<ExpertClientSide>> take_ended();
  ServingCounts counts() const;
  std::vector<std::vector<uint64_t>> rows_by_expert() const;  // of each model, since it began
  // Mean seconds of a batch by powers of two of rows and of distinct experts: {rows, active, seconds, batches}.
  struct Timed {
    uint32_t rows, active;
    double seconds;
    uint64_t batches;
  };
  std::vector<Timed> table() const;

 private:
  struct Request {
    ExpertClientSide* client;
    uint32_t lane;
    RequestView view;
    TimePoint since;
  };

  void run();
  void refresh();
  bool look(TimePoint now);
  void look_at(ExpertClientSide& client, uint32_t lane, TimePoint now);
  void take(ExpertClientSide& client, uint32_t lane, RequestView view, TimePoint now);
  bool hear_relay(ExpertClientSide& client);
  Duration doze();
  void rest(bool found, TimePoint until);
  void serve(std::vector<Request> batch);
  void compute(size_t model, std::span<Request> requests, const Holdings::Snapshot& held, TimePoint begun);
  void answer(ExpertClientSide& client, uint32_t lane, const RequestHead& of, ResponseHead head, std::span<const float> outputs);
  void refuse(ExpertClientSide& client, uint32_t lane, const RequestHead& of, SlotStatus status);
  Duration expected_service() const;
  bool is_held(const RequestView& view, std::span<const std::shared_ptr<const HeldExpert>> experts, uint32_t per_layer) const;
  std::vector<Request*> held_here(std::span<Request> requests, std::span<const std::shared_ptr<const HeldExpert>> experts, uint32_t per_layer);
  void scatter(std::span<Request* const> served, std::span<const uint32_t> places, std::span<const float> out, uint32_t rows, TimePoint begun, Duration took);
  void note_batch(size_t model, size_t requests, uint32_t active, std::span<const uint32_t> ends, TimePoint begun, Duration took);

  const ExpertServerConfig& config_;
  const Holdings& holdings_;
  const std::shared_ptr<Bell> bell_;
  ThreadPool threads_;
  ExpertCompute compute_;
  BatchFormer former_;
  std::vector<std::shared_ptr<ExpertClientSide>> serving_;  // of the thread
  std::vector<Request> ready_;
  TimePoint last_work_{};

  std::atomic<bool> stop_{false};
  std::atomic<bool> changed_{false};   // clients_ was
  mutable std::mutex mutex_;           // of what follows
  std::vector<std::shared_ptr<ExpertClientSide>> clients_, ended_;
  ServingCounts counts_;
  BusyShare busy_;
  std::vector<std::vector<uint64_t>> rows_by_expert_;
  std::map<std::pair<uint32_t, uint32_t>, Timed> table_;
  std::thread thread_;
};

}  // namespace shoal
