// Who is there: a pure reduction of membership events.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/time.h"

namespace shoal {

enum class Role : uint8_t { kGateway, kNode, kExpert, kController };

struct Member {
  NodeId id;
  Role role = Role::kNode;
  uint32_t epoch = 0;             // raised by every (re)join under the same id: messages of older epochs are refused
  std::vector<ModelId> models;    // that a node can serve
  bool draining = false;          // finishes what it has, takes nothing new
  friend bool operator==(const Member&, const Member&) = default;
};

struct MemberJoined {
  Member member;
};
struct MemberLeft {  // lease lost or left by itself
  NodeId id;
  uint32_t epoch = 0;  // of the life that ended; a newer life is not touched
};
struct MemberDraining {
  NodeId id;
  uint32_t epoch = 0;
};
using MemberEvent = std::variant<MemberJoined, MemberLeft, MemberDraining>;

struct ClusterState {
  uint64_t version = 0;  // number of events that changed something
  std::map<NodeId, Member> members;
  friend bool operator==(const ClusterState&, const ClusterState&) = default;
};

// Rules: an event of an older epoch than the member's changes nothing; applying an event twice equals applying it once;
// `version` rises iff something changed.
ClusterState reduce(ClusterState state, const MemberEvent& event);

}  // namespace shoal
