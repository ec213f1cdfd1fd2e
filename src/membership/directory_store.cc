#include "membership/directory_store.h"

#include <algorithm>
#include <utility>

namespace shoal {

StatusOr<DirectoryEntry> find_entry(Directory& directory, const std::string& key) {
  ASSIGN_OR_RETURN(const DirectoryListing listing, directory.list(key));
  for (const DirectoryEntry& entry : listing.entries) {
    if (entry.key == key) return entry;
  }
  return not_found("'", key, "' is not in the directory");
}

StatusOr<LeaseId> DirectoryStore::grant(Duration ttl, TimePoint now) {
  if (ttl <= Duration(0) || ttl > std::chrono::hours(24)) return invalid_argument("a lease of ", to_seconds(ttl), " s: more than none and up to a day is possible");
  if (leases_.size() >= kKeysMax) return resource_exhausted("the directory has ", leases_.size(), " leases, which is all it takes");
  const LeaseId id(next_lease_++);
  leases_[id] = {ttl, now + ttl};
  return id;
}

Status DirectoryStore::keep_alive(LeaseId lease, TimePoint now) {
  const auto found = leases_.find(lease);
  if (found == leases_.end()) return not_found("the lease has ended");
  found->second.ends = now + found->second.ttl;
  return OkStatus();
}

Duration DirectoryStore::ttl(LeaseId lease) const {
  const auto found = leases_.find(lease);
  return found == leases_.end() ? Duration(0) : found->second.ttl;
}

void DirectoryStore::revoke(LeaseId lease) {
  if (leases_.erase(lease) == 0) return;
  std::vector<std::string> keys;
  for (const auto& [key, entry] : entries_) {
    if (entry.lease == lease) keys.push_back(key);
  }
  for (const std::string& key : keys) erase(key);
}

TimePoint DirectoryStore::expire(TimePoint now) {
  std::vector<LeaseId> over;
  TimePoint next = kForever;
  for (const auto& [id, lease] : leases_) {
    if (lease.ends <= now) over.push_back(id);
    else next = std::min(next, lease.ends);
  }
  for (const LeaseId id : over) revoke(id);
  return next;
}

void DirectoryStore::log(DirectoryEvent event) {
  events_.push_back(std::move(event));
  if (events_.size() <= kEventsKept) return;
  forgotten_ = events_.front().entry.revision;
  events_.pop_front();
}

void DirectoryStore::erase(const std::string& key) {
  entries_.erase(key);
  log({true, {key, {}, ++revision_, {}}});
}

int64_t DirectoryStore::revision_of(const std::string& key) const {
  const DirectoryEntry* entry = find(key);
  return entry == nullptr ? 0 : entry->revision;
}

const DirectoryEntry* DirectoryStore::find(const std::string& key) const {
  const auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : &found->second;
}

StatusOr<int64_t> DirectoryStore::put(const std::string& key, const std::string& value, LeaseId lease) {
  if (key.empty() || key.size() > kKeyBytesMax) return invalid_argument("a key of ", key.size(), " bytes: 1 to ", kKeyBytesMax, " are possible");
  if (value.size() > kValueBytesMax) return invalid_argument("'", key, "' would hold ", value.size(), " bytes; up to ", kValueBytesMax, " are possible");
  if (lease != LeaseId() && !leases_.contains(lease)) return not_found("the lease has ended");
  if (entries_.size() >= kKeysMax && !entries_.contains(key)) return resource_exhausted("the directory has ", entries_.size(), " keys, which is all it takes");
  DirectoryEntry& entry = entries_[key];
  entry = {key, value, ++revision_, lease};
  log({false, entry});
  return revision_;
}

StatusOr<int64_t> DirectoryStore::put_if(const std::string& key, int64_t expected, const std::string& value, LeaseId lease) {
  const int64_t is = revision_of(key);
  if (is != expected) return absl::AbortedError(absl::StrCat("'", key, "' has revision ", is, ", not ", expected));
  return put(key, value, lease);
}

Status DirectoryStore::remove_if(const std::string& key, int64_t expected) {
  const int64_t is = revision_of(key);
  if (is == 0) return OkStatus();
  if (is != expected) return absl::AbortedError(absl::StrCat("'", key, "' has revision ", is, ", not ", expected));
  erase(key);
  return OkStatus();
}

DirectoryListing DirectoryStore::list(const std::string& prefix) const {
  DirectoryListing listing{.revision = revision_};
  for (auto it = entries_.lower_bound(prefix); it != entries_.end() && it->first.starts_with(prefix); ++it) listing.entries.push_back(it->second);
  return listing;
}

StatusOr<std::vector<DirectoryEvent>> DirectoryStore::since(const std::string& prefix, int64_t after, int64_t& to) const {
  if (after < forgotten_) return absl::OutOfRangeError(absl::StrCat("what came after revision ", after, " is forgotten"));
  if (after > revision_) return absl::OutOfRangeError(absl::StrCat("revision ", after, " is none of this directory, which is at ", revision_));
  std::vector<DirectoryEvent> out;
  const auto from = std::upper_bound(events_.begin(), events_.end(), after, [](int64_t r, const DirectoryEvent& e) { return r < e.entry.revision; });
  std::copy_if(from, events_.end(), std::back_inserter(out), [&](const DirectoryEvent& e) { return e.entry.key.starts_with(prefix); });
  to = revision_;
  return out;
}

// ---- with a clock and a lock --------------------------------------------------------------------------------------------------

StatusOr<LeaseId> MemoryDirectory::grant(Duration ttl) {
  return with([&](DirectoryStore& store) { return store.grant(ttl, clock_()); });
}
Status MemoryDirectory::keep_alive(LeaseId lease) {
  return with([&](DirectoryStore& store) { return store.keep_alive(lease, clock_()); });
}
Status MemoryDirectory::revoke(LeaseId lease) {
  with([&](DirectoryStore& store) { store.revoke(lease); });
  return OkStatus();
}
StatusOr<int64_t> MemoryDirectory::put_if(const std::string& key, int64_t expected, const std::string& value, LeaseId lease) {
  return with([&](DirectoryStore& store) { return store.put_if(key, expected, value, lease); });
}
Status MemoryDirectory::remove_if(const std::string& key, int64_t expected) {
  return with([&](DirectoryStore& store) { return store.remove_if(key, expected); });
}
StatusOr<DirectoryListing> MemoryDirectory::list(const std::string& prefix) {
  return with([&](DirectoryStore& store) -> StatusOr<DirectoryListing> { return store.list(prefix); });
}

StatusOr<std::vector<DirectoryEvent>> MemoryDirectory::next(const std::string& prefix, int64_t& after, Duration timeout) {
  std::unique_lock lock(mutex_);
  const TimePoint until = clock_() + timeout;
  while (true) {
    const TimePoint now = clock_();
    const TimePoint lease_ends = store_.expire(now);
    ASSIGN_OR_RETURN(std::vector<DirectoryEvent> events, store_.since(prefix, after, after));
    if (!events.empty() || now >= until) return events;
    changed_.wait_for(lock, std::min(until, lease_ends) - now);
  }
}

StatusOr<std::unique_ptr<Directory::Watch>> MemoryDirectory::watch(const std::string& prefix, int64_t after_revision) {
  class StoreWatch : public Watch {
   public:
    StoreWatch(MemoryDirectory& directory, std::string prefix, int64_t after) : directory_(directory), prefix_(std::move(prefix)), after_(after) {}
    StatusOr<std::vector<DirectoryEvent>> next(Duration timeout) override { return directory_.next(prefix_, after_, timeout); }

   private:
    MemoryDirectory& directory_;
    const std::string prefix_;
    int64_t after_;
  };
  return std::make_unique<StoreWatch>(*this, prefix, after_revision);
}

}  // namespace shoal
