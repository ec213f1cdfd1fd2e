// The shared directory under the membership of several processes: keys with leases, conditional writes, and a stream of what changes.
// The words are etcd's (docs of v3, "KV API", "Lease API"). In memory here (directory_store.h); etcd, and the directory that a
// controller of one machine serves, are reached through membership_etcd.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "base/time.h"

namespace shoal {

using LeaseId = StrongId<struct LeaseTag, int64_t>;  // 0: none

struct DirectoryEntry {
  std::string key;
  std::string value;
  int64_t revision = 0;  // of the last write
  LeaseId lease;         // ends with it; 0: stays
  friend bool operator==(const DirectoryEntry&, const DirectoryEntry&) = default;
};

struct DirectoryListing {
  int64_t revision = 0;  // of the whole directory; what changes later has a greater one
  std::vector<DirectoryEntry> entries;  // by key
};

struct DirectoryEvent {
  bool removed = false;
  DirectoryEntry entry;  // of a removed one key and revision
};

// All calls may be made from any thread. They end in bounded time: Unavailable or DeadlineExceeded if nobody answered.
class Directory {
 public:
  // What changes under a prefix, in order. One thread.
  class Watch {
   public:
    virtual ~Watch() = default;
    // Waits until something changed or `timeout` passed (then empty). An error ends the watch: OutOfRange if the directory has forgotten
    // what came after the revision asked for, else Unavailable; list again, and watch from there.
    virtual StatusOr<std::vector<DirectoryEvent>> next(Duration timeout) = 0;
  };

  virtual ~Directory() = default;

  virtual StatusOr<LeaseId> grant(Duration ttl) = 0;
  virtual Status keep_alive(LeaseId lease) = 0;  // NotFound: it has ended
  virtual Status revoke(LeaseId lease) = 0;      // with all its keys; unknown ones are no error

  // Writes the key if its revision is `expected`; 0: if there is no such key. The revision now; Aborted: it is another one.
  // NotFound: there is no such lease.
  virtual StatusOr<int64_t> put_if(const std::string& key, int64_t expected, const std::string& value, LeaseId lease) = 0;
  // Likewise. OK if there is no such key.
  virtual Status remove_if(const std::string& key, int64_t expected) = 0;
  virtual StatusOr<DirectoryListing> list(const std::string& prefix) = 0;
  virtual StatusOr<std::unique_ptr<Watch>> watch(const std::string& prefix, int64_t after_revision) = 0;
};

// NotFound or the entry.
StatusOr<DirectoryEntry> find_entry(Directory& directory, const std::string& key);

}  // namespace shoal
