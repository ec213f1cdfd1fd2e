// A client of expert servers in the simulated world: lanes of passes, layer by layer, with the production slots. Whom it asks, and asks
// again, is policy/expert_calls.h, as of the client of real servers (experts/client.h).
#pragma once

#include <functional>
#include <vector>

#include "policy/expert_calls.h"
#include "sim/expert_link.h"

namespace shoal {

class SimExpertClient {
 public:
  // `links`: [servers] of this client. `look`: a half of this server and lane has new bytes for its server.
  using Look = std::function<void(uint32_t client, uint32_t server, uint32_t lane)>;
  // `end`: a server that was given up and does not answer: its connection is ended, and made anew where that can be.
  using End = std::function<void(uint32_t client, uint32_t server)>;
  SimExpertClient(ExpertWorldState& world, uint32_t id, std::vector<SimExpertLink*> links, Look look, End end);

  bool alive() const { return alive_; }
  uint64_t life() const { return life_; }
  uint64_t number() const { return id_ + 1000 * life_; }  // that its requests carry
  uint64_t version() const { return placement_.version; }
  bool done() const;

  void start();   // or once more: every lane begins the pass anew that it was in
  void kill();
  void placed(const ExpertPlacement& placement);
  void connected(uint32_t server);
  // The connection ended: its server is given up at once.
  void lost(uint32_t server);
  // Bytes of an answer came.
  void hear(uint32_t server, uint32_t lane);

 private:
  struct Lane {
    uint32_t pass = 0, layer = 0;
    TimePoint began{};
    ExpertCall call;
    std::vector<ExpertRow> rows;
    std::vector<float> hidden;     // [tokens]
    std::vector<uint8_t> answers;  // [rows]
    bool calling = false, was_deferred = false;
  };

  void compute(uint32_t lane);
  void dispatch(uint32_t lane);
  void send(uint32_t lane, const std::vector<ExpertAsk>& asks);
  void submit(uint32_t server, uint32_t lane);
  void timed_out(uint32_t server, uint32_t lane, uint64_t link_life, uint32_t seq);
  void give_up(uint32_t server);
  bool quarantined(uint32_t server) const;
  void take(uint32_t lane, const ExpertAsk& ask, const ResponseView& view);
  void settle(uint32_t lane);
  void retry();
  void end_layer(uint32_t lane);

  ExpertWorldState& world_;
  const uint32_t id_;
  std::vector<SimExpertLink*> links_;
  Look look_;
  End end_;
  std::vector<Lane> lanes_;
  ExpertPlacement placement_;
  std::vector<NodeId> suspected_;
  ExpertAnswerTimes times_;
  std::vector<double> popularity_;  // cumulated, of experts
  bool alive_ = false;
  uint64_t life_ = 0;
  TimePoint free_{};                // its device
  double out_free_ = 0;             // its link, seconds
};

}  // namespace shoal
