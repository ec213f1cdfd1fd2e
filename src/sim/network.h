// Links between the router and the nodes: when a message arrives, how often, or that it was lost. Messages of one link
// arrive in order, as a transport promises, unless a fault says otherwise.
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

  // Both directions of a node's connection. Only faults of messages matter here.
  void begin(const Fault& fault, TimePoint now);
  void end(const Fault& fault);

  struct Fate {
    std::vector<TimePoint> arrivals;  // none: lost, and the connection with it
    bool lost = false;
  };
  // Of a message of so many bytes that is sent now.
  Fate send(NodeId from, NodeId to, uint64_t bytes, TimePoint now);

  // The bytes of a message on the wire, about.
  static uint64_t size_of(const Message& message);

 private:
  struct Direction {
    TimePoint free{};        // the last message is through
    TimePoint blocked_until{};
    Duration delay{0};
    double loss = 0, reorder = 0, duplicate = 0;
  };
  void set(const Fault& fault, bool on, TimePoint until);
  Direction& direction(NodeId from, NodeId to) { return directions_[{from.value, to.value}]; }

  const LinkSpec link_;
  Rng rng_;
  std::map<std::pair<uint32_t, uint32_t>, Direction> directions_;
};

}  // namespace shoal
