// Weights that left the device for another model's sake come back (policy/home_coming.h) while nobody has work: who asks for a model now
// and then does not turn it away from those who ask for another one most of the time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "policy/home_coming.h"
#include "roles/catalogue.h"
#include "roles/effect.h"
#include "roles/turn_quotas.h"

namespace shoal {

class HomeComing {
 public:
  static constexpr size_t kLeftMax = 16;  // looked at: those that left last

  // All outlive this.
  HomeComing(const NodeConfig& config, Catalogue& catalogue, const TurnQuotas& quotas) : config_(config), catalogue_(catalogue), quotas_(quotas) {}

  void came(HostedModel& hosted);  // a request for it
  void left(ModelId model);        // for another's sake
  void stays_away(ModelId model) { std::erase(left_, model); }
  // Says who returns (HostedModel::returning), once nobody had work for as long as his switch takes.
  void update(TimePoint now, std::vector<Effect>& effects);

 private:
  std::optional<ModelId> next() const;
  HomeView view_of(const HostedModel& hosted) const;
  double of_late(const HostedModel& hosted) const;   // requests for it
  double share_of(const HostedModel& hosted) const { return of_late(hosted) / std::max(all_, 1.0); }
  // That the next request is for it: its share, and for the one that was asked for last as much more as that was so of late.
  double chance_of(const HostedModel& hosted) const;

  const NodeConfig& config_;
  Catalogue& catalogue_;
  const TurnQuotas& quotas_;
  uint64_t requests_ = 0;
  double all_ = 0;                  // requests, of late
  std::optional<ModelId> last_;     // asked for
  // told_ / known_: how much likelier than its share the model that was asked for last is asked for again, as a part of what the others have;
  // fitted by least squares, so that those that are asked for by nearly all count for nothing.
  double told_ = 0, known_ = 0;
  std::vector<ModelId> left_;  // the last one at the end
  TimePoint idle_since_ = kForever;
};

}  // namespace shoal
