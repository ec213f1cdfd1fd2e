// Random numbers as functions of a key, never of history: the draw for (seed, position) is the same wherever and
// whenever it is made, which is what lets another machine continue a sequence with the same tokens.
#pragma once

#include <cstdint>

namespace shoal {

// SplitMix64's finaliser (Steele, Lea, Flood 2014): a bijective mix of 64 bits.
constexpr uint64_t mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// 64 random bits for (seed, stream, counter).
constexpr uint64_t counter_bits(uint64_t seed, uint64_t stream, uint64_t counter) {
  return mix64(mix64(mix64(seed) ^ stream) ^ counter);
}

// Uniform in [0, 1) with 53 bits.
constexpr double unit_interval(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1.0p-53; }

// A small sequential generator for tests, simulations and workloads; never for sampling tokens.
class Rng {
 public:
  explicit Rng(uint64_t seed) : seed_(seed) {}
  uint64_t bits() { return counter_bits(seed_, 0, counter_++); }
  double uniform() { return unit_interval(bits()); }
  // Uniform in [0, bound). REQUIRES: bound > 0.
  uint64_t below(uint64_t bound) { return static_cast<uint64_t>((static_cast<unsigned __int128>(bits()) * bound) >> 64); }
  bool chance(double probability) { return uniform() < probability; }

 private:
  uint64_t seed_;
  uint64_t counter_ = 0;
};

}  // namespace shoal
