#include "membership/member_record.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/json.h"
#include "base/rng.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr std::array<std::string_view, 4> kRoles = {"gateway", "node", "expert", "controller"};
constexpr size_t kNameMax = 64, kTextMax = 256, kModelsMax = 10'000, kModelNameMax = 512;

StatusOr<std::string> text_field(const Json& json, const char* key, bool needed = false) {
  ASSIGN_OR_RETURN(std::string text, json_string(json, key, ""));
  if (text.size() > kTextMax) return invalid_argument("'", key, "' has ", text.size(), " bytes; up to ", kTextMax, " are possible");
  if (needed && text.empty()) return invalid_argument("'", key, "' is missing");
  return text;
}

StatusOr<std::vector<RecordedModel>> read_models(const Json& json) {
  std::vector<RecordedModel> models;
  const auto list = json.find("models");
  if (list == json.end()) return models;
  if (!list->is_array() || list->size() > kModelsMax) return invalid_argument("'models' is not a list of up to ", kModelsMax);
  for (const Json& item : *list) {
    if (!item.is_object()) return invalid_argument("an item of 'models' is no object");
    RecordedModel model;
    ASSIGN_OR_RETURN(model.name, json_string(item, "name", ""));
    if (model.name.empty() || model.name.size() > kModelNameMax) return invalid_argument("a model's name has ", model.name.size(), " bytes; 1 to ", kModelNameMax, " are possible");
    const auto stamp = item.find("stamp");
    if (stamp == item.end() || !stamp->is_number_unsigned()) return invalid_argument("model '", model.name, "' has no stamp");
    model.stamp = stamp->get<uint64_t>();
    models.push_back(std::move(model));
  }
  return models;
}

}  // namespace

NodeId id_of_member(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a, then mixed: names differ in their last letter
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  const auto id = static_cast<uint32_t>(mix64(hash) & 0x7fffffff);
  return NodeId(id == 0 ? 1 : id);
}

Status check_member_name(std::string_view name) {
  const bool good = !name.empty() && name.size() <= kNameMax && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
  });
  return good ? OkStatus() : invalid_argument("--name '", std::string(name), "': a name is 1 to ", kNameMax, " of letters, digits, '.', '_' and '-'");
}

std::string_view role_name(Role role) { return kRoles[static_cast<size_t>(role)]; }

std::string write_record(const MemberRecord& record) {
  Json models = Json::array();
  for (const RecordedModel& model : record.models) models.push_back({{"name", model.name}, {"stamp", model.stamp}});
  return dump_json({{"name", record.name}, {"role", role_name(record.role)}, {"life", record.life}, {"protocol", record.protocol},
                    {"address", record.address}, {"bulk", record.bulk_address}, {"machine", record.machine}, {"pid", record.pid},
                    {"failure_domain", record.failure_domain}, {"instance", record.instance}, {"models", std::move(models)}, {"draining", record.draining}});
}

StatusOr<MemberRecord> read_record(std::string_view text) {
  ASSIGN_OR_RETURN(const Json json, parse_json(text));
  if (!json.is_object()) return invalid_argument("it is no JSON object");
  MemberRecord record;
  ASSIGN_OR_RETURN(record.name, text_field(json, "name", true));
  RETURN_IF_ERROR(check_member_name(record.name));
  ASSIGN_OR_RETURN(const std::string role, text_field(json, "role", true));
  const auto known = std::find(kRoles.begin(), kRoles.end(), role);
  if (known == kRoles.end()) return invalid_argument("role '", role, "' is none of gateway, node, expert, controller");
  record.role = static_cast<Role>(known - kRoles.begin());
  ASSIGN_OR_RETURN(const int64_t life, json_int(json, "life", 0, 1, UINT32_MAX));
  record.life = static_cast<uint32_t>(life);
  ASSIGN_OR_RETURN(const int64_t protocol, json_int(json, "protocol", 0, 0, UINT32_MAX));
  record.protocol = static_cast<uint32_t>(protocol);
  ASSIGN_OR_RETURN(record.address, text_field(json, "address"));
  ASSIGN_OR_RETURN(record.bulk_address, text_field(json, "bulk"));
  ASSIGN_OR_RETURN(record.machine, text_field(json, "machine"));
  ASSIGN_OR_RETURN(record.pid, json_int(json, "pid", 0, 0, INT64_MAX));
  ASSIGN_OR_RETURN(record.failure_domain, text_field(json, "failure_domain"));
  ASSIGN_OR_RETURN(record.instance, text_field(json, "instance"));
  ASSIGN_OR_RETURN(record.models, read_models(json));
  ASSIGN_OR_RETURN(record.draining, json_bool(json, "draining", false));
  return record;
}

// ---- who is there -----------------------------------------------------------------------------------------------------------

void MemberView::list(std::map<std::string, MemberRecord> records, TimePoint now) {
  for (const auto& [name, record] : members_) {
    if (!records.contains(name)) missing_.try_emplace(name, now);
  }
  for (auto& [name, record] : records) put(record, now);
  expire(now);
}

void MemberView::put(const MemberRecord& record, TimePoint now) {
  missing_.erase(record.name);
  const auto [found, fresh] = members_.try_emplace(record.name, record);
  if (!fresh && (record.life < found->second.life || record == found->second)) return;
  found->second = record;
  ++version_;
}

void MemberView::remove(const std::string& name, TimePoint now) {
  if (members_.contains(name)) missing_.try_emplace(name, now);
  expire(now);
}

void MemberView::connected(const std::string& name, bool is, TimePoint now) {
  if (is) connected_.insert(name);
  else connected_.erase(name);
  expire(now);
}

bool MemberView::lapsed(const std::string& name, TimePoint now) const {
  return !connected_.contains(name) || now >= missing_.at(name) + grace_;
}

TimePoint MemberView::expire(TimePoint now) {
  TimePoint next = kForever;
  for (auto it = missing_.begin(); it != missing_.end();) {
    if (!lapsed(it->first, now)) {
      next = std::min(next, it->second + grace_);
      ++it;
      continue;
    }
    members_.erase(it->first);
    it = missing_.erase(it);
    ++version_;
  }
  return next;
}

}  // namespace shoal
