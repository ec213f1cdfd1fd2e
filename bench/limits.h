// What this machine can do at best, measured beside whatever is compared with it: memory bandwidth and multiply-add
// rates of the widest instructions that the kernels may use.
#pragma once

#include <memory>
#include <vector>

#include "device/thread_pool.h"

namespace shoal {

// Which seconds a program counts: the wall clock's, or with one thread on a machine that others use too, the process's own.
enum class Seconds { kWall, kCpu };
double seconds_now(Seconds which);

struct Limits {
  double read_bytes_per_s = 0;   // one pass over memory that no cache holds
  double copy_bytes_per_s = 0;   // read + written
  double int8_ops_per_s = 0;     // multiply and add counted as two
  // The same with what the format asks for beside them: every 32 columns a sum becomes f32, is multiplied by two scales
  // and added. Operands in the first-level cache, as many sums as the registers hold.
  double int8_scaled_ops_per_s = 0;
  double f32_ops_per_s = 0;
};

// Measures the limits again and again between other measurements.
class LimitMeter {
 public:
  // The multiply-add rates are those of instructions up to AVX2 if `avx2_only`.
  explicit LimitMeter(int threads, Seconds seconds = Seconds::kWall, bool avx2_only = false);
  ~LimitMeter();
  // Best of some short runs, about a second.
  Limits measure();
  // That limit alone, in some tens of milliseconds: what memory gives can change by half within a minute on a shared machine.
  double read_bytes_per_s();

 private:
  struct Memory;
  ThreadPool pool_;
  Seconds seconds_;
  bool avx512_, vnni_;
  std::unique_ptr<Memory> memory_;
};

// The median of each limit.
Limits median_limits(const std::vector<Limits>& rounds);

}  // namespace shoal
