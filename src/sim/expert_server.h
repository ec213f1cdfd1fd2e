// An expert server of the simulated world: production slots and batch forming, an expert's answer as one value.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "sim/expert_link.h"
#include "slots/batch.h"

namespace shoal {

class SimExpertServer {
 public:
  // `links`: [clients] to this server. `hear`: a half of this client and lane has new bytes for its client.
  using Hear = std::function<void(uint32_t client, uint32_t server, uint32_t lane)>;
  SimExpertServer(ExpertWorldState& world, uint32_t id, std::vector<SimExpertLink*> links, Hear hear);

  bool alive() const { return alive_; }
  uint64_t life() const { return life_; }
  bool stopped() const { return world_.now < stopped_until_; }
  TimePoint stopped_until() const { return stopped_until_; }

  void start();
  void kill();
  void stop_until(TimePoint until) { stopped_until_ = std::max(stopped_until_, until); }

  void hold(uint32_t layer, uint32_t expert) { held_.insert({layer, expert}); }
  void drop(uint32_t layer, uint32_t expert) { held_.erase({layer, expert}); }
  bool holds(uint32_t layer, uint32_t expert) const { return held_.contains({layer, expert}); }
  double bytes() const { return static_cast<double>(held_.size()) * static_cast<double>(world_.setup.expert_bytes); }

  void attach(uint32_t client);
  void detach(uint32_t client);
  // Bytes of a request came, or may have.
  void look(uint32_t client, uint32_t lane);

 private:
  struct Item {
    uint32_t client = 0, lane = 0;
    uint64_t link_life = 0;
    RequestHead head;
    std::vector<SlotRoute> routes;
    std::vector<float> hidden;
    TimePoint since{};
  };

  bool refused(const Item& item);
  void consider();
  void begin(std::vector<Item> batch);
  void finish(const std::vector<Item>& batch);
  void answer(const Item& item, SlotStatus status, uint32_t clients);
  std::vector<ReadySlot> ready() const;
  double service(const std::vector<Item>& batch) const;
  bool later(std::function<void()> act);

  ExpertWorldState& world_;
  const uint32_t id_;
  std::vector<SimExpertLink*> links_;
  Hear hear_;
  std::optional<BatchFormer> former_;          // anew in every life
  std::set<uint32_t> attached_;                // clients
  std::set<std::pair<uint32_t, uint32_t>> held_;
  std::vector<Item> ready_;
  bool alive_ = false, serving_ = false;
  uint64_t life_ = 0;
  TimePoint stopped_until_{};
  double out_free_ = 0;  // of its link, seconds
  uint64_t rows_answered_ = 0;
};

}  // namespace shoal
