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
  const auto apply = [&](Trouble& t) {
    switch (fault.kind) {
      case Fault::Kind::kPartition:
      case Fault::Kind::kLossTo:
      case Fault::Kind::kLossFrom:
        if (on) t.blocked_until = std::max(t.blocked_until, until);
        break;
      case Fault::Kind::kLoss: t.loss = on ? fault.amount : 0; break;
      case Fault::Kind::kReorder: t.reorder = on ? fault.amount : 0; break;
      case Fault::Kind::kDuplicate: t.duplicate = on ? fault.amount : 0; break;
      case Fault::Kind::kDelay: t.delay = on ? from_seconds(fault.amount) : Duration(0); break;
      default: break;
    }
  };
  if (fault.kind == Fault::Kind::kApart) {
    for (const Pair& pair : {Pair(fault.node, fault.peer), Pair(fault.peer, fault.node)}) {
      if (on) apart_until_[pair] = std::max(apart_until_[pair], until);
    }
    return;
  }
  if (to_node(fault.kind)) apply(into_[fault.node]);
  if (from_node(fault.kind)) apply(out_of_[fault.node]);
}

void Network::begin(const Fault& fault, TimePoint now) { set(fault, true, now + fault.lasts); }
void Network::end(const Fault& fault) { set(fault, false, {}); }

Network::Trouble Network::trouble(NodeId from, NodeId to) const {
  Trouble sum;
  const auto out = out_of_.find(from.value), in = into_.find(to.value);
  for (const Trouble* t : {out == out_of_.end() ? nullptr : &out->second, in == into_.end() ? nullptr : &in->second}) {
    if (t == nullptr) continue;
    sum.blocked_until = std::max(sum.blocked_until, t->blocked_until);
    sum.delay += t->delay;
    sum.loss = std::max(sum.loss, t->loss);
    sum.reorder = std::max(sum.reorder, t->reorder);
    sum.duplicate = std::max(sum.duplicate, t->duplicate);
  }
  if (const auto apart = apart_until_.find({from.value, to.value}); apart != apart_until_.end()) {
    sum.blocked_until = std::max(sum.blocked_until, apart->second);
  }
  return sum;
}

TimePoint Network::passable(NodeId from, NodeId to, TimePoint now) const { return std::max(now, trouble(from, to).blocked_until); }

Network::Fate Network::send(NodeId from, NodeId to, uint64_t bytes, TimePoint now) {
  const Trouble t = trouble(from, to);
  Fate fate;
  if (t.loss > 0 && rng_.chance(t.loss)) {
    fate.lost = true;
    return fate;
  }
  const Duration jitter = link_.jitter.count() > 0 ? Duration(rng_.below(static_cast<uint64_t>(link_.jitter.count()))) : Duration(0);
  const Duration wire = from_seconds(static_cast<double>(bytes) / link_.bytes_per_second);
  const TimePoint sent = std::max(now, t.blocked_until);  // what is held back is sent again and again
  TimePoint& free = free_[{from.value, to.value}];
  const TimePoint arrival = std::max(free, sent + link_.latency + jitter + t.delay) + wire;
  const bool late = t.reorder > 0 && rng_.chance(t.reorder);
  if (late) {
    fate.arrivals.push_back(arrival + Duration(rng_.below(static_cast<uint64_t>(kOvertakeMax.count()))));
  } else {
    free = arrival;
    fate.arrivals.push_back(arrival);
  }
  if (t.duplicate > 0 && rng_.chance(t.duplicate)) {
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
