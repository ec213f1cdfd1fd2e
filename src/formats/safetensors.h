// The safetensors container (https://github.com/huggingface/safetensors#format):
//
//   u64 little-endian: length N of the header
//   N bytes of JSON:   {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ..., "__metadata__": {}}
//   the data: tensors without gaps or overlaps; offsets count from its first byte
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "tensor/tensor.h"

namespace shoal {

constexpr uint64_t kSafetensorsHeaderMax = 100'000'000;  // the limit of the reference implementation

struct NamedTensor {
  std::string name;
  TensorView view;  // into the file
};

// Reads and checks the header of a whole file: lengths, counts, types, shapes, offsets, overlaps, duplicate names.
// InvalidArgument naming the tensor and the cause. Allocates no more than a small multiple of the header.
StatusOr<std::vector<NamedTensor>> parse_safetensors(std::span<const std::byte> file);

}  // namespace shoal
