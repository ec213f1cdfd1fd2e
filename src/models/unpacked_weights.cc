#include "models/unpacked_weights.h"

#include <utility>

#include "base/check.h"

namespace shoal {

UnpackedWeights::UnpackedWeights(std::shared_ptr<const WeightLayout> layout, WeightLayout::Experts experts)
    : layout_(std::move(layout)), panels_missing_(layout_->matrix_count()), bytes_missing_(layout_->copy_count()) {
  CHECK(can_serve(*layout_));
  for (uint32_t i = 0; i < panels_missing_.size(); ++i) {
    makers_.emplace_back(*layout_, i);
    const bool left = layout_->place(i).expert && experts == WeightLayout::Experts::kLeft;
    panels_missing_[i] = left ? 0 : layout_->matrix(i).panels();
  }
  for (uint32_t i = 0; i < bytes_missing_.size(); ++i) bytes_missing_[i] = layout_->copied(i).bytes;
}

bool UnpackedWeights::can_serve(const WeightLayout& layout) {
  if (layout.io() != ModelIo::kMapped) return false;
  for (uint32_t i = 0; i < layout.matrix_count(); ++i) {
    if (panel_bytes(layout.matrix(i).format, layout.matrix(i).columns) > kMadePanelBytesMax) return false;
  }
  return true;
}

const PanelMaker* UnpackedWeights::maker(const MatrixPlace& place) const {
  return panels_missing_[place.index].load(std::memory_order_acquire) == 0 ? nullptr : &makers_[place.index];
}

const std::byte* UnpackedWeights::stored(const EmbeddingPlace& place) const {
  return bytes_missing_[place.index].load(std::memory_order_acquire) == 0 ? nullptr : layout_->copied(place.index).data;
}

StatusOr<std::shared_ptr<UnpackedWeights>> PendingLoad::weights() const {
  std::lock_guard lock(mutex_);
  if (!outcome_.ok()) return outcome_;
  return unpacked_;
}

void PendingLoad::end(Status outcome) {
  std::shared_ptr<UnpackedWeights> last;  // goes after the lock
  std::lock_guard lock(mutex_);
  outcome_ = std::move(outcome);
  last = std::move(unpacked_);
}

}  // namespace shoal
