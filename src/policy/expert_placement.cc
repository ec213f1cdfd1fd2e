#include "policy/expert_placement.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/rng.h"
#include "policy/eplb.h"

namespace shoal {

std::span<const ExpertShare> ExpertPlacement::of(uint32_t layer, uint32_t expert) const {
  const auto at = std::lower_bound(layers.begin(), layers.end(), layer, [](const LayerPlacement& l, uint32_t wanted) { return l.layer < wanted; });
  if (at == layers.end() || at->layer != layer || expert >= at->experts.size()) return {};
  return at->experts[expert];
}

double ExpertCost::seconds(double rows) const { return rows * row_s + (active_s == 0 ? 0 : -std::expm1(-rows) * active_s); }

namespace {

// Solves a x = b of three unknowns by elimination with pivots; false if it is singular.
bool solve3(double (&a)[3][4]) {
  for (int column = 0; column < 3; ++column) {
    int pivot = column;
    for (int row = column + 1; row < 3; ++row) {
      if (std::abs(a[row][column]) > std::abs(a[pivot][column])) pivot = row;
    }
    if (std::abs(a[pivot][column]) < 1e-9) return false;
    std::swap(a[pivot], a[column]);
    for (int row = 0; row < 3; ++row) {
      if (row == column) continue;
      const double factor = a[row][column] / a[column][column];
      for (int i = column; i < 4; ++i) a[row][i] -= factor * a[column][i];
    }
  }
  for (int row = 0; row < 3; ++row) a[row][3] /= a[row][row];
  return true;
}

}  // namespace

StatusOr<ExpertCost> fit_expert_cost(std::span<const ExpertSample> table) {
  double rows_max = 1e-9, active_max = 1e-9;
  for (const ExpertSample& s : table) {
    if (!(s.rows >= 0) || !(s.active >= 0) || !(s.seconds >= 0) || !std::isfinite(s.rows + s.active + s.seconds)) {
      return invalid_argument("expert times: a sample of ", s.rows, " rows, ", s.active, " active experts and ", s.seconds, " s is none");
    }
    rows_max = std::max(rows_max, s.rows), active_max = std::max(active_max, s.active);
  }
  double a[3][4] = {};  // of terms scaled to at most 1
  for (const ExpertSample& s : table) {
    const double x[3] = {1, s.active / active_max, s.rows / rows_max};
    for (int i = 0; i < 3; ++i) {
      for (int j = 0; j < 3; ++j) a[i][j] += x[i] * x[j];
      a[i][3] += x[i] * s.seconds;
    }
  }
  if (table.size() < 3 || !solve3(a)) return invalid_argument("expert times: ", table.size(), " samples do not tell rows from active experts; measure batches with few and many of each");
  return ExpertCost{std::max(0.0, a[1][3] / active_max), std::max(0.0, a[2][3] / rows_max)};
}

const ExpertShare* choose_copy(std::span<const ExpertShare> copies, uint64_t key, std::span<const NodeId> suspected) {
  const auto usable = [&](const ExpertShare& c) { return std::find(suspected.begin(), suspected.end(), c.server) == suspected.end(); };
  uint64_t whole = 0;
  const ExpertShare* first = nullptr;
  for (const ExpertShare& c : copies) {
    if (!usable(c)) continue;
    whole += c.share;
    if (first == nullptr) first = &c;
  }
  if (whole == 0) return first;  // only copies in reserve are left, or nobody
  uint64_t at = static_cast<uint64_t>((static_cast<unsigned __int128>(mix64(key)) * whole) >> 64);
  for (const ExpertShare& c : copies) {
    if (!usable(c)) continue;
    if (at < c.share) return &c;
    at -= c.share;
  }
  return first;
}

std::vector<std::vector<double>> server_seconds(const PlacementView& view, const ExpertPlacement& placement, const ExpertCost& cost) {
  std::map<NodeId, size_t> index;
  for (size_t s = 0; s < view.servers.size(); ++s) index[view.servers[s].server] = s;
  std::vector<std::vector<double>> out(view.layers.size(), std::vector<double>(view.servers.size(), 0.0));
  for (size_t l = 0; l < view.layers.size(); ++l) {
    for (uint32_t e = 0; e < view.layers[l].experts; ++e) {
      const double rows = view.rows.empty() ? 1.0 : view.rows[l][e];
      for (const ExpertShare& c : placement.of(view.layers[l].layer, e)) {
        const auto at = index.find(c.server);
        if (at != index.end()) out[l][at->second] += cost.seconds(rows * c.share / kWholeShare) / view.servers[at->second].speed;
      }
    }
  }
  return out;
}

double imbalance(const PlacementView& view, const ExpertPlacement& placement, const ExpertCost& cost) {
  double slowest = 0, even = 0;
  double speed = 0;
  for (const ExpertServerSpec& s : view.servers) speed += s.draining ? 0 : s.speed;
  for (const std::vector<double>& layer : server_seconds(view, placement, cost)) {
    double work = 0;
    for (size_t s = 0; s < layer.size(); ++s) work += layer[s] * view.servers[s].speed;
    slowest += *std::max_element(layer.begin(), layer.end());
    even += work / speed;
  }
  return even > 0 ? slowest / even : 1;
}

Status check_placement(const PlacementView& view, const ExpertPlacement& placement) {
  std::map<NodeId, uint64_t> held;
  std::map<NodeId, const ExpertServerSpec*> known;
  for (const ExpertServerSpec& s : view.servers) known[s.server] = &s;
  for (const ExpertLayerSpec& layer : view.layers) {
    for (uint32_t e = 0; e < layer.experts; ++e) {
      uint64_t whole = 0;
      std::set<NodeId> on;
      const auto copies = placement.of(layer.layer, e);
      for (const ExpertShare& c : copies) {
        const std::string what = absl::StrCat("expert ", e, " of layer ", layer.layer);
        const auto server = known.find(c.server);
        if (server == known.end()) return not_found(what, " is placed on server ", c.server.value, ", which is not there");
        if (!on.insert(c.server).second) return invalid_argument(what, " is placed twice on server ", c.server.value);
        held[c.server] += layer.expert_bytes;
        whole += c.share;
      }
      if (!copies.empty() && whole != kWholeShare) return invalid_argument("the shares of expert ", e, " of layer ", layer.layer, " add up to ", whole, " of ", kWholeShare);
    }
  }
  for (const auto& [server, bytes] : held) {
    if (bytes > known[server]->memory_bytes) return resource_exhausted("server ", server.value, " would hold ", bytes, " bytes of experts in ", known[server]->memory_bytes);
  }
  return OkStatus();
}

StatusOr<ExpertPlacement> place_eplb(const PlacementView& view, uint32_t replicas, uint32_t groups, uint32_t nodes) {
  ExpertPlacement out{view.current == nullptr ? 1 : view.current->version + 1, {}};
  const auto devices = static_cast<uint32_t>(view.servers.size());
  for (size_t l = 0; l < view.layers.size(); ++l) {
    std::vector<float> loads(view.layers[l].experts, 1.0f);
    for (size_t e = 0; e < loads.size() && !view.rows.empty(); ++e) loads[e] = static_cast<float>(view.rows[l][e]);
    ASSIGN_OR_RETURN(const EplbLayer layer, eplb(loads, {replicas, groups, nodes, devices}));
    LayerPlacement placed{view.layers[l].layer, std::vector<std::vector<ExpertShare>>(loads.size())};
    for (size_t e = 0; e < loads.size(); ++e) {
      const uint32_t copies = layer.copies[e];
      for (uint32_t rank = 0; rank < copies; ++rank) {
        const NodeId server = view.servers[layer.expert_slots[e][rank] / (replicas / devices)].server;
        const uint32_t share = kWholeShare / copies + (rank < kWholeShare % copies);
        auto& on = placed.experts[e];
        const auto same = std::find_if(on.begin(), on.end(), [&](const ExpertShare& c) { return c.server == server; });
        if (same != on.end()) same->share += share;  // the published algorithm may put two copies on one device
        else on.push_back({server, share});
      }
    }
    out.layers.push_back(std::move(placed));
  }
  return out;
}

}  // namespace shoal
