// What this machine can do at best, measured beside whatever is compared with it: memory bandwidth and multiply-add
// rates of the widest instructions that the kernels may use.
#pragma once

#include <cstddef>

namespace shoal {

struct Limits {
  double read_bytes_per_s = 0;   // one pass over memory that no cache holds
  double copy_bytes_per_s = 0;   // read + written
  double int8_ops_per_s = 0;     // multiply and add counted as two
  double f32_ops_per_s = 0;
};

// Best of several short runs with `threads` threads.
Limits measure_limits(int threads);

}  // namespace shoal
