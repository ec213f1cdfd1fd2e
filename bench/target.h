// Narrowing our kernels to less than this machine has.
#pragma once

#include <string>

#include "hwy/targets.h"
#include "kernels/kernels.h"

namespace shoal {

// Kernels of a target of simd_targets() by its name ("" changes nothing); false if this machine has none such.
inline bool force_target(const std::string& name) {
  for (const int64_t target : simd_targets()) {
    if (name != hwy::TargetName(target & -target)) continue;
    hwy::SetSupportedTargetsForTest(target);
    return true;
  }
  return name.empty();
}

}  // namespace shoal
