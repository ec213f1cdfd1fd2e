// The GGUF container, versions 2 and 3 (github.com/ggml-org/ggml, docs/gguf.md). All numbers are little-endian:
//
//   "GGUF"; u32 version; u64 tensors; u64 pairs
//   pairs:    string key; u32 type; value            (string: u64 length, bytes; array: u32 type, u64 count, values)
//   tensors:  string name; u32 rank; u64 dims[rank], innermost first; u32 type; u64 offset into the data part
//   padding to general.alignment (32), then the data part
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/status.h"
#include "formats/safetensors.h"

namespace shoal {

// An array of numbers or booleans keeps its bytes in the file; strings are views into the file.
struct GgufArray {
  uint32_t type = 0;  // GGUF's number of the element type
  uint64_t count = 0;
  std::span<const std::byte> bytes;        // of numbers
  std::vector<std::string_view> strings;   // if the elements are strings
};
using GgufValue = std::variant<uint64_t, int64_t, double, bool, std::string_view, GgufArray>;

// Typed look-ups; a key that is absent gives the fallback, one of the wrong type or range InvalidArgument with its name.
class GgufMetadata {
 public:
  const GgufValue* find(const std::string& key) const;
  bool has(const std::string& key) const { return find(key) != nullptr; }
  StatusOr<int64_t> integer(const std::string& key, int64_t fallback, int64_t min, int64_t max) const;
  StatusOr<double> number(const std::string& key, double fallback) const;
  StatusOr<bool> boolean(const std::string& key, bool fallback) const;
  StatusOr<std::string> text(const std::string& key, const std::string& fallback) const;
  StatusOr<std::vector<std::string>> texts(const std::string& key) const;  // empty if absent
  StatusOr<std::vector<double>> numbers(const std::string& key) const;     // empty if absent

  absl::flat_hash_map<std::string, GgufValue> values;
};

struct GgufContents {
  GgufMetadata metadata;
  std::vector<NamedTensor> tensors;  // names as stored; shapes outermost first
  uint64_t metadata_end = 0;         // offset of the first byte after the pairs
};

// Reads and checks a whole file: counts, lengths, nesting, types, shapes, alignment, offsets, overlaps, duplicate keys
// and names. Views point into `file`. InvalidArgument or Unimplemented (version, tensor type) naming the cause. Allocates
// no more than a small multiple of the bytes that the header really has. `judge`, where there is one, sees the metadata before
// the tensors are read, so that a model nobody serves is refused as such and not for the type of a tensor.
using GgufJudge = std::function<Status(const GgufMetadata&)>;
StatusOr<GgufContents> parse_gguf(std::span<const std::byte> file, const GgufJudge& judge = nullptr);

}  // namespace shoal
