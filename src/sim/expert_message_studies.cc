// The studies by messages, and those of the planner itself: production slots and batch forming, placement and calls of policy/.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "sim/expert_studies_parts.h"
#include "sim/expert_world.h"

namespace shoal {
namespace {

std::string number(double value, int digits) { return absl::StrFormat("%.*f", digits, value); }
std::string percent(double share, int digits = 1) { return absl::StrFormat("%+.*f %%", digits, 100 * share); }

// A server's time for an expert and a row, as policy/expert_placement plans with.
constexpr ExpertCost kCost{16.4e-6, 0.0636e-6};

// Rows of each expert of one layer: `rows` in all, the i-th most popular ~ (i + 1)^-skew, in an order of their own.
std::vector<double> routed(uint64_t seed, uint32_t layer, uint32_t experts, double rows, double skew) {
  std::vector<double> out(experts);
  double sum = 0;
  for (uint32_t e = 0; e < experts; ++e) sum += out[e] = std::pow(e + 1, -skew);
  for (double& r : out) r *= rows / sum;
  Rng rng(counter_bits(seed, 7, layer));
  for (uint32_t e = experts; e > 1; --e) std::swap(out[e - 1], out[rng.below(e)]);
  return out;
}

struct PlannedModel {
  std::vector<ExpertLayerSpec> layers;
  std::vector<std::vector<double>> rows;
  std::vector<ExpertServerSpec> servers;
  PlacementView view(const ExpertPlacement* current = nullptr) const { return {layers, servers, rows, current, {}}; }
  void add_server(double slots) {
    const auto id = static_cast<uint32_t>(servers.size());
    servers.push_back({NodeId(id), static_cast<uint64_t>(slots * static_cast<double>(layers.size())) * layers[0].expert_bytes, 1, id / 8});
  }
};

PlannedModel planned_model(uint64_t seed, uint32_t layers, double rows, double skew) {
  PlannedModel m;
  for (uint32_t l = 0; l < layers; ++l) {
    m.layers.push_back({l, 256, 44'040'192});
    m.rows.push_back(routed(seed, l, 256, rows, skew));
  }
  return m;
}

ExpertWorldSetup window(uint64_t seed) {
  ExpertWorldSetup s;
  s.seed = seed;
  s.experts = 64, s.experts_per_token = 8, s.tokens = 8, s.layers = 16, s.lanes = 2;
  s.clients = 4, s.servers = 16;
  s.attention_s = 143e-6;
  s.load_bytes_per_second = 25e9;
  s.placement.cost = kCost;
  return s;
}

}  // namespace

StudyTable grow_study(uint64_t seed) {
  StudyTable t{"From 32 to 64 devices, half of them for experts, by one server at a time: skew 0.8", "the production planner on 6 of 58 layers; throughput in aggregate, weak scaling (256 sequences per attention device)",
               {"devices", "expert servers", "copies moved", "of all", "TB moved, 58 layers", "slowest over mean", "tokens/s over that of 32 x devices", "published"}, {}, {}};
  constexpr uint32_t kPlanned = 6;
  PlannedModel m = planned_model(seed, kPlanned, 16 * 128 * 8, 0.8);
  for (int s = 0; s < 16; ++s) m.add_server(40);
  PlacementOptions options{.cost = kCost, .passes = 100'000, .copy_bytes_per_second = 25e9};
  auto plan = plan_placement(m.view(), options);
  if (!plan.ok()) return t;
  ExpertPlacement now = plan->target;
  double first = 0;
  uint64_t moved = 0;
  for (uint32_t servers = 16; servers <= 32; ++servers) {
    for (uint32_t l = 0; l < kPlanned; ++l) m.rows[l] = routed(seed, l, 256, servers * 128.0 * 8, 0.8);
    if (servers > 16) {
      m.add_server(40);
      plan = plan_placement(m.view(&now), options);
      if (!plan.ok()) return t;
      now = plan->target;
      moved += plan->copies.size();
    }
    double layer = 0;
    for (const auto& of_layer : server_seconds(m.view(), now, kCost)) layer += *std::max_element(of_layer.begin(), of_layer.end()) / kPlanned;
    const double token = 61 * layer_seconds({143e-6, layer, 92e-6, 184e-6}, 2), rate = servers * 256 / token;
    if (servers == 16) first = rate / 16;
    if (servers != 16 && servers != 17 && servers % 4 != 0) continue;
    size_t all = 0;
    for (const auto& l : now.layers) for (const auto& e : l.experts) all += e.size();
    t.rows.push_back({absl::StrCat(2 * servers), absl::StrCat(servers), absl::StrCat(moved), number(100.0 * static_cast<double>(moved) / static_cast<double>(all), 1) + " %", number(static_cast<double>(moved) * 58 / kPlanned * 44.04e6 / 1e12, 2),
                      number(imbalance(m.view(), now, kCost), 3), number(rate / (first * servers), 3), servers == 32 ? "near-linear" : ""});
  }
  t.notes = {"Moves are those since 32 devices, all steps together. A step changes nothing for anybody but those who copy."};
  return t;
}

StudyTable losses_study(uint64_t seed) {
  StudyTable t{"Ten of 64 devices killed one by one, nobody started anew", "services: messages, 16 of 61 layers, 4 clients and 16 of 32 servers, 5 losses of servers (the same part), one every 0.4 s, copies made anew; baselines: arithmetic, restart 120 s",
               {"system", "throughput from the first loss on, over that of the same run without losses", "servers that are gone, mean", "longest time between tokens, ms (median before)", "requests failed", "answers changed", "published"}, {}, {}};
  const struct {
    const char* name;
    double attention_s;
    ExpertServiceTimes service;
    uint32_t passes;
    const char* published;
  } cases[] = {{"services, attention 400 us: experts have room to spare", 400e-6, {}, 220, "less than -2 %"}, {"services, attention 143 us", 143e-6, {}, 420, ""}, {"services, 143 us, experts twice as slow: bound by them", 143e-6, {200e-6, 30e-6, 0.0636e-6}, 220, ""}};
  constexpr uint32_t kLosses = 5;
  const auto at = [](uint32_t loss) { return 0.5 + 0.4 * loss; };
  for (const auto& c : cases) {
    ExpertWorldSetup s = window(seed);
    s.attention_s = c.attention_s;
    s.service = c.service;
    s.placement.moves_max = 0;
    s.copies_room = 3.5;
    s.passes = c.passes;
    for (uint32_t i = 0; i < kLosses; ++i) s.faults.push_back({.kind = ExpertFault::Kind::kKillServer, .at = TimePoint(from_seconds(at(i))), .server = i * 3, .lasts = Duration::max()});
    const ExpertWorldOutcome o = run_experts(s);
    s.faults.clear();
    const ExpertWorldOutcome without = run_experts(s);
    const double end = o.done.empty() ? 0.0 : std::min(2.5, o.done[o.done.size() * 9 / 10].ended);
    double gone = 0;
    for (uint32_t i = 0; i < kLosses; ++i) gone += std::max(0.0, end - at(i)) / (end - at(0)) / s.servers;
    t.rows.push_back({c.name, percent(o.rate(at(0), end) / without.rate(at(0), end) - 1), percent(-gone), number(1e3 * o.longest(at(0), end), 1) + absl::StrFormat(" (%.1f)", 1e3 * o.quantile(0.5, 0.1, at(0))),
                      o.violations.empty() ? "0" : o.violations.front(), o.violations.empty() ? "0" : "see left", c.published});
  }
  t.rows.push_back({"one group of 64 (EP)", percent(-1, 0), "", "stands until it was restarted: 120 s and more", "all under way", "-", "full stop"});
  t.rows.push_back({"units of 16 (TP), ten losses in one unit", percent(-0.25, 0), "", "that unit stands", "those of the unit", "-", ""});
  t.rows.push_back({"units of 16 (TP), losses spread over the units", percent(-1, 0), "", "all four units stand after the fourth", "all under way", "-", ""});
  t.notes = {"Published: the mean over the recovery periods. Passes end in step, so a window is compared with the same window of a run to which nothing happens, not with an earlier one. Five of sixteen servers are gone at the end, and the others compute their experts as well: where experts bound the throughput, that is up to 31 %.",
             "A pass whose rows were at the lost server asks its copies at once: the connection's end is seen after 0.1 ms."};
  return t;
}

StudyTable placement_study(uint64_t seed) {
  StudyTable t{"Placement on skewed routing: 32 servers, 256 experts, 288 slots a layer (elastic: the same memory, and twice it with two copies of everything), 8 layers", "the production planners",
               {"rows a batch", "skew", "in a row: slowest over mean", "EPLB", "elastic, one copy and more", "elastic, two copies and more", "elastic over EPLB, time", "published gain of EPLB"}, {}, {}};
  for (const double rows : {512.0, 16384.0}) {
    for (const double skew : {0.0, 0.4, 0.8, 1.2}) {
      PlannedModel m = planned_model(seed, 8, rows, skew);
      for (int s = 0; s < 32; ++s) m.add_server(9);
      ExpertPlacement row{1, {}};
      for (const auto& layer : m.layers) {
        LayerPlacement l{layer.layer, {}};
        for (uint32_t e = 0; e < 256; ++e) l.experts.push_back({{NodeId(e / 8), kWholeShare}});
        row.layers.push_back(l);
      }
      const auto published = place_eplb(m.view(), 288, 1, 1);
      const auto one = plan_placement(m.view(), {.copies_min = 1, .copy_above = 0.5, .cost = kCost});
      const auto time = [&](const ExpertPlacement& p) {
        double sum = 0;
        for (const auto& layer : server_seconds(m.view(), p, kCost)) sum += *std::max_element(layer.begin(), layer.end());
        return sum;
      };
      const double in_a_row = imbalance(m.view(), row, kCost);
      PlannedModel twice = m;
      twice.servers.clear();
      for (int s = 0; s < 32; ++s) twice.add_server(18);
      const auto two = plan_placement(twice.view(), {.copies_min = 2, .copy_above = 0.5, .cost = kCost});
      if (!published.ok() || !one.ok() || !two.ok()) continue;
      t.rows.push_back({number(rows, 0), number(skew, 1), number(in_a_row, 2), number(imbalance(m.view(), *published, kCost), 3), number(imbalance(m.view(), one->target, kCost), 3), number(imbalance(twice.view(), two->target, kCost), 3),
                        percent(time(one->target) / time(*published) - 1), skew == 0.4 ? "+2.4, +4.4, +5.1 % throughput" : ""});
    }
  }
  t.notes = {"Time of the slowest server, summed over layers, with 16.4 us per active expert and 0.0636 us per row. EPLB splits a hot expert evenly among its copies and counts rows only;",
             "ours splits by what evens out and counts active experts, so it reads fewer weights twice where rows are few."};
  return t;
}

StudyTable lanes_study(uint64_t seed) {
  StudyTable t{"Lanes, and what launching costs: 4 clients, 8 servers, 16 layers, the batch split among the lanes", "messages; launches are an analogue: microseconds added to each side per lane and layer",
               {"lanes", "launches, us", "tokens/s, relative to two lanes", "published"}, {}, {}};
  const auto run = [&](uint32_t lanes, double launch) {
    ExpertWorldSetup s = window(seed);
    s.servers = 8;
    s.lanes = lanes;
    s.tokens = 24 / lanes;
    s.passes = 30;
    s.attention_s = (60 + 160.0 / lanes + launch) * 1e-6;
    s.service.fixed_s += launch * 1e-6;
    s.link_s = 50e-6;
    s.row_bytes *= 6, s.answer_row_bytes *= 6;  // each row stands for six
    const ExpertWorldOutcome o = run_experts(s);
    return o.violations.empty() ? static_cast<double>(o.passes) * s.tokens / o.virtual_seconds : 0.0;
  };
  const double two = run(2, 0);
  for (const uint32_t lanes : {1u, 2u, 3u, 4u}) {
    t.rows.push_back({absl::StrCat(lanes), "0", percent(run(lanes, 0) / two - 1), lanes == 1 ? "-25.9 % (no second batch)" : ""});
  }
  for (const double launch : {100.0, 1000.0, 2000.0}) t.rows.push_back({"2", number(launch, 0), percent(run(2, launch) / two - 1), launch == 2000 ? "-91.9 % (no whole-loop CUDA graph)" : ""});
  t.notes = {"The published ablation of launches is of CUDA graphs, which are not modelled: the rows say which cost per layer would explain such a loss.",
             "A server here takes the lanes of several clients into one batch, so a third lane costs it little; two lanes leave the way there and back in sight."};
  return t;
}

StudyTable transport_study(uint64_t seed) {
  StudyTable t{"Uneven shares: 512 rows from two clients, one-sided slots against a two-sided transport", "messages; two-sided is an analogue: a rendezvous (two more crossings of the link) and a copy on each side, 50 GB/s",
               {"clients : servers", "round trip one-sided, us", "two-sided, us", "saved", "published"}, {}, {}};
  const auto round_trip = [&](uint32_t clients, uint32_t servers, bool two_sided) {
    ExpertWorldSetup s;
    s.seed = seed;
    s.clients = clients, s.servers = servers, s.lanes = 1, s.layers = 1, s.experts = 8, s.experts_per_token = 1, s.tokens = 512, s.passes = 50;
    s.copies_room = 1.5;
    s.placement.copies_min = 1;
    s.attention_s = 1e-9;
    s.service = {1e-9, 0, 0};
    s.batch.rule = BatchRule::kGreedy;
    s.link_s = 5e-6;
    if (two_sided) {
      const double copy = 512.0 / servers * (s.row_bytes + s.answer_row_bytes) / 50e9;
      s.link_s = 3 * s.link_s + copy;
    }
    const ExpertWorldOutcome o = run_experts(s);
    return o.violations.empty() ? o.quantile(0.5, 0, 1e9) : 0.0;
  };
  for (const auto& [clients, servers, published] : {std::tuple(2u, 2u, "-49.6 %"), std::tuple(1u, 3u, "-34.7 %")}) {
    const double one = round_trip(clients, servers, false), two = round_trip(clients, servers, true);
    t.rows.push_back({absl::StrCat(clients, " : ", servers), number(one * 1e6, 1), number(two * 1e6, 1), percent(one / two - 1), published});
  }
  t.notes = {"What a two-sided transport costs is assumed, so the saving is only as good as that; what is shown is that shares may be uneven. The real measurement is bench/experts."};
  return t;
}

StudyTable batch_rule_study(uint64_t seed) {
  StudyTable t{"One of eight clients is silent for 100 ms: passes per second of the others' servers", "messages, 4 servers, 4 layers", {"rule", "before", "while it is silent", "kept", "clients in a batch"}, {}, {}};
  for (const BatchRule rule : {BatchRule::kAdaptive, BatchRule::kDeadline, BatchRule::kGreedy, BatchRule::kAll}) {
    ExpertWorldSetup s = window(seed);
    s.clients = 8, s.servers = 4, s.lanes = 1, s.layers = 4, s.tokens = 32, s.experts = 16, s.experts_per_token = 2;  // so many that every server is asked in every layer
    s.attention_s = 200e-6, s.passes = 400;
    s.batch.rule = rule;
    for (uint32_t server = 0; server < 4; ++server) s.faults.push_back({.kind = ExpertFault::Kind::kLoseWrites, .at = TimePoint(std::chrono::milliseconds(200)), .server = server, .client = 0, .lasts = std::chrono::milliseconds(100)});
    const ExpertWorldOutcome o = run_experts(s);
    const double before = o.rate(0.05, 0.2), during = o.rate(0.2, 0.3);
    t.rows.push_back({std::string(batch_rule_name(rule)), number(before, 0), number(during, 0), before > 0 ? number(100 * during / before, 0) + " %" : "-", number(static_cast<double>(o.batch_clients) / static_cast<double>(std::max<uint64_t>(1, o.batches)), 1)});
  }
  t.notes = {"7/8 is 87.5 %: its own part. \"all\" is the published rule taken by the letter."};
  return t;
}

}  // namespace shoal
