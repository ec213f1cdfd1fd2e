// What the fuzzers run, and corpus_test.cc runs on the seeds: parse, then touch everything that the parser promised.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "formats/gguf_config.h"
#include "formats/hf_config.h"
#include "formats/python_json.h"
#include "formats/safetensors.h"
#include "nlohmann/json.hpp"

namespace shoal {

// Reads the first and the last byte of every tensor, so that a sanitizer sees a view that leaves the file.
inline uint64_t touch(const std::vector<NamedTensor>& tensors) {
  uint64_t sum = 0;
  for (const NamedTensor& tensor : tensors) {
    if (tensor.view.bytes == 0) continue;
    sum += static_cast<uint64_t>(tensor.view.data[0]) + static_cast<uint64_t>(tensor.view.data[tensor.view.bytes - 1]);
  }
  return sum;
}

inline bool fuzz_safetensors(std::span<const std::byte> data) {
  const auto tensors = parse_safetensors(data);
  return tensors.ok() && touch(*tensors) != UINT64_MAX;
}

inline bool fuzz_gguf(std::span<const std::byte> data) {
  const auto contents = parse_gguf(data);
  if (!contents.ok() || touch(contents->tensors) == UINT64_MAX) return false;
  const auto tokenizer = read_gguf_tokenizer(contents->metadata);
  if (tokenizer.ok()) gguf_generation(*tokenizer);
  return parse_gguf_config(contents->metadata, {.vocab_rows = 100}).ok();
}

inline bool fuzz_config(std::span<const std::byte> data) {
  const auto json = parse_python_json(std::string_view(reinterpret_cast<const char*>(data.data()), data.size()));
  if (!json.ok()) return false;
  const bool generation = parse_generation_config(*json, *json).ok();
  return parse_hf_config(*json).ok() && generation;
}

}  // namespace shoal
