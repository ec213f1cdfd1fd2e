// Extents of model files in the order in which a load wants them: out of the mapped files, or read past the system's
// cache into a bounded ring. Both read ahead of whoever takes them.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "formats/checkpoint.h"

namespace shoal {

// How weights come from the disk.
//   kMapped  through the system's cache, where they stay for the next load; copied by nobody
//   kDirect  past it (O_DIRECT): for models larger than the memory that is left for caches, and disks that are faster so
enum class ModelIo { kMapped, kDirect };

// Thread-safe. Every index is taken once, in ascending order but for those that run side by side, and given back. Or else
// stop() is called: then nobody waits any more.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // The bytes of extent `index`; waits for them if need be. DataLoss naming the file if it ends early or its disk fails;
  // Cancelled after stop().
  virtual StatusOr<std::span<const std::byte>> take(size_t index) = 0;
  virtual void give_back(size_t index) = 0;
  virtual void stop() = 0;
};

// `extents` lie in the mapped files of `checkpoint`, which outlives the source; others (tests build checkpoints in
// memory) are handed out as they are.
StatusOr<std::unique_ptr<WeightSource>> open_weight_source(const Checkpoint& checkpoint, ModelIo io,
                                                           std::vector<std::span<const std::byte>> extents);

}  // namespace shoal
