// The elastic planner: experts of unequal load on servers of unequal speed and memory.
#include <algorithm>
#include <map>
#include <queue>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "policy/expert_layout.h"
#include "policy/expert_placement.h"

namespace shoal {
namespace {

using Place = std::pair<size_t, uint32_t>;  // layer (of the view), expert
constexpr int kReliefsPerMove = 4;

class Planner {
 public:
  Planner(const PlacementView& view, const PlacementOptions& options) : view_(view), options_(options), layout_(view, options.cost) {
    for (size_t l = 0; l < layout_.layers(); ++l) {
      wanted_.emplace_back(layout_.experts(l), 1u);
      fresh_.push_back(nobody_had(l));
    }
  }

  StatusOr<PlacementPlan> plan() {
    if (layout_.usable_servers() == 0) return resource_exhausted("expert placement: there is no server that could hold an expert; start one, or end a drain");
    count_copies();
    drop_surplus();
    place_wanted();
    place_missing();
    RETURN_IF_ERROR(whole());
    for (size_t l = 0; l < layout_.layers(); ++l) layout_.level(l);
    for (size_t l = 0; l < layout_.layers(); ++l) rebalance(l);
    return written();
  }

 private:
  bool nobody_had(size_t layer) const {
    for (uint32_t e = 0; view_.current != nullptr && e < layout_.experts(layer); ++e) {
      if (!view_.current->of(view_.layers[layer].layer, e).empty()) return false;
    }
    return true;
  }

  void count_copies();
  void count_fresh(double free_bytes);
  void drop_surplus();
  void place_wanted();
  void place_missing();
  bool place(const Place& at, double share);
  double together(const Place& at, uint32_t server) const;
  bool place_by_exchange(const Place& at, double share, bool own_domain);
  bool make_room(const Place& at);
  Status whole() const;
  void rebalance(size_t layer);
  uint64_t copied_bytes(size_t layer, const std::vector<ExpertLayout::Copies>& before) const;
  bool move_from_slowest(size_t layer);
  PlacementPlan written();
  void keep_on_drained(ExpertPlacement& target) const;
  void write_moves(PlacementPlan& plan) const;

  const PlacementView& view_;
  const PlacementOptions& options_;
  ExpertLayout layout_;
  std::vector<std::vector<uint32_t>> wanted_;  // copies
  std::vector<bool> fresh_;                    // layers of a first placement
  absl::flat_hash_map<std::pair<uint32_t, uint32_t>, uint32_t> together_;  // experts that two servers were given both
  uint32_t moves_ = 0;
  bool more_ = false;
};

// One copy of everything; what was there; copies_min where memory allows, hot ones first; of a first placement more of what is hot.
void Planner::count_copies() {
  double free = 0;
  for (const ExpertServerSpec& s : view_.servers) free += s.draining ? 0.0 : static_cast<double>(s.memory_bytes);
  for (size_t l = 0; l < layout_.layers(); ++l) {
    for (uint32_t e = 0; e < layout_.experts(l); ++e) {
      if (view_.current != nullptr) wanted_[l][e] = std::max<uint32_t>(1, static_cast<uint32_t>(view_.current->of(view_.layers[l].layer, e).size()));
      free -= static_cast<double>(layout_.bytes(l)) * wanted_[l][e];
    }
  }
  count_fresh(free);
  for (const ExpertCopies& c : view_.copies) {
    for (size_t l = 0; l < layout_.layers(); ++l) {
      if (view_.layers[l].layer == c.layer) wanted_[l][c.expert] = c.copies;
    }
  }
  for (auto& layer : wanted_) {
    for (uint32_t& copies : layer) copies = std::min(copies, layout_.usable_servers());
  }
}

void Planner::count_fresh(double free) {
  struct Next {
    bool needed;   // for copies_min
    double heat;   // rows per copy over the layer's mean
    Place at;
    bool operator<(const Next& o) const { return std::tie(needed, heat, o.at) < std::tie(o.needed, o.heat, at); }
  };
  std::priority_queue<Next> queue;
  std::vector<double> mean(layout_.layers());
  const auto push = [&](size_t l, uint32_t e) {
    const uint32_t copies = wanted_[l][e];
    const double heat = mean[l] > 0 ? layout_.rows(l, e) / copies / mean[l] : 1.0 / copies;
    const bool needed = copies < options_.copies_min;
    if (copies < layout_.usable_servers() && (needed || (fresh_[l] && heat > options_.copy_above))) queue.push({needed, heat, {l, e}});
  };
  for (size_t l = 0; l < layout_.layers(); ++l) {
    mean[l] = layout_.mean_rows(l);
    for (uint32_t e = 0; e < layout_.experts(l); ++e) push(l, e);
  }
  while (!queue.empty()) {
    const auto [l, e] = queue.top().at;
    queue.pop();
    if (free < static_cast<double>(layout_.bytes(l))) continue;
    free -= static_cast<double>(layout_.bytes(l));
    ++wanted_[l][e];
    push(l, e);
  }
}

// Of what has more copies than it should: first one whose domain has another, then that on the slowest server.
void Planner::drop_surplus() {
  for (size_t l = 0; l < layout_.layers(); ++l) {
    for (uint32_t e = 0; e < layout_.experts(l); ++e) {
      while (layout_.at(l, e).size() > wanted_[l][e]) {
        const auto& copies = layout_.at(l, e);
        const auto worst = std::max_element(copies.begin(), copies.end(), [&](const auto& a, const auto& b) {
          return std::tuple(layout_.domain_taken(l, e, a.server, a.server), layout_.time(l, a.server)) < std::tuple(layout_.domain_taken(l, e, b.server, b.server), layout_.time(l, b.server));
        });
        layout_.remove(l, e, worst->server);
      }
    }
  }
}

// The longest processing time first; copies_min of everything before more of what is hot, which could take the last places
// outside of a domain.
void Planner::place_wanted() {
  for (const uint32_t most : {options_.copies_min, UINT32_MAX}) {
    std::vector<std::tuple<bool, double, Place>> order;
    for (size_t l = 0; l < layout_.layers(); ++l) {
      for (uint32_t e = 0; e < layout_.experts(l); ++e) {
        const auto held = layout_.at(l, e).size();
        if (held < std::min(most, wanted_[l][e])) order.emplace_back(held > 0 || fresh_[l], -layout_.seconds(l, e, 1.0 / wanted_[l][e]), Place(l, e));
      }
    }
    std::sort(order.begin(), order.end());  // what nobody holds comes first
    for (const auto& [held, seconds, at] : order) {
      const uint32_t wanted = wanted_[at.first][at.second];
      while (layout_.at(at.first, at.second).size() < std::min(most, wanted)) {
        if (!place(at, 1.0 / wanted) && !place_by_exchange(at, 1.0 / wanted, false)) break;
      }
    }
  }
}

bool Planner::place(const Place& at, double share) {
  const auto [l, e] = at;
  using Rank = std::tuple<bool, bool, double, int64_t>;
  std::optional<std::pair<Rank, uint32_t>> best;
  bool distinct = false;  // somebody in another domain could hold it if there were room
  for (uint32_t s = 0; s < view_.servers.size(); ++s) {
    if (!layout_.usable(s) || layout_.has(l, e, s)) continue;
    const bool taken = layout_.at(l, e).size() < options_.copies_min && layout_.domain_taken(l, e, s);
    distinct |= !taken;
    if (!layout_.room(l, s)) continue;
    // An expert shared with a server that already holds another copy counts as one of mean load: a server that is lost leaves
    // its rows to all others.
    const double crowd = together(at, s) * layout_.mean_seconds(l);
    const Rank rank{taken, layout_.over_part(l, s), layout_.time(l, s) + (layout_.seconds(l, e, share) + crowd) / layout_.speed(s), -layout_.free_bytes(s)};
    if (!best || rank < best->first) best = {rank, s};
  }
  if (!best) return false;
  if (std::get<0>(best->first) && distinct && place_by_exchange(at, share, true)) return true;
  for (const ExpertLayout::Copy& c : layout_.at(l, e)) ++together_[std::minmax(c.server, best->second)];
  layout_.add(l, e, best->second, share);
  return true;
}

// Experts that a server would share with one of those that hold this one, at most.
double Planner::together(const Place& at, uint32_t server) const {
  uint32_t most = 0;
  for (const ExpertLayout::Copy& c : layout_.at(at.first, at.second)) {
    const auto shared = together_.find(std::minmax(c.server, server));
    if (shared != together_.end()) most = std::max(most, shared->second);
  }
  return most;
}

// Every server that could take the expert (in a domain of its own) is full: what was only planned for one of them goes to a
// server that has room, and makes room for it.
bool Planner::place_by_exchange(const Place& at, double share, bool own_domain) {
  const auto [l, e] = at;
  for (size_t m = 0; m < layout_.layers(); ++m) {
    if (layout_.bytes(m) != layout_.bytes(l)) continue;
    for (uint32_t f = 0; f < layout_.experts(m); ++f) {
      for (const ExpertLayout::Copy& c : layout_.at(m, f)) {
        if (c.held || layout_.has(l, e, c.server) || (own_domain && layout_.domain_taken(l, e, c.server))) continue;
        for (uint32_t r = 0; r < view_.servers.size(); ++r) {
          if (!layout_.usable(r) || !layout_.room(m, r) || layout_.has(m, f, r)) continue;
          if (layout_.domain_taken(m, f, r, c.server) && !layout_.domain_taken(m, f, c.server, c.server)) continue;
          const ExpertLayout::Copy moved = c;
          layout_.remove(m, f, moved.server);
          layout_.add(m, f, r, moved.share);
          layout_.add(l, e, moved.server, share);
          return true;
        }
      }
    }
  }
  return false;
}

void Planner::place_missing() {
  for (size_t l = 0; l < layout_.layers(); ++l) {
    for (uint32_t e = 0; e < layout_.experts(l); ++e) {
      if (layout_.at(l, e).empty() && !place({l, e}, 1)) make_room({l, e});
    }
  }
}

// The coldest copy that is not its expert's only one gives way: at once if it is only planned, else by the next plan.
bool Planner::make_room(const Place& at) {
  std::optional<std::tuple<bool, double, size_t, uint32_t, uint32_t>> coldest;  // held, rows, layer, expert, server
  for (size_t m = 0; m < layout_.layers(); ++m) {
    for (uint32_t f = 0; f < layout_.experts(m); ++f) {
      if (layout_.at(m, f).size() < 2) continue;
      for (const ExpertLayout::Copy& c : layout_.at(m, f)) {
        if (layout_.free_bytes(c.server) + static_cast<int64_t>(layout_.bytes(m)) < static_cast<int64_t>(layout_.bytes(at.first))) continue;
        const std::tuple candidate{c.held, layout_.rows(m, f), m, f, c.server};
        if (!coldest || candidate < *coldest) coldest = candidate;
      }
    }
  }
  if (!coldest) return false;
  const auto [held, rows, m, f, server] = *coldest;
  layout_.remove(m, f, server);
  if (held) more_ = true;
  else layout_.add(at.first, at.second, server, 1);
  return true;
}

Status Planner::whole() const {
  for (size_t l = 0; l < layout_.layers() && !more_; ++l) {
    for (uint32_t e = 0; e < layout_.experts(l); ++e) {
      if (!layout_.at(l, e).empty()) continue;
      for (const ExpertShare& c : view_.current == nullptr ? std::span<const ExpertShare>{} : view_.current->of(view_.layers[l].layer, e)) {
        const auto drains = std::find_if(view_.servers.begin(), view_.servers.end(), [&](const ExpertServerSpec& s) { return s.server == c.server; });
        if (drains == view_.servers.end()) continue;
        return absl::FailedPreconditionError(absl::StrCat("server ", c.server.value, " holds the last copy of expert ", e, " of layer ", view_.layers[l].layer,
                                                          ", and no other server has room for its ", layout_.bytes(l), " bytes; add a server or memory, then drain it"));
      }
      uint64_t needed = 0, memory = 0;
      for (const ExpertLayerSpec& layer : view_.layers) needed += layer.expert_bytes * layer.experts;
      for (const ExpertServerSpec& s : view_.servers) memory += s.draining ? 0 : s.memory_bytes;
      return resource_exhausted("expert ", e, " of layer ", view_.layers[l].layer, " has no room: one copy of every expert takes ", needed, " bytes, ", layout_.usable_servers(), " servers have ", memory, "; add a server or memory");
    }
  }
  return OkStatus();
}

// The best move of one copy away from the slowest server, if that makes the slower of the two quicker.
bool Planner::move_from_slowest(size_t l) {
  int reliefs = 0;
  uint32_t from = 0;
  for (uint32_t s = 1; s < view_.servers.size(); ++s) {
    if (layout_.time(l, s) > layout_.time(l, from)) from = s;
  }
  std::optional<std::tuple<double, uint32_t, uint32_t, double>> best;  // slower of the two afterwards, expert, to, share
  for (uint32_t e = 0; e < layout_.experts(l); ++e) {
    for (const ExpertLayout::Copy& c : layout_.at(l, e)) {
      if (c.server != from || c.share == 0) continue;
      const double seconds = layout_.seconds(l, e, c.share);
      for (uint32_t to = 0; to < view_.servers.size(); ++to) {
        if (!layout_.usable(to) || layout_.has(l, e, to) || !layout_.room(l, to)) continue;
        if (layout_.domain_taken(l, e, to, from) && !layout_.domain_taken(l, e, from, from)) continue;
        const double slower = std::max(layout_.time(l, from) - seconds / layout_.speed(from), layout_.time(l, to) + seconds / layout_.speed(to));
        if (!best || std::tuple(slower, e, to) < std::tuple(std::get<0>(*best), std::get<1>(*best), std::get<2>(*best))) best = {slower, e, to, c.share};
      }
    }
  }
  if (!best || std::get<0>(*best) > layout_.time(l, from) * (1 - options_.gain_min)) return false;
  layout_.remove(l, std::get<1>(*best), from);
  layout_.add(l, std::get<1>(*best), std::get<2>(*best), std::get<3>(*best));
  while (layout_.relieve_slowest(l) && ++reliefs < kReliefsPerMove) {
  }
  return true;
}

// Of the moves that one after the other relieve the slowest server, as many as are worth most: what they save less what
// copying costs. A single one may only shift who is the slowest.
void Planner::rebalance(size_t l) {
  ExpertLayout::Saved best = layout_.save(l);
  const std::vector<ExpertLayout::Copies> before = best.copies;
  const double slowest = layout_.slowest(l);
  double worth = 0;
  uint32_t kept = 0;
  for (uint32_t moved = 1; moves_ + moved <= options_.moves_max && moved <= 2 * layout_.experts(l) && move_from_slowest(l); ++moved) {
    const double gain = slowest - layout_.slowest(l);
    const double price = options_.caution * static_cast<double>(copied_bytes(l, before)) / options_.copy_bytes_per_second;
    if (gain < options_.gain_min * slowest || gain * options_.passes - price <= worth) continue;
    worth = gain * options_.passes - price;
    best = layout_.save(l);
    kept = moved;
  }
  moves_ += kept;
  layout_.restore(l, std::move(best));
}

// Of what a layer has now and had not before; a first placement copies everything anyway.
uint64_t Planner::copied_bytes(size_t l, const std::vector<ExpertLayout::Copies>& before) const {
  uint64_t bytes = 0;
  for (uint32_t e = 0; e < layout_.experts(l) && !fresh_[l]; ++e) {
    for (const ExpertLayout::Copy& c : layout_.at(l, e)) {
      const bool was = std::any_of(before[e].begin(), before[e].end(), [&](const ExpertLayout::Copy& b) { return b.server == c.server; });
      bytes += was ? 0 : layout_.bytes(l);
    }
  }
  return bytes;
}

// What only a server that drains holds, and the next plan will have room for, stays there until then.
void Planner::keep_on_drained(ExpertPlacement& target) const {
  for (size_t l = 0; view_.current != nullptr && l < layout_.layers(); ++l) {
    for (uint32_t e = 0; e < layout_.experts(l); ++e) {
      if (!target.layers[l].experts[e].empty()) continue;
      for (const ExpertShare& c : view_.current->of(view_.layers[l].layer, e)) {
        const bool there = std::any_of(view_.servers.begin(), view_.servers.end(), [&](const ExpertServerSpec& s) { return s.server == c.server; });
        if (there && target.layers[l].experts[e].empty()) target.layers[l].experts[e].push_back({c.server, kWholeShare});
      }
    }
  }
}

void Planner::write_moves(PlacementPlan& plan) const {
  std::map<NodeId, uint64_t> read;  // bytes that each server sends
  for (const ExpertServerSpec& s : view_.servers) read[s.server] = 0;
  const auto holds = [](std::span<const ExpertShare> copies, NodeId server) {
    return std::any_of(copies.begin(), copies.end(), [&](const ExpertShare& c) { return c.server == server; });
  };
  for (size_t l = 0; l < layout_.layers(); ++l) {
    const uint32_t layer = view_.layers[l].layer;
    for (uint32_t e = 0; e < layout_.experts(l); ++e) {
      const auto now = view_.current == nullptr ? std::span<const ExpertShare>{} : view_.current->of(layer, e);
      const auto then = plan.target.of(layer, e);
      for (const ExpertShare& c : then) {
        if (holds(now, c.server)) continue;
        ExpertMove move{layer, e, c.server, {}};
        for (const ExpertShare& source : now) {
          if (read.contains(source.server) && (!move.from || read[source.server] < read[*move.from])) move.from = source.server;
        }
        if (move.from) read[*move.from] += layout_.bytes(l);
        plan.copy_bytes += layout_.bytes(l);
        plan.copies.push_back(move);
      }
      for (const ExpertShare& c : now) {
        if (read.contains(c.server) && !holds(then, c.server)) plan.drops.push_back({layer, e, c.server, {}});
      }
      plan.missing += then.empty();
      plan.single += then.size() < options_.copies_min;
    }
  }
}

PlacementPlan Planner::written() {
  PlacementPlan plan;
  plan.target = layout_.placement();
  keep_on_drained(plan.target);
  plan.more = more_;
  write_moves(plan);
  if (view_.current != nullptr && plan.target.layers == view_.current->layers) plan.target.version = view_.current->version;
  return plan;
}

Status check_move(const PlacementView& view, uint32_t layer, uint32_t expert, NodeId from, NodeId to) {
  const std::string what = absl::StrCat("expert ", expert, " of layer ", layer);
  const auto copies = view.current == nullptr ? std::span<const ExpertShare>{} : view.current->of(layer, expert);
  if (copies.empty()) return not_found(what, " is held by nobody");
  const auto on = [&](NodeId server) { return std::any_of(copies.begin(), copies.end(), [&](const ExpertShare& c) { return c.server == server; }); };
  const auto server = std::find_if(view.servers.begin(), view.servers.end(), [&](const ExpertServerSpec& s) { return s.server == to; });
  if (server == view.servers.end()) return not_found("there is no server ", to.value);
  if (!on(from)) return absl::FailedPreconditionError(absl::StrCat("server ", from.value, " does not hold ", what));
  if (on(to)) return absl::FailedPreconditionError(absl::StrCat("server ", to.value, " holds ", what, " already"));
  if (server->draining) return absl::FailedPreconditionError(absl::StrCat("server ", to.value, " drains and takes nothing"));
  return OkStatus();
}

}  // namespace

StatusOr<PlacementPlan> plan_placement(const PlacementView& view, const PlacementOptions& options) {
  RETURN_IF_ERROR(check_view(view));
  return Planner(view, options).plan();
}

StatusOr<PlacementPlan> plan_expert_move(const PlacementView& view, uint32_t layer, uint32_t expert, NodeId from, NodeId to) {
  RETURN_IF_ERROR(check_view(view));
  RETURN_IF_ERROR(check_move(view, layer, expert, from, to));
  PlacementPlan plan{.target = *view.current};
  ++plan.target.version;
  uint64_t used = 0, memory = 0;
  for (const ExpertServerSpec& s : view.servers) memory += s.server == to ? s.memory_bytes : 0;
  for (size_t l = 0; l < view.layers.size(); ++l) {
    const ExpertLayerSpec& spec = view.layers[l];
    for (uint32_t e = 0; e < spec.experts; ++e) {
      for (const ExpertShare& c : view.current->of(spec.layer, e)) used += c.server == to ? spec.expert_bytes : 0;
    }
    if (spec.layer == layer) plan.copy_bytes = spec.expert_bytes;
  }
  if (used + plan.copy_bytes > memory) return resource_exhausted("server ", to.value, " has no room for expert ", expert, " of layer ", layer, ": it holds ", used, " of ", memory, " bytes");
  for (LayerPlacement& l : plan.target.layers) {
    if (l.layer != layer) continue;
    for (ExpertShare& c : l.experts[expert]) c.server = c.server == from ? to : c.server;
    std::sort(l.experts[expert].begin(), l.experts[expert].end(), [](const ExpertShare& a, const ExpertShare& b) { return a.server < b.server; });
  }
  plan.copies.push_back({layer, expert, to, from});
  plan.drops.push_back({layer, expert, from, {}});
  return plan;
}

ExpertPlacement share_anew(const PlacementView& view, const PlacementOptions& options) {
  if (view.current == nullptr || !check_view(view).ok()) return view.current == nullptr ? ExpertPlacement{} : *view.current;
  ExpertLayout layout(view, options.cost);
  for (size_t l = 0; l < layout.layers(); ++l) layout.level(l);
  ExpertPlacement out = layout.placement();
  if (out.layers == view.current->layers) out.version = view.current->version;
  return out;
}

}  // namespace shoal
