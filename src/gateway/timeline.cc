#include "gateway/timeline.h"

#include <algorithm>
#include <set>
#include <utility>

#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr int kTurns = 1, kLoads = 2, kKv = 3;  // tracks of a node
constexpr uint64_t kRequests = 0;               // the process of requests; nodes have theirs by id + 1

const char* end_name(SwitchEnd end) {
  switch (end) {
    case SwitchEnd::kServed: return "served";
    case SwitchEnd::kUnused: return "unused";
    case SwitchEnd::kFailed: return "failed";
    case SwitchEnd::kCancelled: return "cancelled";
  }
  return "unknown";
}

using Names = std::map<ModelId, std::string>;

std::string name_of(ModelId model, const Names& names) {
  const auto found = names.find(model);
  return found == names.end() ? "model " + std::to_string(model.value) : found->second;
}

// Writes trace events, one after the other.
class TraceWriter {
 public:
  TraceWriter(TimePoint start, const Names& names) : start_(start), names_(names) {}

  double us(TimePoint at) const { return to_seconds(at - start_) * 1e6; }
  std::string name(ModelId model) const { return name_of(model, names_); }

  void label(uint64_t pid, int tid, const char* kind, const std::string& name) {
    Json event = {{"ph", "M"}, {"pid", pid}, {"tid", tid}, {"name", kind}, {"args", {{"name", name}}}};
    events_.push_back(std::move(event));
  }
  void span(uint64_t pid, int tid, const std::string& name, const char* category, double begin_us, double end_us, Json args) {
    events_.push_back({{"ph", "X"}, {"pid", pid}, {"tid", tid}, {"name", name}, {"cat", category}, {"ts", begin_us},
                       {"dur", std::max(0.0, end_us - begin_us)}, {"args", std::move(args)}});
  }
  void instant(uint64_t pid, int tid, const std::string& name, const char* category, double at_us) {
    events_.push_back({{"ph", "i"}, {"s", "t"}, {"pid", pid}, {"tid", tid}, {"name", name}, {"cat", category}, {"ts", at_us}});
  }
  // Spans that overlap have an id instead of a track.
  void async(const char* phase, uint64_t pid, const std::string& name, const char* category, uint64_t id, double at_us, Json args) {
    events_.push_back({{"ph", phase}, {"pid", pid}, {"tid", kKv}, {"name", name}, {"cat", category}, {"id", std::to_string(id)},
                       {"ts", at_us}, {"args", std::move(args)}});
  }

  void event(uint64_t pid, Duration offset, const DeviceEvent& e) {
    const double begin = us(e.begin + offset), end = us(e.end + offset);
    const std::string what(device_act_name(e.act));
    switch (e.act) {
      case DeviceAct::kDrop: return instant(pid, kLoads, "drop " + name(e.model), "drop", begin);
      case DeviceAct::kKvOut:
      case DeviceAct::kKvIn:
        async("b", pid, what + " " + name(e.model), "kv", ++copies_, begin, {{"bytes", e.amount}});
        return async("e", pid, what + " " + name(e.model), "kv", copies_, end, Json::object());
      default: return span(pid, kTurns, name(e.model), what.c_str(), begin, end, {{"kind", what}, {"steps", e.steps}, {"tokens", e.amount}});
    }
  }

  void load(uint64_t pid, Duration offset, const SwitchRecord& r) {
    if (r.begun == kForever) return;
    double at = us(r.begun + offset);
    const double end = r.ready == kForever ? at : us(r.ready + offset);
    Json dropped = Json::array();
    for (const ModelId model : r.dropped) dropped.push_back(name(model));
    span(pid, kLoads, name(r.model), "load", at, end,
         {{"ended", end_name(r.end)}, {"bytes", r.stages.bytes_written}, {"adopted", r.stages.bytes_adopted}, {"visible_ms", r.visible_seconds * 1e3}, {"prefetch", r.ahead}, {"dropped", std::move(dropped)}});
    const auto stages = stage_seconds(r);
    for (size_t i = 1; i + 1 < stages.size(); ++i) {  // drain was before it, swap_in is KV's
      if (stages[i] <= 0) continue;
      const double until = std::min(at + stages[i] * 1e6, end);
      span(pid, kLoads, kSwitchStages[i], "stage", at, until, Json::object());
      at = until;
    }
  }

  void request(const RequestSpan& r) {
    const std::string model = name(r.model);
    async("b", kRequests, model, "request", r.id.sequence, us(r.arrival), {{"prompt_tokens", r.prompt_tokens}, {"max_tokens", r.max_tokens}});
    if (r.first_token != kForever) async("n", kRequests, model, "request", r.id.sequence, us(r.first_token), Json::object());
    async("e", kRequests, model, "request", r.id.sequence, us(r.end), {{"output_tokens", r.output_tokens}, {"on_time", r.tokens_on_time}, {"finish", r.finish}});
  }

  std::string text() { return dump_json({{"traceEvents", std::move(events_)}, {"displayTimeUnit", "ms"}}); }

 private:
  const TimePoint start_;
  const Names& names_;
  Json events_ = Json::array();
  uint64_t copies_ = 0;
};

Json turn_line(const RunRecorder& run, const Names& names, NodeId node, Duration offset, const DeviceEvent& e) {
  const bool copy = e.act == DeviceAct::kKvOut || e.act == DeviceAct::kKvIn;
  Json line = {{"type", copy ? "kv" : e.act == DeviceAct::kDrop ? "drop" : "turn"}, {"node", node.value}, {"model", name_of(e.model, names)},
               {"act", device_act_name(e.act)}, {"begin", run.seconds(e.begin + offset)}, {"end", run.seconds(e.end + offset)}};
  if (copy) {
    line["bytes"] = e.amount;
  } else if (e.act != DeviceAct::kDrop) {
    line["steps"] = e.steps;
    line["tokens"] = e.amount;
  }
  return line;
}

Json switch_line(const RunRecorder& run, const Names& names, NodeId node, Duration offset, const SwitchRecord& r) {
  const auto when = [&](TimePoint at) { return at == kForever ? Json(nullptr) : Json(run.seconds(at + offset)); };
  Json dropped = Json::array(), stages = Json::object();
  for (const ModelId model : r.dropped) dropped.push_back(name_of(model, names));
  const auto seconds = stage_seconds(r);
  for (size_t i = 0; i < seconds.size(); ++i) stages[kSwitchStages[i]] = seconds[i];
  return {{"type", "switch"}, {"node", node.value}, {"model", name_of(r.model, names)}, {"dropped", std::move(dropped)}, {"ended", end_name(r.end)},
          {"asked", when(r.asked)}, {"begun", when(r.begun)}, {"ready", when(r.ready)}, {"first_step", when(r.first_step)},
          {"visible", r.visible_seconds}, {"stages", std::move(stages)}, {"bytes", r.stages.bytes_written}, {"adopted", r.stages.bytes_adopted}};
}

Json request_line(const RunRecorder& run, const Names& names, const RequestSpan& r) {
  return {{"type", "request"}, {"id", r.id.sequence}, {"model", name_of(r.model, names)}, {"arrival", run.seconds(r.arrival)}, {"prompt_tokens", r.prompt_tokens},
          {"output_tokens", r.output_tokens}, {"max_tokens", r.max_tokens},
          {"first_token", r.first_token == kForever ? Json(nullptr) : Json(run.seconds(r.first_token))}, {"end", run.seconds(r.end)},
          {"finish", r.finish}, {"ttft", to_seconds(r.slo.ttft)}, {"tbt", to_seconds(r.slo.tbt)}, {"tokens_on_time", r.tokens_on_time}};
}

}  // namespace

std::array<double, 7> stage_seconds(const SwitchRecord& r) {
  return {r.drain_seconds(), r.stages.unmap_seconds, r.stages.map_seconds, r.stages.open_seconds, r.stages.read_seconds,
          r.stages.repack_seconds, r.swap_in_seconds};
}

NodeTimeline::NodeTimeline(TimePoint start) : start_(start) {}

void NodeTimeline::name_nodes(std::map<NodeId, std::string> names) {
  std::lock_guard lock(mutex_);
  node_names_ = std::move(names);
}

void NodeTimeline::name_models(const std::vector<ModelRef>& models) {
  std::lock_guard lock(mutex_);
  for (const ModelRef& model : models) {
    names_[model->id] = model->name;
    if (!recorder_) continue;
    recorder_->write({{"type", "model"}, {"model", model->name}, {"weight_bytes", model->weight_bytes}, {"parameters", model->parameter_count},
                      {"max_model_len", model->max_model_len}, {"ttft", to_seconds(model->slo.ttft)}, {"tbt", to_seconds(model->slo.tbt)}});
  }
}

void NodeTimeline::record(std::shared_ptr<RunRecorder> recorder) {
  std::lock_guard lock(mutex_);
  recorder_ = std::move(recorder);
}

void NodeTimeline::add(NodeId node, const NodeStatus& status, TimePoint now) {
  if (status.events.empty() && status.switches.empty()) return;
  // Clocks of one machine agree; those of two are compared at the report, as if it had come at once.
  const Duration apart = now - status.at;
  const Duration offset = std::abs(to_seconds(apart)) < 1 ? Duration(0) : apart;
  std::lock_guard lock(mutex_);
  for (const DeviceEvent& event : status.events) {
    if (recorder_) recorder_->write(turn_line(*recorder_, names_, node, offset, event));
    push(events_, {node, offset, event});
  }
  for (const SwitchRecord& record : status.switches) {
    if (recorder_) recorder_->write(switch_line(*recorder_, names_, node, offset, record));
    SwitchTotals& totals = totals_[record.model];
    ++totals.by_end[static_cast<size_t>(record.end)];
    totals.ahead_by_end[static_cast<size_t>(record.end)] += record.ahead;
    totals.hidden += record.end == SwitchEnd::kServed && record.hidden();
    totals.visible_seconds += record.visible_seconds;
    totals.bytes_read += record.stages.bytes_read;
    totals.bytes_written += record.stages.bytes_written;
    totals.bytes_adopted += record.stages.bytes_adopted;
    totals.copied_nothing += record.end == SwitchEnd::kServed && record.copied_nothing();
    if (record.begun != kForever && record.ready != kForever) totals.load_seconds += to_seconds(record.ready - record.begun);
    const auto stages = stage_seconds(record);
    for (size_t i = 0; i < stages.size(); ++i) totals.stages[i] += stages[i];
    push(switches_, {node, offset, record});
  }
}

void NodeTimeline::add(const RequestSpan& request) {
  std::lock_guard lock(mutex_);
  if (recorder_) recorder_->write(request_line(*recorder_, names_, request));
  push(requests_, request);
}

std::map<ModelId, SwitchTotals> NodeTimeline::switch_totals() const {
  std::lock_guard lock(mutex_);
  return totals_;
}

uint64_t NodeTimeline::switches_within(Duration last, TimePoint now) const {
  std::lock_guard lock(mutex_);
  return static_cast<uint64_t>(std::count_if(switches_.begin(), switches_.end(), [&](const On<SwitchRecord>& s) {
    return s.what.begun != kForever && s.what.begun + s.offset >= now - last;
  }));
}

std::string NodeTimeline::chrome_trace() const {
  std::unique_lock lock(mutex_);
  const auto events = events_;
  const auto switches = switches_;
  const auto requests = requests_;
  const Names names = names_;
  const auto node_names = node_names_;
  lock.unlock();
  TraceWriter out(start_, names);
  std::set<NodeId> nodes;
  for (const auto& event : events) nodes.insert(event.node);
  for (const auto& record : switches) nodes.insert(record.node);
  out.label(kRequests, 0, "process_name", "requests");
  for (const NodeId node : nodes) {
    const uint64_t pid = node.value + 1ull;
    out.label(pid, 0, "process_name", "node " + (node_names.contains(node) ? node_names.at(node) : std::to_string(node.value)));
    out.label(pid, kTurns, "thread_name", "turns");
    out.label(pid, kLoads, "thread_name", "weights");
    out.label(pid, kKv, "thread_name", "KV");
  }
  for (const auto& event : events) out.event(event.node.value + 1ull, event.offset, event.what);
  for (const auto& record : switches) out.load(record.node.value + 1ull, record.offset, record.what);
  for (const RequestSpan& request : requests) out.request(request);
  return out.text();
}

}  // namespace shoal
