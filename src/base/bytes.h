// Byte counts: units, parsing ("2GiB") and printing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace shoal {

constexpr uint64_t kKiB = 1024;
constexpr uint64_t kMiB = 1024 * kKiB;
constexpr uint64_t kGiB = 1024 * kMiB;

constexpr uint64_t div_up(uint64_t a, uint64_t b) { return (a + b - 1) / b; }
constexpr uint64_t round_up(uint64_t a, uint64_t b) { return div_up(a, b) * b; }

// "2GiB", "1.5 GB", "800M", "4096". K/M/G/T are binary with or without "iB"; "KB/MB/GB/TB" are decimal.
StatusOr<uint64_t> parse_bytes(std::string_view text);

// "1.50 GiB", "12.0 MiB", "900 B".
std::string format_bytes(uint64_t bytes);

}  // namespace shoal
