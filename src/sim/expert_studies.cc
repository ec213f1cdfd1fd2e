// The studies in aggregate. Those by messages: expert_message_studies.cc.
#include "sim/expert_studies.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "policy/expert_scale.h"
#include "sim/expert_setup.h"
#include "sim/expert_studies_parts.h"

namespace shoal {
namespace {

const ExpertDevice& h800() { return *find_expert_device("H800"); }
// `launches`: a batch of experts takes at least what the servers by messages take.
const ExpertCosts& costs(bool launches = true) {
  static const ExpertCosts kCosts({}, {.attention_fixed_s = 50e-6, .experts_fixed_s = ExpertServiceTimes{}.fixed_s}), kNoLaunches({}, {.attention_fixed_s = 50e-6});
  return launches ? kCosts : kNoLaunches;
}
std::string num(double value, int digits) { return absl::StrFormat("%.*f", digits, value); }
std::string percent(double share) { return absl::StrFormat("%.1f %%", 100 * share); }
std::string us(double seconds) { return num(seconds * 1e6, 0); }
constexpr double kLayers = 61;

// ---- the way: 550 us --------------------------------------------------------------------------------------------------------

StudyTable way_study(uint64_t) {
  StudyTable t{"A layer's way there and back, microseconds", "aggregate: bytes over links, 400 Gb/s per device at 80 %", {"attention", "experts", "tokens", "direct: attention side", "experts side", "two phases: attention side", "experts side", "within a machine", "published"}, {}, {}};
  const struct {
    uint32_t a, e, b;
    const char* published;
  } rows[] = {{32, 16, 128, "at least 550"}, {32, 8, 128, ""}, {16, 16, 128, ""}, {32, 32, 128, ""}, {64, 16, 128, ""}, {32, 16, 256, ""}};
  for (const auto& r : rows) {
    const auto direct = costs().way(h800(), h800(), r.b, r.a, r.e, false), two = costs().way(h800(), h800(), r.b, r.a, r.e, true);
    t.rows.push_back({absl::StrCat(r.a), absl::StrCat(r.e), absl::StrCat(r.b), us(direct.attention_side), us(direct.expert_side), us(two.attention_side), us(two.expert_side), us(two.machine), r.published});
  }
  t.notes = {"The published 550 us is the attention side's; the expert side's links carry twice that with half as many devices.",
             "Published saving 4 to 8 times: it holds for one (8.0) and two (4.0) machines of experts, and is 2.2 for four."};
  return t;
}

// ---- attention apart from experts against expert parallelism ---------------------------------------------------------------------

struct Best {
  uint32_t lanes = 0;
  double batch = 0, token_s = 0, rate = 0;  // tokens of a lane and device; tokens per second and device of all
  double layer_s() const { return token_s / kLayers; }
};

// Largest batches that keep the time, for any number of lanes.
Best best_split(const ExpertCosts& costs, const ExpertDevice& a, const ExpertDevice& e, uint32_t n_a, uint32_t n_e, double context, double token_s) {
  Best best;
  for (uint32_t lanes = 1; lanes <= kLanesMax; ++lanes) {
    for (double batch = 8; batch * lanes <= costs.sequences_max(a, context, 0); batch += 8) {
      const double token = kLayers * costs.apart_s(a, e, batch, context, n_a, n_e, lanes);
      if (token > token_s) break;
      const double rate = n_a * lanes * batch / token / (n_a + n_e);
      if (rate > best.rate) best = {lanes, batch, token, rate};
    }
  }
  return best;
}

Best best_together(const ExpertCosts& costs, const ExpertDevice& d, uint32_t n, double context, double token_s, bool two_phases) {
  Best best;
  const double room = costs.sequences_max(d, context, static_cast<double>(costs.model().experts) / n);
  for (uint32_t lanes = 1; lanes <= 2; ++lanes) {
    for (double batch = 8; batch <= room; batch += 8) {
      const double token = kLayers * costs.expert_parallel_s(d, batch, context, n, lanes, 1, two_phases);
      if (token > token_s) break;
      if (batch / token > best.rate) best = {lanes, batch, token, batch / token};
    }
  }
  return best;
}

std::string shape_of(const Best& best) { return best.rate > 0 ? absl::StrFormat("%d x %.0f", best.lanes, best.batch) : std::string("none keeps it"); }

std::string gain_of(const Best& apart, const Best& together) {
  const double gain = together.rate > 0 ? apart.rate / together.rate - 1 : 0;
  return (gain < 0 ? "" : "+") + percent(gain);
}

StudyTable afd_study(uint64_t) {
  StudyTable t{"DP32 + EP32 on 32 devices against 32 for attention and 16 for experts, H800: tokens/s/device", "aggregate: rooflines, policy/overlap for lanes",
               {"data set", "context", "token within", "launches of a batch of experts, us", "EP32, a copy per expert", "EP32, a copy per machine", "apart", "lanes x batch", "over the first", "over the second", "published"}, {}, {}};
  const struct {
    const char* name;
    double context;
  } sets[] = {{"low latency, online", 1024}, {"random", 2048}, {"near-line", 4096}};
  for (const double token_s : {0.05, 0.1}) {
    for (const auto& set : sets) {
      for (const bool launches : {false, true}) {
        const ExpertCosts& c = costs(launches);
        const Best direct = best_together(c, h800(), 32, set.context, token_s, false), two = best_together(c, h800(), 32, set.context, token_s, true), apart = best_split(c, h800(), h800(), 32, 16, set.context, token_s);
        t.rows.push_back({set.name, num(set.context, 0), num(token_s * 1e3, 0) + " ms", launches ? us(ExpertServiceTimes{}.fixed_s) : "0", num(direct.rate, 0), num(two.rate, 0), num(apart.rate, 0), shape_of(apart), gain_of(apart, direct), gain_of(apart, two), token_s < 0.1 ? "parity" : "up to +19 %"});
      }
    }
  }
  t.notes = {"The contexts are ours: the publication names its three data sets and not their lengths. Nor does it say how its EP32 sends rows, or what its launches take.",
             "50 ms are 820 us a layer, and three lanes that each read the weights of 16 experts (263 us) take 789 of them. Three lanes fit without launches, and two with 30 us each (what a server of the simulator by messages takes): what is apart wins by the one and loses by the other. Parity is between.",
             "At 100 ms three lanes fit either way. Then EP32 is bound by its links if a token travels once for each expert, and by computing if once for each machine: the published gain is between what is apart gains over either.",
             "From context 2048 on memory for caches binds both: 402 sequences on each of 32 of 48 devices are 1.03 times 260 on each of 32, so a longer time between tokens gains little.",
             "Links of EP32 as computed, dispatch and combine at 128 tokens: EP16 275 us, EP32 413, EP64 482; DeepEP measured 313, 428, 487."};
  return t;
}

StudyTable ratio_study(uint64_t) {
  StudyTable t{"How many of 48 devices for which side, as policy/overlap chooses, at context 2048 and 100 ms", "aggregate: rooflines, policy/overlap", {"attention on", "experts on", "chosen", "lanes x batch", "ms a token", "tokens/s", "$/hour", "M tokens per $"}, {}, {}};
  for (const auto& [a, e] : {std::pair("H800", "H800"), std::pair("H800", "H20"), std::pair("H20", "H800"), std::pair("H20", "H20")}) {
    const ExpertDevice &attention = *find_expert_device(a), &experts = *find_expert_device(e);
    std::vector<SplitChoice> choices;
    for (uint32_t n_e = 8; n_e <= 40; n_e += 8) {
      const Best best = best_split(costs(), attention, experts, 48 - n_e, n_e, 2048, 0.1);
      if (best.rate == 0) continue;
      choices.push_back({48 - n_e, n_e, best.lanes, static_cast<uint32_t>(best.batch), costs().lane(attention, experts, best.batch, 2048, 48 - n_e, n_e, true), (48 - n_e) * attention.price_per_hour + n_e * experts.price_per_hour});
    }
    const SplitGoal goal{.token_s = 0.1, .layers = static_cast<uint32_t>(kLayers)};
    const auto chosen = plan_split(choices, goal);
    if (!chosen.ok()) {
      t.rows.push_back({a, e, std::string(chosen.status().message()), "", "", "", "", ""});
      continue;
    }
    const SplitChoice& c = choices[*chosen];
    const double rate = split_rate(c, goal);
    t.rows.push_back({a, e, absl::StrCat(c.attention, " + ", c.experts), absl::StrCat(c.lanes, " x ", c.batch), num(1e3 * kLayers * layer_seconds(c.times, c.lanes), 1), num(rate, 0), num(c.cost_per_hour, 0), num(rate * 3600 / c.cost_per_hour / 1e6, 1)});
  }
  t.notes = {"List prices, for comparison only. Latent attention is bound by arithmetic on an H20, so it does not pay on that side of this model; published analyses say the same."};
  return t;
}

// ---- throughput and token period over load ----------------------------------------------------------------------------------------

struct Point {
  double token_s = 0, rate = 0;
};
// Devices as services, two lanes, as published.
Point services_at(double sequences, uint32_t n_a, uint32_t n_e) {
  const double token = kLayers * costs().apart_s(h800(), h800(), sequences / n_a / 2, 1024, n_a, n_e, 2);
  return {token, sequences / token};
}
Point expert_parallel_at(double sequences, uint32_t n) {
  const double token = kLayers * std::min(costs().expert_parallel_s(h800(), sequences / n, 1024, n, 1), costs().expert_parallel_s(h800(), sequences / n, 1024, n, 2));
  return {token, sequences / token};
}
Point tensor_parallel_at(double sequences, uint32_t units) {
  const double token = kLayers * costs().tensor_parallel_s(h800(), sequences / units, 1024, 16);
  return {token, sequences / token};
}

StudyTable load_study(uint64_t) {
  StudyTable t{"Throughput and time between tokens over load: 64 H800, context 1024", "aggregate: rooflines", {"sequences", "services 40 + 24: tokens/s", "ms", "EP64: tokens/s", "ms", "4 x TP16: tokens/s", "ms"}, {}, {}};
  for (const double sequences : {512.0, 1024.0, 2048.0, 4096.0, 8192.0, 12288.0}) {
    const Point s = services_at(sequences, 40, 24), e = expert_parallel_at(sequences, 64), p = tensor_parallel_at(sequences, 4);
    t.rows.push_back({num(sequences, 0), num(s.rate, 0), num(s.token_s * 1e3, 1), num(e.rate, 0), num(e.token_s * 1e3, 1), num(p.rate, 0), num(p.token_s * 1e3, 1)});
  }
  t.notes = {"Published: curves comparable to the monolithic systems, without figures in what was at hand.", "No launches but 50 us of the attention kernel and 30 us of a batch of experts, no host, no imbalance: every column is an upper bound, so only their order and shape mean something."};
  return t;
}

// ---- elasticity -------------------------------------------------------------------------------------------------------------------

// As many servers as ExpertScale settles on, from `n_e` on, for so many sequences on `n_a` devices: busy are a server's kernels or
// its link, whichever is more, in the time that a token may take.
uint32_t settled_servers(uint32_t n_e, double sequences, uint32_t n_a, double token_s) {
  ExpertScale scale({.servers_min = 10, .cool_down = Duration(0)});  // 10: memory for one copy of every expert
  for (int window = 0; window < 400; ++window) {
    const LaneTimes lane = costs().lane(h800(), h800(), sequences / n_a / 2, 1024, n_a, n_e, true);
    const double busy = 2 * std::max({lane.experts, lane.dispatch, lane.combine}) / (token_s / kLayers);
    n_e += static_cast<uint32_t>(scale.window({n_e, busy}, TimePoint(std::chrono::seconds(window))));
  }
  return n_e;
}

StudyTable elastic_study(uint64_t) {
  StudyTable t{"When the load falls from 8192 sequences to 5120", "aggregate: rooflines, policy/expert_scale decides about every single server", {"system", "unit", "devices before", "devices after", "saved", "ms a token before", "after", "published"}, {}, {}};
  const uint32_t a = 32, a_after = 20;  // 256 sequences each
  const uint32_t e = settled_servers(32, 8192, a, 0.05), e_after = settled_servers(e, 5120, a_after, 0.05);
  const auto row = [&](const char* system, const char* unit, uint32_t before, uint32_t after, double ms, double ms_after, const char* published) {
    t.rows.push_back({system, unit, absl::StrCat(before), absl::StrCat(after), percent(static_cast<double>(before - after) / before), num(ms * 1e3, 1), num(ms_after * 1e3, 1), published});
  };
  row("services, 32 of 64 for experts", "1", 64, 40, services_at(8192, 32, 32).token_s, services_at(5120, 20, 20).token_s, "37.5 %");
  row("services, as the policy scales for 50 ms", "1", a + e, a_after + e_after, services_at(8192, a, e).token_s, services_at(5120, a_after, e_after).token_s, "37.5 %");
  row("TP16 units", "16", 64, 48, tensor_parallel_at(8192, 4).token_s, tensor_parallel_at(5120, 3).token_s, "25 %");
  row("EP64", "the group", 64, 64, expert_parallel_at(8192, 64).token_s, expert_parallel_at(5120, 64).token_s, "0");
  t.notes = {"37.5 % is (64 - 40) / 64 and 25 % is (64 - 48) / 64: what counts is that the unit is one device and the time between tokens stays."};
  return t;
}

StudyTable price_study(uint64_t) {
  std::vector<uint32_t> loads;
  for (uint32_t sequences = 2048; sequences <= 8192; sequences += 1024) loads.push_back(sequences);
  return expert_price(loads, h800(), 1024, 0.1);
}

}  // namespace

// The fewest devices of each kind that keep the period. Services: any numbers of each side. Whole groups: units of 16 by tensor
// parallelism, groups of 32 by expert parallelism.
StudyTable expert_price(std::span<const uint32_t> sequences, const ExpertDevice& device, double context, double token_s) {
  StudyTable t{absl::StrFormat("What a load costs, and its next step: %s at %.2f $/hour, context %.0f, a token within %.0f ms", device.name, device.price_per_hour, context, token_s * 1e3),
               "aggregate: rooflines", {"sequences", "services: attention + experts", "$/hour", "TP16 units", "$/hour", "EP32 groups", "$/hour", "services over the cheaper"}, {}, {}};
  for (const uint32_t load : sequences) {
    uint32_t a_best = 0, e_best = 0;
    for (uint32_t e = 4; e <= 512; ++e) {  // of what keeps the period, the fewest devices
      for (uint32_t a = 1; a <= 1024 && (a_best == 0 || a + e < a_best + e_best); ++a) {
        const double batch = load / 2.0 / a;
        if (2 * batch > costs().sequences_max(device, context, 0) ||
            costs().model().experts * costs().model().expert_layers * costs().model().expert_bytes() * 2 / e > device.memory_bytes * 0.9) continue;
        if (kLayers * costs().apart_s(device, device, batch, context, a, e, 2) <= token_s) a_best = a, e_best = e;
      }
    }
    uint32_t units = 1, groups = 1;
    while (units < 64 && (kLayers * costs().tensor_parallel_s(device, static_cast<double>(load) / units, context, 16) > token_s || static_cast<double>(load) / units > costs().sequences_max(device, context, 16, 1.0 / 16))) ++units;
    while (groups < 64 && (kLayers * costs().expert_parallel_s(device, load / 32.0 / groups, context, 32, 2) > token_s || load / 32.0 / groups > costs().sequences_max(device, context, 8))) ++groups;
    const double services = (a_best + e_best) * device.price_per_hour, tensor = units * 16 * device.price_per_hour, together = groups * 32 * device.price_per_hour;
    t.rows.push_back({absl::StrCat(load), a_best > 0 ? absl::StrCat(a_best, " + ", e_best) : "none", num(services, 0), absl::StrCat(units, " x 16"), num(tensor, 0), absl::StrCat(groups, " x 32"), num(together, 0), num(services / std::min(tensor, together), 2)});
  }
  t.notes = {"Services hold two copies of every expert. Tensor parallelism keeps the latent cache on every device of a unit, which is what limits it here.",
             absl::StrFormat("A step costs one device (%.2f $/hour) as services, %.2f by tensor parallelism over two machines, %.2f by expert parallelism over four.", device.price_per_hour, 16 * device.price_per_hour, 32 * device.price_per_hour)};
  return t;
}

std::span<const ExpertStudy> expert_studies() {
  static const std::vector<ExpertStudy> kStudies = {
      {"way", "a layer's way there and back: the 550 us, direct and in two phases", way_study},
      {"afd", "DP32 + EP32 against 32 + 16 devices, three data sets, 50 and 100 ms", afd_study},
      {"ratio", "attention to expert devices as the policy finds it, unlike devices, with their cost", ratio_study},
      {"load", "throughput and time between tokens over load, beside EP and TP", load_study},
      {"elastic", "devices saved when the load falls from 8192 to 5120", elastic_study},
      {"price", "what a load costs as services and as whole groups", price_study},
      {"grow", "from 32 to 64 devices by one server at a time", grow_study},
      {"losses", "ten servers of 64 devices killed one by one", losses_study},
      {"placement", "placement on skewed routing", placement_study},
      {"lanes", "lanes and the cost of launches", lanes_study},
      {"transport", "uneven shares, one-sided against two-sided", transport_study},
      {"batch-rules", "when a server begins, while a client is silent", batch_rule_study},
  };
  return kStudies;
}

StatusOr<const ExpertStudy*> find_expert_study(std::string_view name) {
  std::string known;
  for (const ExpertStudy& study : expert_studies()) {
    if (study.name == name) return &study;
    absl::StrAppend(&known, known.empty() ? "" : ", ", std::string(study.name));
  }
  return not_found("'", std::string(name), "' is no study of experts; there are ", known);
}

}  // namespace shoal
