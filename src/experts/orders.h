// What others decided about a server of experts: what an operator put there, whether it drains, who decides what it holds. Any thread.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "base/time.h"
#include "experts/expert_set.h"

namespace shoal {

class ExpertOrders {
 public:
  explicit ExpertOrders(std::string server) : server_(std::move(server)) {}
  void add_model(const ExpertShape& shape);  // the next one

  // {"keeper", "for_ms"}: that one decides for so long. One does at a time, as two would undo each other's moves: FailedPrecondition names it.
  Status keep(const Json& request, TimePoint now);
  std::string keeper(TimePoint now) const;  // empty: nobody is

  void drain(bool drains);
  bool draining() const;
  Status check_takes() const;  // FailedPrecondition while it drains

  void pin(size_t model, const ExpertSet& set, bool pinned);
  ExpertSet pinned(size_t model) const;

 private:
  const std::string server_;
  mutable std::mutex mutex_;
  bool draining_ = false;
  std::vector<ExpertSet> pinned_;
  std::string keeper_;
  TimePoint kept_until_{};
};

}  // namespace shoal
