#include "models/expert_cache.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"

namespace shoal {
namespace {

constexpr uint64_t kPieceBytes = 256 << 10;  // packed by a thread at a time
constexpr double kLargest = 1e200;           // of uses, before all are made smaller

}  // namespace

uint64_t ExpertCache::slot_bytes(const WeightLayout& layout) {
  uint64_t bytes = 0;
  for (const WeightLayout::Expert& expert : layout.experts()) bytes = std::max(bytes, expert.bytes);
  return bytes;
}

uint64_t ExpertCache::least_bytes(const WeightLayout& layout, uint32_t per_layer) {
  return layout.experts_at() + per_layer * slot_bytes(layout);
}

ExpertCache::ExpertCache(std::shared_ptr<const WeightLayout> layout, uint32_t per_layer, DeviceAddress memory, uint64_t bytes,
                         std::unique_ptr<WeightSink> sink)
    : layout_(std::move(layout)),
      per_layer_(per_layer),
      layers_(static_cast<uint32_t>(layout_->experts().size() / per_layer)),
      slot_bytes_(slot_bytes(*layout_)),
      slots_at_(memory + layout_->experts_at()),
      sink_(std::move(sink)),
      slots_((bytes - layout_->experts_at()) / slot_bytes_),
      slot_of_(layout_->experts().size(), kNowhere),
      uses_(layout_->experts().size()),
      passes_(layers_),
      seen_(layers_) {
  CHECK_GE(bytes, least_bytes(*layout_, per_layer));
}

ExpertSlots ExpertCache::slots() const {
  ExpertSlots out;
  for (const Slot& slot : slots_) out.experts.push_back(slot.expert);
  // In what a use counts in its layer's next pass, so that both are of one unit in a cache that begins.
  for (uint32_t expert = 0; expert < uses_.size(); ++expert) {
    out.uses.push_back(uses_[expert] / (std::exp2(static_cast<double>(passes_[expert / per_layer_]) / kHalfLife) * scale_));
  }
  return out;
}

void ExpertCache::adopt(const ExpertSlots& slots, std::span<const ByteRange> present) {
  CHECK_EQ(requirements_, 0u);
  if (slots.experts.size() != slots_.size() || slots.uses.size() != uses_.size()) return;
  uses_ = slots.uses;
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    const uint32_t expert = slots.experts[i];
    const uint64_t at = layout_->experts_at() + i * slot_bytes_;
    if (expert == kNowhere || !covers(present, at, at + layout_->experts()[expert].bytes)) continue;
    slots_[i].expert = expert;
    slot_of_[expert] = i;
  }
}

double ExpertCache::weight_now(uint32_t layer) {
  const double weight = std::exp2(static_cast<double>(++passes_[layer]) / kHalfLife) * scale_;
  if (weight < kLargest) return weight;
  scale_ /= kLargest;
  for (double& uses : uses_) uses /= kLargest;
  return weight / kLargest;
}

// Slots of what was used least, and of such as were used alike, of the layer that is furthest from having its turn again.
std::vector<uint32_t> ExpertCache::victims(uint32_t layer, size_t count) const {
  std::vector<std::tuple<double, int64_t, uint32_t>> candidates;  // the first ones go
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    if (slot.expert == kNowhere) {
      candidates.emplace_back(-1, 0, i);
    } else if (slot.needed_at != requirements_) {
      const int64_t ahead = (slot.expert / per_layer_ + layers_ - layer - 1) % layers_;
      candidates.emplace_back(uses_[slot.expert], -ahead, i);
    }
  }
  CHECK_GE(candidates.size(), count);
  std::partial_sort(candidates.begin(), candidates.begin() + static_cast<ptrdiff_t>(count), candidates.end());
  std::vector<uint32_t> result(count);
  for (size_t i = 0; i < count; ++i) result[i] = std::get<2>(candidates[i]);
  return result;
}

void ExpertCache::require(const ExpertPlaces& places, std::span<const uint32_t> wanted, ThreadPool& threads) {
  const uint32_t layer = places.first / per_layer_;
  seen_[layer] = &places;
  ++requirements_;
  const double weight = weight_now(layer);
  std::vector<uint32_t> missing;
  for (const uint32_t index : wanted) {
    const uint32_t expert = places.first + index;
    uses_[expert] += weight;
    if (slot_of_[expert] == kNowhere) missing.push_back(expert);
    else slots_[slot_of_[expert]].needed_at = requirements_;
  }
  counts_.lookups += wanted.size();
  counts_.hits += wanted.size() - missing.size();
  if (missing.empty()) return;
  const std::vector<uint32_t> taken = victims(layer, missing.size());
  for (size_t i = 0; i < missing.size(); ++i) {
    Slot& slot = slots_[taken[i]];
    if (slot.expert != kNowhere) slot_of_[slot.expert] = kNowhere;
    slot = {missing[i], requirements_};
    slot_of_[missing[i]] = taken[i];
  }
  fetch(missing, threads);
}

void ExpertCache::fetch(std::span<const uint32_t> experts, ThreadPool& threads) {
  struct Piece {
    uint32_t matrix, begin, end;  // panels
    uint64_t at;                  // of the first, in the model's memory
    uint64_t panel;               // bytes
  };
  std::vector<Piece> pieces;
  for (const uint32_t number : experts) {
    const WeightLayout::Expert& expert = layout_->experts()[number];
    const uint64_t slot = layout_->experts_at() + slot_of_[number] * slot_bytes_;
    for (uint32_t index = expert.first; index < expert.first + expert.matrices; ++index) {
      const MatrixPlace& place = layout_->place(index);
      const uint64_t bytes = panel_bytes(place.matrix.format, place.matrix.columns), at = slot + place.offset - expert.offset;
      const auto step = static_cast<uint32_t>(std::max<uint64_t>(kPieceBytes / bytes, 1));
      for (uint32_t begin = 0; begin < place.matrix.panels(); begin += step) {
        pieces.push_back({index, begin, std::min(begin + step, static_cast<uint32_t>(place.matrix.panels())), at + begin * bytes, bytes});
      }
    }
    counts_.bytes_fetched += expert.bytes;
  }
  threads.parallel_for(pieces.size(), [&](size_t i, int) {
    const Piece& piece = pieces[i];
    const std::span<std::byte> out = sink_->take(piece.at, (piece.end - piece.begin) * piece.panel);
    for (uint32_t panel = piece.begin; panel < piece.end; ++panel) {
      layout_->make_panel(piece.matrix, panel, out.data() + (panel - piece.begin) * piece.panel);
    }
    sink_->give_back(piece.at, out);
  });
  sink_->finish();
}

DeviceAddress ExpertCache::base(const ExpertPlaces& places, uint32_t index) const {
  const uint32_t expert = places.first + index;
  CHECK(slot_of_[expert] != kNowhere);
  return {(slots_at_ + slot_of_[expert] * slot_bytes_).address - layout_->experts()[expert].offset};
}

const ExpertPlaces* ExpertCache::after(const ExpertPlaces& places) const {
  const uint32_t layer = places.first / per_layer_ + 1;
  return layer < layers_ ? seen_[layer] : nullptr;
}

void ExpertCache::expect(const ExpertPlaces& places, std::span<const uint32_t> wanted) const {
  for (const uint32_t index : wanted) {
    if (slot_of_[places.first + index] != kNowhere) continue;
    const WeightLayout::Expert& expert = layout_->experts()[places.first + index];
    for (uint32_t i = 0; i < expert.matrices; ++i) layout_->will_need(expert.first + i);
  }
}

}  // namespace shoal
