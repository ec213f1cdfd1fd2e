#include "roles/home_coming.h"

#include <algorithm>
#include <cmath>

namespace shoal {
namespace {

constexpr double kRequests = 64;   // of the node, that popularity and constancy are means of
constexpr double kUnknown = 0.25;  // of known_, that is believed to have told of no constancy

}  // namespace

void HomeComing::came(HostedModel& hosted) {
  const double kept = std::exp(-1 / kRequests);
  told_ *= kept, known_ *= kept;
  if (const HostedModel* last = last_ ? catalogue_.find(*last_) : nullptr; last != nullptr) {
    const double share = share_of(*last), others = 1 - share;
    told_ += others * ((last == &hosted ? 1 : 0) - share);
    known_ += others * others;
  }
  last_ = hosted.facts.model;
  const double before = of_late(hosted);
  ++requests_;
  all_ = all_ * kept + 1;
  hosted.popularity = {before * kept + 1, requests_};
}

double HomeComing::of_late(const HostedModel& hosted) const {
  return hosted.popularity.requests * std::exp(-static_cast<double>(requests_ - hosted.popularity.as_of) / kRequests);
}

double HomeComing::chance_of(const HostedModel& hosted) const {
  const double again = std::clamp(told_ / (known_ + kUnknown), 0.0, 1.0);
  return (1 - again) * share_of(hosted) + (last_ == hosted.facts.model ? again : 0);
}

void HomeComing::left(ModelId model) {
  stays_away(model);
  if (left_.size() == kLeftMax) left_.erase(left_.begin());
  left_.push_back(model);
}

void HomeComing::update(TimePoint now, std::vector<Effect>& effects) {
  if (config_.scheduling != Scheduling::kToken || !config_.turns.narrow) return;
  // Who is away and not served has no turn: what it has is no work for this device.
  const auto works = [this](const HostedModel& m) { return m.engine->has_work() && (m.served || !catalogue_.away(m)); };
  if (catalogue_.any_active(works)) {
    idle_since_ = kForever;
    if (catalogue_.any_active([&](const HostedModel& m) { return works(m) && catalogue_.away(m); })) {
      for (auto& [id, hosted] : catalogue_.active()) hosted.returning = false;  // others wait for the device
    }
    return;
  }
  if (idle_since_ == kForever) idle_since_ = now;
  if (left_.empty() || catalogue_.any_active([this](const HostedModel& m) { return catalogue_.away(m) && for_later(m); })) return;
  const std::optional<ModelId> model = next();
  if (!model) return;
  HostedModel& hosted = catalogue_.at(*model);
  const TimePoint then = idle_since_ + from_seconds(quotas_.switch_to(hosted));
  if (now < then) return effects.push_back(WakeAt{then});
  catalogue_.activate(hosted);
  hosted.returning = true;
  stays_away(*model);
}

std::optional<ModelId> HomeComing::next() const {
  std::vector<HomeView> away, here;
  for (const ModelId id : left_) {
    const HostedModel* hosted = catalogue_.find(id);
    const bool may = hosted != nullptr && !hosted->retired && hosted->excluded.ok() && catalogue_.away(*hosted) && hosted->facts.pooling.idle_ttl == Duration::max();
    if (may && catalogue_.fits_beside_pinned(*hosted)) away.push_back(view_of(*hosted));
  }
  for (const auto& [id, hosted] : catalogue_.active()) {
    if (!catalogue_.away(hosted) && !hosted.pinned) here.push_back(view_of(hosted));
  }
  return comes_home(away, here, catalogue_.pages().free());
}

HomeView HomeComing::view_of(const HostedModel& hosted) const {
  const Prospects expected = quotas_.prospects(hosted);
  const double first = quotas_.switch_to(hosted) + expected.prompts.seconds(0, static_cast<uint64_t>(hosted.prompt_tokens.value)) + expected.step_seconds;
  const double in_time = tokens_in_time(expected.answer_tokens, first, expected.step_seconds, to_seconds(expected.slo.ttft), to_seconds(expected.slo.tbt));
  HomeView view{hosted.facts.model, chance_of(hosted) * priority_weight(hosted.facts.pooling.priority) * (expected.answer_tokens - in_time)};
  view.pages = catalogue_.weight_pages(hosted) + (catalogue_.away(hosted) ? hosted.kv_pages : catalogue_.idle_kv_pages(hosted));
  view.last_used = catalogue_.residency().last_used(view.model);
  return view;
}

}  // namespace shoal
