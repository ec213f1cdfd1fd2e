// A model's experts that are elsewhere, as the passes of one node ask for them: rows go to the servers that hold their experts, what a
// server that fails still owes goes to another one that holds the same, and everybody's answers are kept. The view of who is there is
// this process's own: nobody has to agree on it.
//
// Threads: the one that advances passes calls ask() and answered() and looks into slots; a thread of its own connects, connects again, and
// asks servers to load what no server holds.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/bell.h"
#include "base/status.h"
#include "base/time.h"
#include "experts/expert_set.h"
#include "models/exchange_partner.h"
#include "transport/bulk_tcp.h"

namespace shoal {

class ExpertPlan;

// A server that may be asked.
struct ExpertAddress {
  std::string name;     // for people; empty: the address
  std::string address;  // unix:PATH, unix:@NAME or HOST:PORT
  std::string other;    // tried where that cannot be reached, or empty
  friend bool operator==(const ExpertAddress&, const ExpertAddress&) = default;
};

struct RemoteExpertsConfig {
  std::string client;                  // this process's name
  std::string model;
  uint64_t stamp = 0;                  // of its files and of what is done with them at load
  std::shared_ptr<const ExpertPlan> plan;
  uint32_t lanes = 1;
  bool choose_lanes = false;           // that many at most, as measured to be quickest
  std::shared_ptr<BulkNetwork> network = make_bulk_tcp();
  std::shared_ptr<Bell> bell;          // of the thread that advances passes
  Duration timeout_min = std::chrono::milliseconds(2);    // a request is given up after max(this, 5 x the 99th percentile), if somebody else holds its experts
  Duration hedge_min = std::chrono::microseconds(500);  // another server is asked as well after max(this, the 99th percentile)
  Duration timeout_first = std::chrono::milliseconds(500);  // until enough is known of a server, and never longer
  Duration defer_after = std::chrono::milliseconds(1000);  // with nobody else to ask: then the pass is deferred
  Duration spin = std::chrono::microseconds(20);
  bool wishes = true;                  // what no server holds is asked to be loaded
};

// What became of what was asked. Of these, counts() gives `rows_asked` and `rows_resent` to whoever steps the model.
struct RemoteExpertsCounts {
  uint64_t exchanges = 0, requests = 0, rows_asked = 0;
  uint64_t hedges = 0, hedges_won = 0;  // rows asked of another server as well, because an answer was late; and whose answer came first
  uint64_t relayed = 0;         // requests to a server that gave rows to others of its machine
  uint64_t tokens_sent = 0, rows_received = 0;  // over the network: rows of hidden values, and what came back
  uint64_t bytes_sent = 0, bytes_received = 0;  // over the network, all in all, once a connection was made
  uint64_t rows_resent = 0;     // to another server, after a loss or a time-out
  uint64_t timeouts = 0, losses = 0, late = 0, refused = 0;
  uint64_t deferred = 0;        // passes
  uint64_t wishes = 0;          // experts that nobody held, asked to be loaded
};

// All of them, as people read them.
inline constexpr std::pair<const char*, uint64_t RemoteExpertsCounts::*> kRemoteExpertsCounts[] = {
    {"exchanges", &RemoteExpertsCounts::exchanges}, {"requests", &RemoteExpertsCounts::requests}, {"rows_asked", &RemoteExpertsCounts::rows_asked},
    {"relayed", &RemoteExpertsCounts::relayed}, {"tokens_sent", &RemoteExpertsCounts::tokens_sent}, {"rows_received", &RemoteExpertsCounts::rows_received},
    {"bytes_sent", &RemoteExpertsCounts::bytes_sent}, {"bytes_received", &RemoteExpertsCounts::bytes_received},
    {"rows_resent", &RemoteExpertsCounts::rows_resent}, {"timeouts", &RemoteExpertsCounts::timeouts}, {"hedges", &RemoteExpertsCounts::hedges},
    {"hedges_won", &RemoteExpertsCounts::hedges_won}, {"losses", &RemoteExpertsCounts::losses}, {"late", &RemoteExpertsCounts::late},
    {"refused", &RemoteExpertsCounts::refused}, {"deferred", &RemoteExpertsCounts::deferred}, {"wishes", &RemoteExpertsCounts::wishes}};

// A server as this process sees it.
struct RemoteExpertServer {
  std::string name, address;
  int64_t pid = 0;
  bool connected = false, suspected = false;
  std::string over;             // what: "shared memory", "TCP"; empty while it is away
  uint32_t experts = 0;         // that it holds
  uint64_t requests = 0;
  double round_trip_p50 = 0, round_trip_p99 = 0;  // seconds, lately; 0: nothing was asked of it yet
  std::string error;            // of the last attempt
};

class RemoteExperts : public ExchangePartner {
 public:
  static StatusOr<std::unique_ptr<RemoteExperts>> start(RemoteExpertsConfig config);

  // Who may be asked from now on; the others are left. Any thread, as the next ones.
  virtual void set_servers(std::vector<ExpertAddress> servers) = 0;
  // Whether every expert is held by somebody who is connected; waits for at most so long.
  virtual Status wait_complete(Duration most) = 0;
  virtual RemoteExpertsCounts all_counts() const = 0;
  virtual std::vector<RemoteExpertServer> servers() const = 0;
};

}  // namespace shoal
