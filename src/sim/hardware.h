// Devices and models that nobody here has, by their data sheets.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace shoal {

// A kind of device. Rates are those of its data sheet, dense bf16; prices are list prices per hour on demand, for
// comparison among kinds only.
struct Hardware {
  std::string name;
  double flops = 0;                 // per second
  double memory_bytes_per_second = 0;
  double memory_bytes = 0;
  double link_bytes_per_second = 0; // host to device, as measured copies reach it
  double price_per_hour = 0;        // dollars
  double peer_bytes_per_second = 0; // to others of its kind in the machine, one way
  double peer_seconds = 0;          // of an exchange with them, however small
};
// A10, A100, H20, H100, H800 and `cpu`; null for an unknown name.
const Hardware* find_hardware(std::string_view name);
std::span<const Hardware> known_hardware();

// What of a model a simulation needs to know.
struct ModelShape {
  std::string name;
  double parameters = 0;
  uint64_t weight_bytes = 0;
  uint64_t kv_bytes_per_token = 0;
  uint32_t max_len = 4096;
};
// The models of the published profiles, by their names there; null for an unknown name.
const ModelShape* find_model_shape(std::string_view name);
std::span<const ModelShape> known_model_shapes();

// Devices that compute every step together, as one: each holds a share of every matrix and of the KV, and has its own link
// to the host. Named "H800:tp4".
constexpr uint32_t kTensorDegrees[] = {1, 2, 4, 8};
Hardware tensor_gang(const Hardware& device, uint32_t degree);

}  // namespace shoal
