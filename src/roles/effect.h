// All outputs of the control plane. host and gateway perform them on real machines, sim over an event heap.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "base/request.h"
#include "engine/step.h"
#include "memory/block_pool.h"
#include "memory/host_tier.h"
#include "memory/page_pool.h"
#include "wire/message.h"

namespace shoal {

struct Send {
  NodeId to;
  Message message;
};

// Node: compute one step of a resident model. Ends in StepDone; at most one in flight per node, or NodeConfig::steps_max beside those
// that wait for experts: the device goes on with whichever can, the one that began first before the others.
struct StartStep {
  ModelId model;
  StepInput input;
};

// Node: fill these pages with a model's weights. Ends in WeightsReady.
struct LoadWeights {
  ModelId model;
  std::vector<PageRun> pages;
  // Nobody had these pages of the model's memory since its weights were dropped from there: they need not be filled, if it is
  // the same weights that are loaded.
  std::vector<PageSpan> whole;
  bool alone = false;  // no other model computes beside it: its first step may run before its weights are packed
};

// Node: the load under way is not wanted any more. It ends within milliseconds, in WeightsReady with Cancelled unless it was
// done by then.
struct CancelLoad {
  ModelId model;
};

// Node: this model comes next and there is no room for it yet. A hint: its files may be read into the memory of the
// machine. Nothing answers.
struct ReadAhead {
  ModelId model;
};

// Node: nothing refers to the model's pages any more. Performed before any later effect that reuses them.
struct DropWeights {
  ModelId model;
};

// Node: nothing is in these pages, and nothing will be put there for a while. Their memory goes back to the machine.
struct ReturnPages {
  std::vector<PageRun> pages;
  Tier tier = Tier::kDevice;
};

// Node: map or unmap slabs of KV blocks. Performed before any later effect; no step that uses a released slab is in
// flight.
struct RemapSlabs {
  std::vector<SlabChange> changes;
  Tier tier = Tier::kDevice;
};

// Node: copy KV blocks between the tiers. Copies may be done in any order: to the device before from it. Ends in KvCopied;
// until then the blocks on both sides belong to the copy. A remote move reads the host tier of node `from`; it fails if
// that node's life ends before the last byte is read.
struct CopyKv {
  ModelId model;
  KvMove move;
  NodeId from;  // of a remote move
};

// Router: tokens for a client, each index exactly once and in order.
struct Deliver {
  Tokens tokens;
};

// Router: the request was not accepted, or can never be finished. The one and only word about it.
struct Refuse {
  RequestId id;
  Status status;            // Unavailable: overload, draining, no node; ResourceExhausted: queue full; DeadlineExceeded
  Duration retry_after{0};  // 0: do not say
};

// Any role: send a Tick at or soon after this instant. The earliest one that was asked for since the last event holds, and a Tick
// ends them all: what lies further on is asked for again.
struct WakeAt {
  TimePoint at;
};

using Effect = std::variant<Send, StartStep, LoadWeights, CancelLoad, ReadAhead, DropWeights, ReturnPages, RemapSlabs, CopyKv, Deliver, Refuse, WakeAt>;

}  // namespace shoal
