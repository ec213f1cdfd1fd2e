#include "roles/handovers.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/check.h"

namespace shoal {

bool MembershipChange::of(NodeId node) const {
  const auto was = before.find(node), is = after.find(node);
  return (was == before.end()) != (is == after.end()) || (was != before.end() && was->second != is->second);
}

// ---- going ------------------------------------------------------------------------------------------------------------------

std::optional<KvTicket> Handovers::offer(RequestId request, uint32_t epoch, ModelId model, NodeId gateway, const ModelDigest& weights,
                                         HostKv kv, uint64_t block_bytes, TimePoint now, std::vector<Effect>& effects) {
  if (kv.remote) {  // what was not fetched yet is for whoever comes with its ticket next
    const auto fetch = fetches_.find(request);
    CHECK(fetch != fetches_.end());
    const KvTicket ticket = fetch->second.ticket;
    fetches_.erase(fetch);
    effects.push_back(Send{ticket.node, KvTaken{request, ticket.epoch, /*passed_on=*/true}});
    return ticket;
  }
  if (kv.tokens == 0) return std::nullopt;
  offers_[{request, epoch}] = {model, block_bytes, gateway, std::move(kv.blocks), std::nullopt, now + offer_time_};
  offers_due_ = std::min(offers_due_, now + offer_time_);
  return KvTicket{self_, epoch, kv.tokens, block_bytes, weights};
}

void Handovers::on_wanted(NodeId from, const KvWanted& message, std::vector<Effect>& effects) {
  KvGranted answer{message.id, message.epoch, {}};
  const auto offer = offers_.find({message.id, message.epoch});
  if (offer != offers_.end() && offer->second.taker.value_or(from) == from) {
    grants_version_ += !offer->second.taker;
    offer->second.taker = from;
    answer.blocks = offer->second.blocks;
  }
  effects.push_back(Send{from, std::move(answer)});
}

void Handovers::on_taken(NodeId from, const KvTaken& message, TimePoint now) {
  const auto found = offers_.find({message.id, message.epoch});
  if (found == offers_.end() || found->second.taker.value_or(from) != from) return;
  Offer& offer = found->second;
  if (message.passed_on) {
    offer.taker.reset();
    ++grants_version_;
    offer.due = now + offer_time_;
    return;
  }
  withdraw(offer);
  offers_.erase(found);
}

void Handovers::release(const HostKv& kv, uint64_t block_bytes) {
  BlockPool& blocks = *tier_.blocks(block_bytes);
  for (const BlockId block : kv.blocks) blocks.release(block);
}

void Handovers::withdraw(const Offer& offer) {
  grants_version_ += offer.taker.has_value();
  release({.blocks = offer.blocks}, offer.block_bytes);
}

template <typename Over>
void Handovers::withdraw_if(Over over) {
  std::erase_if(offers_, [&](const auto& entry) {
    if (!over(entry.second)) return false;
    withdraw(entry.second);
    return true;
  });
}

void Handovers::end_due(TimePoint now, std::vector<Effect>& effects) {
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
        offer.due = now + offer_time_;
      }
      offers_due_ = std::min(offers_due_, offer.due);
      ++it;
    }
  }
  if (offers_due_ != kForever) effects.push_back(WakeAt{offers_due_});
}

bool Handovers::offers_any_of(ModelId model) const {
  return std::any_of(offers_.begin(), offers_.end(), [&](const auto& offer) { return offer.second.model == model; });
}

void Handovers::withdraw_offers_of(ModelId model) {
  withdraw_if([&](const Offer& offer) { return offer.model == model && !offer.taker; });
}

// ---- coming -----------------------------------------------------------------------------------------------------------------

Handovers::Arrival Handovers::Awaiting::at(TimePoint now) const {
  Arrival arrival{gateway, submit, std::nullopt};
  arrival.submit.waited += now - since;
  return arrival;
}

bool Handovers::supersedes(AwaitingList& list, RequestId request, uint32_t epoch, std::vector<Effect>& effects) {
  const auto before = list.find(request);
  if (before == list.end()) return false;
  if (before->second.submit.request.epoch >= epoch) return true;
  forget(list, before, effects);
  return false;
}

// It is not taken any more.
void Handovers::forget(AwaitingList& list, AwaitingList::iterator entry, std::vector<Effect>& effects) {
  if (entry->second.submit.kv) release(entry->first, *entry->second.submit.kv, effects);
  list.erase(entry);
}

Handovers::Claim Handovers::claim(NodeId from, const Submit& message, bool usable, TimePoint now, std::vector<Effect>& effects) {
  const RequestId request = message.request.id;
  if (supersedes(awaiting_, request, message.request.epoch, effects)) return {.waits = true};
  if (!message.kv) return {};
  const KvTicket& ticket = *message.kv;
  if (!usable || (ticket.node != self_ && heard_cluster_ && !members_.contains(ticket.node))) {
    release(request, ticket, effects);
    return {};
  }
  if (ticket.node != self_) {
    awaiting_[request] = {from, message, now};
    effects.push_back(Send{ticket.node, KvWanted{request, ticket.epoch}});
    return {.waits = true};
  }
  const auto found = offers_.find({request, ticket.epoch});  // nobody else would have it
  if (found == offers_.end() || found->second.taker || found->second.model != message.request.model) return {};
  Claim claim{.kv = HostKv{ticket.tokens, std::move(found->second.blocks), false}};
  offers_.erase(found);
  return claim;
}

std::optional<Handovers::Arrival> Handovers::on_granted(NodeId from, const KvGranted& message, TimePoint now, std::vector<Effect>& effects) {
  const auto found = awaiting_.find(message.id);
  const bool expected = found != awaiting_.end() && found->second.submit.kv->node == from && found->second.submit.kv->epoch == message.epoch;
  if (!expected) {
    const auto fetch = fetches_.find(message.id);
    const bool repeated = fetch != fetches_.end() && fetch->second.ticket.node == from && fetch->second.ticket.epoch == message.epoch;
    if (!repeated && !message.blocks.empty()) effects.push_back(Send{from, KvTaken{message.id, message.epoch}});  // cancelled meanwhile
    return std::nullopt;
  }
  Arrival arrival = found->second.at(now);
  awaiting_.erase(found);
  const uint32_t tokens = arrival.submit.kv->tokens;
  if (message.blocks.size() >= div_up(tokens, kTokensPerBlock)) arrival.kv = HostKv{tokens, message.blocks, true};
  return arrival;
}

void Handovers::release(RequestId request, const KvTicket& ticket, std::vector<Effect>& effects) {
  const KvTaken taken{request, ticket.epoch};
  if (ticket.node == self_) return on_taken(self_, taken, TimePoint{});
  effects.push_back(Send{ticket.node, taken});
}

std::optional<ModelId> Handovers::fetching(RequestId request) const {
  const auto fetch = fetches_.find(request);
  return fetch == fetches_.end() ? std::nullopt : std::optional(fetch->second.model);
}

void Handovers::end_fetch(RequestId request, std::vector<Effect>& effects) {
  release(request, fetches_.at(request).ticket, effects);
  fetches_.erase(request);
}

bool Handovers::withholds(RequestId request, uint32_t epoch, std::vector<Effect>& effects) {
  return supersedes(withheld_, request, epoch, effects);
}

std::vector<Handovers::Arrival> Handovers::take_withheld(const std::function<bool(ModelId, RequestId)>& gone, TimePoint now) {
  std::vector<Arrival> arrivals;
  std::erase_if(withheld_, [&](const auto& entry) {
    if (!gone(entry.second.submit.request.model, entry.first)) return false;
    arrivals.push_back(entry.second.at(now));
    return true;
  });
  return arrivals;
}

void Handovers::on_cancel(const Cancel& message, std::vector<Effect>& effects) {
  for (auto* list : {&awaiting_, &withheld_}) {
    const auto waiting = list->find(message.id);
    if (waiting != list->end() && waiting->second.submit.request.epoch == message.epoch) forget(*list, waiting, effects);
  }
}

// ---- when a node or a gateway is lost -------------------------------------------------------------------------------------------

std::optional<uint32_t> Handovers::epoch_of(NodeId member) const {
  const auto found = members_.find(member);
  return found == members_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<MembershipChange> Handovers::learn(const ClusterState& state) {
  MembershipChange change{.before = std::exchange(members_, {})};
  for (const auto& [id, member] : state.members) {
    const auto known = change.before.find(id);
    members_[id] = known == change.before.end() ? member.epoch : std::max(member.epoch, known->second);
  }
  if (!std::exchange(heard_cluster_, true)) return std::nullopt;
  change.after = members_;
  change.self = change.of(self_);
  return change;
}

std::optional<MembershipChange> Handovers::hear(NodeId member, uint32_t life) {
  const auto known = members_.find(member);
  if (known == members_.end() || life <= known->second) return std::nullopt;
  MembershipChange change{.before = members_};
  known->second = life;
  change.after = members_;
  return change;
}

void Handovers::forget_gateway(NodeId gateway, std::vector<Effect>& effects) {
  for (auto* list : {&awaiting_, &withheld_}) {
    for (auto it = list->begin(); it != list->end();) {
      const auto entry = it++;
      if (entry->second.gateway == gateway) forget(*list, entry, effects);
    }
  }
  withdraw_if([&](const Offer& offer) { return offer.gateway == gateway && !offer.taker; });
}

std::vector<Handovers::Arrival> Handovers::end_lives(const MembershipChange& change, TimePoint now) {
  withdraw_if([&](const Offer& offer) { return change.self || (offer.taker && change.of(*offer.taker)); });
  std::vector<Arrival> arrivals;
  std::erase_if(awaiting_, [&](const auto& entry) {
    if (!change.self && !change.of(entry.second.submit.kv->node)) return false;
    if (!change.self) arrivals.push_back(entry.second.at(now));  // else the gateway has placed it anew
    return true;
  });
  return arrivals;
}

std::vector<std::pair<RequestId, ModelId>> Handovers::lost_fetches(const MembershipChange& change) const {
  std::vector<std::pair<RequestId, ModelId>> lost;
  for (const auto& [request, fetch] : fetches_) {
    if (change.self || change.of(fetch.ticket.node)) lost.emplace_back(request, fetch.model);
  }
  return lost;
}

std::vector<Handovers::Grant> Handovers::grants() const {
  std::vector<Grant> grants;
  for (const auto& [key, offer] : offers_) {
    if (offer.taker) grants.push_back({key.first, *offer.taker, offer.block_bytes, offer.blocks});
  }
  return grants;
}

std::map<uint64_t, uint64_t> Handovers::blocks_offered() const {
  std::map<uint64_t, uint64_t> blocks;
  for (const auto& [key, offer] : offers_) blocks[offer.block_bytes] += offer.blocks.size();
  return blocks;
}

void Handovers::check(const std::function<bool(RequestId)>& owned, const Knows& computed, const Knows& remote) const {
  for (const auto& [key, offer] : offers_) CHECK(offers_due_ <= offer.due);
  for (const RequestId id : leaving_) CHECK(owned(id));
  for (const auto& [id, waiting] : awaiting_) CHECK(waiting.submit.kv.has_value());
  for (const auto& [id, waiting] : withheld_) CHECK(!owned(id) && computed(waiting.submit.request.model, id));
  for (const auto& [id, fetch] : fetches_) CHECK(remote(fetch.model, id));
}

}  // namespace shoal
