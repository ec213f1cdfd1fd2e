#include "bench/limits.h"

#include <immintrin.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "bench/peer.h"

namespace shoal {
namespace {

constexpr size_t kBytes = 512u << 20;
constexpr int kRuns = 3;
constexpr long kRounds = 5'000'000;  // milliseconds: a thread that wakes late must not find its share done by another
constexpr int kChains = 12;  // independent sums: hides the latency of a multiply-add

#define SHOAL_CHAINS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)

// Each does kRounds x kChains multiply-adds in registers only; returns operations done.
__attribute__((target("avx512f,avx512vnni"))) double int8_vnni() {
#define X(i) __m512i a##i = _mm512_setzero_si512();
  SHOAL_CHAINS(X)
#undef X
  const __m512i u = _mm512_set1_epi8(3), v = _mm512_set1_epi8(5);
  for (long round = 0; round < kRounds; ++round) {
#define X(i) asm volatile("vpdpbusd %2, %1, %0" : "+v"(a##i) : "v"(u), "v"(v));
    SHOAL_CHAINS(X)
#undef X
  }
  return 128.0 * kChains * kRounds;
}

__attribute__((target("avx2"))) double int8_avx2() {
#define X(i) __m256i a##i = _mm256_setzero_si256();
  SHOAL_CHAINS(X)
#undef X
  const __m256i u = _mm256_set1_epi16(3), v = _mm256_set1_epi16(5);
  for (long round = 0; round < kRounds; ++round) {
    __m256i p;
#define X(i) asm volatile("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(a##i), "=&x"(p) : "x"(u), "x"(v));
    SHOAL_CHAINS(X)
#undef X
  }
  return 32.0 * kChains * kRounds;
}

// Six rows by 32 outputs, kBlockRounds blocks of 32 columns, over and over the same ones.
constexpr int kTileRows = 6;
constexpr long kBlockRounds = 500'000;
constexpr double kTileOps = 2.0 * kTileRows * 32 * 32;

struct alignas(64) Tile {
  char codes[2][8][64], row_codes[kTileRows][64];
  float scale[2][16], row_scale[kTileRows];
};

__attribute__((target("avx512f,avx512vnni"))) double int8_scaled_vnni() {
  const Tile zeros{};
  const Tile* at = &zeros;
  __m512 acc[kTileRows][2] = {};
  for (long round = 0; round < kBlockRounds; ++round) {
    asm volatile("" : "+r"(at) : : "memory");  // not known while compiling
    const Tile& tile = *at;
    __m512i dot[kTileRows][2] = {};
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) {
      const __m512i w[2] = {_mm512_load_si512(tile.codes[0][g]), _mm512_load_si512(tile.codes[1][g])};
      for (int m = 0; m < kTileRows; ++m) {
        int four;
        std::memcpy(&four, tile.row_codes[m] + 4 * g, 4);
        const __m512i x = _mm512_set1_epi32(four);
        for (int p = 0; p < 2; ++p) asm("vpdpbusd %2, %1, %0" : "+v"(dot[m][p]) : "v"(w[p]), "v"(x));
      }
    }
    for (int m = 0; m < kTileRows; ++m) {
      const __m512 x = _mm512_set1_ps(tile.row_scale[m]);
      for (int p = 0; p < 2; ++p) acc[m][p] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[m][p]), _mm512_mul_ps(_mm512_load_ps(tile.scale[p]), x), acc[m][p]);
    }
  }
  for (auto& row : acc) asm volatile("" : : "v"(row[0]), "v"(row[1]));
  return kTileOps * kBlockRounds;
}

__attribute__((target("avx2,fma"))) double int8_scaled_avx2() {  // codes widened to 16 bits; half the outputs at a time
  const Tile zeros{};
  const Tile* at = &zeros;
  __m256 acc[kTileRows][2] = {};
  for (long round = 0; round < 2 * kBlockRounds; ++round) {
    asm volatile("" : "+r"(at) : : "memory");  // not known while compiling
    const Tile& tile = *at;
    __m256i dot[kTileRows][2] = {};
#pragma GCC unroll 16
    for (int g = 0; g < 16; ++g) {
      const auto* lines = reinterpret_cast<const __m256i*>(tile.codes[0][0]) + 2 * g;
      const __m256i w[2] = {_mm256_load_si256(lines), _mm256_load_si256(lines + 1)};
      for (int m = 0; m < kTileRows; ++m) {
        int pair;
        std::memcpy(&pair, tile.row_codes[m] + 4 * g, 4);
        const __m256i x = _mm256_set1_epi32(pair);
        for (int p = 0; p < 2; ++p) {
          dot[m][p] = _mm256_add_epi32(dot[m][p], _mm256_madd_epi16(w[p], x));
          asm("" : "+x"(dot[m][p]));  // or the sums are gathered into trees, for which there are no registers
        }
      }
    }
    for (int m = 0; m < kTileRows; ++m) {
      const __m256 x = _mm256_set1_ps(tile.row_scale[m]);
      for (int p = 0; p < 2; ++p) acc[m][p] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[m][p]), _mm256_mul_ps(_mm256_load_ps(tile.scale[0] + 8 * p), x), acc[m][p]);
    }
  }
  for (auto& row : acc) asm volatile("" : : "x"(row[0]), "x"(row[1]));
  return kTileOps * kBlockRounds;
}

__attribute__((target("avx512f"))) double f32_avx512() {
#define X(i) __m512 a##i = _mm512_setzero_ps();
  SHOAL_CHAINS(X)
#undef X
  const __m512 u = _mm512_set1_ps(0.5f), v = _mm512_set1_ps(0.25f);
  for (long round = 0; round < kRounds; ++round) {
#define X(i) asm volatile("vfmadd231ps %2, %1, %0" : "+v"(a##i) : "v"(u), "v"(v));
    SHOAL_CHAINS(X)
#undef X
  }
  return 32.0 * kChains * kRounds;
}

__attribute__((target("avx2,fma"))) double f32_avx2() {
#define X(i) __m256 a##i = _mm256_setzero_ps();
  SHOAL_CHAINS(X)
#undef X
  const __m256 u = _mm256_set1_ps(0.5f), v = _mm256_set1_ps(0.25f);
  for (long round = 0; round < kRounds; ++round) {
#define X(i) asm volatile("vfmadd231ps %2, %1, %0" : "+x"(a##i) : "x"(u), "x"(v));
    SHOAL_CHAINS(X)
#undef X
  }
  return 16.0 * kChains * kRounds;
}

__attribute__((target("avx2"))) void read_all(const char* begin, const char* end) {
  __m256i sum[4] = {};
  for (const char* p = begin; p < end; p += 128) {
    for (int i = 0; i < 4; ++i) sum[i] = _mm256_xor_si256(sum[i], _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p) + i));
  }
  asm volatile("" : : "x"(sum[0]), "x"(sum[1]), "x"(sum[2]), "x"(sum[3]));
}

// The best rate of `amount()` per second, all threads at it.
double best_rate(ThreadPool& threads, Seconds seconds, const std::function<double(size_t thread)>& amount) {
  double best = 0;
  for (int run = 0; run < kRuns; ++run) {
    std::vector<double> done(static_cast<size_t>(threads.size()));
    const double begin = seconds_now(seconds);
    threads.parallel_for(done.size(), [&](size_t i, int) { done[i] = amount(i); });
    double total = 0;
    for (const double d : done) total += d;
    best = std::max(best, total / (seconds_now(seconds) - begin));
  }
  return best;
}

}  // namespace

double seconds_now(Seconds which) {
  timespec now;
  clock_gettime(which == Seconds::kCpu ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct LimitMeter::Memory {
  std::unique_ptr<char[]> bytes{new char[kBytes]};
};

LimitMeter::LimitMeter(int threads, Seconds seconds, bool avx2_only)
    : pool_(threads),
      seconds_(seconds),
      avx512_(!avx2_only && __builtin_cpu_supports("avx512f")),
      vnni_(!avx2_only && __builtin_cpu_supports("avx512vnni")),
      memory_(std::make_unique<Memory>()) {
  const size_t share = kBytes / static_cast<size_t>(threads);
  pool_.parallel_for(static_cast<size_t>(threads), [&](size_t i, int) { std::memset(memory_->bytes.get() + i * share, 1, share); });
}

LimitMeter::~LimitMeter() = default;

double LimitMeter::read_bytes_per_s() {
  const size_t share = kBytes / static_cast<size_t>(pool_.size()) / 4096 * 4096;
  return best_rate(pool_, seconds_, [&](size_t i) {
    read_all(memory_->bytes.get() + i * share, memory_->bytes.get() + (i + 1) * share);
    return static_cast<double>(share);
  });
}

Limits LimitMeter::measure() {
  const size_t share = kBytes / static_cast<size_t>(pool_.size()) / 4096 * 4096;
  char* bytes = memory_->bytes.get();
  Limits limits;
  limits.int8_ops_per_s = best_rate(pool_, seconds_, [&](size_t) { return vnni_ ? int8_vnni() : int8_avx2(); });
  limits.int8_scaled_ops_per_s = best_rate(pool_, seconds_, [&](size_t) { return vnni_ ? int8_scaled_vnni() : int8_scaled_avx2(); });
  limits.f32_ops_per_s = best_rate(pool_, seconds_, [&](size_t) { return avx512_ ? f32_avx512() : f32_avx2(); });
  limits.read_bytes_per_s = read_bytes_per_s();
  limits.copy_bytes_per_s = best_rate(pool_, seconds_, [&](size_t i) {
    std::memcpy(bytes + i * share, bytes + i * share + share / 2, share / 2);
    return static_cast<double>(share);  // half read, half written
  });
  return limits;
}

Limits median_limits(const std::vector<Limits>& rounds) {
  const auto middle = [&](double Limits::*which) {
    std::vector<double> values;
    for (const Limits& round : rounds) values.push_back(round.*which);
    return median(values);
  };
  return {middle(&Limits::read_bytes_per_s), middle(&Limits::copy_bytes_per_s), middle(&Limits::int8_ops_per_s),
          middle(&Limits::int8_scaled_ops_per_s), middle(&Limits::f32_ops_per_s)};
}

}  // namespace shoal
