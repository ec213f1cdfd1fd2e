#include "policy/eplb.h"

#include <algorithm>
#include <numeric>

namespace shoal {
namespace {

using Indices = std::vector<uint32_t>;

struct Packing {
  Indices pack, rank;  // of each item
};

// Equally many items to each pack, the heaviest first, always into the lightest pack with a free place.
Packing pack_evenly(std::span<const float> weights, uint32_t packs) {
  const auto items = static_cast<uint32_t>(weights.size());
  const uint32_t places = items / packs;
  Packing out{Indices(items), Indices(items)};
  if (places == 1) {
    std::iota(out.pack.begin(), out.pack.end(), 0u);
    return out;
  }
  Indices order(items);
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return weights[a] > weights[b]; });
  std::vector<float> loads(packs, 0.0f);
  Indices taken(packs, 0);
  for (const uint32_t item : order) {
    uint32_t lightest = packs;
    for (uint32_t p = 0; p < packs; ++p) {
      if (taken[p] < places && (lightest == packs || loads[p] < loads[lightest])) lightest = p;
    }
    out.pack[item] = lightest;
    out.rank[item] = taken[lightest]++;
    loads[lightest] += weights[item];
  }
  return out;
}

struct Replication {
  Indices expert, rank;  // of each slot
  Indices copies;        // of each expert
};

// One copy each, then always one more of the expert with the most load per copy.
Replication replicate(std::span<const float> weights, uint32_t slots) {
  const auto experts = static_cast<uint32_t>(weights.size());
  Replication out{Indices(slots), Indices(slots, 0), Indices(experts, 1)};
  std::iota(out.expert.begin(), out.expert.begin() + experts, 0u);
  for (uint32_t slot = experts; slot < slots; ++slot) {
    uint32_t most = 0;
    const auto per_copy = [&](uint32_t e) { return weights[e] / static_cast<float>(out.copies[e]); };
    for (uint32_t e = 1; e < experts; ++e) {
      if (per_copy(e) > per_copy(most)) most = e;
    }
    out.expert[slot] = most;
    out.rank[slot] = out.copies[most]++;
  }
  return out;
}

Status check_shape(size_t experts, const EplbShape& s) {
  const auto whole = [](uint64_t a, uint64_t b) { return b > 0 && a % b == 0; };
  if (experts == 0) return invalid_argument("eplb: the layer has no expert");
  if (!whole(experts, s.groups)) return invalid_argument("eplb: ", experts, " experts do not divide into ", s.groups, " groups");
  if (!whole(s.devices, s.nodes)) return invalid_argument("eplb: ", s.devices, " devices do not divide among ", s.nodes, " machines");
  if (!whole(s.replicas, s.devices)) return invalid_argument("eplb: ", s.replicas, " replicas do not divide among ", s.devices, " devices");
  if (s.replicas < experts) return invalid_argument("eplb: ", s.replicas, " replicas cannot hold ", experts, " experts");
  return OkStatus();
}

// Where each expert goes when its group is packed onto a machine: machine by machine, groups whole.
Indices grouped_order(std::span<const float> loads, uint32_t groups, uint32_t nodes) {
  const auto group_size = static_cast<uint32_t>(loads.size()) / groups;
  std::vector<float> group_loads(groups, 0.0f);
  for (size_t e = 0; e < loads.size(); ++e) group_loads[e / group_size] += loads[e];
  const Packing packed = pack_evenly(group_loads, nodes);
  Indices order(loads.size());
  for (uint32_t e = 0; e < loads.size(); ++e) {
    const uint32_t group = e / group_size;
    order[(packed.pack[group] * (groups / nodes) + packed.rank[group]) * group_size + e % group_size] = e;
  }
  return order;
}

}  // namespace

StatusOr<EplbLayer> eplb(std::span<const float> loads, const EplbShape& shape) {
  RETURN_IF_ERROR(check_shape(loads.size(), shape));
  const bool hierarchical = shape.groups % shape.nodes == 0;
  const uint32_t nodes = hierarchical ? shape.nodes : 1, groups = hierarchical ? shape.groups : 1;
  const auto experts = static_cast<uint32_t>(loads.size());
  if (experts % nodes != 0 || shape.replicas % nodes != 0) return invalid_argument("eplb: ", experts, " experts and ", shape.replicas, " replicas do not divide among ", nodes, " machines");
  const uint32_t node_experts = experts / nodes, node_slots = shape.replicas / nodes, device_slots = shape.replicas / shape.devices;
  const Indices order = grouped_order(loads, groups, nodes);
  EplbLayer out{Indices(shape.replicas), Indices(shape.replicas), Indices(experts), std::vector<Indices>(experts)};
  for (uint32_t node = 0; node < nodes; ++node) {
    std::vector<float> weights(node_experts);
    for (uint32_t i = 0; i < node_experts; ++i) weights[i] = loads[order[node * node_experts + i]];
    const Replication copies = replicate(weights, node_slots);
    std::vector<float> per_copy(node_slots);
    for (uint32_t s = 0; s < node_slots; ++s) per_copy[s] = weights[copies.expert[s]] / static_cast<float>(copies.copies[copies.expert[s]]);
    const Packing packed = pack_evenly(per_copy, shape.devices / nodes);
    for (uint32_t s = 0; s < node_slots; ++s) {
      const uint32_t slot = node * node_slots + packed.pack[s] * device_slots + packed.rank[s];
      out.slots[slot] = order[node * node_experts + copies.expert[s]];
      out.ranks[slot] = copies.rank[s];
    }
    for (uint32_t i = 0; i < node_experts; ++i) out.copies[order[node * node_experts + i]] = copies.copies[i];
  }
  for (uint32_t e = 0; e < experts; ++e) out.expert_slots[e].resize(out.copies[e]);
  for (uint32_t slot = 0; slot < shape.replicas; ++slot) out.expert_slots[out.slots[slot]][out.ranks[slot]] = slot;
  return out;
}

}  // namespace shoal
