// A switch of models on a device, stage by stage, as values: what a node tells of it, and what metrics and a timeline
// are made of.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "base/time.h"

namespace shoal {

// One load of weights, as whoever performed it measured it. Wall seconds, one stage after the other; reading and packing
// run side by side on all threads and share the wall time of both in proportion.
struct LoadStages {
  double unmap_seconds = 0;   // of the models that were dropped since the load before
  double map_seconds = 0;     // of the pages
  double open_seconds = 0;    // headers and layout
  double read_seconds = 0;    // waiting for bytes of the files
  double repack_seconds = 0;  // into the layout of the kernels
  uint64_t bytes_read = 0;    // of the files, wherever they were cached
  uint64_t bytes_written = 0; // on the device
  uint64_t bytes_adopted = 0; // that were there since the model was dropped
  friend bool operator==(const LoadStages&, const LoadStages&) = default;
};

enum class SwitchEnd : uint8_t {
  kServed,     // its first step began
  kUnused,     // nobody waited for it any more when it was there
  kFailed,     // the load failed
  kCancelled,  // the load was called off
};

// One switch to a model. Instants are of the node's clock; kForever: never came to that.
struct SwitchRecord {
  ModelId model;
  std::vector<ModelId> dropped;     // whose weights went for it
  SwitchEnd end = SwitchEnd::kServed;
  TimePoint asked = kForever;       // it was wanted and not there
  TimePoint planned = kForever;     // it was its turn: from here on room was made
  TimePoint begun = kForever;       // of the load; until then the pages drained (KV on its way to the host tier)
  TimePoint ready = kForever;       // its weights were there
  TimePoint first_step = kForever;
  LoadStages stages;
  double swap_in_seconds = 0;       // in which KV of its requests came back, before the first step
  // In which requests of the model waited and the device computed nothing for anybody, since `planned`.
  double visible_seconds = 0;
  bool ahead = false;               // a prefetch: another model had work on the device when the load began
  friend bool operator==(const SwitchRecord&, const SwitchRecord&) = default;

  double drain_seconds() const { return begun == kForever ? 0 : to_seconds(begun - planned); }
  bool copied_nothing() const { return stages.bytes_adopted > 0 && stages.bytes_written == 0; }
  // Nobody could have noticed it: the design's bound.
  bool hidden() const { return visible_seconds < 0.020; }
};

}  // namespace shoal
