// The working table of the expert planner (policy/expert_planner.cc): which server holds what, what is free, and how long each
// server takes for each layer. Servers and layers are numbered as in the view.
#pragma once

#include <cstdint>
#include <vector>

#include "policy/expert_placement.h"

namespace shoal {

// InvalidArgument, or NotFound, for a view that is none.
Status check_view(const PlacementView& view);

class ExpertLayout {
 public:
  struct Copy {
    uint32_t server = 0;
    double share = 0;   // of the expert's rows
    bool held = false;  // in the current placement; others are only planned
  };
  using Copies = std::vector<Copy>;

  // What is held now, without servers that drain or are lost. REQUIRES: check_view(view).ok(), and the view outlives this.
  ExpertLayout(const PlacementView& view, const ExpertCost& cost);

  size_t layers() const { return copies_.size(); }
  uint32_t experts(size_t layer) const { return static_cast<uint32_t>(copies_[layer].size()); }
  const Copies& at(size_t layer, uint32_t expert) const { return copies_[layer][expert]; }
  double rows(size_t layer, uint32_t expert) const { return view_.rows.empty() ? 1.0 : view_.rows[layer][expert]; }
  double mean_rows(size_t layer) const { return mean_rows_[layer]; }
  double mean_seconds(size_t layer) const { return cost_.seconds(mean_rows_[layer]); }
  uint64_t bytes(size_t layer) const { return view_.layers[layer].expert_bytes; }

  bool usable(uint32_t server) const { return !view_.servers[server].draining; }
  uint32_t usable_servers() const;
  bool has(size_t layer, uint32_t expert, uint32_t server) const;
  // Whether another copy than the one on `except` is in the domain of `server`.
  bool domain_taken(size_t layer, uint32_t expert, uint32_t server, uint32_t except = UINT32_MAX) const;
  bool room(size_t layer, uint32_t server) const { return free_[server] >= static_cast<int64_t>(bytes(layer)); }
  int64_t free_bytes(uint32_t server) const { return free_[server]; }
  // Whether a server has had its part of a layer, measured by its part of all memory.
  bool over_part(size_t layer, uint32_t server) const;

  // `share`: what the copy is thought to get until level() says. A held copy that is removed keeps its memory: it is dropped last.
  void add(size_t layer, uint32_t expert, uint32_t server, double share);
  void remove(size_t layer, uint32_t expert, uint32_t server);
  // The shares of one layer: every expert's rows to one of its copies, then those of the slowest server are split by
  // water-filling for as long as that makes it quicker. So nothing is split (and read from memory twice) without need. Where it
  // ends quicker from equal shares, as with many rows, from those.
  void level(size_t layer);
  // One such split. False if none helps.
  bool relieve_slowest(size_t layer);

  double seconds(size_t layer, uint32_t expert, double share) const { return cost_.seconds(rows(layer, expert) * share); }
  double speed(uint32_t server) const { return view_.servers[server].speed; }
  double time(size_t layer, uint32_t server) const { return time_[layer][server]; }
  double slowest(size_t layer) const;

  ExpertPlacement placement() const;

  // One layer, to go back to.
  struct Saved {
    std::vector<Copies> copies;
    std::vector<double> time;
    std::vector<uint64_t> used;
    std::vector<int64_t> free;
  };
  Saved save(size_t layer) const { return {copies_[layer], time_[layer], used_[layer], free_}; }
  // REQUIRES: nothing but this layer changed since.
  void restore(size_t layer, Saved saved);

 private:
  void charge(size_t layer, uint32_t expert, const Copy& copy, double sign);
  void give_whole(size_t layer, uint32_t expert);
  void give_evenly(size_t layer);
  void fill(size_t layer, uint32_t expert);
  void relieve(size_t layer);
  std::vector<double> filled(size_t layer, uint32_t expert) const;

  PlacementView view_;
  ExpertCost cost_;
  std::vector<std::vector<Copies>> copies_;
  std::vector<std::vector<double>> time_;      // [layers][servers] seconds
  std::vector<std::vector<uint64_t>> used_;    // [layers][servers] bytes, by what is laid out
  std::vector<int64_t> free_;
  std::vector<double> mean_rows_;              // of an expert of each layer
  double all_bytes_ = 0;          // of one copy of everything
};

}  // namespace shoal
