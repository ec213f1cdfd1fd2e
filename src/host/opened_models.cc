#include "host/opened_models.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "host/weights_identity.h"

namespace shoal {
namespace {

constexpr Duration kLookEvery = std::chrono::seconds(5);

}  // namespace

OpenedModels::Limits OpenedModels::usual() {
  rlimit addresses{};
  if (::getrlimit(RLIMIT_AS, &addresses) != 0 || addresses.rlim_cur != RLIM_INFINITY) return {.files = 0, .bytes = 0};
  return {.files = 64, .bytes = static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE))};
}

OpenedModels::List::iterator OpenedModels::find(const ServedModel& model) {
  return std::find_if(kept_.begin(), kept_.end(), [&](const Kept& kept) {
    return kept.id == model.id && kept.path == model.path && kept.load == model.load;
  });
}

StatusOr<OpenedModel> OpenedModels::open(const ServedModel& model) {
  if (const auto at = find(model); at != kept_.end()) {
    if (at->opened.checkpoint->current()) {
      kept_.splice(kept_.begin(), kept_, at);
      return at->opened;
    }
    closing_.splice(closing_.begin(), kept_, at);
  }
  Kept kept{model.id, model.path, model.load, {}};
  ASSIGN_OR_RETURN(kept.opened.checkpoint, open_checkpoint(model.path));
  ASSIGN_OR_RETURN(kept.opened.plan, plan_model(kept.opened.checkpoint, model.load));
  ASSIGN_OR_RETURN(const ModelDigest::Content sketch, sketch_of(*kept.opened.checkpoint));
  kept.opened.stamp = weights_stamp(sketch, model.load);
  kept.files = kept.opened.checkpoint->files.size();
  for (const auto& file : kept.opened.checkpoint->files) kept.bytes += file->bytes().size();
  kept_.push_front(std::move(kept));
  return kept_.front().opened;
}

void OpenedModels::forget(const ServedModel& model) {
  if (const auto at = find(model); at != kept_.end()) closing_.splice(closing_.begin(), kept_, at);
}

void OpenedModels::tidy(TimePoint now) {
  const bool look = now >= looked_at_ + kLookEvery;
  if (look) looked_at_ = now;
  size_t files = 0;
  uint64_t bytes = 0;
  for (auto at = kept_.begin(); at != kept_.end();) {
    const auto next = std::next(at);
    files += at->files;
    bytes += at->bytes;
    if (files > limits_.files || bytes > limits_.bytes || (look && !at->opened.checkpoint->current())) {
      files -= at->files;
      bytes -= at->bytes;
      closing_.splice(closing_.begin(), kept_, at);
    }
    at = next;
  }
  closing_.clear();
}

}  // namespace shoal
