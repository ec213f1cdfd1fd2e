#include "policy/expert_keeping.h"

#include <algorithm>

namespace shoal {
namespace {

uint64_t whole_bytes(const FleetModel& model) {
  uint64_t bytes = 0;
  for (const ExpertLayerSpec& layer : model.layers) bytes += layer.expert_bytes * layer.experts;
  return bytes;
}

bool serves(const FleetModel& model, NodeId server) { return std::find(model.servers.begin(), model.servers.end(), server) != model.servers.end(); }

// A model's part of a server's memory, by its size among those that the server can hold.
uint64_t part_of(const ExpertServerSpec& server, const FleetModel& model, std::span<const FleetModel> models) {
  double all = 0;
  for (const FleetModel& other : models) all += serves(other, server.server) ? static_cast<double>(whole_bytes(other)) : 0;
  const auto part = static_cast<uint64_t>(static_cast<double>(server.memory_bytes) * static_cast<double>(whole_bytes(model)) / std::max(all, 1.0));
  return serves(model, server.server) ? part : 0;
}

// Whether its parts are enough for one copy of everything: memory is kept free for no other.
bool fits(const FleetModel& model, std::span<const ExpertServerSpec> servers, std::span<const FleetModel> models) {
  uint64_t parts = 0;
  for (const ExpertServerSpec& server : servers) parts += server.draining ? 0 : part_of(server, model, models);
  return parts >= whole_bytes(model);
}

// Of a server's memory, what `model` may have: its part, more where others need less than theirs, and never less than what it has.
uint64_t memory_for(const ExpertServerSpec& server, const FleetModel& model, std::span<const ExpertServerSpec> servers, std::span<const FleetModel> models) {
  uint64_t others = 0;
  for (const FleetModel& other : models) {
    if (&other == &model || !serves(other, server.server)) continue;
    const uint64_t kept = fits(other, servers, models) ? std::min(part_of(server, other, models), whole_bytes(other)) : 0;
    others += std::max(held_bytes(other, server.server), kept);
  }
  return std::max(server.memory_bytes - std::min(server.memory_bytes, others), held_bytes(model, server.server));
}

}  // namespace

uint64_t held_bytes(const FleetModel& model, NodeId server) {
  uint64_t bytes = 0;
  for (const ExpertLayerSpec& layer : model.layers) {
    for (uint32_t expert = 0; expert < layer.experts; ++expert) {
      const auto copies = model.held.of(layer.layer, expert);
      if (std::any_of(copies.begin(), copies.end(), [&](const ExpertShare& copy) { return copy.server == server; })) bytes += layer.expert_bytes;
    }
  }
  return bytes;
}

std::vector<StatusOr<PlacementPlan>> ExpertKeeping::plan(std::span<const ExpertServerSpec> servers, std::span<const FleetModel> models, const ExpertCost* cost) {
  std::vector<StatusOr<PlacementPlan>> plans;
  for (const FleetModel& model : models) {
    std::vector<ExpertServerSpec> mine;
    for (const ExpertServerSpec& server : servers) {
      if (!serves(model, server.server)) continue;
      mine.push_back(server);
      mine.back().memory_bytes = memory_for(server, model, servers, models);
    }
    ExpertHeat& heat = warmth_.try_emplace(model.key, model.layers, heat_).first->second;
    std::vector<ExpertCopies> copies;
    if (!model.rows.empty()) copies = heat.window(model.rows, model.held);
    const bool known = std::any_of(heat.rows().begin(), heat.rows().end(), [](const auto& layer) { return std::any_of(layer.begin(), layer.end(), [](double rows) { return rows > 0; }); });
    PlacementOptions options = placement_;
    if (cost != nullptr) options.cost = *cost;
    // Between two windows only what is missing matters: a move for balance waits for news.
    if (model.by_hand || model.rows.empty()) options.moves_max = 0;
    if (model.by_hand) options.copies_min = 1;
    const PlacementView view{.layers = model.layers, .servers = mine, .rows = known ? std::span<const std::vector<double>>(heat.rows()) : std::span<const std::vector<double>>(),
                             .current = &model.held, .copies = model.by_hand ? std::span<const ExpertCopies>() : std::span<const ExpertCopies>(copies)};
    plans.push_back(plan_placement(view, options));
  }
  return plans;
}

}  // namespace shoal
