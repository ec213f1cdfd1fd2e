// What the files of the codec have in common. For them, and for the records of a run (src/replay), only.
#pragma once

#include <algorithm>
#include <cmath>

#include "wire/message.h"
#include "wire/messages.pb.h"

namespace shoal {

inline Status finite(double value, const char* field) {
  return std::isfinite(value) ? OkStatus() : invalid_argument("message: ", field, " is not a finite number");
}

inline StatusOr<InstanceRole> instance_role_from(uint32_t instance_role) {
  if (instance_role > static_cast<uint32_t>(InstanceRole::kDecode)) return invalid_argument("message: unknown instance role");
  return static_cast<InstanceRole>(instance_role);
}

using PbSettings = google::protobuf::RepeatedPtrField<pb::Setting>;
void to_pb(const PoolingSettings& from, PbSettings* to);
StatusOr<PoolingSettings> settings_from(const PbSettings& from);

template <typename Pb>
void put_id(const RequestId& id, Pb* to) {
  to->set_id(id.sequence);
  to->set_gateway(id.gateway.value);
  to->set_life(id.life);
}

template <typename Pb>
RequestId id_of(const Pb& from) {
  return {NodeId(from.gateway()), from.life(), from.id()};
}

template <typename Pb>
void put_digest(const ModelDigest& from, Pb* to) {
  to->set_weights(from.stamp);
  if (from.known()) to->set_content(from.content.data(), from.content.size());
}

template <typename Pb>
StatusOr<ModelDigest> digest_of(const Pb& from) {
  ModelDigest to(from.weights());
  if (from.content().empty()) return to;
  if (from.content().size() != to.content.size()) return invalid_argument("message: a digest of ", from.content().size(), " bytes");
  std::copy(from.content().begin(), from.content().end(), to.content.begin());
  return to;
}

Status parse(std::string_view bytes, pb::Envelope& envelope);
void to_pb(const Message& from, pb::Envelope* to);
StatusOr<Message> message_from(const pb::Envelope& envelope);

void to_pb(const SampledToken& from, pb::SampledToken* to);
SampledToken token_from(const pb::SampledToken& from);

void to_pb(const SamplingParams& from, pb::Sampling* to);
StatusOr<SamplingParams> sampling_from(const pb::Sampling& from);

void to_pb(const ExpertCounts& from, pb::ExpertCounts* to);
StatusOr<ExpertCounts> from_pb(const pb::ExpertCounts& from);

void to_pb(const NodeStatus& from, pb::NodeStatus* to);
StatusOr<NodeStatus> from_pb(const pb::NodeStatus& from);

}  // namespace shoal
