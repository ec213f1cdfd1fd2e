#include "experts/fleet.h"

#include <algorithm>
#include <thread>

#include "experts/handshake.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr uint64_t kBytesMax = uint64_t{1} << 50;

StatusOr<std::vector<uint64_t>> numbers(const Json& json, const char* key, size_t count, uint64_t each_max) {
  const Json list = json.value(key, Json::array());
  if (!list.is_array() || list.size() != count) return data_loss("'", key, "' has not one number for each");
  std::vector<uint64_t> result;
  for (const Json& item : list) {
    if (!item.is_number_unsigned() || item.get<uint64_t>() > each_max) return data_loss("'", key, "' holds what is no such number");
    result.push_back(item.get<uint64_t>());
  }
  return result;
}

StatusOr<ReportedModel> read_model(const Json& json) {
  ReportedModel model;
  ASSIGN_OR_RETURN(model.name, json_string(json, "name", ""));
  ASSIGN_OR_RETURN(model.stamp, json_string(json, "stamp", ""));
  ASSIGN_OR_RETURN(model.shape, read_shape(json.value("shape", Json::object())));
  ASSIGN_OR_RETURN(model.holds, read_set(model.shape, json.value("holds", Json::object())));
  ASSIGN_OR_RETURN(model.pinned, read_set(model.shape, json.value("pinned", Json::object())));
  ASSIGN_OR_RETURN(model.expert_bytes, numbers(json, "layer_expert_bytes", model.shape.layers(), kBytesMax));
  if (json.contains("rows")) {
    ASSIGN_OR_RETURN(model.rows, numbers(json, "rows", model.shape.count(), UINT64_MAX));
  }
  return model;
}

}  // namespace

const ReportedModel* ServerReport::find(const std::string& stamp) const {
  const auto at = std::find_if(models.begin(), models.end(), [&](const ReportedModel& model) { return model.stamp == stamp; });
  return at == models.end() ? nullptr : &*at;
}

StatusOr<ServerReport> read_report(const ExpertAddress& address, Json status) {
  ServerReport server{.address = address};
  ASSIGN_OR_RETURN(server.name, json_string(status, "name", ""));
  ASSIGN_OR_RETURN(server.domain, json_string(status, "domain", ""));
  ASSIGN_OR_RETURN(server.pid, json_int(status, "pid", 0, 0, INT64_MAX));
  ASSIGN_OR_RETURN(server.draining, json_bool(status, "draining", false));
  const Json memory = status.value("memory", Json::object());
  ASSIGN_OR_RETURN(const int64_t limit, json_int(memory, "limit", 0, 0, kBytesMax));
  ASSIGN_OR_RETURN(const int64_t used, json_int(memory, "used", 0, 0, kBytesMax));
  server.memory_bytes = static_cast<uint64_t>(limit);
  server.used_bytes = static_cast<uint64_t>(used);
  for (const Json& item : status.value("times", Json::array())) {
    ExpertSample sample;
    ASSIGN_OR_RETURN(sample.rows, json_double(item, "rows", 0));
    ASSIGN_OR_RETURN(sample.active, json_double(item, "experts", 0));
    ASSIGN_OR_RETURN(sample.seconds, json_double(item, "seconds", 0));
    server.times.push_back(sample);
  }
  for (const Json& item : status.value("models", Json::array())) {
    auto model = read_model(item);
    if (!model.ok()) return annotate(model.status(), server.name);
    server.models.push_back(*std::move(model));
  }
  server.status = std::move(status);
  return server;
}

StatusOr<Json> ask_expert_server(const ExpertAddress& address, const std::shared_ptr<BulkNetwork>& network, const Json& request, Duration patience) {
  auto answer = ask_expert_server(address.address, network, request, patience);
  if (answer.status().code() == StatusCode::kUnavailable && !address.other.empty()) answer = ask_expert_server(address.other, network, request, patience);
  return answer;
}

StatusOr<ServerReport> ask_report(const ExpertAddress& address, const std::shared_ptr<BulkNetwork>& network, const Json& request, Duration patience) {
  ASSIGN_OR_RETURN(Json status, ask_expert_server(address, network, request, patience));
  return read_report(address, std::move(status));
}

// All at once: one that is silent keeps nobody waiting for longer than itself.
std::vector<StatusOr<ServerReport>> ask_reports(const std::vector<ExpertAddress>& addresses, const std::shared_ptr<BulkNetwork>& network, const Json& request, Duration patience) {
  std::vector<StatusOr<ServerReport>> reports(addresses.size(), unavailable("not asked"));
  std::vector<std::thread> threads;
  for (size_t i = 0; i < addresses.size(); ++i) threads.emplace_back([&, i] { reports[i] = ask_report(addresses[i], network, request, patience); });
  for (std::thread& thread : threads) thread.join();
  return reports;
}

Status tell_experts(const ServerReport& server, const std::shared_ptr<BulkNetwork>& network, const char* verb, const ReportedModel& model, const ExpertSet& set, bool pinned, Duration patience) {
  const Json request{{"verb", verb}, {"model", model.stamp}, {"experts", write_set(model.shape, set)}, {"pin", pinned}};
  return ask_expert_server(server.address, network, request, patience).status();
}

}  // namespace shoal
