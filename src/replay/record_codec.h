// What a record holds, from and to its bytes (wire/records.proto). For the files of this folder only.
#pragma once

#include "roles/event.h"
#include "roles/node_config.h"
#include "wire/records.pb.h"

namespace shoal {

void to_pb(const NodeConfig& from, pb::NodeConfig* to);
void to_pb(const Event& from, pb::Event* to);

// InvalidArgument names what is missing or out of range. Whether it can happen is not looked at.
StatusOr<NodeConfig> config_from(const pb::NodeConfig& from);
StatusOr<Event> event_from(const pb::Event& from);

// Also of an event.
void to_pb(const NodeModel& from, pb::NodeModel* to);
StatusOr<NodeModel> model_from(const pb::NodeModel& from);

}  // namespace shoal
