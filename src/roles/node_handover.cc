// Requests that go on at another node, or come from one: the first token from one node and the rest from another, or a
// whole model's requests taken by a node that has time for them. Their KV goes by way of the host tier: parked here, fetched
// from there, never waited for. wire/message.h (KvTicket) has the words.
#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "roles/node.h"

namespace shoal {

// ---- going ------------------------------------------------------------------------------------------------------------------

// A request leaves when its KV is on the host tier, or when there is none. One that finds no room there stays for this token.
void Node::hand_over_leaving(TimePoint now, std::vector<Effect>& effects) {
  for (auto it = leaving_.begin(); it != leaving_.end();) {
    const RequestId id = *it++;  // what follows may erase it
    const Owner owner = owners_.at(id);
    Hosted& hosted = models_.at(owner.model);
    Engine& engine = *hosted.engine;
    if (hosted.retired) {  // it ends where it is: the others may have dropped the model already
      leaving_.erase(id);
      continue;
    }
    switch (engine.stage(id)) {
      case Engine::Stage::kStepping:
      case Engine::Stage::kParking:
      case Engine::Stage::kUnparking: break;
      case Engine::Stage::kRunning:
        if (engine.step_in_flight()) break;
        if (std::optional<KvMove> move = engine.park(id)) {
          move_kv(hosted, *std::move(move), now, effects);
        } else {
          leaving_.erase(id);
        }
        break;
      case Engine::Stage::kWaiting:
      case Engine::Stage::kParked: hand_over(id, owner, now, effects); break;
    }
  }
}

void Node::hand_over(RequestId request, const Owner& owner, TimePoint now, std::vector<Effect>& effects) {
  Hosted& hosted = models_.at(owner.model);
  HostKv kv = hosted.engine->hand_over(request);
  Handover message{request, owner.epoch, {}};
  if (kv.remote) {
    message.kv = pass_on(request, effects);
  } else if (kv.tokens > 0) {
    const uint64_t block_bytes = hosted.facts.kv_block_bytes;
    message.kv = KvTicket{config_.self, owner.epoch, kv.tokens, block_bytes, owner.weights};
    offers_[{request, owner.epoch}] = {owner.model, block_bytes, owner.gateway, std::move(kv.blocks), std::nullopt,
                                        now + config_.offer_time};
    offers_due_ = std::min(offers_due_, now + config_.offer_time);
  }
  erase(owners_.find(request));
  effects.push_back(Send{owner.gateway, std::move(message)});
  changed_ = true;
}

void Node::on_shed(const Shed& message) {
  for (const auto& [id, owner] : owners_) {
    if (owner.model == message.model && !owner.stays) leaving_.insert(id);
  }
}

void Node::on_kv_wanted(NodeId from, const KvWanted& message, std::vector<Effect>& effects) {
  KvGranted answer{message.id, message.epoch, {}};
  const auto offer = offers_.find({message.id, message.epoch});
  if (offer != offers_.end() && offer->second.taker.value_or(from) == from) {
    offer->second.taker = from;
    answer.blocks = offer->second.blocks;
  }
  effects.push_back(Send{from, std::move(answer)});
}

void Node::on_kv_taken(NodeId from, const KvTaken& message, TimePoint now) {
  const auto found = offers_.find({message.id, message.epoch});
  if (found == offers_.end() || found->second.taker.value_or(from) != from) return;
  Offer& offer = found->second;
  if (message.passed_on) {
    offer.taker.reset();
    offer.due = now + config_.offer_time;
    return;
  }
  withdraw(offer);
  offers_.erase(found);
}

void Node::withdraw(const Offer& offer) {
  BlockPool& blocks = *host_.blocks(offer.block_bytes);
  for (const BlockId block : offer.blocks) blocks.release(block);
}

// Nobody came for it in time. Whoever came is granted it once more: to be fetched, it is the same grant; and who does not
// know of it any more says so.
void Node::end_offers(TimePoint now, std::vector<Effect>& effects) {
  if (now >= offers_due_) {
    offers_due_ = kForever;
    for (auto it = offers_.begin(); it != offers_.end();) {
      auto& [key, offer] = *it;
      if (now >= offer.due && !offer.taker) {
        withdraw(offer);
        it = offers_.erase(it);
        continue;
      }
      if (now >= offer.due) {
        effects.push_back(Send{*offer.taker, KvGranted{key.first, key.second, offer.blocks}});
        offer.due = now + config_.offer_time;
      }
      offers_due_ = std::min(offers_due_, offer.due);
      ++it;
    }
  }
  if (offers_due_ != kForever) effects.push_back(WakeAt{offers_due_});
}

// ---- coming -----------------------------------------------------------------------------------------------------------------

// True if the request is in good hands: its KV is here, or it is accepted when the ticket's node has answered.
bool Node::await_kv(NodeId from, const Submit& message, TimePoint now, std::vector<Effect>& effects) {
  const Request& request = message.request;
  if (const auto before = awaiting_.find(request.id); before != awaiting_.end()) {
    if (before->second.submit.request.epoch >= request.epoch) return true;
    forget(awaiting_, before, effects);
  }
  if (!message.kv) return false;
  const KvTicket& ticket = *message.kv;
  const auto model = models_.find(request.model);
  const bool usable = model != models_.end() && ticket.block_bytes == model->second.facts.kv_block_bytes &&
                      ticket.tokens < request.prompt.size() + request.output.size() &&
                      (!request.prompt_logprobs || !request.output.empty());  // scores of what is computed did not come along
  const bool there = ticket.node == config_.self || !heard_cluster_ || lives_.contains(ticket.node);
  if (!usable || !there) {
    release(request.id, ticket, effects);
    return false;
  }
  if (ticket.node == config_.self) return take_back(from, message, now, effects);
  awaiting_[request.id] = {from, message, now};
  effects.push_back(Send{ticket.node, KvWanted{request.id, ticket.epoch}});
  return true;
}

// Nobody else would have it. False if its KV is not here any more.
bool Node::take_back(NodeId from, const Submit& message, TimePoint now, std::vector<Effect>& effects) {
  const auto found = offers_.find({message.request.id, message.kv->epoch});
  if (found == offers_.end() || found->second.taker || found->second.model != message.request.model) return false;
  const Offer offer = std::move(found->second);
  offers_.erase(found);
  if (!accept(from, message, HostKv{message.kv->tokens, offer.blocks, false}, now, effects)) withdraw(offer);
  return true;
}

void Node::on_kv_granted(NodeId from, const KvGranted& message, TimePoint now, std::vector<Effect>& effects) {
  const auto found = awaiting_.find(message.id);
  const bool expected = found != awaiting_.end() && found->second.submit.kv->node == from && found->second.submit.kv->epoch == message.epoch;
  if (!expected) {
    const auto fetch = fetches_.find(message.id);
    const bool repeated = fetch != fetches_.end() && fetch->second.ticket.node == from && fetch->second.ticket.epoch == message.epoch;
    if (!repeated && !message.blocks.empty()) effects.push_back(Send{from, KvTaken{message.id, message.epoch}});  // cancelled meanwhile
    return;
  }
  const Awaiting awaiting = std::move(found->second);
  awaiting_.erase(found);
  const KvTicket& ticket = *awaiting.submit.kv;
  const bool granted = message.blocks.size() == div_up(ticket.tokens, kTokensPerBlock);
  if (!granted) {
    accept(awaiting.gateway, awaiting.at(now), std::nullopt, now, effects);
  } else if (accept(awaiting.gateway, awaiting.at(now), HostKv{ticket.tokens, message.blocks, true}, now, effects)) {
    fetches_[message.id] = {awaiting.submit.request.model, ticket};
  } else {
    release(message.id, ticket, effects);
  }
}

void Node::release(RequestId request, const KvTicket& ticket, std::vector<Effect>& effects) {
  const KvTaken taken{request, ticket.epoch};
  if (ticket.node == config_.self) return on_kv_taken(config_.self, taken, TimePoint{});
  effects.push_back(Send{ticket.node, taken});
}

// What was not fetched yet is for whoever comes with its ticket next.
std::optional<KvTicket> Node::pass_on(RequestId request, std::vector<Effect>& effects) {
  const auto fetch = fetches_.find(request);
  CHECK(fetch != fetches_.end());
  const KvTicket ticket = fetch->second.ticket;
  fetches_.erase(fetch);
  effects.push_back(Send{ticket.node, KvTaken{request, ticket.epoch, /*passed_on=*/true}});
  return ticket;
}

// To be called when a request may have stopped needing what it fetches: its KV is here, or it ended.
void Node::settle_fetch(RequestId request, std::vector<Effect>& effects) {
  const auto fetch = fetches_.find(request);
  if (fetch == fetches_.end() || models_.at(fetch->second.model).engine->kv_is_remote(request)) return;
  release(request, fetch->second.ticket, effects);
  fetches_.erase(fetch);
}

void Node::on_kv_copied(const KvCopied& event, TimePoint now, std::vector<Effect>& effects) {
  const RequestId request = models_.at(event.model).engine->finish_move(event.move, event.ok);
  switches_.swap_in_ended(event.model, event.move, now);
  log_.copy_ended(event.model, event.move);
  --moves_;
  settle_fetch(request, effects);
  changed_ = true;
}

// ---- when a node or a gateway is lost -------------------------------------------------------------------------------------------

// Nobody listens any more to what was asked by this one, and nobody will come for what it was given a ticket of.
void Node::forget_gateway(NodeId gateway, std::vector<Effect>& effects) {
  for (auto* list : {&awaiting_, &withheld_}) {
    for (auto it = list->begin(); it != list->end();) {
      const auto entry = it++;
      if (entry->second.gateway == gateway) forget(*list, entry, effects);
    }
  }
  std::erase_if(offers_, [&](const auto& entry) {
    const bool over = entry.second.gateway == gateway && !entry.second.taker;
    if (over) withdraw(entry.second);
    return over;
  });
  std::vector<RequestId> ended;
  for (const auto& [id, owner] : owners_) {
    if (owner.gateway == gateway) ended.push_back(id);
  }
  std::sort(ended.begin(), ended.end());
  for (const RequestId id : ended) withdraw(owners_.find(id), effects);
}

// Grants end with the life, or the membership, of either side: what was to be fetched is computed anew, and copies under way
// end by themselves, as failed ones.
void Node::on_cluster(const ClusterState& state, TimePoint now, std::vector<Effect>& effects) {
  std::map<NodeId, uint32_t> before;
  for (const auto& [id, member] : state.members) before[id] = member.epoch;
  std::swap(before, lives_);
  if (!std::exchange(heard_cluster_, true)) return;
  const auto changed = [&](NodeId node) {
    const auto was = before.find(node), is = lives_.find(node);
    return (was == before.end()) != (is == lives_.end()) || (was != before.end() && was->second != is->second);
  };
  const bool anew = changed(config_.self);
  for (const auto& [member, epoch] : before) {
    if (changed(member)) forget_gateway(member, effects);
  }
  std::erase_if(offers_, [&](const auto& entry) {
    const bool over = anew || (entry.second.taker && changed(*entry.second.taker));
    if (over) withdraw(entry.second);
    return over;
  });
  for (auto it = awaiting_.begin(); it != awaiting_.end();) {
    const NodeId source = it->second.submit.kv->node;
    if (!anew && !changed(source)) {
      ++it;
      continue;
    }
    const Awaiting awaiting = std::move(it->second);
    it = awaiting_.erase(it);
    if (!anew) accept(awaiting.gateway, awaiting.at(now), std::nullopt, now, effects);  // else the gateway has placed it anew
  }
  std::erase_if(fetches_, [&](const auto& entry) {
    Engine& engine = *models_.at(entry.second.model).engine;
    const bool over = anew || changed(entry.second.ticket.node);
    if (!over || engine.stage(entry.first) != Engine::Stage::kParked) return false;
    engine.restart(entry.first);
    return true;
  });
}

}  // namespace shoal
