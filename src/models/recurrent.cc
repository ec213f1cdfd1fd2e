#include "models/recurrent.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/check.h"
#include "kernels/kernels.h"

namespace shoal {
namespace {

size_t tail_bytes(const StateLayer& layer, uint32_t channels) { return size_t{layer.taps - 1} * channels * sizeof(float); }
size_t scan_bytes(const StateLayer& layer, uint32_t stretch) { return size_t{layer.key_dim} * layer.width(stretch) * sizeof(float); }

uint32_t tail_stretch(const StateLayer& layer, uint32_t index) { return std::min(kTailChannels, layer.channels - index * kTailChannels); }

}  // namespace

uint32_t StateLayer::stretches() const { return static_cast<uint32_t>(div_up(value_dim, kScanValuesMax)); }

uint32_t StateLayer::width(uint32_t stretch) const { return round_up_lanes(std::min(kScanValuesMax, value_dim - stretch * kScanValuesMax)); }

size_t StateLayout::piece_bytes_max(const std::vector<StateLayer>& layers) {
  size_t bytes = 0;
  for (const StateLayer& layer : layers) {
    if (layer.channels > 0) bytes = std::max(bytes, tail_bytes(layer, tail_stretch(layer, 0)));
    if (layer.heads > 0) bytes = std::max(bytes, scan_bytes(layer, 0));
  }
  return round_up(bytes, 64);
}

void StateLayout::place(size_t block_bytes) {
  size_t used = 0;  // of the last block
  blocks = 0;
  const auto add = [&](size_t piece) {
    const size_t size = round_up(piece, 64);
    CHECK_LE(size, block_bytes);
    if (blocks == 0 || used + size > block_bytes) ++blocks, used = 0;
    bytes += piece;
    const StatePlace place{blocks - 1, static_cast<uint32_t>(used)};
    used += size;
    return place;
  };
  for (StateLayer& layer : layers) {
    for (uint32_t i = 0; i * kTailChannels < layer.channels; ++i) layer.tails.push_back(add(tail_bytes(layer, tail_stretch(layer, i))));
    for (uint32_t head = 0; head < layer.heads; ++head) {
      for (uint32_t i = 0; i < layer.stretches(); ++i) layer.scans.push_back(add(scan_bytes(layer, i)));
    }
  }
}

}  // namespace shoal
