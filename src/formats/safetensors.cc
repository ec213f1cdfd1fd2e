#include "formats/safetensors.h"

#include <algorithm>
#include <optional>

#include "base/bytes.h"
#include "base/json.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr size_t kTensorsMax = 1'000'000;

struct Extent {
  uint64_t begin, end;
  size_t tensor;  // index
};

std::optional<uint64_t> as_u64(const Json& value) {
  if (value.is_number_unsigned()) return value.get<uint64_t>();
  if (value.is_number_integer() && value.get<int64_t>() >= 0) return static_cast<uint64_t>(value.get<int64_t>());
  return std::nullopt;
}

StatusOr<Shape> parse_shape(const Json& json) {
  if (!json.is_array() || json.size() > Shape::kRankMax) {
    return invalid_argument("its shape is not a list of at most ", Shape::kRankMax, " dimensions");
  }
  std::vector<uint64_t> dims;
  for (const Json& dim : json) {
    const auto value = as_u64(dim);
    if (!value) return invalid_argument("its shape holds something that is not a dimension");
    dims.push_back(*value);
  }
  return Shape(dims);
}

// Fills dtype, shape and byte count; returns the extent within the data part.
StatusOr<Extent> parse_entry(const Json& json, uint64_t data_bytes, TensorView& view) {
  if (!json.is_object()) return invalid_argument("its entry is not an object");
  const auto dtype = json.find("dtype"), shape = json.find("shape"), offsets = json.find("data_offsets");
  if (dtype == json.end() || !dtype->is_string()) return invalid_argument("it has no dtype");
  const auto type = dtype_from_safetensors(dtype->get_ref<const std::string&>());
  if (!type) return invalid_argument("its dtype '", dtype->get_ref<const std::string&>(), "' is not known");
  if (shape == json.end()) return invalid_argument("it has no shape");
  ASSIGN_OR_RETURN(view.shape, parse_shape(*shape));
  if (offsets == json.end() || !offsets->is_array() || offsets->size() != 2) {
    return invalid_argument("it has no pair of data_offsets");
  }
  const auto begin = as_u64((*offsets)[0]), end = as_u64((*offsets)[1]);
  if (!begin || !end || *begin > *end) return invalid_argument("its data_offsets are not an ascending pair of offsets");
  if (*end > data_bytes) {
    return invalid_argument("it ends at byte ", *end, " of a data part of ", data_bytes, " bytes; the file is truncated, fetch it again");
  }
  const auto elements = view.shape.elements();
  const auto bytes = elements ? dtype_bytes(*type, *elements) : std::nullopt;
  if (!bytes || *bytes != *end - *begin) {
    return invalid_argument("its shape ", view.shape.to_string(), " of ", dtype_name(*type), " does not fill its ",
                            *end - *begin, " bytes");
  }
  view.dtype = *type;
  view.bytes = *bytes;
  return Extent{*begin, *end, 0};
}

// The data part must be covered exactly once.
Status check_cover(std::vector<Extent> extents, uint64_t data_bytes, const std::vector<NamedTensor>& tensors) {
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  uint64_t at = 0;
  for (const Extent& extent : extents) {
    if (extent.begin != at) {
      return invalid_argument("tensor '", tensors[extent.tensor].name, "' begins at byte ", extent.begin, " where ", at,
                              extent.begin < at ? " overlaps its neighbour" : " leaves a gap", "; write the file again");
    }
    at = extent.end;
  }
  if (at != data_bytes) {
    return invalid_argument("the tensors fill ", at, " bytes of a data part of ", data_bytes, "; fetch the file again");
  }
  return OkStatus();
}

uint64_t load_u64(std::span<const std::byte> bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < 8; ++i) value |= static_cast<uint64_t>(bytes[i]) << (8 * i);
  return value;
}

}  // namespace

StatusOr<std::vector<NamedTensor>> parse_safetensors(std::span<const std::byte> file) {
  if (file.size() < 8) return invalid_argument("a file of ", file.size(), " bytes has no safetensors header; fetch it again");
  const uint64_t header_bytes = load_u64(file);
  if (header_bytes == 0) return invalid_argument("it begins with zeros where its header should be; the file was not downloaded to its end, fetch it again");
  if (header_bytes > kSafetensorsHeaderMax) {
    return invalid_argument("a header of ", header_bytes, " bytes is above the limit of ", kSafetensorsHeaderMax,
                            "; this is not a safetensors file");
  }
  if (header_bytes > file.size() - 8) {
    return invalid_argument("a header of ", header_bytes, " bytes does not fit a file of ", file.size(),
                            "; the file is truncated, fetch it again");
  }
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + 8, header_bytes);
  const JsonLimits limits{.bytes_max = kSafetensorsHeaderMax, .depth_max = 4, .values_max = 20 * kTensorsMax};
  ASSIGN_OR_RETURN(const Json header, parse_json(text, limits));
  if (!header.is_object()) return invalid_argument("the header is not a JSON object");
  if (header.size() > kTensorsMax) return invalid_argument("the header names more than ", kTensorsMax, " tensors");

  const std::span<const std::byte> data = file.subspan(8 + header_bytes);
  std::vector<NamedTensor> tensors;
  std::vector<Extent> extents;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    NamedTensor tensor{name, {}};
    auto extent = parse_entry(entry, data.size(), tensor.view);
    if (!extent.ok()) return annotate(extent.status(), "tensor '" + name + "'");
    tensor.view.data = data.data() + extent->begin;
    extent->tensor = tensors.size();
    extents.push_back(*extent);
    tensors.push_back(std::move(tensor));
  }
  RETURN_IF_ERROR(check_cover(std::move(extents), data.size(), tensors));
  return tensors;
}

}  // namespace shoal
