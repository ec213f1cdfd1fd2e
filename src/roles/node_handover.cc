// Requests between nodes: what the node does with its engines for what Handovers has in its books.
#include <utility>

#include "base/check.h"
#include "roles/node.h"

namespace shoal {
namespace {

// Whether a node can go on from the KV of its ticket. Scores of what is computed do not come along with KV.
bool usable(const Submit& message, const HostedModel* model) {
  const Request& request = message.request;
  return message.kv && model != nullptr && message.kv->block_bytes == model->facts.kv_block_bytes &&
         message.kv->tokens < request.prompt.size() + request.output.size() && (!request.prompt_logprobs || !request.output.empty());
}

// Whether these are blocks of all its tokens, and of its state.
bool covers(const HostKv& kv, const HostedModel* model) {
  return model != nullptr && kv.blocks.size() == blocks_for(kv.tokens) + model->facts.state_blocks;
}

}  // namespace

// A request leaves when its KV is on the host tier, or when there is none. One that finds no room there stays for this token.
void Node::hand_over_leaving(TimePoint now, std::vector<Effect>& effects) {
  const std::vector<RequestId> leaving(handovers_.leaving().begin(), handovers_.leaving().end());
  for (const RequestId id : leaving) {
    HostedModel& hosted = catalogue_.at(requests_.find(id)->model);
    Engine& engine = *hosted.engine;
    if (hosted.retired) {  // it ends where it is: the others may have dropped the model already
      handovers_.stay(id);
      continue;
    }
    switch (engine.stage(id)) {
      case Engine::Stage::kStepping:
      case Engine::Stage::kParking:
      case Engine::Stage::kUnparking: break;
      case Engine::Stage::kRunning:
        if (engine.step_in_flight()) break;
        if (std::optional<KvMove> move = engine.park(id)) {
          scheduler_.begin_move(hosted, *std::move(move), now, effects);
        } else {
          handovers_.stay(id);
        }
        break;
      case Engine::Stage::kWaiting:
      case Engine::Stage::kParked: hand_over(id, now, effects); break;
    }
  }
}

void Node::hand_over(RequestId id, TimePoint now, std::vector<Effect>& effects) {
  const AcceptedRequest request = *requests_.find(id);
  HostedModel& hosted = catalogue_.at(request.model);
  HostKv kv = hosted.engine->hand_over(id);
  Handover message{id, request.epoch, {}};
  message.kv = handovers_.offer(id, request.epoch, request.model, request.gateway, request.weights, std::move(kv), hosted.facts.kv_block_bytes, now, effects);
  requests_.erase(id);
  effects.push_back(Send{request.gateway, std::move(message)});
  journal_.changed = true;
}

void Node::receive(NodeId from, const Submit& message, TimePoint now, std::vector<Effect>& effects) {
  const Handovers::Claim claim = handovers_.claim(from, message, usable(message, catalogue_.find(message.request.model)), now, effects);
  if (claim.waits) return;
  const bool accepted = accept(from, message, claim.kv, now, effects);
  if (!accepted && claim.kv) handovers_.release(*claim.kv, message.kv->block_bytes);
}

void Node::on_kv_granted(NodeId from, const KvGranted& message, TimePoint now, std::vector<Effect>& effects) {
  std::optional<Handovers::Arrival> arrival = handovers_.on_granted(from, message, now, effects);
  if (!arrival) return;
  if (arrival->kv && !covers(*arrival->kv, catalogue_.find(arrival->submit.request.model))) arrival->kv.reset();
  const bool accepted = accept(arrival->gateway, arrival->submit, arrival->kv, now, effects);
  if (!arrival->kv) return;
  if (accepted) {
    handovers_.fetch(message.id, arrival->submit.request.model, *arrival->submit.kv);
  } else {
    handovers_.release(message.id, *arrival->submit.kv, effects);
  }
}

// What was agreed with members whose lives ended is void.
void Node::end_lives(const MembershipChange& change, TimePoint now, std::vector<Effect>& effects) {
  for (const auto& [member, epoch] : change.before) {
    if (!change.of(member)) continue;
    handovers_.forget_gateway(member, effects);
    for (const RequestId id : requests_.of_gateway(member)) {
      requests_.withdraw(id, effects);
      journal_.changed = true;
    }
  }
  for (const Handovers::Arrival& a : handovers_.end_lives(change, now)) accept(a.gateway, a.submit, a.kv, now, effects);
  for (const auto& [id, model] : handovers_.lost_fetches(change)) {
    Engine& engine = *catalogue_.at(model).engine;
    if (engine.stage(id) != Engine::Stage::kParked) continue;
    engine.restart(id);
    handovers_.forget_fetch(id);
  }
}

}  // namespace shoal
