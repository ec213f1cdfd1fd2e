// What a node of several is there for. Any node can do anything: this is what it is given, and what it hands over.
#pragma once

#include <cstdint>
#include <string_view>

namespace shoal {

enum class InstanceRole : uint8_t {
  kBoth,
  kPrefill,  // computes prompts, hands over after the first token
  kDecode,   // goes on with what was handed over
};

constexpr std::string_view instance_role_name(InstanceRole instance_role) {
  switch (instance_role) {
    case InstanceRole::kBoth: return "both";
    case InstanceRole::kPrefill: return "prefill";
    case InstanceRole::kDecode: return "decode";
  }
  return "unknown";
}

}  // namespace shoal
