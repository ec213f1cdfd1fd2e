// A directory in memory. DirectoryStore is the state alone, with `now` given; MemoryDirectory puts the clock of its owner and a lock
// around it, for the processes of one machine (served by membership_etcd) and for tests.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>

#include "membership/directory.h"

namespace shoal {

class DirectoryStore {
 public:
  // `first_lease`: where a directory begins anew, none of its leases may be one of before: who holds that must hear that it ended.
  explicit DirectoryStore(int64_t first_lease = 1) : next_lease_(first_lease) {}

  static constexpr size_t kEventsKept = 65'536;   // for watches that come late
  static constexpr size_t kKeyBytesMax = 4096, kValueBytesMax = 1'500'000, kKeysMax = 100'000;

  StatusOr<LeaseId> grant(Duration ttl, TimePoint now);
  Status keep_alive(LeaseId lease, TimePoint now);
  Duration ttl(LeaseId lease) const;  // as granted; 0: there is no such lease
  void revoke(LeaseId lease);
  // What has run out by now ends. When the next one does: kForever if none will.
  TimePoint expire(TimePoint now);

  StatusOr<int64_t> put_if(const std::string& key, int64_t expected, const std::string& value, LeaseId lease);
  StatusOr<int64_t> put(const std::string& key, const std::string& value, LeaseId lease);
  Status remove_if(const std::string& key, int64_t expected);
  int64_t revision_of(const std::string& key) const;  // 0: there is no such key
  const DirectoryEntry* find(const std::string& key) const;
  DirectoryListing list(const std::string& prefix) const;
  int64_t revision() const { return revision_; }

  // What came after a revision; OutOfRange if that is forgotten. `to`: the revision that the caller has then seen.
  StatusOr<std::vector<DirectoryEvent>> since(const std::string& prefix, int64_t after, int64_t& to) const;

 private:
  struct Lease {
    Duration ttl;
    TimePoint ends;
  };
  void erase(const std::string& key);
  void log(DirectoryEvent event);

  int64_t revision_ = 1;
  int64_t next_lease_;
  std::map<std::string, DirectoryEntry> entries_;
  std::map<LeaseId, Lease> leases_;
  std::deque<DirectoryEvent> events_;  // the latest last
  int64_t forgotten_ = 0;              // events up to this revision
};

class MemoryDirectory : public Directory {
 public:
  using Clock = std::function<TimePoint()>;
  explicit MemoryDirectory(Clock clock, int64_t first_lease = 1) : clock_(std::move(clock)), store_(first_lease) {}

  StatusOr<LeaseId> grant(Duration ttl) override;
  Status keep_alive(LeaseId lease) override;
  Status revoke(LeaseId lease) override;
  StatusOr<int64_t> put_if(const std::string& key, int64_t expected, const std::string& value, LeaseId lease) override;
  Status remove_if(const std::string& key, int64_t expected) override;
  StatusOr<DirectoryListing> list(const std::string& prefix) override;
  StatusOr<std::unique_ptr<Watch>> watch(const std::string& prefix, int64_t after_revision) override;

  // Runs `work` on the state of this moment, with nobody else at it.
  template <typename Work>
  auto with(Work work) {
    std::lock_guard lock(mutex_);
    store_.expire(clock_());
    struct Wake {
      ~Wake() { changed.notify_all(); }
      std::condition_variable& changed;
    } wake{changed_};
    return work(store_);
  }
  // As Watch::next().
  StatusOr<std::vector<DirectoryEvent>> next(const std::string& prefix, int64_t& after, Duration timeout);

 private:
  const Clock clock_;
  std::mutex mutex_;
  std::condition_variable changed_;
  DirectoryStore store_;
};

}  // namespace shoal
