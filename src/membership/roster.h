// One process's place in the directory: joins under a name, keeps its lease, watches the others, leads where it is asked to. The
// directory may be away at the start (it waits, and says so) and at any time later (nothing that runs is changed by that).
//
//   /shoal/CLUSTER/lives/NAME     the number of its last life; stays
//   /shoal/CLUSTER/members/NAME   its record, under its lease
//   /shoal/CLUSTER/leader         the name of the controller that decides, under its lease
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "membership/directory.h"
#include "membership/member_record.h"

namespace shoal {

struct RosterConfig {
  std::string cluster = "default";
  MemberRecord self;                 // its life is chosen here, its instance too
  bool campaigns = false;            // to lead
  Duration lease = std::chrono::seconds(5);       // refreshed each third of it
  Duration relist = std::chrono::seconds(30);     // beside watching
  Duration retry = std::chrono::milliseconds(500);
  std::function<TimePoint()> now;
  std::function<int64_t()> unix_seconds;  // a life's number is not below it: it rises even if the directory lost everything
  std::function<bool(int64_t pid)> process_lives;  // of this machine
};

class Roster {
 public:
  struct Callbacks {  // on the roster's thread; they must only enqueue
    std::function<void(const std::map<std::string, MemberRecord>&, uint64_t version)> members;  // itself among them, with its life
    std::function<void(bool)> leads;
  };

  // `directory` outlives it. Begins to join.
  Roster(RosterConfig config, Directory& directory, Callbacks callbacks);
  ~Roster();  // leaves
  Roster(const Roster&) = delete;
  Roster& operator=(const Roster&) = delete;

  // Until it has joined, `stop` says so, or it cannot: AlreadyExists (a live process has the name), FailedPrecondition.
  Status wait_joined(const std::function<bool()>& stop);
  uint32_t life() const { return life_.load(); }

  // What it says of itself from now on.
  void serve(std::vector<RecordedModel> models);
  void drain();
  void connected(const std::string& name, bool is);  // with this member; see MemberView

 private:
  void run();
  Status join(TimePoint now);
  StatusOr<uint32_t> next_life(TimePoint now);
  void adopt(uint32_t life, TimePoint now);
  Status take_name(const std::string& key, const DirectoryEntry& entry, TimePoint now);
  Status refresh(TimePoint now);
  Status publish();
  Status follow(TimePoint now, Duration time);
  void campaign();
  void tell(TimePoint now);
  void heard(const Status& status);
  void wait(Duration time);

  std::string key(std::string_view kind) const { return "/shoal/" + config_.cluster + "/" + std::string(kind); }
  std::string own_key() const { return key("members/") + config_.self.name; }

  RosterConfig config_;
  Directory& directory_;
  const Callbacks callbacks_;
  std::atomic<uint32_t> life_{0};

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  bool dirty_ = false;                     // self_ was changed
  MemberRecord self_;
  std::optional<Status> joined_;           // OK, or why not
  std::map<std::string, bool> links_;      // to be told to view_

  // Of the thread.
  MemberView view_;
  LeaseId lease_;
  int64_t own_revision_ = 0;
  TimePoint refreshed_{}, listed_{};
  bool failed_since_refresh_ = false;
  bool answers_ = true;                    // the directory, as far as is known
  bool leads_ = false;
  uint64_t told_version_ = 0;
  TimePoint name_taken_since_ = kForever;
  std::unique_ptr<Directory::Watch> watch_;
  std::thread thread_;
};

}  // namespace shoal
