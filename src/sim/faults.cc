// What World does when a fault begins and ends.
#include <algorithm>

#include "sim/world.h"

namespace shoal {

void World::begin_fault(const Fault& fault) {
  if (workload_done_ && clients_.unfinished() == 0) return;  // nobody would notice
  ++state_.outcome.faults;
  state_.note(8, static_cast<uint64_t>(fault.kind), fault.node);
  state_.after(fault.lasts, [this, &fault] { end_fault(fault); });
  if (fault.kind == Fault::Kind::kGatewayCrash) return stop_gateway(fault.node);
  SimNode& node = *nodes_[fault.node];
  switch (fault.kind) {
    case Fault::Kind::kCrash:
      stop_node(fault.node);
      leave(fault.node);
      return;
    case Fault::Kind::kPause:
      if (node.alive()) node.pause(state_.now + fault.lasts);
      return cut_off(fault);
    case Fault::Kind::kPartition:
    case Fault::Kind::kLossTo:
    case Fault::Kind::kLossFrom:
      network_.begin(fault, state_.now);
      return cut_off(fault);
    case Fault::Kind::kLoss:
    case Fault::Kind::kReorder:
    case Fault::Kind::kDuplicate:
      checkers_.node_fault();  // a gap or a repetition is answered by placing the request again, so many times
      return network_.begin(fault, state_.now);
    case Fault::Kind::kDelay:
    case Fault::Kind::kApart: return network_.begin(fault, state_.now);
    case Fault::Kind::kSlowDisk: return node.slow_disk(std::max(fault.amount, 1.0));
    case Fault::Kind::kLoadFailure: return node.fail_loads(fault.amount);
    case Fault::Kind::kDefer: return node.defer_steps(fault.amount);
    case Fault::Kind::kLeaseLoss:
      checkers_.node_fault();
      return leave(fault.node);
    case Fault::Kind::kNotice: return notice(fault);
    case Fault::Kind::kStreamLost:
      checkers_.node_fault();
      return lose_stream(fault);
    case Fault::Kind::kGatewayCrash: return;
    case Fault::Kind::kControllerCrash: return to_controller(LeadershipChanged{false});
  }
}

void World::end_fault(const Fault& fault) {
  if (fault.kind == Fault::Kind::kGatewayCrash) return start_gateway(fault.node);
  if (fault.kind == Fault::Kind::kControllerCrash) return to_controller(LeadershipChanged{true});
  SimNode& node = *nodes_[fault.node];
  network_.end(fault);
  switch (fault.kind) {
    case Fault::Kind::kCrash:
    case Fault::Kind::kPause:
    case Fault::Kind::kPartition:
    case Fault::Kind::kLossTo:
    case Fault::Kind::kLossFrom: return start_node(fault.node);  // unless it lived through it
    case Fault::Kind::kLeaseLoss:
      if (node.alive() && !links_[fault.node].member) join(fault.node);
      return;
    case Fault::Kind::kSlowDisk: return node.slow_disk(1);
    case Fault::Kind::kLoadFailure: return node.fail_loads(0);
    case Fault::Kind::kDefer: return node.defer_steps(0);
    case Fault::Kind::kNotice:
      stop_node(fault.node);
      leave(fault.node);
      state_.after(std::chrono::milliseconds(500), [this, &fault] { start_node(fault.node); });
      return;
    default: return;
  }
}

// Shorter than the lease, only time is lost. Longer, the membership forgets the node, and the node itself stops: it could
// not know what others do with its requests.
void World::cut_off(const Fault& fault) {
  if (fault.lasts <= setup_.lease) return;
  state_.after(setup_.lease, [this, &fault, life = nodes_[fault.node]->life()] {
    if (nodes_[fault.node]->life() != life) return;
    leave(fault.node);
    stop_node(fault.node);
  });
}

void World::notice(const Fault& fault) {
  SimNode& node = *nodes_[fault.node];
  if (!node.alive()) return;
  checkers_.node_fault();
  publish(MemberDraining{NodeId(fault.node), links_[fault.node].member_epoch});
  node.handle(DrainRequested{});
}

}  // namespace shoal
