// Extents of model files in the order in which a load wants them: out of the mapped files, or read past the system's
// cache into a bounded ring. Both read ahead of whoever takes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "formats/checkpoint.h"

namespace shoal {

constexpr uint64_t kDirectRingBytes = 64ull << 20;  // of a load that keeps nothing

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

// Raw bytes of one model's files that stay in memory between loads, past the system's cache. Filled and used by sources of
// that model, one at a time.
struct KeptWeights {
  // So many bytes aligned to 4096, in place of `memory`; empty if there is no room. Asked for when what is there is of
  // other files, or of nothing.
  std::function<std::span<std::byte>(uint64_t bytes)> room;
  std::span<std::byte> memory;
  std::vector<uint64_t> identity;  // of the files and extents that lie there
  std::vector<uint8_t> have;       // [extents] 1: was read. To be cleared by whoever finds that the files were not whole
};

// `extents` lie in the mapped files of `checkpoint`, which outlives the source; others (tests build checkpoints in
// memory) are handed out as they are. `kept`, for direct reads: what it has is not read again, what it has room for stays
// there; it outlives the source.
StatusOr<std::unique_ptr<WeightSource>> open_weight_source(const Checkpoint& checkpoint, ModelIo io,
                                                           std::vector<std::span<const std::byte>> extents,
                                                           KeptWeights* kept = nullptr);

}  // namespace shoal
