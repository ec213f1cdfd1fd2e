// What the tests of the operations share: random numbers, every SIMD backend of this machine in turn, equality bit by bit.
#pragma once

#include "kernels/cpu/targets.h"

#include <bit>
#include <functional>
#include <vector>

#include "base/rng.h"
#include "gtest/gtest.h"
#include "hwy/highway.h"
#include "kernels/kernels.h"

namespace shoal {

using Floats = std::vector<float>;

inline Floats random_floats(Rng& rng, size_t n, float range = 1.0f) {
  Floats x(n);
  for (float& v : x) v = static_cast<float>(rng.uniform() * 2 - 1) * range;
  return x;
}

// Runs `test` with every SIMD backend of this machine, one after the other.
inline void for_each_backend(const std::function<void(const Kernels&)>& test) {
  for (int64_t target : simd_targets()) {
    hwy::SetSupportedTargetsForTest(target);
    const Kernels kernels = best_kernels();
    hwy::SetSupportedTargetsForTest(0);
    SCOPED_TRACE(kernels.name);
    test(kernels);
  }
}

inline ::testing::AssertionResult same_bits(const Floats& a, const Floats& b) {
  if (a.size() != b.size()) return ::testing::AssertionFailure() << "sizes differ";
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i])) {
      return ::testing::AssertionFailure() << "element " << i << ": " << a[i] << " and " << b[i];
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace shoal
