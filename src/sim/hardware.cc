#include "sim/hardware.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"

namespace shoal {
namespace {

constexpr double kGiB = 1073741824.0;

const Hardware kHardware[] = {
    {"A10", 125e12, 600e9, 24 * kGiB, 20e9, 1.2, 20e9, 30e-6},
    {"A100", 312e12, 2039e9, 80 * kGiB, 22e9, 2.7, 300e9, 15e-6},
    {"H20", 148e12, 4000e9, 96 * kGiB, 45e9, 2.6, 450e9, 15e-6},
    {"H100", 989e12, 3350e9, 80 * kGiB, 45e9, 4.0, 450e9, 15e-6},
    {"H800", 989e12, 3350e9, 80 * kGiB, 30e9, 3.6, 200e9, 15e-6},
    {"cpu", 0.4e12, 25e9, 16 * kGiB, 5e9, 0.1, 5e9, 20e-6},
};

constexpr uint64_t gib(double x) { return static_cast<uint64_t>(x * kGiB); }

// Weights as bf16; KV bytes of one token over all layers.
const ModelShape kShapes[] = {
    {"qwen2_5_7b", 7.6e9, gib(14.5), 56 << 10, 32768},
    {"yi1_5_6b_chat", 6.1e9, gib(11.5), 64 << 10, 4096},
    {"yi1_5_9b_chat", 8.8e9, gib(16.5), 96 << 10, 4096},
    {"internlm2_5_7b_chat", 7.7e9, gib(14.5), 128 << 10, 32768},
    {"llama2_7b", 6.7e9, gib(12.6), 512 << 10, 4096},
    {"llama2_13b_chat", 13e9, gib(24.4), 800 << 10, 4096},
    {"llava1_5_13b", 13.4e9, gib(24.9), 800 << 10, 4096},
    {"baichuan_7b", 7e9, gib(13.0), 512 << 10, 4096},
    {"baichuan2_13b_chat", 13.9e9, gib(25.9), 800 << 10, 4096},
    {"qwen_7b", 7.7e9, gib(14.4), 512 << 10, 8192},
    {"qwen_7b_chat", 7.7e9, gib(14.4), 512 << 10, 8192},
    {"qwen_14b_chat", 14.2e9, gib(26.4), 800 << 10, 8192},
    {"qwen1_5_14b_chat", 14.2e9, gib(26.5), 800 << 10, 32768},
    {"qwen1_5_moe_a2_7b_chat", 14.3e9, gib(26.7), 192 << 10, 8192},
    {"qwen_72b", 72.3e9, gib(134.7), 2560 << 10, 32768},
    {"qwen2_72b", 72.7e9, gib(135.4), 320 << 10, 32768},
};

}  // namespace

std::span<const Hardware> known_hardware() { return kHardware; }
std::span<const ModelShape> known_model_shapes() { return kShapes; }

const Hardware* find_hardware(std::string_view name) {
  const auto found = std::find_if(std::begin(kHardware), std::end(kHardware), [&](const Hardware& h) { return h.name == name; });
  return found == std::end(kHardware) ? nullptr : found;
}

const ModelShape* find_model_shape(std::string_view name) {
  const auto found = std::find_if(std::begin(kShapes), std::end(kShapes), [&](const ModelShape& m) { return m.name == name; });
  return found == std::end(kShapes) ? nullptr : found;
}

Hardware tensor_gang(const Hardware& device, uint32_t degree) {
  Hardware gang = device;
  if (degree > 1) absl::StrAppend(&gang.name, ":tp", degree);
  for (double* sum : {&gang.flops, &gang.memory_bytes_per_second, &gang.memory_bytes, &gang.link_bytes_per_second, &gang.price_per_hour}) *sum *= degree;
  return gang;
}

}  // namespace shoal
