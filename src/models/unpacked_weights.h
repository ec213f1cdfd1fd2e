// Weights that are not in their place yet, while a load packs them: made from the mapped files for a step that cannot wait.
//
// Nobody has to touch memory of the model's own for that, which is most of what a first load takes: a fresh page costs more
// than its contents (docs/PERFORMANCE.md). The same kernels compute the same bits from them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/status.h"
#include "kernels/ops.h"
#include "models/weights.h"

namespace shoal {

class UnpackedWeights {
 public:
  // REQUIRES: can_serve(*layout). Nothing of the layout counts as being there yet; its experts are not asked for if they are left out.
  UnpackedWeights(std::shared_ptr<const WeightLayout> layout, WeightLayout::Experts experts);

  // Whether the files are mapped, and no panel is too large to be made on the way.
  static bool can_serve(const WeightLayout& layout);

  const PanelMaker* maker(const MatrixPlace& place) const;     // null: the matrix is in its place
  const std::byte* stored(const EmbeddingPlace& place) const;  // its rows in the file; null likewise
  // DataLoss if what was made until now is not to be believed.
  Status check() const { return layout_->check(); }

  // By the load: so many more panels of a matrix, or bytes of a copy, are in their place.
  void packed(uint32_t matrix, uint64_t panels) { panels_missing_[matrix].fetch_sub(panels, std::memory_order_release); }
  void copied(uint32_t copy, uint64_t bytes) { bytes_missing_[copy].fetch_sub(bytes, std::memory_order_release); }

 private:
  class Maker : public PanelMaker {
   public:
    Maker(const WeightLayout& layout, uint32_t matrix) : layout_(layout), matrix_(matrix) {}
    void make(uint32_t panel, std::byte* out) const override { layout_.make_panel(matrix_, panel, out); }

   private:
    const WeightLayout& layout_;
    uint32_t matrix_;
  };

  std::shared_ptr<const WeightLayout> layout_;
  std::vector<Maker> makers_;
  std::vector<std::atomic<uint64_t>> panels_missing_, bytes_missing_;
};

// A load whose model computes meanwhile: between the thread that loads and the one that computes.
class PendingLoad {
 public:
  explicit PendingLoad(std::shared_ptr<UnpackedWeights> unpacked) : unpacked_(std::move(unpacked)) {}

  // What is not in its place; null once everything is. The load's error if it failed. Whoever holds it last unmaps the files.
  StatusOr<std::shared_ptr<UnpackedWeights>> weights() const;
  void end(Status outcome);

 private:
  mutable std::mutex mutex_;
  Status outcome_;
  std::shared_ptr<UnpackedWeights> unpacked_;
};

}  // namespace shoal
