#include "policy/expert_layout.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "base/check.h"

namespace shoal {
namespace {

constexpr size_t kServersMax = 1u << 16;
constexpr uint32_t kExpertsMax = 1u << 16;  // of a layer
constexpr size_t kReliefsPerServer = 8;
constexpr int kSweeps = 12;
constexpr double kWorthwhile = 1e-3;  // of the slowest server's time

Status check_servers(const PlacementView& view) {
  std::set<NodeId> names;
  if (view.servers.size() > kServersMax) return invalid_argument("expert placement: ", view.servers.size(), " servers; at most ", kServersMax, " can be planned for");
  for (const ExpertServerSpec& s : view.servers) {
    if (!names.insert(s.server).second) return invalid_argument("expert placement: two servers have the name ", s.server.value);
    if (!(s.speed > 0) || !std::isfinite(s.speed)) return invalid_argument("expert placement: server ", s.server.value, " has the speed ", s.speed, ", which is none");
    if (s.memory_bytes > INT64_MAX) return invalid_argument("expert placement: server ", s.server.value, " has ", s.memory_bytes, " bytes, which is none");
  }
  return OkStatus();
}

Status check_rows(const PlacementView& view) {
  if (view.rows.empty()) return OkStatus();
  if (view.rows.size() != view.layers.size()) return invalid_argument("expert placement: rows of ", view.rows.size(), " layers of ", view.layers.size());
  for (size_t l = 0; l < view.layers.size(); ++l) {
    if (view.rows[l].size() != view.layers[l].experts) return invalid_argument("expert placement: rows of ", view.rows[l].size(), " experts of ", view.layers[l].experts, " in layer ", view.layers[l].layer);
    for (const double rows : view.rows[l]) {
      if (!(rows >= 0) || !std::isfinite(rows)) return invalid_argument("expert placement: ", rows, " rows in layer ", view.layers[l].layer, " is none");
    }
  }
  return OkStatus();
}

}  // namespace

Status check_view(const PlacementView& view) {
  RETURN_IF_ERROR(check_servers(view));
  const ExpertLayerSpec* before = nullptr;
  for (const ExpertLayerSpec& layer : view.layers) {
    if (before != nullptr && before->layer >= layer.layer) return invalid_argument("expert placement: layer ", layer.layer, " comes after layer ", before->layer);
    if (layer.experts == 0 || layer.experts > kExpertsMax) return invalid_argument("expert placement: layer ", layer.layer, " has ", layer.experts, " experts; 1 to ", kExpertsMax, " can be planned for");
    if (layer.expert_bytes == 0 || layer.expert_bytes > (uint64_t{1} << 44)) return invalid_argument("expert placement: an expert of layer ", layer.layer, " has ", layer.expert_bytes, " bytes");
    before = &layer;
  }
  RETURN_IF_ERROR(check_rows(view));
  const auto layer_of = [&](uint32_t layer) { return std::find_if(view.layers.begin(), view.layers.end(), [&](const ExpertLayerSpec& l) { return l.layer == layer; }); };
  for (const ExpertCopies& c : view.copies) {
    const auto layer = layer_of(c.layer);
    if (layer == view.layers.end()) return not_found("layer ", c.layer, " has no experts");
    if (c.expert >= layer->experts) return not_found("layer ", c.layer, " has no expert ", c.expert, "; it has ", layer->experts);
    if (c.copies == 0) return absl::FailedPreconditionError(absl::StrCat("expert ", c.expert, " of layer ", c.layer, " cannot do without a copy"));
  }
  for (const LayerPlacement& layer : view.current == nullptr ? std::vector<LayerPlacement>{} : view.current->layers) {
    const auto spec = layer_of(layer.layer);
    if (spec == view.layers.end() || spec->experts != layer.experts.size()) return invalid_argument("expert placement: the current one has ", layer.experts.size(), " experts in layer ", layer.layer, ", which is of another model");
  }
  return OkStatus();
}

ExpertLayout::ExpertLayout(const PlacementView& view, const ExpertCost& cost) : view_(view), cost_(cost) {
  std::map<NodeId, uint32_t> index;
  for (uint32_t s = 0; s < view.servers.size(); ++s) {
    index[view.servers[s].server] = s;
    free_.push_back(static_cast<int64_t>(view.servers[s].memory_bytes));
  }
  for (const ExpertLayerSpec& layer : view.layers) {
    copies_.emplace_back(layer.experts);
    time_.emplace_back(view.servers.size(), 0.0);
    used_.emplace_back(view.servers.size(), 0);
    double sum = 0;
    for (uint32_t e = 0; e < layer.experts; ++e) sum += rows(copies_.size() - 1, e);
    mean_rows_.push_back(sum / layer.experts);
    all_bytes_ += static_cast<double>(layer.expert_bytes) * layer.experts;
  }
  for (size_t l = 0; view.current != nullptr && l < view.layers.size(); ++l) {
    for (uint32_t e = 0; e < view.layers[l].experts; ++e) {
      for (const ExpertShare& c : view.current->of(view.layers[l].layer, e)) {
        const auto at = index.find(c.server);
        if (at == index.end() || !usable(at->second) || has(l, e, at->second)) continue;
        add(l, e, at->second, static_cast<double>(c.share) / kWholeShare);
        copies_[l][e].back().held = true;
      }
    }
  }
}

uint32_t ExpertLayout::usable_servers() const {
  uint32_t count = 0;
  for (uint32_t s = 0; s < free_.size(); ++s) count += usable(s);
  return count;
}

bool ExpertLayout::has(size_t layer, uint32_t expert, uint32_t server) const {
  const Copies& copies = copies_[layer][expert];
  return std::any_of(copies.begin(), copies.end(), [&](const Copy& c) { return c.server == server; });
}

bool ExpertLayout::domain_taken(size_t layer, uint32_t expert, uint32_t server, uint32_t except) const {
  const Copies& copies = copies_[layer][expert];
  const uint32_t domain = view_.servers[server].domain;
  return std::any_of(copies.begin(), copies.end(), [&](const Copy& c) { return c.server != except && view_.servers[c.server].domain == domain; });
}

bool ExpertLayout::over_part(size_t layer, uint32_t server) const {
  const double part = static_cast<double>(view_.servers[server].memory_bytes) * static_cast<double>(bytes(layer)) * experts(layer) / all_bytes_;
  return static_cast<double>(used_[layer][server] + bytes(layer)) > part + static_cast<double>(bytes(layer)) * 0.999;
}

void ExpertLayout::charge(size_t layer, uint32_t expert, const Copy& copy, double sign) {
  time_[layer][copy.server] += sign * seconds(layer, expert, copy.share) / speed(copy.server);
}

void ExpertLayout::add(size_t layer, uint32_t expert, uint32_t server, double share) {
  copies_[layer][expert].push_back({server, share, false});
  charge(layer, expert, copies_[layer][expert].back(), 1);
  free_[server] -= static_cast<int64_t>(bytes(layer));
  used_[layer][server] += bytes(layer);
}

void ExpertLayout::remove(size_t layer, uint32_t expert, uint32_t server) {
  Copies& copies = copies_[layer][expert];
  const auto at = std::find_if(copies.begin(), copies.end(), [&](const Copy& c) { return c.server == server; });
  CHECK(at != copies.end());
  charge(layer, expert, *at, -1);
  if (!at->held) free_[server] += static_cast<int64_t>(bytes(layer));
  used_[layer][server] -= bytes(layer);
  copies.erase(at);
}

// All rows to the copy whose server is through with them first.
void ExpertLayout::give_whole(size_t layer, uint32_t expert) {
  Copies& copies = copies_[layer][expert];
  const std::vector<double>& base = time_[layer];
  const double whole = seconds(layer, expert, 1);
  size_t best = 0;
  for (size_t i = 1; i < copies.size(); ++i) {
    if (base[copies[i].server] + whole / speed(copies[i].server) < base[copies[best].server] + whole / speed(copies[best].server)) best = i;
  }
  for (size_t i = 0; i < copies.size(); ++i) copies[i].share = i == best;
  charge(layer, expert, copies[best], 1);
}

// The shares with which an expert's rows fill its servers to one level, as if their cost were linear.
std::vector<double> ExpertLayout::filled(size_t layer, uint32_t expert) const {
  const Copies& copies = copies_[layer][expert];
  std::vector<double> base(copies.size());
  for (size_t i = 0; i < copies.size(); ++i) base[i] = time_[layer][copies[i].server] - seconds(layer, expert, copies[i].share) / speed(copies[i].server);
  std::vector<size_t> order(copies.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return base[a] < base[b]; });
  double speeds = 0, filled = 0, level = 0, sum = 0;
  for (size_t i = 0; i < order.size() && (i == 0 || level > base[order[i]]); ++i) {
    const double faster = speed(copies[order[i]].server);
    speeds += faster, filled += base[order[i]] * faster;
    level = (seconds(layer, expert, 1) + filled) / speeds;
  }
  std::vector<double> shares(copies.size(), 0.0);
  for (size_t i = 0; i < copies.size(); ++i) sum += shares[i] = std::max(0.0, level - base[i]) * speed(copies[i].server);
  for (double& share : shares) share = sum > 0 ? share / sum : 1.0 / static_cast<double>(shares.size());
  return shares;
}

bool ExpertLayout::relieve_slowest(size_t layer) {
  const std::vector<double>& time = time_[layer];
  const auto slowest = static_cast<uint32_t>(std::max_element(time.begin(), time.end()) - time.begin());
  double best = time[slowest] * (1 - kWorthwhile);
  std::optional<uint32_t> chosen;
  for (uint32_t e = 0; e < experts(layer); ++e) {
    const Copies& copies = copies_[layer][e];
    if (copies.size() < 2 || std::none_of(copies.begin(), copies.end(), [&](const Copy& c) { return c.server == slowest && c.share > 0; })) continue;
    const std::vector<double> shares = filled(layer, e);
    double after = 0;  // of the slowest of its servers
    for (size_t i = 0; i < copies.size(); ++i) {
      after = std::max(after, time[copies[i].server] + (seconds(layer, e, shares[i]) - seconds(layer, e, copies[i].share)) / speed(copies[i].server));
    }
    if (after < best) best = after, chosen = e;
  }
  if (chosen) fill(layer, *chosen);
  return chosen.has_value();
}

void ExpertLayout::fill(size_t layer, uint32_t expert) {
  const std::vector<double> shares = filled(layer, expert);
  for (size_t i = 0; i < shares.size(); ++i) {
    Copy& copy = copies_[layer][expert][i];
    charge(layer, expert, copy, -1);
    copy.share = shares[i];
    charge(layer, expert, copy, 1);
  }
}

void ExpertLayout::relieve(size_t layer) {
  for (size_t i = 0; i < kReliefsPerServer * free_.size() && relieve_slowest(layer); ++i) {
  }
}

void ExpertLayout::give_evenly(size_t layer) {
  std::fill(time_[layer].begin(), time_[layer].end(), 0.0);
  for (uint32_t e = 0; e < experts(layer); ++e) {
    for (Copy& copy : copies_[layer][e]) {
      copy.share = 1.0 / static_cast<double>(copies_[layer][e].size());
      charge(layer, e, copy, 1);
    }
  }
}

void ExpertLayout::level(size_t layer) {
  std::vector<uint32_t> order;
  for (uint32_t e = 0; e < experts(layer); ++e) {
    if (!copies_[layer][e].empty()) order.push_back(e);
  }
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {  // those with no choice first, then the heaviest
    const bool free_a = copies_[layer][a].size() > 1, free_b = copies_[layer][b].size() > 1;
    return free_a != free_b ? !free_a : rows(layer, a) > rows(layer, b);
  });
  give_evenly(layer);
  for (int sweep = 0; sweep < kSweeps; ++sweep) {  // what one server has too much of spreads to all, neighbour by neighbour
    for (const uint32_t e : order) fill(layer, e);
  }
  relieve(layer);
  Saved even = save(layer);
  const double split = slowest(layer);
  std::fill(time_[layer].begin(), time_[layer].end(), 0.0);
  for (const uint32_t e : order) give_whole(layer, e);
  relieve(layer);
  if (split < slowest(layer) * (1 - kWorthwhile)) restore(layer, std::move(even));
}

void ExpertLayout::restore(size_t layer, Saved saved) {
  copies_[layer] = std::move(saved.copies);
  time_[layer] = std::move(saved.time);
  used_[layer] = std::move(saved.used);
  free_ = std::move(saved.free);
}

double ExpertLayout::slowest(size_t layer) const { return time_[layer].empty() ? 0 : *std::max_element(time_[layer].begin(), time_[layer].end()); }

ExpertPlacement ExpertLayout::placement() const {
  ExpertPlacement out{view_.current == nullptr ? 1 : view_.current->version + 1, {}};
  for (size_t l = 0; l < layers(); ++l) {
    LayerPlacement layer{view_.layers[l].layer, std::vector<std::vector<ExpertShare>>(experts(l))};
    for (uint32_t e = 0; e < experts(l); ++e) {
      uint32_t left = kWholeShare;
      size_t most = 0;
      for (size_t i = 0; i < at(l, e).size(); ++i) {
        const Copy& c = at(l, e)[i];
        const uint32_t share = std::min(left, static_cast<uint32_t>(c.share * kWholeShare));
        layer.experts[e].push_back({view_.servers[c.server].server, share});
        left -= share;
        if (c.share > at(l, e)[most].share) most = i;
      }
      if (!layer.experts[e].empty()) layer.experts[e][most].share += left;
      std::sort(layer.experts[e].begin(), layer.experts[e].end(), [](const ExpertShare& a, const ExpertShare& b) { return a.server < b.server; });
    }
    out.layers.push_back(std::move(layer));
  }
  return out;
}

}  // namespace shoal
