// All inputs of the control plane. A role handles those that concern it and ignores the rest.
#pragma once

#include <string>
#include <variant>

#include "base/request.h"
#include "base/switch_record.h"
#include "engine/step.h"
#include "membership/cluster_state.h"
#include "roles/node_config.h"
#include "wire/message.h"

namespace shoal {

// A message arrived. `from` is who sent it, as the transport knows it. A role that has heard of a later life of the sender drops it.
struct MessageFrom {
  NodeId from;
  Message message;
  uint32_t life = 0;  // of the sender when it sent; 0: it does not say
  std::string unknown_model;  // why it is about a model that this process does not have (wire/model_names.h); its number is of nobody

  bool of_life_before(uint32_t epoch) const { return life != 0 && life < epoch; }
};

// Router: a client's request, validated and in ids. `arrival` is set by the router.
struct NewRequest {
  Request request;
  TimePoint deadline = kForever;  // for the whole answer
};

// Router: the client hung up, or has what it wanted (a stop string).
struct ClientGone {
  RequestId id;
};

// Router: make a model resident, or not (admin).
struct ResidencyWanted {
  ModelId model;
  bool resident = true;
};

// Router: how a model shares its devices from now on (a file of settings was read again).
struct SettingsWanted {
  Configure settings;
};

// Any role: a new picture of the cluster.
struct ClusterChanged {
  ClusterState state;
};

// Any role: messages from this peer, or to it, were lost. What was agreed with it is void, as if it had ended and begun anew.
struct PeerLost {
  NodeId peer;
};

// Any role: messages to and from this peer pass (again), in a process apart; nothing that was said before counts.
struct PeerConnected {
  NodeId peer;
};

// Controller: it is the one that decides, or not any more.
struct LeadershipChanged {
  bool leads = false;
};

// Any role: finish what is accepted, take nothing new.
struct DrainRequested {};

// Node: the step in flight on this node's device ended.
struct StepDone {
  ModelId model;
  StepResult result;
};

// Node: the load asked for by LoadWeights ended; not OK gives the reason.
struct WeightsReady {
  ModelId model;
  Status status;
  LoadStages stages;
  ModelDigest weights;   // which they are
  bool packing = false;  // one step can run, the load goes on: ends in WeightsPacked, and until then no other load begins
  // Of a load that was called off: pages of its memory that are as it would have left them, ascending and apart. The next load of
  // the same model may adopt them.
  std::vector<PageSpan> whole = {};
};

// Node: the load that went on after WeightsReady ended. Not OK: what is on the device is not to be computed with; steps that
// ran meanwhile said so themselves.
struct WeightsPacked {
  ModelId model;
  Status status;
  LoadStages stages;
  std::vector<PageSpan> whole = {};  // as of WeightsReady
};

// Node: the files of a model that was loaded have been read, and these are its weights. Means nothing for others than those that
// were loaded last.
struct DigestKnown {
  ModelId model;
  ModelDigest weights;
};

// Node: the copies of CopyKv are done. Only a copy from another node can fail: that node was lost before it was done.
struct KvCopied {
  ModelId model;
  uint64_t move = 0;
  bool ok = true;
};

// Node: the load under way has come so far, 0..1.
struct LoadProgress {
  ModelId model;
  float progress = 0.0f;
};

// Node: one more model. With static scheduling it is served if it fits beside those that are, and as soon as it does.
// REQUIRES: its id was never used on this node, and it fits the device alone.
struct ModelAdded {
  NodeModel model;
};

// Node: takes no new requests for this model; when those it has are ended, nothing is left of it. Whoever is not known is
// none of its business.
struct ModelRetired {
  ModelId model;
};

// Any role: a wake-up asked for by WakeAt.
struct Tick {};

using Event = std::variant<MessageFrom, NewRequest, ClientGone, ResidencyWanted, SettingsWanted, ClusterChanged, PeerLost, PeerConnected,
                           LeadershipChanged, DrainRequested, StepDone, WeightsReady, WeightsPacked, KvCopied, LoadProgress, DigestKnown, ModelAdded, ModelRetired, Tick>;

}  // namespace shoal
