// A forward pass that can be left and resumed: a cursor over the layers of a batch, not a call.
//
//   Model::begin(input, workspace) -> Pass;  advance() until it is done, answering what it asks for in between;  logits(i)
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "base/ids.h"
#include "base/status.h"
#include "device/device_span.h"

namespace shoal {

// The state of a sequence in the layers that keep one, of a model that has such (ModelPlan::state_blocks): each list is the blocks
// that hold a state, all of them distinct. A pass reads one state and writes others, so that it can be given up.
struct SliceState {
  std::span<const DeviceAddress> before;  // of tokens [0, position); empty: position is 0
  std::span<const DeviceAddress> after;   // of all that the slice ends
  std::span<const DeviceAddress> kept;    // also written when `kept_rows` of its rows are done
  uint32_t kept_rows = 0;                 // less than its rows; 0: nothing is kept
};

// One sequence's consecutive rows of a pass.
struct SequenceSlice {
  uint32_t rows;
  uint32_t position;                      // of the first row; tokens [0, position) are in the KV blocks already
  uint32_t rope_length;                   // prompt length of the sequence: fixes the base of dynamic rope for its life
  std::span<const DeviceAddress> blocks;  // KV blocks that cover tokens [0, position + rows), each block_bytes long
  SliceState state = {};
  // One or none: the tokens before `position` of the block that it is in are copied from that block first.
  std::span<const DeviceAddress> tail_from = {};
};

// What is wanted of the logits of a row. A device brings that to the host and nothing else.
enum class LogitsWanted : uint8_t {
  kBest,  // the largest
  kTop,   // the `top` largest
  kAll,
  kPooled,  // of a pooled model: its vector, or its scores, of the whole sequence
};
constexpr uint32_t kTopLogitsMax = 256;

struct LogitsQuery {
  uint32_t row;
  LogitsWanted wanted = LogitsWanted::kAll;
  uint32_t top = 0;  // 1 .. kTopLogitsMax, of kTop
};

struct TokenLogit {
  TokenId token;
  float logit;
};

struct RowLogits {
  bool sound = true;                    // neither NaN nor +inf, and something finite; else the rest means nothing
  TokenId best = -1;                    // of kBest; of equal ones the lowest id
  std::span<const TokenLogit> top;      // of kTop: the largest first, equal ones by id
  std::span<const float> all;           // of kAll: [vocab_size]; of kPooled: [hidden], or [labels]
};

struct ForwardInput {
  std::span<const TokenId> tokens;           // [rows]
  std::span<const SequenceSlice> slices;     // their rows, in order, are the rows of the batch
  std::span<const LogitsQuery> logits;       // ascending rows
};

struct ExpertRoutes;

// What a pass waits for: a part of a layer that somebody else computes, for all of its rows.
struct Exchange {
  uint32_t layer = 0;
  uint32_t rows = 0, width = 0;
  DevicePointer<float> input;   // [rows, width]; stays as it is until the pass goes on
  DevicePointer<float> output;  // [rows, width], to be written before it does
  // Of experts: `layer` is counted among those that have some, `output` is [routed rows, width], and these are the rows that go to each
  // of the first `experts`; what goes to others (that give back what they are given) nobody is asked for.
  // Where the experts of a group (kernels/expert_router.h) are summed elsewhere, a row of them is the sum, with weight 1, and the others
  // are zeros with weight 0: weights may be changed so until the pass goes on.
  ExpertRoutes* routes = nullptr;
  uint32_t experts = 0, grouped = 0;  // grouped: as many as groups are of
};

class Pass {
 public:
  virtual ~Pass() = default;

  // Whether somebody else is to have the device first; asked between layers.
  using Pause = std::function<bool()>;

  // Computes up to the next exchange and returns it, or to the end or a pause: nullopt. Never waits for anybody. `pause`: none, or
  // once it says so the pass goes on from there when advance() is called again.
  // An error only of a model that was handed out early (LoadControl): its files were written to, or its load failed; what
  // this pass wrote is not to be believed.
  // REQUIRES: it is not done, and the last exchange was answered.
  virtual StatusOr<std::optional<Exchange>> advance(const Pause& pause = {}) = 0;
  virtual bool done() const = 0;

  // Computes what needs no answer to the last exchange, once it was asked: nothing, or a layer's shared expert. advance() does it
  // otherwise.
  virtual void meanwhile() {}

  // Of the i-th query. Valid as long as the pass. REQUIRES: it is done.
  virtual RowLogits logits(size_t i) = 0;
};

}  // namespace shoal
