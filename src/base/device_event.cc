#include "base/device_event.h"

namespace shoal {

std::string_view device_act_name(DeviceAct act) {
  switch (act) {
    case DeviceAct::kPrefill: return "prefill";
    case DeviceAct::kDecode: return "decode";
    case DeviceAct::kMixed: return "mixed";
    case DeviceAct::kKvOut: return "kv_out";
    case DeviceAct::kKvIn: return "kv_in";
    case DeviceAct::kDrop: return "drop";
  }
  return "unknown";
}

}  // namespace shoal
