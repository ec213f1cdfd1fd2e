#include "sim/scenario.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "sim/world.h"

namespace shoal {
namespace {

Duration exponential(Rng& rng, double per_second) { return from_seconds(-std::log(1.0 - rng.uniform()) / per_second); }

NodeModel make_model(const Scenario& s, uint32_t index, Rng& rng) {
  NodeModel model;
  model.model = ModelId(index);
  model.name = absl::StrCat("model-", index);
  model.weight_bytes = (1 + rng.below(4)) * kPageBytes - rng.below(1000);
  const uint64_t sizes[] = {kPageBytes / 2, kPageBytes / 3, kPageBytes, kPageBytes * 3 / 2, kPageBytes / 7 - 64};
  model.kv_block_bytes = sizes[rng.below(5)];
  if (s.weight_pages > 0) model.weight_bytes = s.weight_pages * kPageBytes;
  if (s.kv_block_bytes > 0) model.kv_block_bytes = s.kv_block_bytes;
  model.vocab_size = 50;
  model.pooling = s.pooling;
  model.kv_salt_above = rng.chance(0.3) ? 40 : UINT32_MAX;
  if (s.state_blocks > 0 || s.kv_block_bytes > 0) {
    model.state_blocks = s.state_blocks;
  } else {
    Rng states(s.seed * 1000 + index);
    model.state_blocks = states.chance(0.4) ? 1 + static_cast<uint32_t>(states.below(2)) : 0;
    constexpr uint32_t kShort = 64;
    if (fitting_model_len(model, s.pages, s.max_model_len) < std::min(kShort, s.max_model_len)) model.state_blocks = 0;
  }
  model.max_model_len = fitting_model_len(model, s.pages, s.max_model_len);
  CHECK_GT(model.max_model_len, 16u);
  return model;
}

NodeSpec make_node(const Scenario& s, uint32_t index, const std::vector<NodeModel>& models) {
  NodeSpec node;
  node.config.self = NodeId(index);
  if (s.prefill_nodes > 0) node.config.instance_role = index < s.prefill_nodes ? InstanceRole::kPrefill : InstanceRole::kDecode;
  node.config.pages = s.pages;
  node.config.host_pages = s.host_pages;
  node.config.adopt_weights = s.adopt_weights;
  node.config.one_memory = s.one_memory;
  node.config.models = models;
  if (s.gateways == 1) node.config.gateways = {kRouterId};  // several are found in the cluster
  node.config.limits = s.limits;
  node.config.prefix_cache = s.prefix_cache;
  node.config.scheduling = s.scheduling;
  node.config.turns = s.turns;
  node.config.load_bytes_per_second = s.cost.load_bytes_per_second;
  const StepCost cost{s.cost.step_seconds, s.cost.row_seconds, 0, s.cost.step_seconds, 0, s.cost.row_seconds};
  node.steps.assign(models.size(), cost);
  node.load_bytes_per_second = s.cost.load_bytes_per_second;
  node.copy_bytes_per_second = s.cost.copy_bytes_per_second;
  return node;
}

// Everything that a request can ask for that concerns the roles.
class MixedWorkload final : public Workload {
 public:
  MixedWorkload(const Scenario& s, std::vector<NodeModel> models, uint64_t seed) : s_(s), models_(std::move(models)), rng_(seed) {
    for (uint32_t i = 0; i < 4; ++i) {
      std::vector<TokenId> prefix(rng_.below(s_.prompt_max) + 1);
      for (TokenId& token : prefix) token = static_cast<TokenId>(rng_.below(50));
      prefixes_.push_back(std::move(prefix));
    }
  }

  std::optional<Arrival> next() override {
    if (made_ == s_.requests) return std::nullopt;
    when_ += exponential(rng_, s_.requests_per_second);
    Arrival arrival{make_request(++made_), when_};
    if (rng_.chance(s_.deadline_probability)) {
      arrival.deadline = when_ + from_seconds(0.5 * rng_.uniform());
    } else {
      arrival.deadline = when_ + std::chrono::hours(24);
    }
    if (rng_.chance(s_.cancel_probability)) arrival.cancel_at = when_ + from_seconds(rng_.uniform());
    return arrival;
  }

 private:
  Request make_request(uint64_t id) {
    Request r;
    r.id = RequestId(id);
    r.model = models_[rng_.below(models_.size())].model;
    if (rng_.chance(s_.shared_prefix_probability)) r.prompt = prefixes_[rng_.below(prefixes_.size())];
    const uint64_t more = 1 + rng_.below(s_.prompt_max);
    for (uint64_t i = 0; i < more; ++i) r.prompt.push_back(static_cast<TokenId>(rng_.below(50)));
    const uint32_t longest = models_[r.model.value].max_model_len - 1;
    if (r.prompt.size() > longest) r.prompt.resize(longest);
    r.max_tokens = 1 + static_cast<uint32_t>(rng_.below(s_.output_max));
    r.min_tokens = rng_.chance(0.2) ? r.max_tokens / 2 : 0;
    if (rng_.chance(0.5)) r.stop_ids = {7};
    if (rng_.chance(0.1)) r.prompt_logprobs = 1;
    r.sampling.seed = rng_.bits();
    if (rng_.chance(0.2)) r.sampling.presence_penalty = 1.0f;
    r.priority = rng_.chance(0.1) ? 1 : 0;
    if (s_.payers > 0) r.payer.number = s_.payers == 1 || rng_.chance(s_.flood) ? 1 : 2 + static_cast<uint32_t>(rng_.below(s_.payers - 1));
    if (r.payer.number == 1) r.payer.weight = s_.first_weight;
    return r;
  }

  const Scenario s_;
  const std::vector<NodeModel> models_;
  Rng rng_;
  std::vector<std::vector<TokenId>> prefixes_;
  uint64_t made_ = 0;
  TimePoint when_{};
};

Fault make_fault(Fault::Kind kind, uint32_t node, TimePoint at, Rng& rng) {
  Fault fault{kind, node, at, from_seconds(0.05 + 0.5 * rng.uniform())};
  switch (kind) {
    case Fault::Kind::kPause:
    case Fault::Kind::kPartition:
    case Fault::Kind::kLossTo:
    case Fault::Kind::kLossFrom:
      if (rng.chance(0.4)) fault.lasts = from_seconds(0.5 + 2 * rng.uniform());  // some outlive the lease
      break;
    case Fault::Kind::kLoss: fault.amount = 0.02 * rng.uniform(); break;
    case Fault::Kind::kReorder:
    case Fault::Kind::kDuplicate: fault.amount = 0.02 * rng.uniform(); break;
    case Fault::Kind::kDelay: fault.amount = 0.1 * rng.uniform(); break;
    case Fault::Kind::kSlowDisk: fault.amount = 1 + 20 * rng.uniform(); break;
    case Fault::Kind::kLoadFailure: fault.amount = 0.5; break;
    case Fault::Kind::kDefer: fault.amount = rng.chance(0.5) ? 1 : rng.uniform(); break;
    case Fault::Kind::kStreamLost: fault.amount = to_seconds(fault.lasts) * 0.9 * rng.uniform(); break;  // when the node hears of it
    default: break;
  }
  return fault;
}

// Loads and unloads of any model, and once in a run for each: new settings, a model that comes, and one that goes.
std::vector<AdminChange> make_admin(const Scenario& s, double seconds, Rng& rng) {
  using Kind = AdminChange::Kind;
  std::vector<AdminChange> changes;
  const auto when = [&] { return TimePoint(from_seconds(seconds * rng.uniform())); };
  for (uint32_t i = 0; i < s.admin_changes; ++i) {
    const ModelId any(static_cast<uint32_t>(rng.below(s.models)));
    const bool configured = std::any_of(changes.begin(), changes.end(), [&](const AdminChange& c) { return c.kind == Kind::kConfigure && c.model == any; });
    const uint64_t kind = rng.below(3);
    if (kind == 0 && !configured) {
      changes.push_back({Kind::kConfigure, any, when(), {from_seconds(1 + 9 * rng.uniform()), from_seconds(0.01 + 0.2 * rng.uniform())}});
    } else {
      changes.push_back({kind == 1 ? Kind::kUnload : Kind::kLoad, any, when(), {}});
    }
  }
  if (s.admin_changes > 0 && s.models > 1 && rng.chance(0.5)) changes.push_back({Kind::kAdd, ModelId(s.models - 1), when(), {}});
  if (s.admin_changes > 0 && s.models > 2 && rng.chance(0.5)) changes.push_back({Kind::kRetire, ModelId(s.models - 2), when(), {}});
  return changes;
}

}  // namespace

WorldSetup make_setup(const Scenario& s) {
  Rng rng(s.seed);
  WorldSetup setup;
  setup.seed = s.seed;
  setup.gateways = s.gateways;
  setup.strict = true;
  setup.through_codec = s.through_codec;
  setup.lease = std::chrono::seconds(1);
  setup.roles = s.roles;
  setup.balance_interval = s.balance_interval;
  std::vector<NodeModel> models;
  for (uint32_t i = 0; i < s.models; ++i) models.push_back(make_model(s, i, rng));
  for (uint32_t i = 0; i < s.nodes; ++i) setup.nodes.push_back(make_node(s, i, models));
  const double seconds = s.requests / s.requests_per_second;
  for (uint32_t i = 0; i < s.nodes && s.load_failure_probability > 0; ++i) {
    setup.faults.push_back({Fault::Kind::kLoadFailure, i, TimePoint{}, from_seconds(4 * seconds + 60), s.load_failure_probability});
  }
  for (TimePoint at{}; s.faults_per_second > 0;) {
    at += exponential(rng, s.faults_per_second);
    if (to_seconds(at.time_since_epoch()) > seconds) break;
    Fault fault = make_fault(s.fault_kinds[rng.below(s.fault_kinds.size())], static_cast<uint32_t>(rng.below(s.nodes)), at, rng);
    if (s.nodes > 1 && fault.kind == Fault::Kind::kApart) fault.peer = (fault.node + 1 + static_cast<uint32_t>(rng.below(s.nodes - 1))) % s.nodes;
    if (fault.kind == Fault::Kind::kStreamLost) fault.peer = static_cast<uint32_t>(rng.below(s.gateways));
    if (fault.kind == Fault::Kind::kGatewayCrash) fault.node = static_cast<uint32_t>(rng.below(s.gateways));
    setup.faults.push_back(fault);
  }
  setup.faults.insert(setup.faults.end(), s.faults.begin(), s.faults.end());
  setup.admin = make_admin(s, seconds, rng);
  setup.workload = std::make_unique<MixedWorkload>(s, std::move(models), rng.bits());
  return setup;
}

Scenario Scenario::random(uint64_t seed) {
  Rng rng(mix64(seed));
  Scenario s;
  s.seed = seed;
  s.nodes = 1 + static_cast<uint32_t>(rng.below(3));
  s.models = 1 + static_cast<uint32_t>(rng.below(4));
  s.pages = 14 + static_cast<uint32_t>(rng.below(30));
  s.requests = 10 + static_cast<uint32_t>(rng.below(50));
  s.requests_per_second = 5.0 + 300.0 * rng.uniform();
  s.prompt_max = 8 + static_cast<uint32_t>(rng.below(150));
  s.output_max = 1 + static_cast<uint32_t>(rng.below(80));
  s.cancel_probability = rng.chance(0.5) ? 0.4 * rng.uniform() : 0;
  s.deadline_probability = rng.chance(0.3) ? 0.3 : 0;
  s.load_failure_probability = rng.chance(0.2) ? 0.3 : 0;
  s.shared_prefix_probability = rng.uniform();
  s.limits.tokens_per_step = 4 + static_cast<uint32_t>(rng.below(100));
  s.limits.sequences_max = 1 + static_cast<uint32_t>(rng.below(12));
  s.limits.logit_rows_max = 1 + static_cast<uint32_t>(rng.below(12));
  s.prefix_cache = rng.chance(0.8);
  s.through_codec = seed % 16 == 0;
  s.scheduling = rng.chance(0.7) ? Scheduling::kToken : Scheduling::kRequest;
  if (rng.chance(0.2)) s.turns = TurnOptions::paper();
  if (rng.chance(0.15)) s.pooling.max_wait = from_seconds(2 * rng.uniform());
  if (rng.chance(0.6)) s.host_pages = static_cast<uint32_t>(rng.below(30));
  s.cost.copy_bytes_per_second = 1e8 + 1e10 * rng.uniform();
  s.cost.load_bytes_per_second = 1e7 + 1e9 * rng.uniform();
  if (s.nodes > 1 && rng.chance(0.5)) s.prefill_nodes = 1 + static_cast<uint32_t>(rng.below(s.nodes - 1));
  if (rng.chance(0.5)) {
    s.balance_interval = from_seconds(0.2 * rng.uniform());
    s.roles.high = 0.5 * rng.uniform();
    s.roles.low = s.roles.high * (0.5 + rng.uniform());
    s.pooling.slo.tbt = from_seconds(0.1 * rng.uniform());
  }
  if (rng.chance(0.3)) s.admin_changes = 1 + static_cast<uint32_t>(rng.below(6));
  if (rng.chance(0.4)) {
    using Kind = Fault::Kind;
    s.faults_per_second = 0.5 + 4.0 * rng.uniform();
    s.fault_kinds = {Kind::kCrash, Kind::kPause, Kind::kPartition, Kind::kLossTo, Kind::kLossFrom, Kind::kLoss, Kind::kReorder, Kind::kDuplicate,
                     Kind::kDelay, Kind::kSlowDisk, Kind::kLeaseLoss, Kind::kNotice, Kind::kApart};
    if (rng.chance(0.5)) s.fault_kinds = {s.fault_kinds[rng.below(s.fault_kinds.size())]};
  }
  s.one_memory = rng.chance(0.5);
  if (rng.chance(0.3)) s.payers = 1 + static_cast<uint32_t>(rng.below(4)), s.flood = rng.uniform();
  return s;
}

Outcome run_scenario(const Scenario& scenario) { return World(make_setup(scenario)).run(); }

}  // namespace shoal
