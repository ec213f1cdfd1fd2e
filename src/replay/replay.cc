#include "replay/replay.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "replay/event_log.h"
#include "replay/record_codec.h"
#include "replay/record_reader.h"

namespace shoal {
namespace {

constexpr uint32_t kPagesMax = 1u << 22;  // 8 TiB
constexpr uint64_t kBlockBytesMax = 1ull << 32, kWeightBytesMax = 1ull << 48;
constexpr size_t kModelsMax = 100'000;
constexpr uint32_t kStateBlocksMax = 1u << 20;

Status check_model(const NodeModel& m, uint32_t pages) {
  const bool sane = m.weight_bytes <= kWeightBytesMax && m.kv_block_bytes > 0 && m.kv_block_bytes <= kBlockBytesMax && m.state_blocks <= kStateBlocksMax && m.max_model_len > 0 && m.vocab_size > 0;
  if (!sane || fitting_model_len(m, pages, m.max_model_len) < m.max_model_len) return invalid_argument("model '", m.name, "' does not fit the node");
  return OkStatus();
}

Status check_config(const NodeConfig& c) {
  const bool sane = c.pages > 0 && c.pages <= kPagesMax && c.host_pages <= kPagesMax && c.models.size() <= kModelsMax && c.limits.tokens_per_step > 0 &&
                    c.limits.sequences_max > 0 && c.limits.logit_rows_max > 0 && c.load_bytes_per_second > 0;
  if (!sane) return invalid_argument("config: a size is zero or absurd");
  std::set<ModelId> ids;
  for (const NodeModel& model : c.models) {
    RETURN_IF_ERROR(check_model(model, c.pages));
    if (!ids.insert(model.model).second) return invalid_argument("config: a model is there twice");
  }
  return OkStatus();
}

}  // namespace

// A node and what it waits for: an event that nothing asked for would be a fault of the file, not of the node.
struct Replay::Life {
  explicit Life(const NodeConfig& c) : config(c), node(c) {
    for (const NodeModel& model : c.models) models.emplace(model.model, Known{model.name, model.vocab_size});
  }

  Status can_follow(const StepDone& done) const {
    const auto fits = [&](const StepSlice& asked, const SliceResult& got) {
      const bool fine = got.finite && got.error.ok();
      const bool sampled = !asked.sample || got.sampled.size() == 1 || (got.sampled.empty() && got.complete);
      const auto known = [&](const SampledToken& t) { return t.token >= 0 && static_cast<uint32_t>(t.token) < models.at(done.model).vocab_size; };
      return got.request == asked.request && (!fine || (sampled && got.scored.size() == asked.score_end - asked.score_begin)) &&
             std::all_of(got.sampled.begin(), got.sampled.end(), known);
    };
    const bool deferred = !done.result.deferred.ok();
    const auto begun = steps.find(done.model);
    if (begun == steps.end()) return invalid_argument("a step ends that was not begun");
    const std::vector<StepSlice>& asked = begun->second.input.slices;
    const bool fine = begun->second.input.step == done.result.step &&
                      (deferred ? done.result.slices.empty() : std::equal(asked.begin(), asked.end(), done.result.slices.begin(), done.result.slices.end(), fits));
    return fine ? OkStatus() : invalid_argument("a step ends that was not begun");
  }

  Status can_follow(const Event& event) const {
    if (const auto* added = std::get_if<ModelAdded>(&event)) {
      RETURN_IF_ERROR(check_model(added->model, config.pages));
      if (models.contains(added->model.model)) return invalid_argument("model ", added->model.model.value, " is there already");
    }
    if (const auto* done = std::get_if<StepDone>(&event)) return can_follow(*done);
    if (const auto* ready = std::get_if<WeightsReady>(&event)) return load && load->ended_by(*ready) ? OkStatus() : invalid_argument("a load ends that was not begun");
    if (const auto* packed = std::get_if<WeightsPacked>(&event)) return packing && packing->ended_by(*packed) ? OkStatus() : invalid_argument("weights are packed that were not begun");
    if (const auto* copied = std::get_if<KvCopied>(&event)) {
      const auto move = moves.find({copied->model, copied->move});
      if (move == moves.end() || (!copied->ok && !move->second)) return invalid_argument("a copy ends that was not begun");
    }
    return OkStatus();
  }

  void heard(const Event& event) {
    if (const auto* added = std::get_if<ModelAdded>(&event)) models.emplace(added->model.model, Known{added->model.name, added->model.vocab_size});
    if (const auto* done = std::get_if<StepDone>(&event)) steps.erase(done->model);
    if (const auto* ready = std::get_if<WeightsReady>(&event)) {
      if (ready->packing) packing = load;
      load.reset();
    }
    if (std::holds_alternative<WeightsPacked>(event)) packing.reset();
    if (const auto* copied = std::get_if<KvCopied>(&event)) moves.erase({copied->model, copied->move});
  }

  void answered(const Effect& effect, ReplayCounts& counts) {
    ++counts.effects;
    counts.messages += std::holds_alternative<Send>(effect);
    counts.drops += std::holds_alternative<DropWeights>(effect);
    if (const auto* begun = std::get_if<StartStep>(&effect)) ++counts.steps, steps[begun->model] = {begun->input, now};
    if (const auto* begun = std::get_if<LoadWeights>(&effect)) ++counts.loads, load = Load{begun->model, page_count(begun->pages)};
    if (const auto* begun = std::get_if<CopyKv>(&effect)) ++counts.copies, moves[{begun->model, begun->move.id}] = begun->move.remote;
  }

  struct Known {
    std::string name;
    uint32_t vocab_size = 0;
  };

  const NodeConfig config;
  Node node;
  TimePoint now{};
  struct Begun {
    StepInput input;
    TimePoint at{};
  };
  std::map<ModelId, Begun> steps;
  struct Load {
    ModelId model;
    uint32_t pages = 0;
    template <typename End>
    bool ended_by(const End& end) const {
      return model == end.model && (end.whole.empty() || uint64_t{end.whole.back().first} + end.whole.back().count <= pages);
    }
  };
  std::optional<Load> load, packing;
  std::map<std::pair<ModelId, uint64_t>, bool> moves;  // under way; true: from another node
  std::map<ModelId, Known> models;                     // that ever were here
};

Replay::Replay() = default;
Replay::~Replay() = default;

Status Replay::record(std::string_view bytes) {
  pb::Record record;
  if (bytes.size() > kRecordBytesMax || !record.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return invalid_argument("cannot be parsed: the file is damaged; record the run again");
  }
  const NodeId id(record.node());
  if (record.has_config()) {
    ASSIGN_OR_RETURN(const NodeConfig config, config_from(record.config()));
    RETURN_IF_ERROR(check_config(config));
    ++counts_.lives;
    lives_[id] = std::make_unique<Life>(config);
    return OkStatus();
  }
  if (!record.has_event()) return invalid_argument("holds neither a config nor an event; it is of a newer build");
  const auto life = lives_.find(id);
  if (life == lives_.end()) return invalid_argument("node ", id.value, " has no config before this record");
  ASSIGN_OR_RETURN(const Event event, event_from(record.event()));
  return turn(*life->second, event, TimePoint(Duration(record.now_ns())), {record.decisions().begin(), record.decisions().end()});
}

Status Replay::turn(Life& life, const Event& event, TimePoint now, const std::vector<std::string>& expected) {
  if (now < life.now) return invalid_argument("time goes back");
  RETURN_IF_ERROR(life.can_follow(event));
  if (const auto* done = std::get_if<StepDone>(&event); done != nullptr && on_step_) {
    const Life::Begun& step = life.steps.at(done->model);
    on_step_(life.models.at(done->model).name, step.input, to_seconds(now - step.at - done->result.away));
  }
  life.now = now;
  life.heard(event);
  ++counts_.events;
  const std::vector<Effect> effects = life.node.handle(event, now);
  for (size_t i = 0; i < std::max(effects.size(), expected.size()); ++i) {
    const std::string recorded = i < expected.size() ? expected[i] : "nothing", here = i < effects.size() ? described(effects[i]) : "nothing";
    if (recorded == here) continue;
    return absl::AbortedError(absl::StrCat("event ", counts_.events, ", effect ", i + 1, " of node ", life.config.self.value, ": recorded was '", recorded,
                                           "', this build answers '", here, "'"));
  }
  for (const Effect& effect : effects) life.answered(effect, counts_);
  return OkStatus();
}

}  // namespace shoal
