// A world of expert servers, message by message: what is in it, what goes wrong, and what came of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/time.h"
#include "policy/expert_placement.h"
#include "slots/batch.h"

namespace shoal {

// Something that happens to a world of experts.
struct ExpertFault {
  enum class Kind : uint8_t {
    kKillServer,   // its memory is gone; it comes back empty after `lasts`
    kStopServer,   // it does nothing for `lasts`, then goes on: its answers come late
    kCutLink,      // nothing passes between `client` and `server` for `lasts`; both hear of it as the end of their connection
    kLoseWrites,   // as kCutLink, but nobody hears of it: what is written is gone
    kKillMonitor,  // nobody watches and plans for `lasts`
    kKillClient,   // also in the middle of a write; a new life of it begins its pass anew after `lasts`
  } kind = Kind::kKillServer;
  TimePoint at{};
  uint64_t after_event = 0;  // instead of `at`: right after the event of that number; 0: by time
  uint32_t server = 0, client = 0;
  Duration lasts = std::chrono::milliseconds(300);
};

// What a server takes for a batch: of reading weights and computing, the longer one counts.
struct ExpertServiceTimes {
  double fixed_s = 30e-6, active_s = 16.4e-6, row_s = 0.0636e-6;
  double seconds(double active, double rows) const;
};

struct ExpertWorldSetup {
  uint64_t seed = 1;
  uint32_t clients = 4, servers = 4, lanes = 2;
  uint32_t layers = 4, experts = 16, experts_per_token = 2, tokens = 4;  // tokens of a lane, in every pass
  uint32_t passes = 20;                    // of each client and lane
  double skew = 0;                         // of routing: popularity of the i-th expert ~ (i + 1)^-skew
  uint64_t expert_bytes = 44'000'000;
  double copies_room = 3;                  // copies of all experts that all servers together have memory for
  PlacementOptions placement;
  BatchOptions batch;
  ExpertServiceTimes service;
  double attention_s = 200e-6;             // of a lane and layer
  double link_s = 15e-6;                   // one way
  double row_bytes = 7168, answer_row_bytes = 14336, link_bytes_per_second = 40e9;  // of a client's or server's own link
  double load_bytes_per_second = 5e9;      // of an expert to a server
  Duration lease = std::chrono::milliseconds(150);
  Duration reconnect = std::chrono::milliseconds(5);
  std::vector<ExpertFault> faults;
  bool torn = false;                       // a half is written in pieces, each an event of its own
  bool any_order = false;                  // and they may come in any order
  uint64_t wrong_answer = 0;               // the row of this number is answered wrong: for tests of the checks
  std::vector<double> joins;               // seconds at which one more server begins
};

struct ExpertWorldOutcome {
  uint64_t passes = 0, rows = 0, batches = 0, events = 0;
  uint64_t resent_rows = 0, deferred = 0, late_answers = 0, torn = 0, not_hosted = 0;
  uint64_t given_up = 0;              // servers by clients, by time
  uint64_t copies = 0, versions = 0;  // of experts; of placements
  uint64_t batch_clients = 0;         // sum over batches
  double virtual_seconds = 0;
  uint64_t trace_hash = 0;
  struct Pass {
    double ended = 0, seconds = 0;    // the gap between two tokens of a lane's sequences
  };
  std::vector<Pass> done;             // as they ended
  std::vector<std::string> violations;

  double rate(double from, double to) const;  // passes per second that ended between two instants
  double longest(double from, double to) const;
  double quantile(double share, double from, double to) const;  // of their seconds
};

}  // namespace shoal
