#include "apps/remote_models.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "apps/model_text.h"
#include "apps/text_files.h"
#include "base/log.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;
constexpr size_t kTextsMax = 32;
constexpr Duration kAskAgain = std::chrono::seconds(1);  // a node that did not answer

const RecordedModel* listed(const MemberRecord& record, const std::string& model) {
  for (const RecordedModel& one : record.models) {
    if (one.name == model) return &one;
  }
  return nullptr;
}

}  // namespace

RemoteModels::RemoteModels(std::shared_ptr<ModelNames> names, std::string text_folder)
    : names_(std::move(names)), text_folder_(std::move(text_folder)), catalog_({}, [this](const ModelEntry& model) { return load_text(model); }, kTextsMax) {}

RemoteModels::~RemoteModels() {
  stop();
  std::error_code ignored;
  fs::remove_all(text_folder_, ignored);
}

void RemoteModels::stop() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void RemoteModels::follow(ClusterLink& link, std::function<void()> changed) {
  link_ = &link;
  changed_cb_ = std::move(changed);
  thread_ = std::thread([this] { run(); });
}

void RemoteModels::members(std::map<std::string, MemberRecord> members) {
  {
    std::lock_guard lock(mutex_);
    next_ = std::move(members);
  }
  changed_.notify_all();
}

bool RemoteModels::settled() const {
  std::lock_guard lock(mutex_);
  return !busy_ && !next_ && !seen_.empty();
}

void RemoteModels::run() {
  std::unique_lock lock(mutex_);
  std::map<std::string, MemberRecord> current;
  while (!stop_) {
    const bool again = std::any_of(current.begin(), current.end(), [&](const auto& m) { return m.second.role == Role::kNode && !seen_.contains(m.first); });
    if (!next_ && again) changed_.wait_for(lock, kAskAgain, [&] { return stop_ || next_; });
    else changed_.wait(lock, [&] { return stop_ || next_; });
    if (stop_) return;
    if (next_) current = *std::exchange(next_, std::nullopt);
    busy_ = true;
    lock.unlock();
    update(current);
    lock.lock();
    busy_ = false;
  }
}

void RemoteModels::update(const std::map<std::string, MemberRecord>& members) {
  for (const auto& [name, record] : members) {
    if (record.role != Role::kNode || record.protocol != kClusterProtocol) continue;
    const auto seen = seen_.find(name);
    if (seen == seen_.end() || seen->second.models != record.models || seen->second.life != record.life) fetch_cards(record);
  }
  forget(members);
  publish();
}

void RemoteModels::fetch_cards(const MemberRecord& node) {
  const auto text = link_->peers().cards(link_->peer(node));
  auto cards = text.ok() ? read_cards(*text) : StatusOr<std::vector<ModelCard>>(text.status());
  if (!cards.ok()) {
    log_warning("what '", node.name, "' serves is not known yet (", cards.status().message(), "); it is asked again");
    return;
  }
  std::lock_guard lock(mutex_);
  for (ModelCard& card : *cards) add(node, std::move(card));
  seen_[node.name] = node;
}

// REQUIRES: mutex_ held.
void RemoteModels::add(const MemberRecord& node, ModelCard card) {
  const std::string name = card.entry.name;
  const auto found = known_.find(name);
  if (found != known_.end() && found->second.card.stamp == card.stamp) {
    Known& known = found->second;
    known.nodes.insert(node.name);
    known.card.entry.max_model_len = std::min(known.card.entry.max_model_len, card.entry.max_model_len);
    return;
  }
  if (found != known_.end()) {
    found->second.nodes.erase(node.name);  // it had the others' files before
    if (!found->second.nodes.empty()) {
      const std::string what = absl::StrFormat("'%s' of node '%s' has other files (%016x) than that of '%s' (%016x)", name, node.name, card.stamp,
                                               *found->second.nodes.begin(), found->second.card.stamp);
      if (said_.insert(what).second) log_error("conflict: ", what, "; requests go to the latter only. Give one of them another name, or the same files");
      return;
    }
    known_.erase(found);
  }
  card.entry.id = ModelId(next_id_++);
  names_->add(card.entry.id, {name, card.stamp});
  known_[name] = {std::move(card), {node.name}};
}

// A node that is here and does not list a model any more does not serve it. Of one that is gone all is kept: it may come back, and
// until then its requests are told so, not that there is no such model.
void RemoteModels::forget(const std::map<std::string, MemberRecord>& members) {
  std::lock_guard lock(mutex_);
  for (auto it = known_.begin(); it != known_.end();) {
    Known& known = it->second;
    std::erase_if(known.nodes, [&](const std::string& node) {
      const auto member = members.find(node);
      if (member == members.end()) {
        const auto seen = seen_.find(node);
        return seen != seen_.end() && seen->second.draining;  // it left by itself
      }
      const RecordedModel* model = listed(member->second, it->first);
      return model == nullptr || model->stamp != known.card.stamp;
    });
    if (!known.nodes.empty()) {
      ++it;
      continue;
    }
    it = known_.erase(it);
  }
  for (auto& [name, record] : seen_) {
    if (const auto member = members.find(name); member != members.end()) record.draining = member->second.draining;
  }
}

void RemoteModels::publish() {
  std::vector<ModelEntry> entries;
  {
    std::lock_guard lock(mutex_);
    std::set<std::string> taken;
    for (const auto& [name, known] : known_) taken.insert(name);
    for (const auto& [name, known] : known_) {
      entries.push_back(known.card.entry);
      std::erase_if(entries.back().aliases, [&](const std::string& alias) { return !taken.insert(alias).second; });
    }
  }
  catalog_.replace(std::move(entries));
  link_->renew();
  changed_cb_();
}

// The model's own files where this machine has them, else a copy of those that deal in text.
StatusOr<std::string> RemoteModels::text_path(const ModelEntry& model) {
  std::set<std::string> nodes;
  uint64_t stamp = 0;
  {
    std::lock_guard lock(mutex_);
    const auto known = known_.find(model.name);
    if (known == known_.end() || known->second.card.entry.id != model.id) return not_found("model '", model.name, "' is not served any more");
    nodes = known->second.nodes;
    stamp = known->second.card.stamp;
  }
  Status why = unavailable("no node that serves '", model.name, "' can be reached for its tokenizer");
  for (const auto& [name, record] : link_->members()) {
    if (!nodes.contains(name)) continue;
    std::error_code ignored;
    if (record.machine == machine_name() && fs::exists(model.path, ignored)) return model.path;
    TextFolder folder(absl::StrFormat("%s/%016x", text_folder_, stamp));
    Status written;
    const Status status = link_->peers().text(link_->peer(record), model.name, stamp, [&](const std::string& file, const std::string& bytes) {
      written = folder.add(file, bytes);
      return written.ok();
    });
    if (status.ok() && written.ok()) return folder.model_path();
    why = written.ok() ? status : written;
  }
  return why;
}

StatusOr<std::shared_ptr<const ModelText>> RemoteModels::load_text(const ModelEntry& model) {
  ASSIGN_OR_RETURN(const std::string path, text_path(model));
  return load_model_text(path, model.tool_call_parser, model.reasoning_parser);
}

}  // namespace shoal
