// What a node of several is there for. Any node can do anything: this is what it is given, and what it hands over.
#pragma once

#include <cstdint>
#include <string_view>

namespace shoal {

enum class Duty : uint8_t {
  kBoth,
  kPrefill,  // computes prompts, hands over after the first token
  kDecode,   // goes on with what was handed over
};

constexpr std::string_view duty_name(Duty duty) {
  switch (duty) {
    case Duty::kBoth: return "both";
    case Duty::kPrefill: return "prefill";
    case Duty::kDecode: return "decode";
  }
  return "unknown";
}

}  // namespace shoal
