// Attention apart from experts: how many lanes (micro-batches) hide the time for which a lane's rows are away, how many
// attention devices go with how many expert devices, and in which order a side works. From measured times, for every layer of
// a model alike. Pure. (Formulas: MegaScale-Infer, arXiv 2504.02263, section 4, and StepMesh; checked by src/sim.)
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace shoal {

constexpr uint32_t kLanesMax = 4;

// Seconds of one lane in one layer.
struct LaneTimes {
  double attention = 0;  // computing beside the experts: attention, gate, shared experts
  double experts = 0;    // a request's service, with what it waits at the server
  double dispatch = 0;   // rows on their way
  double combine = 0;    // answers on their way
};

// Whether dispatch and combine share one stream (a copy engine, a single-queue NIC) or pass each other.
enum class Wire : uint8_t { kFullDuplex, kOneStream };

// Seconds from a layer of `lanes` lanes to the next, all of them done:
// P(m) = max(m tA, m tF, m max(td, tc) or m (td + tc), tA + td + tF + tc).
double layer_seconds(const LaneTimes& times, uint32_t lanes, Wire wire = Wire::kFullDuplex);
// Share of the attention side's time that it computes: m tA / P(m).
double attention_busy(const LaneTimes& times, uint32_t lanes, Wire wire = Wire::kFullDuplex);
// No time of the attention side is lost: m >= 1 + (td + tF + tc) / tA, tA >= tF and tA >= what the wire needs.
bool bubble_free(const LaneTimes& times, uint32_t lanes, Wire wire = Wire::kFullDuplex);

struct LanePlan {
  uint32_t lanes = 1;
  double layer_s = 0;        // of all lanes
  double busy = 0;           // of the attention side
  bool bubble_free = false;
  std::string limit;         // what a layer waits for: "attention", "experts", "wire" or "latency"
};

// Times of a lane if the batch is split into so many: measured, or fitted (a lane of half the rows takes more than half the
// time). times[m - 1] are those of m lanes; at most kLanesMax. The fewest lanes among those whose layer takes at most `worth`
// (a part) longer than the best: each costs memory and launches. REQUIRES: times is not empty.
LanePlan plan_lanes(std::span<const LaneTimes> times, Wire wire = Wire::kFullDuplex, double worth = 0.01);
// Where the same times hold for any number of lanes.
LanePlan plan_lanes(const LaneTimes& times, Wire wire = Wire::kFullDuplex, double worth = 0.01);

// A layer's and a lane's time for a token every `token_s`, with `layers` layers; `accepted`: tokens a pass gives, with drafts.
struct LaneBudget {
  double layer_s = 0, lane_s = 0;
};
LaneBudget lane_budget(double token_s, uint32_t layers, uint32_t lanes, double accepted = 1);

// ---- how many devices of each side -----------------------------------------------------------------------------------------

// What a choice of devices would give, as measured or from a cost model.
struct SplitChoice {
  uint32_t attention = 1, experts = 1;  // devices
  uint32_t lanes = 3;
  uint32_t batch = 0;                   // tokens of a lane, per attention device
  LaneTimes times;
  double cost_per_hour = 0;             // of all of them
};

struct SplitGoal {
  double token_s = 0.1;    // between two tokens of a sequence
  uint32_t layers = 0;     // of the model
  double accepted = 1;
  Wire wire = Wire::kFullDuplex;
};

// Tokens per second of all attention devices: N_A m b accepted / (L P(m)).
double split_rate(const SplitChoice& choice, const SplitGoal& goal);
// Whether every token comes within token_s.
bool split_in_time(const SplitChoice& choice, const SplitGoal& goal);
// The choice with the most tokens per cost that keeps the time; then the cheaper one, then the first. NotFound if none keeps
// it, with the quickest there is.
StatusOr<size_t> plan_split(std::span<const SplitChoice> choices, const SplitGoal& goal);

// ---- order -----------------------------------------------------------------------------------------------------------------

// What a side does next of which lane, column by column: each lane begins `delay` columns after the lane before it.
enum class SideStage : uint8_t { kDispatch, kExperts, kCombine, kNop };
struct SideStep {
  uint32_t column = 0;
  uint32_t lane = 0;   // from 0
  uint32_t layer = 0;
  SideStage stage = SideStage::kNop;
  friend bool operator==(const SideStep&, const SideStep&) = default;
};
// The expert side: dispatch, experts, combine and (for three lanes and more) one empty stage per layer, lane i delayed by i
// columns; the empty stage keeps the next layer's dispatch of a lane behind the combine of the lane before it.
std::vector<SideStep> server_order(uint32_t lanes, uint32_t layers);
// "D1 D2 C1 D3 C2 D1' C3 ...": the stages of the communication stream, lanes from 1, one ' for each layer after the first.
std::string wire_order(uint32_t lanes, uint32_t layers);
// The attention side, round-robin: of lane i, layer l: "shared(l-1), combine(l-1), attention(l), gate(l), dispatch(l)".
struct ClientStep {
  uint32_t lane = 0;
  uint32_t layer = 0;  // `layers` for the last stage of a lane: shared and combine of the last layer, then the head
  friend bool operator==(const ClientStep&, const ClientStep&) = default;
};
std::vector<ClientStep> client_order(uint32_t lanes, uint32_t layers);

// Sequences on lanes so that each has about the same work (context and computing), the heaviest first: the lane of each.
// REQUIRES: lanes > 0.
std::vector<uint32_t> even_lanes(std::span<const double> work, uint32_t lanes);

}  // namespace shoal
