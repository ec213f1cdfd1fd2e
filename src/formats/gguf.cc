#include "formats/gguf.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>

#include "absl/container/flat_hash_set.h"
#include "base/bytes.h"

namespace shoal {
namespace {

enum GgufType : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };

constexpr uint64_t kStringMax = 64u << 20;
constexpr uint64_t kPairBytesMin = 8 + 4 + 1;            // empty key, type, one byte of value
constexpr uint64_t kTensorBytesMin = 8 + 4 + 8 + 4 + 8;  // empty name, rank, one dimension, type, offset
constexpr uint64_t kAlignmentMax = 1u << 20;

// Width of a number type; 0 for the others.
uint64_t number_bytes(uint32_t type) {
  constexpr uint64_t kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return type < std::size(kBytes) ? kBytes[type] : 0;
}

std::optional<DType> tensor_type(uint32_t type) {
  switch (type) {  // enum ggml_type
    case 0: return DType::kF32;
    case 1: return DType::kF16;
    case 2: return DType::kQ4_0;
    case 3: return DType::kQ4_1;
    case 6: return DType::kQ5_0;
    case 7: return DType::kQ5_1;
    case 8: return DType::kQ8_0;
    case 10: return DType::kQ2_K;
    case 11: return DType::kQ3_K;
    case 12: return DType::kQ4_K;
    case 13: return DType::kQ5_K;
    case 14: return DType::kQ6_K;
    case 20: return DType::kIQ4_NL;
    case 23: return DType::kIQ4_XS;
    case 39: return DType::kMXFP4;
    case 24: return DType::kI8;
    case 25: return DType::kI16;
    case 26: return DType::kI32;
    case 27: return DType::kI64;
    case 28: return DType::kF64;
    case 30: return DType::kBF16;
    default: return std::nullopt;
  }
}

// Walks the header; every read is bounded by the file.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> file) : file_(file) {}

  uint64_t position() const { return position_; }
  uint64_t left() const { return file_.size() - position_; }

  template <typename T>
  Status read(T& value) {
    if (left() < sizeof(T)) return truncated();
    std::memcpy(&value, file_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return OkStatus();
  }

  StatusOr<std::span<const std::byte>> bytes(uint64_t count) {
    if (count > left()) return truncated();
    const auto result = file_.subspan(position_, count);
    position_ += count;
    return result;
  }

  StatusOr<std::string_view> string() {
    uint64_t length = 0;
    RETURN_IF_ERROR(read(length));
    if (length > kStringMax) return invalid_argument("a string of ", length, " bytes at byte ", position_, " is above the limit of ", kStringMax);
    ASSIGN_OR_RETURN(const auto data, bytes(length));
    return std::string_view(reinterpret_cast<const char*>(data.data()), data.size());
  }

  StatusOr<GgufValue> value(uint32_t type);

 private:
  Status truncated() const {
    return invalid_argument("the header ends at byte ", file_.size(), " in the middle of a field; the file is truncated, fetch it again");
  }
  StatusOr<GgufValue> array();

  std::span<const std::byte> file_;
  uint64_t position_ = 0;
};

template <typename T>
T load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}

GgufValue decode_number(uint32_t type, const std::byte* p) {
  switch (type) {
    case kU8: return uint64_t{load<uint8_t>(p)};
    case kI8: return int64_t{load<int8_t>(p)};
    case kU16: return uint64_t{load<uint16_t>(p)};
    case kI16: return int64_t{load<int16_t>(p)};
    case kU32: return uint64_t{load<uint32_t>(p)};
    case kI32: return int64_t{load<int32_t>(p)};
    case kF32: return double{load<float>(p)};
    case kBool: return load<uint8_t>(p) != 0;
    case kU64: return load<uint64_t>(p);
    case kI64: return load<int64_t>(p);
    default: return load<double>(p);
  }
}

StatusOr<GgufValue> Reader::array() {
  GgufArray array;
  RETURN_IF_ERROR(read(array.type));
  RETURN_IF_ERROR(read(array.count));
  if (array.type == kString) {
    if (array.count > left() / 8) return truncated();  // each string has at least its length
    array.strings.reserve(array.count);
    for (uint64_t i = 0; i < array.count; ++i) {
      ASSIGN_OR_RETURN(const std::string_view text, string());
      array.strings.push_back(text);
    }
    return GgufValue(std::move(array));
  }
  const uint64_t width = number_bytes(array.type);
  if (width == 0) return unimplemented("an array of type ", array.type, " at byte ", position_, " is not served");
  if (array.count > left() / width) return truncated();
  ASSIGN_OR_RETURN(array.bytes, bytes(array.count * width));
  return GgufValue(std::move(array));
}

StatusOr<GgufValue> Reader::value(uint32_t type) {
  if (type == kString) {
    ASSIGN_OR_RETURN(const std::string_view text, string());
    return GgufValue(text);
  }
  if (type == kArray) return array();
  const uint64_t width = number_bytes(type);
  if (width == 0) return invalid_argument("a value at byte ", position_, " has the unknown type ", type);
  ASSIGN_OR_RETURN(const auto data, bytes(width));
  return decode_number(type, data.data());
}

Status read_metadata(Reader& reader, uint64_t pairs, GgufMetadata& metadata) {
  if (pairs > reader.left() / kPairBytesMin) return invalid_argument("the header claims ", pairs, " pairs, more than the file can hold");
  for (uint64_t i = 0; i < pairs; ++i) {
    ASSIGN_OR_RETURN(const std::string_view key, reader.string());
    uint32_t type = 0;
    RETURN_IF_ERROR(reader.read(type));
    auto value = reader.value(type);
    if (!value.ok()) return annotate(value.status(), absl::StrCat("key '", std::string(key.substr(0, 200)), "'"));
    if (!metadata.values.emplace(std::string(key), *std::move(value)).second) {
      return invalid_argument("key '", std::string(key.substr(0, 200)), "' is there twice");
    }
  }
  return OkStatus();
}

struct TensorEntry {
  NamedTensor tensor;
  uint64_t offset = 0;
};

StatusOr<TensorEntry> read_tensor(Reader& reader) {
  TensorEntry entry;
  ASSIGN_OR_RETURN(const std::string_view name, reader.string());
  if (name.size() > 1024) return invalid_argument("a tensor's name has ", name.size(), " bytes");
  entry.tensor.name = std::string(name);
  const std::string where = absl::StrCat("tensor '", entry.tensor.name, "': ");
  uint32_t rank = 0, type = 0;
  RETURN_IF_ERROR(reader.read(rank));
  if (rank > 4) return invalid_argument(where, "it has ", rank, " dimensions, at most 4 are allowed");
  uint64_t dims[4] = {};
  for (uint32_t i = 0; i < rank; ++i) RETURN_IF_ERROR(reader.read(dims[rank - 1 - i]));
  RETURN_IF_ERROR(reader.read(type));
  RETURN_IF_ERROR(reader.read(entry.offset));
  const auto dtype = tensor_type(type);
  if (!dtype) return unimplemented(where, "its type ", type, " (ggml_type) is not served; convert the file to Q8_0, Q4_0, a K-quant, IQ4 or MXFP4");
  TensorView& view = entry.tensor.view;
  view.dtype = *dtype;
  view.shape = Shape(std::span<const uint64_t>(dims, rank));
  const auto elements = view.shape.elements();
  const bool whole_rows = rank == 0 || dims[rank - 1] % dtype_info(*dtype).block_elements == 0;
  const auto bytes = elements && whole_rows ? dtype_bytes(*dtype, *elements) : std::nullopt;
  if (!bytes) return invalid_argument(where, "its shape ", view.shape.to_string(), " cannot be stored as ", dtype_name(*dtype));
  view.bytes = *bytes;
  return entry;
}

// Places the tensors in the data part: aligned, inside it, disjoint.
Status place_tensors(std::span<const std::byte> data, uint64_t alignment, std::vector<TensorEntry>& entries) {
  for (TensorEntry& entry : entries) {
    const NamedTensor& tensor = entry.tensor;
    if (entry.offset % alignment != 0) {
      return invalid_argument("tensor '", tensor.name, "' begins at byte ", entry.offset, ", which is not aligned to ", alignment);
    }
    if (entry.offset > data.size() || tensor.view.bytes > data.size() - entry.offset) {
      return invalid_argument("tensor '", tensor.name, "' of ", tensor.view.bytes, " bytes at ", entry.offset,
                              " ends beyond a data part of ", data.size(), " bytes; the file is truncated, fetch it again");
    }
    entry.tensor.view.data = data.data() + entry.offset;
  }
  std::vector<const TensorEntry*> order;
  for (const TensorEntry& entry : entries) {
    if (entry.tensor.view.bytes > 0) order.push_back(&entry);
  }
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < order.size(); ++i) {
    if (order[i - 1]->offset + order[i - 1]->tensor.view.bytes > order[i]->offset) {
      return invalid_argument("tensors '", order[i - 1]->tensor.name, "' and '", order[i]->tensor.name, "' overlap");
    }
  }
  return OkStatus();
}

}  // namespace

const GgufValue* GgufMetadata::find(const std::string& key) const {
  const auto at = values.find(key);
  return at == values.end() ? nullptr : &at->second;
}

StatusOr<int64_t> GgufMetadata::integer(const std::string& key, int64_t fallback, int64_t min, int64_t max) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return fallback;
  int64_t result = 0;
  if (const auto* u = std::get_if<uint64_t>(value)) {
    result = static_cast<int64_t>(std::min<uint64_t>(*u, std::numeric_limits<int64_t>::max()));
  } else if (const auto* i = std::get_if<int64_t>(value)) {
    result = *i;
  } else {
    return invalid_argument("key '", key, "' is not a whole number");
  }
  if (result < min || result > max) return invalid_argument("key '", key, "' is ", result, ", outside of ", min, " to ", max);
  return result;
}

StatusOr<double> GgufMetadata::number(const std::string& key, double fallback) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return fallback;
  if (const auto* d = std::get_if<double>(value)) return *d;
  if (const auto* u = std::get_if<uint64_t>(value)) return static_cast<double>(*u);
  if (const auto* i = std::get_if<int64_t>(value)) return static_cast<double>(*i);
  return invalid_argument("key '", key, "' is not a number");
}

StatusOr<bool> GgufMetadata::boolean(const std::string& key, bool fallback) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return fallback;
  if (const auto* b = std::get_if<bool>(value)) return *b;
  return invalid_argument("key '", key, "' is not true or false");
}

StatusOr<std::string> GgufMetadata::text(const std::string& key, const std::string& fallback) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return fallback;
  if (const auto* s = std::get_if<std::string_view>(value)) return std::string(*s);
  return invalid_argument("key '", key, "' is not a string");
}

StatusOr<std::vector<std::string>> GgufMetadata::texts(const std::string& key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::vector<std::string>();
  const auto* array = std::get_if<GgufArray>(value);
  if (array == nullptr || (array->type != kString && array->count > 0)) return invalid_argument("key '", key, "' is not a list of strings");
  return std::vector<std::string>(array->strings.begin(), array->strings.end());
}

StatusOr<std::vector<double>> GgufMetadata::numbers(const std::string& key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::vector<double>();
  const auto* array = std::get_if<GgufArray>(value);
  if (array == nullptr || array->type == kString) return invalid_argument("key '", key, "' is not a list of numbers");
  std::vector<double> result;
  result.reserve(array->count);
  for (uint64_t i = 0; i < array->count; ++i) {
    const GgufValue element = decode_number(array->type, array->bytes.data() + i * number_bytes(array->type));
    std::visit([&](const auto& v) {
      if constexpr (std::is_arithmetic_v<std::decay_t<decltype(v)>>) result.push_back(static_cast<double>(v));
    }, element);
  }
  return result;
}

StatusOr<GgufContents> parse_gguf(std::span<const std::byte> file, const GgufJudge& judge) {
  Reader reader(file);
  uint32_t magic = 0, version = 0;
  uint64_t tensors = 0, pairs = 0;
  const bool whole = reader.read(magic).ok();
  if (whole && magic == 0) return invalid_argument("it begins with zeros; the file was not downloaded to its end, fetch it again");
  if (!whole || magic != 0x46554747) return invalid_argument("it does not begin with 'GGUF'; this is not a GGUF file");
  RETURN_IF_ERROR(reader.read(version));
  if (version != 2 && version != 3) return unimplemented("GGUF version ", version, " is not served; convert the file to version 3");
  RETURN_IF_ERROR(reader.read(tensors));
  RETURN_IF_ERROR(reader.read(pairs));
  GgufContents contents;
  RETURN_IF_ERROR(read_metadata(reader, pairs, contents.metadata));
  contents.metadata_end = reader.position();
  if (judge) RETURN_IF_ERROR(judge(contents.metadata));
  if (tensors > reader.left() / kTensorBytesMin + 1) return invalid_argument("the header claims ", tensors, " tensors, more than the file can hold");
  std::vector<TensorEntry> entries;
  absl::flat_hash_set<std::string> names;
  for (uint64_t i = 0; i < tensors; ++i) {
    ASSIGN_OR_RETURN(TensorEntry entry, read_tensor(reader));
    if (!names.insert(entry.tensor.name).second) return invalid_argument("tensor '", entry.tensor.name, "' is there twice");
    entries.push_back(std::move(entry));
  }
  ASSIGN_OR_RETURN(const int64_t alignment, contents.metadata.integer("general.alignment", 32, 1, kAlignmentMax));
  const uint64_t begin = std::min<uint64_t>(round_up(reader.position(), static_cast<uint64_t>(alignment)), file.size());
  RETURN_IF_ERROR(place_tensors(file.subspan(begin), static_cast<uint64_t>(alignment), entries));
  for (TensorEntry& entry : entries) contents.tensors.push_back(std::move(entry.tensor));
  return contents;
}

}  // namespace shoal
