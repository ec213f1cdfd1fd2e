// Finds the first occurrence of any of several texts in bytes that come one by one (Aho and Corasick, 1975).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace shoal::grammar {

// Immutable; any thread.
class TriggerScanner {
 public:
  static constexpr uint32_t kFound = UINT32_MAX;
  static constexpr size_t kBytesMax = 4096;  // of all triggers together

  // REQUIRES: no trigger is empty, and together they have at most kBytesMax bytes.
  explicit TriggerScanner(const std::vector<std::string>& triggers);

  bool empty() const { return next_.size() == 1; }
  uint32_t start() const { return 0; }
  // The state after one more byte; kFound if a trigger ends with it. REQUIRES: state is not kFound.
  uint32_t step(uint32_t state, uint8_t byte) const { return next_[state][byte]; }

 private:
  std::vector<std::array<uint32_t, 256>> next_;
};

}  // namespace shoal::grammar
