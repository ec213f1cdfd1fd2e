// --devices and --partition.
#include <algorithm>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "apps/settings.h"
#include "device/thread_pool.h"

namespace shoal {
namespace {

constexpr size_t kDevicesMax = 64;

Status bad_device(const std::string& word, const std::string& why) {
  return invalid_argument("--devices ", word, ": ", why, "; write cpu:CORES for each device, e.g. cpu:0-3,cpu:4-7 or cpu:0+2");
}

// "0-3+8" -> 0 1 2 3 8
StatusOr<std::vector<int>> cores_of(const std::string& word, absl::string_view list, const std::vector<int>& allowed) {
  std::vector<int> cores;
  for (const absl::string_view part : absl::StrSplit(list, '+')) {
    const std::vector<absl::string_view> ends = absl::StrSplit(part, absl::MaxSplits('-', 1));
    int first = 0, last = 0;
    if (!absl::SimpleAtoi(ends.front(), &first) || !absl::SimpleAtoi(ends.back(), &last)) return bad_device(word, absl::StrCat("'", part, "' is no core"));
    if (first < 0 || last < first || last > 4095) return bad_device(word, absl::StrCat("'", part, "' is no range of cores"));
    for (int core = first; core <= last; ++core) {
      if (std::find(allowed.begin(), allowed.end(), core) == allowed.end()) return bad_device(word, absl::StrCat("this process may not use core ", core));
      cores.push_back(core);
    }
  }
  return cores;
}

StatusOr<DeviceSpec> device_spec(const std::string& word, const std::vector<int>& allowed, std::set<int>& taken) {
  absl::string_view rest = word;
  DeviceSpec spec;
  spec.guarded = absl::ConsumePrefix(&rest, "guarded");  // for tests: DeviceGuard
  if (!spec.guarded && !absl::ConsumePrefix(&rest, "cpu")) return bad_device(word, "an unknown kind of device");
  if (rest.empty()) return spec;
  if (!absl::ConsumePrefix(&rest, ":")) return bad_device(word, "an unknown kind of device");
  ASSIGN_OR_RETURN(spec.cpus, cores_of(word, rest, allowed));
  for (const int core : spec.cpus) {
    if (!taken.insert(core).second) return bad_device(word, absl::StrCat("core ", core, " is named twice"));
  }
  return spec;
}

// The published evaluation of Aegaeon (SOSP'25) gives 3 of 8 devices to prompts.
StatusOr<size_t> prefill_devices(const std::string& partition, size_t devices) {
  if (partition == "both" || devices == 1) return size_t{0};
  if (partition == "auto") return std::max<size_t>(1, (3 * devices + 4) / 8);
  const std::vector<absl::string_view> sides = absl::StrSplit(partition, '+');
  size_t prefill = 0, decode = 0;
  const bool numbers = sides.size() == 2 && absl::SimpleAtoi(sides[0], &prefill) && absl::SimpleAtoi(sides[1], &decode);
  if (!numbers || prefill == 0 || decode == 0) return invalid_argument("--partition ", partition, ": expected auto, both, or PREFILL+DECODE, e.g. 1+1");
  if (prefill + decode != devices) return invalid_argument("--partition ", partition, " names ", prefill + decode, " devices, and --devices ", devices);
  return prefill;
}

}  // namespace

StatusOr<std::vector<DeviceSpec>> device_specs(const EngineFlags& flags) {
  if (flags.devices.size() > kDevicesMax) return invalid_argument("--devices: ", flags.devices.size(), " are too many; ", kDevicesMax, " at most");
  std::vector<DeviceSpec> specs;
  std::set<int> taken;
  for (const std::string& word : flags.devices) {
    ASSIGN_OR_RETURN(specs.emplace_back(), device_spec(word, allowed_cpus(), taken));
    if (specs.back().cpus.empty() && flags.devices.size() > 1) return bad_device(word, "several devices need cores of their own");
  }
  if (specs.empty()) specs.emplace_back();
  ASSIGN_OR_RETURN(const size_t prefill, prefill_devices(flags.partition, specs.size()));
  for (size_t i = 0; i < specs.size() && prefill > 0; ++i) specs[i].instance_role = i < prefill ? InstanceRole::kPrefill : InstanceRole::kDecode;
  return specs;
}

}  // namespace shoal
