// Experts as services, message by message: production slots and batch forming (slots/), with the placement and calls of policy/, over
// an event heap.
// What is checked: every pass of every client that lives ends, each row has exactly one answer and it is that of its layer,
// expert and value, only who holds an expert computes it, and the same setup gives the same trace.
#pragma once

#include <memory>
#include <vector>

#include "sim/expert_monitor.h"

namespace shoal {

class ExpertWorld {
 public:
  explicit ExpertWorld(const ExpertWorldSetup& setup);

  // Until every pass ended, and the faults are over. Once.
  ExpertWorldOutcome run();

 private:
  void begin_fault(const ExpertFault& fault);
  void kill_server(uint32_t server, Duration lasts);
  void start_server(uint32_t server);
  void kill_client(uint32_t client, Duration lasts);
  void cut(SimExpertLink& link, Duration lasts);
  void lose(SimExpertLink& link);
  void connect(SimExpertLink& link);
  void reconnect_later(SimExpertLink& link);
  void tick();
  bool finished() const;
  SimExpertLink& link(uint32_t client, uint32_t server) { return *links_[client * servers_all_ + server]; }

  const ExpertWorldSetup setup_;
  const uint32_t servers_all_;
  ExpertWorldState state_;
  std::vector<std::unique_ptr<SimExpertLink>> links_;  // [clients][servers]
  std::vector<std::unique_ptr<SimExpertServer>> servers_;
  std::vector<std::unique_ptr<SimExpertClient>> clients_;
  std::unique_ptr<SimExpertMonitor> monitor_;
};

ExpertWorldOutcome run_experts(const ExpertWorldSetup& setup);

// Small worlds with random shapes and faults of every kind.
ExpertWorldSetup random_expert_world(uint64_t seed);

}  // namespace shoal
