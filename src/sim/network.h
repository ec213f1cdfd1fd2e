// Links between the router and the nodes, and between any two nodes: when a message arrives, how often, or that it was lost.
// Messages of one link arrive in order, as a transport promises, unless a fault says otherwise. A fault of a node is on all
// its links.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "sim/setup.h"

namespace shoal {

class Network {
 public:
  Network(const LinkSpec& link, uint64_t seed) : link_(link), rng_(mix64(seed ^ 0x6e6574)) {}

  // Only faults of messages matter here.
  void begin(const Fault& fault, TimePoint now);
  void end(const Fault& fault);

  struct Fate {
    std::vector<TimePoint> arrivals;  // none: lost, and the connection with it
    bool lost = false;
  };
  // Of a message of so many bytes that is sent now.
  Fate send(NodeId from, NodeId to, uint64_t bytes, TimePoint now);

  // When something that takes its time on the way (KV) can arrive: `now`, or when the link between them works again.
  TimePoint passable(NodeId from, NodeId to, TimePoint now) const;

  // The bytes of a message on the wire, about.
  static uint64_t size_of(const Message& message);

 private:
  struct Trouble {
    TimePoint blocked_until{};
    Duration delay{0};
    double loss = 0, reorder = 0, duplicate = 0;
  };
  using Pair = std::pair<uint32_t, uint32_t>;  // from, to

  void set(const Fault& fault, bool on, TimePoint until);
  Trouble trouble(NodeId from, NodeId to) const;

  const LinkSpec link_;
  Rng rng_;
  std::map<uint32_t, Trouble> into_, out_of_;  // of a node, whoever is at the other end
  std::map<Pair, TimePoint> apart_until_;
  std::map<Pair, TimePoint> free_;             // when the last message is through
};

}  // namespace shoal
