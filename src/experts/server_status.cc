#include "experts/server_status.h"

#include <unistd.h>

#include <algorithm>

#include "base/clock.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr size_t kHotMax = 8;  // experts that are named as those with most rows

Json model_json(const ExpertServerParts& of, size_t m, const std::vector<uint64_t>& rows, bool with_rows) {
  const ExpertModel& model = of.holdings.models()[m];
  const ExpertShape& shape = of.holdings.shape(m);
  const ExpertSet held = of.holdings.set(m);
  std::vector<uint32_t> hot = held.list();
  std::sort(hot.begin(), hot.end(), [&](uint32_t a, uint32_t b) { return rows[a] > rows[b]; });
  Json busiest = Json::array();
  for (size_t i = 0; i < std::min(hot.size(), kHotMax); ++i) {
    if (rows[hot[i]] > 0) busiest.push_back({{"layer", shape.numbers[hot[i] / shape.experts]}, {"expert", hot[i] % shape.experts}, {"rows", rows[hot[i]]}});
  }
  uint64_t bytes = 0;
  for (const uint32_t index : held.list()) bytes += model.plan->bytes(index / shape.experts, index % shape.experts);
  std::vector<uint64_t> layer_bytes;
  for (uint32_t layer = 0; layer < shape.layers(); ++layer) layer_bytes.push_back(model.plan->bytes_max(layer));
  Json json{{"name", model.name}, {"stamp", stamp_text(model.stamp)}, {"shape", write_shape(shape)}, {"holds", write_set(shape, held)}, {"experts", held.count()},
            {"bytes", bytes}, {"layer_expert_bytes", layer_bytes}, {"busiest", std::move(busiest)}};
  if (with_rows) json["rows"] = rows;
  json["pinned"] = write_set(shape, of.orders.pinned(m));
  return json;
}

}  // namespace

Json expert_server_status(const ExpertServerParts& of, bool with_rows) {
  const ServingCounts counts = of.serving.counts();
  const auto rows = of.serving.rows_by_expert();
  const double batches = static_cast<double>(std::max<uint64_t>(counts.batches, 1));
  Json models = Json::array(), clients = Json::array(), table = Json::array();
  for (size_t i = 0; i < of.holdings.models().size(); ++i) models.push_back(model_json(of, i, rows[i], with_rows));
  for (const auto& client : of.serving.clients()) {
    Json item = write_overlap(client->overlap.lately(steady_now()));
    item.update({{"name", client->hello.client}, {"pid", client->hello.pid}, {"model", client->hello.model}, {"lanes", client->hello.lanes},
                       {"requests", client->requests.load()}, {"over", std::string(client->channel->kind())}});
    clients.push_back(std::move(item));
  }
  for (const Serving::Timed& timed : of.serving.table()) table.push_back({{"rows", timed.rows}, {"experts", timed.active}, {"seconds", timed.seconds}, {"batches", timed.batches}});
  return {{"name", of.config.name}, {"pid", ::getpid()}, {"domain", of.config.domain}, {"draining", of.orders.draining()}, {"keeper", of.orders.keeper(steady_now())}, {"version", of.holdings.version()}, {"threads", of.config.threads},
          {"memory", {{"limit", of.config.memory_bytes}, {"used", of.holdings.bytes()}}}, {"models", std::move(models)}, {"clients", std::move(clients)},
          {"batch_rule", std::string(batch_rule_name(of.config.batch.rule))},
          {"load", {{"requests", counts.requests}, {"rows", counts.rows}, {"batches", counts.batches}, {"refused", counts.refused}, {"relayed", counts.relayed}, {"torn", counts.damaged},
                    {"busy_seconds", counts.busy_seconds}, {"busy", counts.busy}, {"rows_per_batch", static_cast<double>(counts.rows) / batches},
                    {"experts_per_batch", static_cast<double>(counts.active) / batches}, {"requests_per_batch", static_cast<double>(counts.requests) / batches}}},
          {"times", std::move(table)}};
}

}  // namespace shoal
