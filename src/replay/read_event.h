// Events of an event log, read. For the files of this folder only.
#pragma once

#include "base/json.h"
#include "roles/event.h"

namespace shoal {

// InvalidArgument for anything that is not one. Whether it can happen is not looked at.
StatusOr<Event> read_event(const Json& json);

}  // namespace shoal
