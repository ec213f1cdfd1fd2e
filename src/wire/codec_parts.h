// What the files of the codec have in common. For them only.
#pragma once

#include <cmath>

#include "wire/message.h"
#include "wire/messages.pb.h"

namespace shoal {

inline Status finite(double value, const char* field) {
  return std::isfinite(value) ? OkStatus() : invalid_argument("message: ", field, " is not a finite number");
}

inline StatusOr<Duty> duty_from(uint32_t duty) {
  if (duty > static_cast<uint32_t>(Duty::kDecode)) return invalid_argument("message: unknown duty");
  return static_cast<Duty>(duty);
}

using PbSettings = google::protobuf::RepeatedPtrField<pb::Setting>;
void to_pb(const PoolingSettings& from, PbSettings* to);
StatusOr<PoolingSettings> settings_from(const PbSettings& from);

void to_pb(const SamplingParams& from, pb::Sampling* to);
StatusOr<SamplingParams> sampling_from(const pb::Sampling& from);

void to_pb(const NodeStatus& from, pb::NodeStatus* to);
StatusOr<NodeStatus> from_pb(const pb::NodeStatus& from);

}  // namespace shoal
