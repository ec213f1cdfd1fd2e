// How much each peer may have waiting in a role's queue. Completions and commands of this process are bounded by what they
// answer; messages are not, and a role that stands still, or a peer that floods it, must not take the machine's memory.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

#include "base/ids.h"

namespace shoal {

// At the bound a message is refused, and with it the link: who refuses treats the peer as lost from there on (roles/event.h,
// PeerLost), and so does the sender, who hears ResourceExhausted. What comes of a lost message is then what comes of a lost
// peer, and no role has to know it. Thread-safe.
class PeerBudget {
 public:
  explicit PeerBudget(uint64_t messages_max = 65'536, uint64_t bytes_max = uint64_t{1} << 30)
      : messages_max_(messages_max), bytes_max_(bytes_max) {}

  enum class Answer : uint8_t {
    kTaken,    // give() it back when the message was handled
    kLost,     // there is no room, for the first time: the role is to be told
    kRefused,  // the role was told, and has not heard it yet
  };
  Answer take(NodeId peer, uint64_t bytes);
  void give(NodeId peer, uint64_t bytes);
  void heard(NodeId peer);  // the role knows that the peer was lost; what comes next is of a new life

 private:
  struct Waiting {
    uint64_t messages = 0;
    uint64_t bytes = 0;
    bool lost = false;
  };

  const uint64_t messages_max_, bytes_max_;
  std::mutex mutex_;
  std::map<NodeId, Waiting> peers_;
};

}  // namespace shoal
