// Everything that crosses from one role to another, as values. The bytes are those of messages.proto, written and
// checked by encode() and decode(); a peer's bytes never reach a role unvalidated.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/device_event.h"
#include "base/expert_counts.h"
#include "base/instance_role.h"
#include "base/model_digest.h"
#include "base/pooling_settings.h"
#include "base/request.h"
#include "base/status.h"
#include "base/switch_record.h"

namespace shoal {

// K and V of a request's first tokens lie on a node's host tier, for the node that comes with this ticket:
//
//   node A -> gateway  Handover{ticket}       gateway -> node B  Submit{ticket}
//   node B -> node A   KvWanted               node A -> node B   KvGranted{blocks}, or none: B computes anew
//   node B -> node A   KvTaken, when it has copied them or does not need them
//
// A gateway that cannot pass a ticket on, or lost the node it passed it to, says KvTaken; that counts until somebody was
// granted the blocks. A node that hands a request over before it has read them says KvTaken{passed_on}, and the ticket goes
// on with its Handover. When A or B joins the cluster anew, all grants between them end; what nobody was granted ends with
// the gateway's life, or in time. A grant that has lasted long is repeated: who does not know of it says KvTaken.
struct KvTicket {
  NodeId node;               // where the blocks are
  uint32_t epoch = 0;        // of the request when it was there
  uint32_t tokens = 0;       // covered by the blocks
  uint64_t block_bytes = 0;  // the shape class
  ModelDigest weights;       // that computed them (WeightsReady)
  friend bool operator==(const KvTicket&, const KvTicket&) = default;
};

// gateway -> node. Serve this request; tokens come back to the sender.
struct Submit {
  Request request;
  Duration waited{0};          // since it came to the gateway: what its deadlines count from
  std::optional<KvTicket> kv;  // what is computed of it already
  friend bool operator==(const Submit&, const Submit&) = default;
};

// node -> gateway. This node goes no further with the request: to be submitted elsewhere, under a higher epoch. Nothing
// is lost, only moved: all its tokens were sent before.
struct Handover {
  RequestId id;
  uint32_t epoch = 0;
  std::optional<KvTicket> kv;
  friend bool operator==(const Handover&, const Handover&) = default;
};

// node -> the node of a ticket.
struct KvWanted {
  RequestId id;
  uint32_t epoch = 0;  // of the ticket
  friend bool operator==(const KvWanted&, const KvWanted&) = default;
};
struct KvGranted {
  RequestId id;
  uint32_t epoch = 0;
  std::vector<BlockId> blocks;  // of the granting node's host tier; empty: gone
  friend bool operator==(const KvGranted&, const KvGranted&) = default;
};

// To the node of a ticket: its blocks are not needed any more. Unknown ones are no error.
struct KvTaken {
  RequestId id;
  uint32_t epoch = 0;      // of the ticket
  bool passed_on = false;  // by this node: somebody else comes with the ticket
  friend bool operator==(const KvTaken&, const KvTaken&) = default;
};

// gateway -> node.
struct SetInstanceRole {
  InstanceRole instance_role = InstanceRole::kBoth;
  friend bool operator==(const SetInstanceRole&, const SetInstanceRole&) = default;
};

// gateway -> node. Hand over all requests of this model: another node has time for them.
struct MigrateRequests {
  ModelId model;
  friend bool operator==(const MigrateRequests&, const MigrateRequests&) = default;
};

// gateway -> node. The client went away, a stop string matched or the deadline passed. Unknown ids are no error.
struct Cancel {
  RequestId id;
  uint32_t epoch = 0;
  friend bool operator==(const Cancel&, const Cancel&) = default;
};

// gateway -> node. Make a model resident or give its memory back when no request uses it any more.
struct SetResident {
  ModelId model;
  bool resident = true;
  friend bool operator==(const SetResident&, const SetResident&) = default;
};

// gateway -> node. How a model shares the device from now on; requests under way are not asked again whether they fit.
struct Configure {
  ModelId model;
  PoolingSettings settings;
  friend bool operator==(const Configure&, const Configure&) = default;
};

// node -> gateway. Tokens [first_index, first_index + tokens.size()) of a request, and its end.
struct Tokens {
  RequestId id;
  uint32_t epoch = 0;
  uint32_t first_index = 0;
  std::vector<SampledToken> tokens;
  std::vector<SampledToken> prompt;      // with the first delta, if asked for: prompt tokens 1.. scored
  std::optional<FinishReason> finish;    // set exactly once, on the last delta
  std::string error;                     // for people; with kError only
  StatusCode error_code = StatusCode::kOk;
  uint32_t cached_prompt_tokens = 0;     // served from the prefix index; known from the first delta on
  Duration queued{0};                    // at the node, before its first step
  Duration retry_after{0};               // with kError: when the same request may be taken; 0: not known
  ModelDigest weights;                   // that computed the tokens (WeightsReady)
  friend bool operator==(const Tokens&, const Tokens&) = default;
};

enum class ModelState : uint8_t { kUnloaded, kLoading, kLoaded, kFailed };
std::string_view model_state_name(ModelState state);

// One model as its node sees it. Counters only ever grow while the node lives.
struct ModelStatus {
  ModelId model;
  ModelState state = ModelState::kUnloaded;
  float progress = 0.0f;  // of the load under way, 0..1
  std::string error;      // why the last load failed
  std::string held_up;    // who computes a part of its steps and is away; empty: they go on
  uint32_t waiting = 0;
  uint32_t running = 0;
  uint64_t weight_bytes = 0;     // on the device; 0 when unloaded
  uint64_t kv_bytes_used = 0;    // blocks held by sequences or the prefix index
  uint64_t kv_bytes_active = 0;  // of these, held by sequences
  uint32_t max_model_len = 0;    // 0: not known before the first load
  uint64_t prompt_tokens = 0;
  uint64_t generated_tokens = 0;
  uint64_t prefix_queries = 0;   // prompt tokens looked up in the prefix index
  uint64_t prefix_hits = 0;      // prompt tokens found there
  uint64_t preemptions = 0;
  uint64_t steps = 0;
  uint64_t loads = 0;
  std::array<uint64_t, kStepTokenBuckets.size() + 1> steps_by_tokens{};
  uint64_t step_tokens = 0;
  uint64_t parkings = 0;         // sequences whose KV went to the host tier
  uint64_t kv_bytes_host = 0;    // there now
  double wait_seconds = 0;       // predicted, until the first step of a request that comes now
  double switch_seconds = 0;     // predicted, of the switch that such a request would cause; 0: none
  double prompt_token_seconds = 0;  // predicted, of computing one
  bool room = true;              // it is there, or could be without others going
  SloTarget slo;
  double answer_tokens = 0;      // expected of an answer
  double answer_pressure = 0;    // that one more answer adds to decode_pressure
  ExpertCounts experts;          // empty of a model without
  friend bool operator==(const ModelStatus&, const ModelStatus&) = default;
};

// node -> gateways, on every change of residency and at intervals.
struct NodeStatus {
  uint64_t version = 0;  // rises with every report; older ones are ignored
  uint64_t device_bytes = 0;
  uint64_t device_bytes_free = 0;
  uint64_t workspace_bytes = 0;  // of the largest step, beside the device's pages
  InstanceRole instance_role = InstanceRole::kBoth;
  double prompt_pressure = 0;    // predicted seconds to compute all prompts that wait over those until they are due; > 1: some will be late
  double decode_pressure = 0;    // share of the device that its decodes need to keep their time (policy/decode_turns.h); > 1: too much
  std::vector<ModelStatus> models;
  TimePoint at{};                        // on the node's clock, as the instants of `switches` are
  std::vector<SwitchRecord> switches;    // ended since the report before; told once
  std::vector<DeviceEvent> events;       // likewise
  std::vector<ModelId> next;             // models that wait for the device, the next one first
  uint64_t kv_bytes_bound = 0;           // slabs of KV on the device
  uint64_t kv_bytes_free = 0;            // of these, in no block
  uint64_t host_bytes = 0;               // the tier below the device
  uint64_t kv_bytes_out = 0;             // of KV copied there since the start
  uint64_t kv_bytes_in = 0;              // and back
  friend bool operator==(const NodeStatus&, const NodeStatus&) = default;
};

using Message = std::variant<Submit, Cancel, SetResident, Tokens, NodeStatus, Configure, Handover, KvWanted, KvGranted, KvTaken,
                             SetInstanceRole, MigrateRequests>;

constexpr size_t kMessageBytesMax = 256u << 20;

// `life`: of the sender, its epoch in the cluster; 0: it has none yet, or there is only one.
std::string encode(const Message& message, uint32_t life = 0);

// InvalidArgument for anything encode() does not write: truncated, unknown kind, absurd counts, non-finite numbers.
// `life`: gets the sender's.
StatusOr<Message> decode(std::string_view bytes, uint32_t* life = nullptr);

}  // namespace shoal
