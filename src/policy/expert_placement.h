// Which expert servers hold which experts of a model, and who answers for which share of their rows. Pure values and
// functions; the controller, `shoal serve` and the simulator call the same ones.
//
// A change of placement is always made in this order: copy what is new, publish the next version, drop what is old once
// every client has said that it knows that version. So a server's memory must hold old and new at once, and where it cannot,
// a plan only makes room (`more`), and the next plan uses it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace shoal {

inline constexpr uint32_t kWholeShare = 1u << 16;

struct ExpertShare {
  NodeId server;
  uint32_t share = 0;  // of kWholeShare: of the expert's rows; 0: a copy in reserve, asked when the others are gone
  friend bool operator==(const ExpertShare&, const ExpertShare&) = default;
};

struct LayerPlacement {
  uint32_t layer = 0;                             // of the model
  std::vector<std::vector<ExpertShare>> experts;  // [experts][copies]; the shares of an expert add up to kWholeShare
  friend bool operator==(const LayerPlacement&, const LayerPlacement&) = default;
};

struct ExpertPlacement {
  uint64_t version = 0;
  std::vector<LayerPlacement> layers;  // only layers with experts, ascending
  // Empty where there is no such layer or expert, or nobody has it.
  std::span<const ExpertShare> of(uint32_t layer, uint32_t expert) const;
  friend bool operator==(const ExpertPlacement&, const ExpertPlacement&) = default;
};

struct ExpertLayerSpec {
  uint32_t layer = 0;
  uint32_t experts = 0;
  uint64_t expert_bytes = 0;
};

struct ExpertServerSpec {
  NodeId server;
  uint64_t memory_bytes = 0;  // for experts
  double speed = 1;           // relative: a server of speed 2 needs half the time
  uint32_t domain = 0;        // what fails together: a machine, a rack, an offer of spot capacity
  bool draining = false;      // it is to hold nothing, and goes once that is published
};

// Seconds that a server of speed 1 takes for one expert's rows in a batch: linear in the rows, and in the mean reading the
// weights if any row comes (rows arrive independently). With few rows it is how many experts are active that counts.
struct ExpertCost {
  double active_s = 0;
  double row_s = 1;
  double seconds(double rows) const;
};

struct ExpertSample {  // one measured batch
  double rows = 0, active = 0, seconds = 0;
};
// Least squares of seconds = fixed + active_s active + row_s rows over a measured table, none negative; the fixed part is
// the same for every placement. InvalidArgument where there are fewer than three samples or they do not tell the terms apart.
StatusOr<ExpertCost> fit_expert_cost(std::span<const ExpertSample> table);

// The number of copies that an expert should have, from the operator or from its heat (policy/expert_heat.h).
struct ExpertCopies {
  uint32_t layer = 0, expert = 0, copies = 0;
  friend bool operator==(const ExpertCopies&, const ExpertCopies&) = default;
};

// REQUIRES of all spans: they outlive the call.
struct PlacementView {
  std::span<const ExpertLayerSpec> layers;              // ascending by layer
  std::span<const ExpertServerSpec> servers;            // that are there; one that `current` names and this does not is lost
  std::span<const std::vector<double>> rows = {};       // [layers][experts] rows a batch; empty: all alike
  const ExpertPlacement* current = nullptr;             // what is published and held; null: nothing yet
  std::span<const ExpertCopies> copies = {};            // instead of what the planner would choose
};

struct PlacementOptions {
  uint32_t copies_min = 2;   // where memory and servers allow; on different servers, and domains where there are any
  double copy_above = 1.5;   // a first placement gives more copies while an expert's rows per copy are above this multiple
                             // of the layer's mean per expert; 0: as long as there is memory
  ExpertCost cost;
  // Moves for balance alone: at most so many in a plan, and only if the time that they save in so many passes is more than
  // that of copying their bytes, times `caution`.
  uint32_t moves_max = 4096;
  double passes = 20'000;
  double copy_bytes_per_second = 10e9;
  double caution = 2;
  double gain_min = 0.005;   // of a layer's time: below this it is noise
};

struct ExpertMove {
  uint32_t layer = 0, expert = 0;
  NodeId server;                // that gets or drops it
  std::optional<NodeId> from;   // of a copy: who has it and is not lost; none: the files
  friend bool operator==(const ExpertMove&, const ExpertMove&) = default;
};

struct PlacementPlan {
  std::vector<ExpertMove> copies;   // first
  ExpertPlacement target;           // then published
  std::vector<ExpertMove> drops;    // last, when every client knows the target
  uint64_t copy_bytes = 0;
  uint32_t missing = 0;             // experts that nobody holds in the target: their rows wait
  uint32_t single = 0;              // experts with fewer copies than copies_min in the target
  bool more = false;                // it only made room: plan again once it is applied
  bool empty() const { return copies.empty() && drops.empty(); }
};

// From what is there to what should be there, with as few copies as that takes, the same for the same view: experts that
// nobody holds, then those with too few copies, copies asked for, then moves that pay. One call covers the first placement,
// a server that joined, one that drains, one that was lost, and drift of the loads. Errors name what is impossible: experts
// beyond all memory (ResourceExhausted), a server that drains and holds what nobody else has room for (FailedPrecondition),
// unknown layers, experts and servers (NotFound), two servers of one name, speeds and shapes that are none (InvalidArgument).
StatusOr<PlacementPlan> plan_placement(const PlacementView& view, const PlacementOptions& options);

// One expert from a server to another, by the operator's word. FailedPrecondition where `from` does not hold it or `to` does.
StatusOr<PlacementPlan> plan_expert_move(const PlacementView& view, uint32_t layer, uint32_t expert, NodeId from, NodeId to);

// The same experts on the same servers with other shares: for changed loads, free of any copy.
ExpertPlacement share_anew(const PlacementView& view, const PlacementOptions& options);

// The placement of EPLB as one of ours: `servers` of equal memory, experts of a layer spread by policy/eplb.h into
// `replicas` slots; shares are equal, as published.
StatusOr<ExpertPlacement> place_eplb(const PlacementView& view, uint32_t replicas, uint32_t groups, uint32_t nodes);

// Who answers rows of an expert: the same for the same key, in proportion to the shares of those who are not suspected;
// null if nobody is left.
const ExpertShare* choose_copy(std::span<const ExpertShare> copies, uint64_t key, std::span<const NodeId> suspected = {});

// Seconds that each of view.servers takes for each layer: [layers][servers].
std::vector<std::vector<double>> server_seconds(const PlacementView& view, const ExpertPlacement& placement, const ExpertCost& cost);

// The slowest server's time over the mean by speed, summed over layers; 1 is perfect.
double imbalance(const PlacementView& view, const ExpertPlacement& placement, const ExpertCost& cost);

// What must hold of a placement that is to be published: every server is there, no expert twice on one, shares whole, memory
// kept. The first fault, named.
Status check_placement(const PlacementView& view, const ExpertPlacement& placement);

}  // namespace shoal
