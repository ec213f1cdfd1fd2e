// Requests that go on at another node, or come from one: the first token from one node and the rest from another, or a
// whole model's requests taken by a node that has time for them. Their KV goes by way of the host tier: parked here, fetched
// from there, never waited for. wire/message.h (KvTicket) has the words; docs/ARCHITECTURE.md what goes wrong, and then.
//
// Owns what was offered, asked for and granted. Says what it wants of others as effects, and hands back requests that may
// be accepted now; who accepts, parks and restarts them is the node.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "engine/sequence.h"
#include "membership/cluster_state.h"
#include "memory/host_tier.h"
#include "roles/effect.h"
#include "wire/message.h"

namespace shoal {

// Which lives of members began or ended between two pictures of the cluster.
struct MembershipChange {
  std::map<NodeId, uint32_t> before, after;  // epochs of the members
  bool self = false;                         // this node's own
  bool of(NodeId node) const;
};

class Handovers {
 public:
  // A request that may be accepted now, as if it came now; with the KV that it brings.
  struct Arrival {
    NodeId gateway;
    Submit submit;
    std::optional<HostKv> kv;
  };

  // KV that was offered stays `offer_time` for whoever comes with its ticket. `tier` outlives this.
  Handovers(NodeId self, Duration offer_time, HostTier& tier) : self_(self), offer_time_(offer_time), tier_(tier) {}

  // ---- going ------------------------------------------------------------------------------------------------------------

  // It is to go on elsewhere, as soon as its KV is where it can be fetched.
  void leave(RequestId request) { leaving_.insert(request); }
  void stay(RequestId request) { leaving_.erase(request); }
  const std::set<RequestId>& leaving() const { return leaving_; }
  // What goes along with a request that leaves: a ticket for its KV, which is kept here from now on, or the ticket of KV that
  // was never fetched. nullopt if there is none.
  std::optional<KvTicket> offer(RequestId request, uint32_t epoch, ModelId model, NodeId gateway, const ModelDigest& weights,
                                HostKv kv, uint64_t block_bytes, TimePoint now, std::vector<Effect>& effects);
  void on_wanted(NodeId from, const KvWanted& message, std::vector<Effect>& effects);
  void on_taken(NodeId from, const KvTaken& message, TimePoint now);
  // Offers for which nobody came in time end. Whoever came is granted it once more: to be fetched, it is the same grant; and
  // who does not know of it any more says so.
  void end_due(TimePoint now, std::vector<Effect>& effects);
  bool offers_any_of(ModelId model) const;
  // Those that nobody was granted: they were computed with weights that are no more.
  void withdraw_offers_of(ModelId model);

  // ---- coming -----------------------------------------------------------------------------------------------------------

  // What becomes of a request by its ticket. `waits`: it is in good hands, and is accepted when the ticket's node has
  // answered. Else it is to be accepted now, with the KV that is here already or without any.
  struct Claim {
    bool waits = false;
    std::optional<HostKv> kv;
  };
  // `usable`: the KV of its ticket is one that this node can go on from.
  Claim claim(NodeId from, const Submit& message, bool usable, TimePoint now, std::vector<Effect>& effects);
  std::optional<Arrival> on_granted(NodeId from, const KvGranted& message, TimePoint now, std::vector<Effect>& effects);
  // What was granted is to be fetched by this request, until end_fetch(); or it is of no use.
  void fetch(RequestId request, ModelId model, const KvTicket& ticket) { fetches_[request] = {model, ticket}; }
  void release(RequestId request, const KvTicket& ticket, std::vector<Effect>& effects);
  void release(const HostKv& kv, uint64_t block_bytes);  // of this node's tier
  std::optional<ModelId> fetching(RequestId request) const;
  NodeId fetched_from(RequestId request) const { return fetches_.at(request).ticket.node; }  // REQUIRES: fetching()
  void end_fetch(RequestId request, std::vector<Effect>& effects);                           // REQUIRES: fetching()

  // It comes while the step or the copy that writes for its withdrawn self has not ended.
  void withhold(NodeId from, const Submit& message, TimePoint now) { withheld_[message.request.id] = {from, message, now}; }
  // True if it is withheld with that epoch or a later one; one of before is forgotten.
  bool withholds(RequestId request, uint32_t epoch, std::vector<Effect>& effects);
  // Those whose withdrawn selves are gone.
  std::vector<Arrival> take_withheld(const std::function<bool(ModelId, RequestId)>& gone, TimePoint now);
  void on_cancel(const Cancel& message, std::vector<Effect>& effects);

  // ---- when a node or a gateway is lost ---------------------------------------------------------------------------------

  // Of a member, as last heard.
  std::optional<uint32_t> epoch_of(NodeId member) const;
  // Nothing the first time: there is nothing to compare with. Lives only rise: a picture from before what hear() told changes none back.
  std::optional<MembershipChange> learn(const ClusterState& state);
  // A member speaks in a life that no picture has shown yet: the one before has ended.
  std::optional<MembershipChange> hear(NodeId member, uint32_t life);
  // Nobody listens any more to what was asked by this one, and nobody will come for what it was given a ticket of.
  void forget_gateway(NodeId gateway, std::vector<Effect>& effects);
  // Grants end with the life, or the membership, of either side. What waited for one may be accepted now, without KV.
  std::vector<Arrival> end_lives(const MembershipChange& change, TimePoint now);
  // Their KV is lost, and they are to be computed anew; copies under way end by themselves, as failed ones.
  std::vector<std::pair<RequestId, ModelId>> lost_fetches(const MembershipChange& change) const;
  void forget_fetch(RequestId request) { fetches_.erase(request); }

  // KV of this node that another one may be reading.
  struct Grant {
    RequestId request;
    NodeId reader;
    uint64_t block_bytes = 0;
    std::vector<BlockId> blocks;
  };
  std::vector<Grant> grants() const;
  uint64_t grants_version() const { return grants_version_; }  // rises when they change

  bool idle() const { return offers_.empty() && awaiting_.empty() && withheld_.empty(); }
  std::map<uint64_t, uint64_t> blocks_offered() const;  // of this node's tier, by bytes per block
  // `owned`: the node has it; `computed`: an engine has it, perhaps cancelled; `remote`: its KV is on another node's tier.
  using Knows = std::function<bool(ModelId, RequestId)>;
  void check(const std::function<bool(RequestId)>& owned, const Knows& computed, const Knows& remote) const;

 private:
  // KV on the host tier of this node that somebody has a ticket for. Once a node was granted it, only that node, or its end,
  // gives the blocks back: it may be reading them. Before that it ends with the gateway that has the ticket, or in time.
  struct Offer {
    ModelId model;
    uint64_t block_bytes;
    NodeId gateway;
    std::vector<BlockId> blocks;
    std::optional<NodeId> taker;
    TimePoint due;  // without a taker it ends then; else the taker is asked whether it still needs it
  };
  struct Awaiting {
    NodeId gateway;
    Submit submit;
    TimePoint since;
    Arrival at(TimePoint now) const;  // as if it came now
  };
  using AwaitingList = std::map<RequestId, Awaiting>;
  // KV of a request here that is still on another node, granted.
  struct Fetch {
    ModelId model;
    KvTicket ticket;
  };

  bool supersedes(AwaitingList& list, RequestId request, uint32_t epoch, std::vector<Effect>& effects);
  void forget(AwaitingList& list, AwaitingList::iterator entry, std::vector<Effect>& effects);
  void withdraw(const Offer& offer);  // its blocks are free
  template <typename Over>
  void withdraw_if(Over over);

  const NodeId self_;
  const Duration offer_time_;
  HostTier& tier_;
  std::set<RequestId> leaving_;
  std::map<std::pair<RequestId, uint32_t>, Offer> offers_;  // by request and epoch
  TimePoint offers_due_ = kForever;                         // the first of Offer::due, or earlier
  AwaitingList awaiting_;  // their KV
  AwaitingList withheld_;  // until their withdrawn selves are gone
  std::map<RequestId, Fetch> fetches_;
  std::map<NodeId, uint32_t> members_;  // epochs, as last heard
  bool heard_cluster_ = false;
  uint64_t grants_version_ = 0;
};

}  // namespace shoal
