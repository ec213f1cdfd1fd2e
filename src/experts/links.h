// The connections of one model's client: made, kept, made again, on a thread of its own.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <thread>

#include "experts/client.h"
#include "experts/link.h"
#include "policy/expert_placement.h"
#include "policy/expert_relays.h"

namespace shoal {

class ExpertLinks {
 public:
  // Who may be asked in a lane, as the policy takes it.
  struct Choice {
    std::vector<NodeId> suspected;
    std::vector<ExpertServerWork> work;
  };

  // Who is connected and probed, and who of them holds what, by the links' ids.
  struct Picture {
    std::vector<std::shared_ptr<ExpertLink>> links;
    ExpertPlacement placement;
    std::vector<ExpertRelayView> relays;  // over the network, that give rows to others

    // As of now; by the thread that polls.
    Choice choice(uint32_t lane) const;
    std::vector<ExpertRelayView> relays_of(uint32_t lane, TimePoint now) const;  // that may be asked
    bool has(NodeId id) const;
    const std::shared_ptr<ExpertLink>& link(NodeId id) const;  // REQUIRES: it is one of `links`
  };

  // `bell`: of the thread that polls, to be rung when something about them changed.
  ExpertLinks(const RemoteExpertsConfig& config, std::shared_ptr<Bell> bell);
  ~ExpertLinks();

  void set_servers(std::vector<ExpertAddress> servers);
  std::shared_ptr<const Picture> now() const;
  // Of what now() gives: another one if that changed.
  uint64_t version() const { return version_.load(std::memory_order_acquire); }
  // A server refused these at a version of what it holds, whatever it said before.
  void disclaim(const ExpertLink& link, std::span<const uint32_t> indices, uint32_t version);
  // Nobody who is connected holds this one: a server with room for it is asked to.
  void wish(uint32_t index);
  uint64_t wishes() const { return wishes_; }
  const StreamBytes& bytes() const { return *bytes_; }  // of all links that there were
  void look();  // something may have ended
  void tell(const ExpertOverlap& overlap);  // to every server that is connected
  Status wait_complete(Duration most) const;
  std::vector<RemoteExpertServer> servers() const;
  const ExpertShape& shape() const { return shape_; }

 private:
  struct Known {
    ExpertAddress server;
    std::shared_ptr<ExpertLink> link;
    TimePoint try_at{};
    Duration pause{};
    std::string error;
    std::shared_ptr<std::atomic<bool>> dialing;  // true once the thread that connects is over
  };
  struct Dialing {
    std::thread thread;
    std::shared_ptr<std::atomic<bool>> over;
  };
  void run();
  void begin_to_connect(TimePoint now);  // REQUIRES: mutex_ held
  void connect(const ExpertAddress& server);
  StatusOr<std::shared_ptr<ExpertLink>> dial(const std::string& address, const std::string& name);
  bool end_lost(TimePoint now);
  void grant_wishes();
  void publish();
  std::shared_ptr<const Picture> draw() const;  // REQUIRES: mutex_ held

  const RemoteExpertsConfig& config_;
  const ExpertShape shape_;
  const std::shared_ptr<Bell> bell_;
  std::atomic<uint64_t> version_{0}, wishes_{0};
  const std::shared_ptr<StreamBytes> bytes_ = std::make_shared<StreamBytes>();
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool stop_ = false, look_ = false;
  std::map<std::string, Known> known_;  // by address
  std::set<uint32_t> wished_;
  TimePoint wish_at_{};
  std::atomic<uint32_t> next_id_{0};
  mutable std::shared_ptr<const Picture> picture_;  // of version drawn_
  mutable uint64_t drawn_ = UINT64_MAX;
  std::vector<Dialing> dialing_;  // of the thread: who does not answer keeps nobody else waiting
  std::thread thread_;
};

}  // namespace shoal
