// Keeps a fleet of expert servers as it should be: whoever comes gets experts, what has too few copies (or none) is copied, hot experts get
// a copy more and cold ones one less, what pays is moved, whoever drains is emptied. What should be is policy/expert_keeping.h; what is, the
// servers say. So the keeper may end and another one begin at any time; of several, the servers let one decide.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "experts/fleet_plan.h"
#include "policy/expert_keeping.h"

namespace shoal {

class ExpertKeeper {
 public:
  struct Options {
    std::string name;                                     // no other keeper has it
    std::function<std::vector<ExpertAddress>()> servers;  // of the fleet, now; any thread
    std::shared_ptr<BulkNetwork> network = make_bulk_tcp();
    Duration look = std::chrono::seconds(1);              // between rounds
    Duration window = std::chrono::seconds(5);            // over which rows are counted
    Duration grace = std::chrono::seconds(3);             // for a server that is away to come back before it is replaced
    PlacementOptions placement{.copy_bytes_per_second = 1e9};  // from files
  };
  explicit ExpertKeeper(Options options);
  ~ExpertKeeper();

  void lead(bool leads);  // whether it decides; it does to begin with. Any thread, as the others
  void look();            // at once, and not only at the next round
  // {"keeps", "copied", "dropped", "why"}: what it did since it began, and why it does nothing, or less than it should.
  Json status() const;

 private:
  struct Seen {
    ServerReport report;
    TimePoint at{};
    NodeId id;
  };
  // Rows of a server's experts when they were last looked at.
  struct Counted {
    int64_t pid = 0;
    std::vector<uint64_t> rows;
  };

  void run();
  void round(TimePoint now);
  bool claim(TimePoint now, bool window_over);
  std::vector<FleetServer> servers() const;
  std::vector<FleetModel> models(std::span<const FleetServer> servers, bool window_over);
  void add_rows(const Seen& seen, const ReportedModel& model, FleetModel& out);
  Status carry_out(std::span<const FleetServer> servers, const FleetModel& model, const PlacementPlan& plan);
  void say(const std::string& why);

  const Options options_;
  ExpertKeeping keeping_;
  std::map<std::string, Seen> seen_;                              // by name; of the thread, as the next ones
  std::map<std::pair<std::string, std::string>, Counted> counted_;  // by server and model
  std::map<std::string, NodeId> ids_;
  TimePoint window_began_{};
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false, look_ = false, leads_ = true, keeps_ = false;
  uint64_t copied_ = 0, dropped_ = 0;
  std::string why_;
  std::thread thread_;
};

}  // namespace shoal
