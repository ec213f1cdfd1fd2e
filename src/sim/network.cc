#include "sim/network.h"

#include <algorithm>

namespace shoal {
namespace {

constexpr Duration kOvertakeMax = std::chrono::milliseconds(20);
constexpr uint64_t kEnvelopeBytes = 64;

bool to_node(Fault::Kind kind) { return kind != Fault::Kind::kLossFrom; }
bool from_node(Fault::Kind kind) { return kind != Fault::Kind::kLossTo; }

}  // namespace

void Network::set(const Fault& fault, bool on, TimePoint until) {
  const auto apply = [&](Direction& d) {
    switch (fault.kind) {
      case Fault::Kind::kPartition:
      case Fault::Kind::kLossTo:
      case Fault::Kind::kLossFrom:
        if (on) d.blocked_until = std::max(d.blocked_until, until);
        break;
      case Fault::Kind::kLoss: d.loss = on ? fault.amount : 0; break;
      case Fault::Kind::kReorder: d.reorder = on ? fault.amount : 0; break;
      case Fault::Kind::kDuplicate: d.duplicate = on ? fault.amount : 0; break;
      case Fault::Kind::kDelay: d.delay = on ? from_seconds(fault.amount) : Duration(0); break;
      default: break;
    }
  };
  if (to_node(fault.kind)) apply(direction(kRouterId, NodeId(fault.node)));
  if (from_node(fault.kind)) apply(direction(NodeId(fault.node), kRouterId));
}

void Network::begin(const Fault& fault, TimePoint now) { set(fault, true, now + fault.lasts); }
void Network::end(const Fault& fault) { set(fault, false, {}); }

Network::Fate Network::send(NodeId from, NodeId to, uint64_t bytes, TimePoint now) {
  Direction& d = direction(from, to);
  Fate fate;
  if (d.loss > 0 && rng_.chance(d.loss)) {
    fate.lost = true;
    return fate;
  }
  const Duration jitter = link_.jitter.count() > 0 ? Duration(rng_.below(static_cast<uint64_t>(link_.jitter.count()))) : Duration(0);
  const Duration wire = from_seconds(static_cast<double>(bytes) / link_.bytes_per_second);
  const TimePoint sent = std::max(now, d.blocked_until);  // what is held back is sent again and again
  const TimePoint arrival = std::max(d.free, sent + link_.latency + jitter + d.delay) + wire;
  const bool late = d.reorder > 0 && rng_.chance(d.reorder);
  if (late) {
    fate.arrivals.push_back(arrival + Duration(rng_.below(static_cast<uint64_t>(kOvertakeMax.count()))));
  } else {
    d.free = arrival;
    fate.arrivals.push_back(arrival);
  }
  if (d.duplicate > 0 && rng_.chance(d.duplicate)) {
    fate.arrivals.push_back(fate.arrivals.front() + Duration(rng_.below(static_cast<uint64_t>(kOvertakeMax.count()))));
  }
  return fate;
}

uint64_t Network::size_of(const Message& message) {
  if (const auto* submit = std::get_if<Submit>(&message)) {
    return kEnvelopeBytes + 3 * (submit->request.prompt.size() + submit->request.output.size());
  }
  if (const auto* tokens = std::get_if<Tokens>(&message)) return kEnvelopeBytes + 8 * (tokens->tokens.size() + tokens->prompt.size());
  if (const auto* status = std::get_if<NodeStatus>(&message)) return kEnvelopeBytes + 100 * status->models.size();
  return kEnvelopeBytes;
}

}  // namespace shoal
