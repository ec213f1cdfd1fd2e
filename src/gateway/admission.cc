#include "gateway/admission.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "gateway/strings.h"

namespace shoal {
namespace {

// Over which the rate of ended answers is averaged.
constexpr double kRateWindowSeconds = 30;

}  // namespace

Admission::Admission(std::vector<ApiKey> keys, Metrics& metrics) : keys_(std::move(keys)), metrics_(metrics) {}

std::string_view given_key(std::string_view authorization, std::string_view x_api_key) {
  constexpr std::string_view kBearer = "bearer ";
  if (authorization.size() > kBearer.size() && equal_ignoring_case(authorization.substr(0, kBearer.size()), kBearer)) {
    return trimmed(authorization.substr(kBearer.size()));
  }
  return x_api_key;
}

std::optional<Caller> Admission::authenticate(std::string_view authorization, std::string_view x_api_key) const {
  if (keys_.empty()) return Caller{};
  const auto key = keys_.find(given_key(authorization, x_api_key));
  return key ? std::optional<Caller>(Caller{key}) : std::nullopt;
}

bool Admission::may_use(Caller caller, const ModelEntry& model) const {
  return !caller.key || keys_.allows(*caller.key, model.name, model.aliases);
}

std::string_view Admission::name(Caller caller) const {
  return caller.key ? std::string_view(keys_.key(*caller.key).name) : std::string_view();
}

Payer Admission::payer(Caller caller) const {
  if (!caller.key) return {};
  uint32_t number = 0;
  const ApiKey& key = keys_.key(*caller.key);
  std::memcpy(&number, key.digest.data(), sizeof(number));
  return {std::max(number, 1u), key.weight};
}

ApiResult<KeyRing::Lease> Admission::admit(Caller caller, const PreparedRequest& request) {
  if (!caller.key) return KeyRing::Lease();
  uint64_t tokens = 0;
  for (const PreparedPrompt& prompt : request.prompts) tokens += prompt.ids.size();
  auto lease = keys_.admit(*caller.key, tokens, steady_now());
  if (!lease.ok()) metrics_.refused("key_limit");
  return lease;
}

Headers Admission::rate_headers(Caller caller) {
  return caller.key ? keys_.rate_headers(*caller.key, steady_now()) : Headers();
}

void Admission::answer_ended() {
  const TimePoint now = steady_now();
  std::lock_guard lock(mutex_);
  const double past = to_seconds(now - rate_at_);
  ended_per_second_ = ended_per_second_ * std::exp(-past / kRateWindowSeconds) + 1.0 / kRateWindowSeconds;
  rate_at_ = now;
}

// Half of what is queued must end before it is worth coming back.
Duration Admission::retry_after(size_t live_requests) const {
  std::lock_guard lock(mutex_);
  const double rate = ended_per_second_ * std::exp(-to_seconds(steady_now() - rate_at_) / kRateWindowSeconds);
  const double wait = 0.5 * static_cast<double>(live_requests) / std::max(rate, 0.01);
  return from_seconds(std::clamp(wait, 1.0, 60.0));
}

}  // namespace shoal
