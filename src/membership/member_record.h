// What a process says of itself in the directory, and how others read it.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "base/time.h"
#include "membership/cluster_state.h"

namespace shoal {

constexpr uint32_t kClusterProtocol = 1;  // of what processes say to each other; another one is refused by name

struct RecordedModel {
  std::string name;
  uint64_t stamp = 0;  // of its ModelDigest
  friend bool operator==(const RecordedModel&, const RecordedModel&) = default;
};

struct MemberRecord {
  std::string name;            // unique in the cluster
  Role role = Role::kNode;
  uint32_t life = 0;
  uint32_t protocol = kClusterProtocol;
  std::string address;         // HOST:PORT of its messages
  std::string bulk_address;    // HOST:PORT of its KV; empty: none
  std::string machine;         // equal for processes that can read each other's memory
  int64_t pid = 0;
  std::string failure_domain;  // what fails together with it; empty: its machine
  std::string instance;        // of this process and no other, ever
  std::vector<RecordedModel> models;
  bool draining = false;
  friend bool operator==(const MemberRecord&, const MemberRecord&) = default;
};

// A name is its id in every process, whatever becomes of the directory. Two names of one id are a conflict that join() names.
NodeId id_of_member(std::string_view name);
// InvalidArgument unless it is 1 to 64 of letters, digits, '.', '_' and '-'.
Status check_member_name(std::string_view name);

std::string_view role_name(Role role);
std::string write_record(const MemberRecord& record);
// InvalidArgument with the field for anything write_record() does not write.
StatusOr<MemberRecord> read_record(std::string_view text);

// Who is there, by name: what the directory says, and what is known better. A member whose lease is gone, but whom somebody here is
// connected with, stays for a while: a directory that lost its data takes nobody's work away. Pure.
class MemberView {
 public:
  // `grace`: for how long a member that is connected stays after its lease.
  explicit MemberView(Duration grace = std::chrono::seconds(30)) : grace_(grace) {}

  void list(std::map<std::string, MemberRecord> records, TimePoint now);
  void put(const MemberRecord& record, TimePoint now);
  void remove(const std::string& name, TimePoint now);
  void connected(const std::string& name, bool is, TimePoint now);
  // Those whose time is over go. When the next one may: kForever if none.
  TimePoint expire(TimePoint now);

  const std::map<std::string, MemberRecord>& members() const { return members_; }
  uint64_t version() const { return version_; }  // rises when members() changed

 private:
  bool lapsed(const std::string& name, TimePoint now) const;

  const Duration grace_;
  std::map<std::string, MemberRecord> members_;
  std::map<std::string, TimePoint> missing_;  // in members_, not in the directory, since
  std::set<std::string> connected_;
  uint64_t version_ = 0;
};

}  // namespace shoal
