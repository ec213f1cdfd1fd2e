#include "wire/model_names.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "absl/strings/str_format.h"
#include "wire/codec_parts.h"

namespace shoal {
namespace {

constexpr int kModelsMax = 65'536;  // that a message may name

// The model that a message is about, if it is about one.
ModelId* subject(Message& message) {
  if (auto* m = std::get_if<Submit>(&message)) return &m->request.model;
  if (auto* m = std::get_if<SetResident>(&message)) return &m->model;
  if (auto* m = std::get_if<Configure>(&message)) return &m->model;
  if (auto* m = std::get_if<MigrateRequests>(&message)) return &m->model;
  return nullptr;
}

// Every model of a report goes through `change`; what is about one of which it says no is left out.
void change_models(NodeStatus& status, const std::function<bool(ModelId&)>& change) {
  const auto gone = [&](auto& entry) { return !change(entry.model); };
  std::erase_if(status.models, gone);
  std::erase_if(status.switches, gone);
  for (SwitchRecord& record : status.switches) std::erase_if(record.dropped, [&](ModelId& model) { return !change(model); });
  std::erase_if(status.events, gone);
  std::erase_if(status.next, [&](ModelId& model) { return !change(model); });
}

std::set<ModelId> mentioned(const Message& message) {
  std::set<ModelId> models;
  if (const auto* status = std::get_if<NodeStatus>(&message)) {
    for (const ModelStatus& m : status->models) models.insert(m.model);
    for (const SwitchRecord& s : status->switches) {
      models.insert(s.model);
      models.insert(s.dropped.begin(), s.dropped.end());
    }
    for (const DeviceEvent& e : status->events) models.insert(e.model);
    models.insert(status->next.begin(), status->next.end());
  } else if (const ModelId* model = subject(const_cast<Message&>(message))) {
    models.insert(*model);
  }
  return models;
}

bool agree(const ModelName& a, const ModelName& b) { return a.name == b.name && (a.stamp == b.stamp || a.stamp == 0 || b.stamp == 0); }

using Theirs = std::map<ModelId, StatusOr<ModelId>>;  // what each number of the sender is here

void localize(NodeStatus& status, const Theirs& models, std::string& unknown) {
  change_models(status, [&](ModelId& model) {
    const auto found = models.find(model);
    if (found == models.end()) return false;
    if (found->second.ok()) return model = *found->second, true;
    if (found->second.status().code() == StatusCode::kFailedPrecondition) unknown = std::string(found->second.status().message());
    return false;
  });
}

void localize(Message& message, const Theirs& models, std::string& unknown) {
  if (auto* status = std::get_if<NodeStatus>(&message)) return localize(*status, models, unknown);
  ModelId* const model = subject(message);
  if (model == nullptr) return;
  const auto found = models.find(*model);
  if (found != models.end() && found->second.ok()) {
    *model = *found->second;
  } else {
    unknown = found == models.end() ? "the message does not name its model" : std::string(found->second.status().message());
  }
}

}  // namespace

void ModelNames::add(ModelId id, ModelName name) {
  std::lock_guard lock(mutex_);
  const auto [entry, is_new] = models_.insert_or_assign(id, std::move(name));
  if (is_new) by_name_[entry->second.name].push_back(id);
}

std::optional<ModelName> ModelNames::find(ModelId id) const {
  std::lock_guard lock(mutex_);
  const auto found = models_.find(id);
  return found == models_.end() ? std::nullopt : std::optional(found->second);
}

StatusOr<ModelId> ModelNames::here(ModelId theirs, const ModelName& name) const {
  std::lock_guard lock(mutex_);
  if (const auto same = models_.find(theirs); same != models_.end() && same->second == name) return theirs;
  const auto found = by_name_.find(name.name);
  if (found == by_name_.end()) {
    return absl::NotFoundError(absl::StrFormat("no model '%s' here, there its digest is %016x; put it into the folder of models of this process",
                                               name.name, name.stamp));
  }
  const auto of_it = std::find_if(found->second.rbegin(), found->second.rend(), [&](ModelId id) { return agree(models_.at(id), name); });
  if (of_it != found->second.rend()) return *of_it;
  return absl::FailedPreconditionError(absl::StrFormat(
      "model '%s' is another here: digest %016x, there %016x; give both processes the same files, --quantization and --kv-cache-dtype, or the models "
      "different names", name.name, models_.at(found->second.back()).stamp, name.stamp));
}

std::string encode(const Message& message, uint32_t life, const ModelNames& names) {
  pb::Envelope envelope;
  to_pb(message, &envelope);
  envelope.set_life(life);
  for (const ModelId model : mentioned(message)) {
    const std::optional<ModelName> name = names.find(model);
    if (!name) continue;
    pb::ModelName* entry = envelope.add_models();
    entry->set_model(model.value);
    entry->set_name(name->name);
    entry->set_stamp(name->stamp);
  }
  envelope.set_named(true);
  return envelope.SerializeAsString();
}

StatusOr<Arrival> decode(std::string_view bytes, const ModelNames& names) {
  pb::Envelope envelope;
  RETURN_IF_ERROR(parse(bytes, envelope));
  if (envelope.models_size() > kModelsMax) return invalid_argument("message: names ", envelope.models_size(), " models");
  ASSIGN_OR_RETURN(Message message, message_from(envelope));
  Arrival arrival{std::move(message), envelope.life(), {}};
  if (!envelope.named()) return arrival;
  Theirs models;
  for (const pb::ModelName& entry : envelope.models()) {
    models.insert_or_assign(ModelId(entry.model()), names.here(ModelId(entry.model()), {entry.name(), entry.stamp()}));
  }
  localize(arrival.message, models, arrival.unknown_model);
  return arrival;
}

}  // namespace shoal
