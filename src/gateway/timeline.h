// What the nodes did lately and what it cost: a bounded ring of their events and switches, and sums since the start. Fed by
// the router's thread, read by whoever looks. A page of it is the Trace Event Format that Perfetto and chrome://tracing read.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/device_event.h"
#include "base/switch_record.h"
#include "gateway/catalog.h"
#include "gateway/run_recorder.h"
#include "wire/message.h"

namespace shoal {

// Stages of a switch, in their order; their names are labels of metrics.
constexpr std::array<const char*, 7> kSwitchStages = {"drain", "unmap", "map", "open", "read", "repack", "swap_in"};
std::array<double, 7> stage_seconds(const SwitchRecord& record);  // as kSwitchStages

struct SwitchTotals {
  std::array<uint64_t, 4> by_end{};       // SwitchEnd
  uint64_t hidden = 0;                    // of those that served somebody
  std::array<uint64_t, 4> ahead_by_end{}; // prefetches
  std::array<double, 7> stages{};         // seconds
  double visible_seconds = 0;
  double load_seconds = 0;                // from the begin of the load to the weights being there
  uint64_t bytes_written = 0;
  uint64_t bytes_adopted = 0;             // that were on the device since the model was dropped
  uint64_t copied_nothing = 0;            // of those that served somebody
  uint64_t bytes_read = 0;
  uint64_t of(SwitchEnd end) const { return by_end[static_cast<size_t>(end)]; }
};

// One choice of an answer, when it has ended. Instants are of this process's clock.
struct RequestSpan {
  RequestId id;
  ModelId model;
  TimePoint arrival{};
  TimePoint first_token = kForever;   // kForever: none came
  TimePoint end{};
  uint32_t prompt_tokens = 0;
  uint32_t output_tokens = 0;
  uint32_t max_tokens = 0;
  std::string finish;                 // stop, length, error, gone
  SloTarget slo;
  uint64_t tokens_on_time = 0;
};

// All methods may be called from any thread.
class NodeTimeline {
 public:
  explicit NodeTimeline(TimePoint start);

  // What models are called from now on; those named before keep their names.
  void name_models(const std::vector<ModelRef>& models);
  void name_nodes(std::map<NodeId, std::string> names);
  void add(NodeId node, const NodeStatus& status, TimePoint now);
  void add(const RequestSpan& request);
  // From now on everything that is added is written there, too. Outlives this or is taken back with null.
  void record(std::shared_ptr<RunRecorder> recorder);

  std::map<ModelId, SwitchTotals> switch_totals() const;
  uint64_t switches_within(Duration last, TimePoint now) const;  // that began to load, on all nodes

  // {"traceEvents": [...]}: a process per node with a track each for turns, loads and KV, and the requests. Microseconds
  // since the start.
  std::string chrome_trace() const;

  static constexpr size_t kEntriesMax = 20'000;  // of events, of switches and of requests

 private:
  template <typename T>
  struct On {
    NodeId node;
    Duration offset;  // from the node's clock to ours
    T what;
  };
  template <typename T>
  static void push(std::deque<T>& ring, T entry) {
    ring.push_back(std::move(entry));
    if (ring.size() > kEntriesMax) ring.pop_front();
  }

  const TimePoint start_;
  mutable std::mutex mutex_;
  std::deque<On<DeviceEvent>> events_;     // guarded by mutex_, as is the rest
  std::deque<On<SwitchRecord>> switches_;
  std::deque<RequestSpan> requests_;
  std::map<ModelId, SwitchTotals> totals_;
  std::map<ModelId, std::string> names_;
  std::map<NodeId, std::string> node_names_;
  std::shared_ptr<RunRecorder> recorder_;
};

}  // namespace shoal
