#include "membership/roster.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"

namespace shoal {
namespace {

constexpr Duration kLook = std::chrono::milliseconds(200);

}  // namespace

Roster::Roster(RosterConfig config, Directory& directory, Callbacks callbacks)
    : config_(std::move(config)), directory_(directory), callbacks_(std::move(callbacks)), self_(config_.self) {
  thread_ = std::thread([this] { run(); });
}

Roster::~Roster() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
  watch_.reset();
  if (lease_ != LeaseId()) directory_.revoke(lease_).IgnoreError();  // or it ends by itself
}

Status Roster::wait_joined(const std::function<bool()>& stop) {
  std::unique_lock lock(mutex_);
  while (!joined_) {
    if (stop()) return absl::CancelledError("stopped before the cluster was joined");
    changed_.wait_for(lock, std::chrono::milliseconds(50));
  }
  return *joined_;
}

void Roster::serve(std::vector<RecordedModel> models) {
  std::lock_guard lock(mutex_);
  self_.models = std::move(models);
  dirty_ = true;
}

void Roster::drain() {
  std::lock_guard lock(mutex_);
  self_.draining = true;
  dirty_ = true;
}

void Roster::connected(const std::string& name, bool is) {
  std::lock_guard lock(mutex_);
  links_[name] = is;
}

void Roster::wait(Duration time) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, time, [&] { return stop_; });
}

// Says when the directory goes away and when it is back, once each.
void Roster::heard(const Status& status) {
  const bool answers = status.ok() || status.code() == StatusCode::kNotFound || status.code() == StatusCode::kAborted;
  if (!answers) failed_since_refresh_ = true;
  if (std::exchange(answers_, answers) == answers) return;
  if (answers) log_info("the directory of the cluster answers again");
  else log_warning("the directory of the cluster does not answer (", status.message(), "); what runs goes on, and it is asked again");
}

// ---- joining ----------------------------------------------------------------------------------------------------------------

// Greater than that of every life before under this name.
StatusOr<uint32_t> Roster::next_life(TimePoint now) {
  const std::string lives = key("lives/") + config_.self.name;
  const auto entry = find_entry(directory_, lives);
  if (!entry.ok() && entry.status().code() != StatusCode::kNotFound) return entry.status();
  uint32_t last = 0;
  if (entry.ok() && !absl::SimpleAtoi(entry->value, &last)) log_warning("the directory's '", lives, "' is no number; begun anew");
  // An answer that the directory was away, or has lost the lease of one that was never late: the life goes on, nobody else has the name.
  const bool goes_on = life_ > 0 && last <= life_ && (failed_since_refresh_ || now - refreshed_ < config_.lease);
  const uint32_t floor = static_cast<uint32_t>(std::clamp<int64_t>(config_.unix_seconds() - 1'700'000'000, 1, UINT32_MAX / 2));
  const uint32_t life = goes_on ? life_.load() : std::max({last + 1, life_.load() + 1, floor});
  RETURN_IF_ERROR(directory_.put_if(lives, entry.ok() ? entry->revision : 0, absl::StrCat(life), LeaseId()).status());
  return life;
}

// A process that goes on in another life speaks in it before others can hear of it: what it said as the one before, they would drop.
void Roster::adopt(uint32_t life, TimePoint now) {
  if (life_ == 0 || life_ == life) return;
  MemberRecord record;
  {
    std::lock_guard lock(mutex_);
    record = self_;
  }
  record.life = life;
  view_.put(record, now);
  tell(now);
}

// The name is in the directory: of this process, of one that has ended, or of one that lives.
Status Roster::take_name(const std::string& key, const DirectoryEntry& entry, TimePoint now) {
  const auto record = read_record(entry.value);
  if (record.ok() && record->instance != config_.self.instance) {
    const bool ended = record->machine == config_.self.machine && !config_.process_lives(record->pid);
    if (name_taken_since_ == kForever) name_taken_since_ = now;
    if (!ended && now - name_taken_since_ < 2 * config_.lease) return unavailable("the name is taken; waiting whether its lease ends");
    if (!ended) {
      return absl::AlreadyExistsError(absl::StrCat("another process of the cluster is named '", config_.self.name, "' (", std::string(role_name(record->role)), ", process ", record->pid,
                                                   " at ", record->address, "); give this one another --name"));
    }
  }
  return directory_.remove_if(key, entry.revision);
}

Status Roster::join(TimePoint now) {
  ASSIGN_OR_RETURN(const DirectoryListing listing, directory_.list(key("members/")));
  for (const DirectoryEntry& entry : listing.entries) {
    const std::string name = entry.key.substr(key("members/").size());
    if (name == config_.self.name) {
      RETURN_IF_ERROR(take_name(entry.key, entry, now));
    } else if (id_of_member(name) == id_of_member(config_.self.name)) {
      return absl::FailedPreconditionError(absl::StrCat("the names '", name, "' and '", config_.self.name, "' have the same number; give this process another --name"));
    }
  }
  ASSIGN_OR_RETURN(const uint32_t life, next_life(now));
  adopt(life, now);
  ASSIGN_OR_RETURN(lease_, directory_.grant(config_.lease));
  MemberRecord record;
  {
    std::lock_guard lock(mutex_);
    dirty_ = false;
    self_.life = life;
    record = self_;
  }
  const auto put = directory_.put_if(own_key(), 0, write_record(record), lease_);
  if (!put.ok()) {
    directory_.revoke(std::exchange(lease_, LeaseId())).IgnoreError();
    return put.status().code() == StatusCode::kAborted ? unavailable("the name was just taken") : put.status();
  }
  own_revision_ = *put;
  if (life_.exchange(life) != life) log_info("joined the cluster '", config_.cluster, "' as ", std::string(role_name(record.role)), " '", record.name, "', life ", life);
  refreshed_ = config_.now();
  failed_since_refresh_ = false;
  listed_ = TimePoint{};
  watch_.reset();
  return OkStatus();
}

// ---- staying ----------------------------------------------------------------------------------------------------------------

Status Roster::publish() {
  MemberRecord record;
  {
    std::lock_guard lock(mutex_);
    if (!dirty_) return OkStatus();
    record = self_;
  }
  const auto put = directory_.put_if(own_key(), own_revision_, write_record(record), lease_);
  if (!put.ok()) return put.status();
  own_revision_ = *put;
  std::lock_guard lock(mutex_);
  dirty_ = !(record == self_);
  return OkStatus();
}

Status Roster::refresh(TimePoint now) {
  if (now - refreshed_ < config_.lease / 3) return OkStatus();
  const Status status = directory_.keep_alive(lease_);
  if (status.ok()) {
    refreshed_ = now;
    failed_since_refresh_ = false;
  }
  return status;
}

Status Roster::follow(TimePoint now, Duration time) {
  const std::string prefix = key("members/");
  if (watch_ == nullptr || now - listed_ >= config_.relist) {
    ASSIGN_OR_RETURN(const DirectoryListing listing, directory_.list(prefix));
    std::map<std::string, MemberRecord> records;
    for (const DirectoryEntry& entry : listing.entries) {
      auto record = read_record(entry.value);
      if (record.ok()) records[record->name] = *std::move(record);
      else log_warning("the directory's '", entry.key, "' cannot be read and is left out: ", record.status().message());
    }
    const auto own = records.find(config_.self.name);
    const bool lost = own == records.end() || own->second.instance != config_.self.instance;
    view_.list(std::move(records), now);
    listed_ = now;
    if (lost) return not_found("the directory has lost this process");  // whatever it says of its lease
    if (watch_ == nullptr) {
      ASSIGN_OR_RETURN(watch_, directory_.watch(prefix, listing.revision));
    }
  }
  const auto events = watch_->next(time);
  if (!events.ok()) {
    watch_.reset();
    return events.status().code() == StatusCode::kOutOfRange ? OkStatus() : events.status();
  }
  now = config_.now();
  for (const DirectoryEvent& event : *events) {
    if (event.removed) {
      view_.remove(event.entry.key.substr(prefix.size()), now);
      continue;
    }
    const auto record = read_record(event.entry.value);
    if (record.ok()) view_.put(*record, now);
    else log_warning("the directory's '", event.entry.key, "' cannot be read and is left out: ", record.status().message());
  }
  return OkStatus();
}

void Roster::campaign() {
  if (!config_.campaigns) return;
  const std::string leader = key("leader");
  const auto entry = find_entry(directory_, leader);
  bool leads = leads_;
  if (entry.ok()) leads = entry->value == config_.self.name && entry->lease == lease_;
  else if (entry.status().code() == StatusCode::kNotFound) leads = directory_.put_if(leader, 0, config_.self.name, lease_).ok();
  if (std::exchange(leads_, leads) == leads) return;
  log_info(leads ? "this controller decides now" : "another controller decides now");
  callbacks_.leads(leads);
}

void Roster::tell(TimePoint now) {
  std::map<std::string, bool> links;
  {
    std::lock_guard lock(mutex_);
    links.swap(links_);
  }
  for (const auto& [name, is] : links) view_.connected(name, is, now);
  view_.expire(now);
  if (std::exchange(told_version_, view_.version()) != view_.version()) callbacks_.members(view_.members(), view_.version());
}

void Roster::run() {
  bool said = false;
  view_.connected(config_.self.name, true, config_.now());  // with itself: a directory that lost its data takes nobody away from himself
  while (true) {
    {
      std::lock_guard lock(mutex_);
      if (stop_) return;
    }
    const TimePoint now = config_.now();
    Status status = OkStatus();
    if (lease_ == LeaseId()) {
      status = join(now);
      if (status.ok() || status.code() == StatusCode::kAlreadyExists || status.code() == StatusCode::kFailedPrecondition ||
          status.code() == StatusCode::kUnauthenticated || status.code() == StatusCode::kPermissionDenied) {
        std::lock_guard lock(mutex_);
        if (!joined_) joined_ = status;
        changed_.notify_all();
      }
      if (!status.ok() && !std::exchange(said, true)) log_warning("the cluster cannot be joined yet (", status.message(), "); trying again");
    }
    if (status.ok()) status = refresh(now);
    if (status.code() == StatusCode::kNotFound) lease_ = LeaseId();  // joins again
    if (status.ok()) status = publish();
    if (status.ok()) campaign();
    if (status.ok()) status = follow(now, kLook);
    if (status.code() != StatusCode::kAborted) heard(status);
    if (status.code() == StatusCode::kAborted || status.code() == StatusCode::kNotFound) lease_ = LeaseId();
    tell(config_.now());
    if (!status.ok()) wait(lease_ == LeaseId() && life_ > 0 && answers_ ? Duration(0) : config_.retry);
  }
}

}  // namespace shoal
