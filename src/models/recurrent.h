// Layers that keep a state of fixed size: where a sequence's state lies in its blocks, and the weights that change it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "device/device_span.h"
#include "models/weights.h"

namespace shoal {

// Where a piece of a state begins: a block of those that hold it, and bytes from that block's beginning.
struct StatePlace {
  uint32_t block = 0, offset = 0;
};

// What one layer keeps for a sequence, all of it f32, in pieces of which none lies across two blocks:
//   the inputs of its convolution for the last taps - 1 tokens   [stretches of kTailChannels channels][taps - 1][channels]
//   the state of its recurrence                                  [heads][stretches of kScanValuesMax values][key_dim][width]
struct StateLayer {
  uint32_t channels = 0, taps = 0;             // 0 channels: no convolution
  uint32_t heads = 0, key_dim = 0, value_dim = 0;  // 0 heads: no recurrence
  std::vector<StatePlace> tails, scans;

  uint32_t stretches() const;                  // of a head's values
  uint32_t width(uint32_t stretch) const;      // of one, in whole lanes
};
constexpr uint32_t kTailChannels = 512;

// A state is held by whole KV blocks: it is allocated, copied, parked and handed over as they are.
struct StateLayout {
  std::vector<StateLayer> layers;  // of the model; those without a state are empty
  uint32_t blocks = 0;             // that hold a state; 0: the model keeps none
  uint64_t bytes = 0;              // used in them

  // The least bytes of a block that any piece of `layers` fits.
  static size_t piece_bytes_max(const std::vector<StateLayer>& layers);
  // Places the pieces. REQUIRES: block_bytes >= piece_bytes_max(layers).
  void place(size_t block_bytes);
};

// A depthwise convolution over the tokens (ConvolveCall, kernels/recurrence.h).
struct ConvolutionPlaces {
  uint32_t layer = 0;
  uint32_t channels = 0, first = 0;  // first: of the stored weights
  uint32_t in_state = 0;             // its first channel among the layer's
  std::vector<VectorPlace> taps;     // [channels] each, the oldest token's first
  std::optional<VectorPlace> bias;   // [channels]
  bool silu = true;
};

// A recurrence (ScanCall, kernels/recurrence.h). With t = softplus(time + time_bias) of a head, or of each of its key channels,
// and A = rate: decay = exp(A t). The delta rule takes keys and queries of length 1 (queries over sqrt(key_dim)) and
// beta = sigmoid; the plain form takes t v for v, t within [time_min, time_max], and adds skip * v to what comes out.
struct RecurrencePlaces {
  uint32_t layer = 0;
  uint32_t heads = 0, key_heads = 0;     // a key head for every heads / key_heads of them
  uint32_t key_dim = 0, value_dim = 0;
  bool tiled_keys = false;               // head h has key head h mod key_heads; else h / (heads / key_heads)
  bool by_key = false;                   // a time for every channel of the keys
  bool delta = false;
  float time_min = 0, time_max = 0;
  VectorPlace rate;                      // [heads], negative
  VectorPlace time_bias;                 // [heads], or [heads, key_dim]
  std::optional<VectorPlace> skip;       // [heads]
};

}  // namespace shoal
