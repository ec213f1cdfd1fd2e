// Models whose files stay open and mapped after a load, so that the next one finds their pages where they were: to map the
// pages of a file that the system has in its cache, and to unmap them, takes longer than to pack them.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>

#include "base/status.h"
#include "base/time.h"
#include "formats/checkpoint.h"
#include "host/node_plan.h"
#include "models/model.h"

namespace shoal {

struct OpenedModel {
  std::shared_ptr<const Checkpoint> checkpoint;
  std::shared_ptr<const ModelPlan> plan;
  uint64_t stamp = 0;  // of its ModelDigest
};

// Used by one thread.
class OpenedModels {
 public:
  struct Limits {
    size_t files;    // each has a descriptor
    uint64_t bytes;  // each page that is mapped takes 8 bytes of page table
  };
  // 64 files, and no more bytes than the machine has memory for: the others would be read from disk anyway. None where
  // addresses are limited (RLIMIT_AS): whatever else is mapped needs them.
  static Limits usual();

  explicit OpenedModels(const Limits& limits = usual()) : limits_(limits) {}

  // A model as its files are now. Errors as of open_checkpoint() and plan_model().
  StatusOr<OpenedModel> open(const ServedModel& model);
  // Not to be kept: something was wrong with its files.
  void forget(const ServedModel& model);

  // Closes what nobody is to find again: what was forgotten, what is beyond the limits, the least recently used first, and,
  // now and then, files that were replaced or deleted, whose bytes would stay on the disk. May take milliseconds.
  void tidy(TimePoint now);

 private:
  struct Kept {
    ModelId id;
    std::string path;
    LoadOptions load;
    OpenedModel opened;
    size_t files = 0;
    uint64_t bytes = 0;
  };
  using List = std::list<Kept>;  // the last used first

  List::iterator find(const ServedModel& model);

  const Limits limits_;
  List kept_, closing_;
  TimePoint looked_at_{};
};

}  // namespace shoal
