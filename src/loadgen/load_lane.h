// One thread of a run: its event loop, connections and share of the requests. Internal to loadgen.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "boost/asio/awaitable.hpp"
#include "boost/asio/io_context.hpp"
#include "boost/asio/steady_timer.hpp"
#include "loadgen/load_client.h"

namespace shoal {

// Counts to be seen from outside while a run goes on.
struct LoadCounters {
  std::atomic<uint64_t> sent{0}, completed{0}, failed{0}, tokens{0};
  std::atomic<bool> stop{false};
};

// A counting semaphore of one event loop.
class Slots {
 public:
  Slots(boost::asio::io_context& io, uint64_t count) : io_(io), free_(count) {}
  boost::asio::awaitable<void> take();  // waits for a free one, in order
  void give();
  void open_for_all();  // everybody who waits, and who will, goes through

 private:
  boost::asio::io_context& io_;
  uint64_t free_;
  bool open_ = false;
  std::deque<boost::asio::steady_timer*> waiting_;
};

// run() belongs to the lane's thread; the counters may be read from others. What is referred to outlives the lane.
class LoadLane {
 public:
  struct Share {
    std::span<const LoadRequest> requests;   // of the whole run
    std::span<RequestRecord> records;        // as requests; each lane writes its own
    uint32_t index = 0;                      // this lane's are index, index + lanes, ...
    uint32_t lanes = 1;
    uint64_t concurrency = 0;                // requests of this lane under way at most
  };
  LoadLane(const LoadSpec& spec, const Destination& destination, const WordBook& words, Share share, TimePoint begin,
           LoadCounters& counters);
  void run();  // until every request of the share has ended
  double lag_max_s() const { return lag_max_s_; }  // longest time that a request was sent after it was due

 private:
  template <typename T>
  using Task = boost::asio::awaitable<T>;
  // A request under way, so that the watch can end it.
  struct Active {
    Connection* connection = nullptr;
    TimePoint deadline;
    bool timed_out = false, interrupted = false;
    boost::asio::steady_timer* pause = nullptr;  // between tries
  };

  Task<void> dispatch();
  Task<void> watch();
  Task<void> request(size_t index);
  Task<std::optional<double>> attempt(const std::string& bytes, Active& active, RequestRecord& record);
  Task<std::unique_ptr<Connection>> connect(std::string& problem, Active& active);
  Task<void> pause(double seconds, Active& active);
  void stop_all();
  bool may_send() const;
  double since_begin_s() const;

  const LoadSpec& spec_;
  const Destination& destination_;
  const WordBook& words_;
  const Share share_;
  const TimePoint begin_;
  LoadCounters& counters_;
  boost::asio::io_context io_;
  boost::asio::steady_timer due_, look_;
  Slots running_, connecting_;
  std::vector<std::unique_ptr<Connection>> idle_;
  absl::flat_hash_set<Active*> active_;
  bool dispatched_ = false, stopped_ = false;
  double lag_max_s_ = 0;
};

}  // namespace shoal
