// Addresses in the memory of a device. Only the device's backend reads through them: on a GPU the host cannot, and the
// guarded device of the tests has addresses that no host can have.
//
// The host and all devices of a process share one space of addresses, as CUDA's do: a span needs no name of its device.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/check.h"

namespace shoal {

template <typename T>
struct DevicePointer {
  uint64_t address = 0;

  DevicePointer operator+(uint64_t elements) const { return {address + elements * sizeof(T)}; }
  explicit operator bool() const { return address != 0; }
  template <typename U>
  DevicePointer<U> as() const { return {address}; }
  friend auto operator<=>(const DevicePointer&, const DevicePointer&) = default;
};
using DeviceAddress = DevicePointer<std::byte>;

struct DeviceSpan {
  DeviceAddress begin;
  uint64_t bytes = 0;

  bool empty() const { return bytes == 0; }
  DeviceAddress end() const { return begin + bytes; }
  // REQUIRES: offset + count <= bytes.
  DeviceSpan part(uint64_t offset, uint64_t count) const {
    CHECK(offset <= bytes && count <= bytes - offset);
    return {begin + offset, count};
  }
};

// Memory of the host, to copy from and to.
inline DeviceAddress host_address(const void* memory) { return {reinterpret_cast<uintptr_t>(memory)}; }

}  // namespace shoal
