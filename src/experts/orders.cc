#include "experts/orders.h"

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace shoal {

void ExpertOrders::add_model(const ExpertShape& shape) {
  std::lock_guard lock(mutex_);
  pinned_.emplace_back(shape);
}

Status ExpertOrders::keep(const Json& request, TimePoint now) {
  ASSIGN_OR_RETURN(const std::string keeper, json_string(request, "keeper", ""));
  ASSIGN_OR_RETURN(const int64_t ms, json_int(request, "for_ms", 0, 0, 600'000));
  std::lock_guard lock(mutex_);
  if (keeper_ != keeper && now < kept_until_) return absl::FailedPreconditionError(absl::StrCat("'", keeper_, "' decides what expert server '", server_, "' holds"));
  keeper_ = keeper;
  kept_until_ = now + std::chrono::milliseconds(ms);
  return OkStatus();
}

std::string ExpertOrders::keeper(TimePoint now) const {
  std::lock_guard lock(mutex_);
  return now < kept_until_ ? keeper_ : std::string();
}

void ExpertOrders::drain(bool drains) {
  std::lock_guard lock(mutex_);
  draining_ = drains;
}

bool ExpertOrders::draining() const {
  std::lock_guard lock(mutex_);
  return draining_;
}

Status ExpertOrders::check_takes() const {
  return draining() ? absl::FailedPreconditionError(absl::StrCat("expert server '", server_, "' drains and takes nothing")) : OkStatus();
}

void ExpertOrders::pin(size_t model, const ExpertSet& set, bool pinned) {
  std::lock_guard lock(mutex_);
  for (const uint32_t index : set.list()) {
    if (pinned) pinned_[model].add(index);
    else pinned_[model].remove(index);
  }
}

ExpertSet ExpertOrders::pinned(size_t model) const {
  std::lock_guard lock(mutex_);
  return pinned_[model];
}

}  // namespace shoal
