#include "formats/gguf_file.h"

#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "formats/config_checks.h"
#include "formats/gguf_names.h"

namespace shoal {
namespace {

constexpr int64_t kPartsMax = 10'000;
constexpr size_t kTensorCountAt = 8;  // in a file

struct Part {
  std::shared_ptr<const MappedFile> file;
  GgufContents contents;
};

StatusOr<Part> open_part(const std::string& path, const GgufJudge& judge = nullptr) {
  Part part;
  ASSIGN_OR_RETURN(part.file, MappedFile::open(path));
  auto contents = parse_gguf(part.file->bytes(), judge);
  if (!contents.ok()) return annotate(contents.status(), path);
  part.contents = *std::move(contents);
  return part;
}

// The paths of all parts, from the path of the first: "<stem>-00001-of-00003.gguf".
StatusOr<std::vector<std::string>> part_paths(const std::string& path, const GgufMetadata& metadata) {
  ASSIGN_OR_RETURN(const int64_t count, metadata.integer("split.count", 1, 0, kPartsMax));
  ASSIGN_OR_RETURN(const int64_t number, metadata.integer("split.no", 0, 0, kPartsMax));
  if (count <= 1) return std::vector<std::string>{path};
  if (number != 0) return invalid_argument("is part ", number + 1, " of ", count, "; name the first part");
  const std::string ending = absl::StrFormat("-00001-of-%05d.gguf", count);
  if (path.size() < ending.size() || path.compare(path.size() - ending.size(), ending.size(), ending) != 0) {
    return invalid_argument("is the first of ", count, " parts, but its name does not end in '", ending, "'");
  }
  std::vector<std::string> paths;
  for (int64_t i = 1; i <= count; ++i) {
    paths.push_back(absl::StrFormat("%s-%05d-of-%05d.gguf", path.substr(0, path.size() - ending.size()), i, count));
  }
  return paths;
}

// N of "blk.N.<rest>".
std::optional<uint32_t> layer_with(absl::string_view name, absl::string_view rest) {
  uint32_t layer = 0;
  if (!absl::ConsumePrefix(&name, "blk.") || !absl::ConsumeSuffix(&name, rest) || !absl::ConsumeSuffix(&name, ".")) return std::nullopt;
  return absl::SimpleAtoi(name, &layer) ? std::optional(layer) : std::nullopt;
}

// The tensors that decide about the config.
GgufTensorNames tensor_names(const std::vector<Part>& parts) {
  GgufTensorNames names;
  for (const Part& part : parts) {
    for (const NamedTensor& tensor : part.contents.tensors) {
      names.output |= tensor.name == "output.weight";
      names.rope_freqs |= tensor.name == "rope_freqs.weight";
      names.rope_factors |= tensor.name == "rope_factors_long.weight";
      names.qkv_bias |= tensor.name == "blk.0.attn_q.bias";
      names.output_bias |= tensor.name == "blk.0.attn_output.bias";
      names.mlp_bias |= tensor.name == "blk.0.ffn_down.bias";
      const bool table = tensor.view.shape.rank() == 2 && tensor.view.shape[0] <= kContextMax;
      if (tensor.name == "position_embd.weight" && table) names.position_rows = static_cast<uint32_t>(tensor.view.shape[0]);
      if (tensor.name == "token_types.weight") names.type_rows = table ? static_cast<uint32_t>(tensor.view.shape[0]) : 1;
      if (const std::optional<uint32_t> layer = layer_with(tensor.name, "ffn_gate_inp.weight")) names.routers.insert(*layer);
      if (tensor.name == "token_embd.weight" && tensor.view.shape.rank() == 2) names.vocab_rows = tensor.view.shape[0];
    }
  }
  return names;
}

StatusOr<std::vector<float>> read_floats(const WeightMap& weights, const std::string& name, uint32_t count) {
  const TensorView* view = weights.find(name);
  if (view == nullptr || view->dtype != DType::kF32 || view->shape != Shape{count}) {
    return invalid_argument("tensor '", name, "' is not a list of ", count, " F32 numbers");
  }
  std::vector<float> values(count);
  std::memcpy(values.data(), view->data, view->bytes);
  return values;
}

Status fill_factors(Checkpoint& checkpoint) {
  RopeConfig& rope = checkpoint.config.rope;
  if (rope.scaling == RopeScaling::kLongRope) {
    ASSIGN_OR_RETURN(rope.long_factor, read_floats(checkpoint.weights, "rope_factors_long.weight", rope.dims / 2));
    ASSIGN_OR_RETURN(rope.short_factor, read_floats(checkpoint.weights, "rope_factors_short.weight", rope.dims / 2));
  }
  return check_config(checkpoint.config);
}

Status build(const std::string& path, std::vector<Part> parts, Checkpoint& checkpoint) {
  const GgufMetadata& metadata = parts.front().contents.metadata;
  ASSIGN_OR_RETURN(checkpoint.config, parse_gguf_config(metadata, tensor_names(parts)));
  ASSIGN_OR_RETURN(GgufTokenizer tokenizer, read_gguf_tokenizer(metadata));
  checkpoint.generation = gguf_generation(tokenizer);
  checkpoint.tokenizer = std::make_shared<const GgufTokenizer>(std::move(tokenizer));
  for (Part& part : parts) {
    for (const NamedTensor& tensor : part.contents.tensors) {
      const bool added = checkpoint.weights.add(hf_tensor_name(checkpoint.config.architecture, tensor.name), tensor.view);
      if (!added) return invalid_argument("tensor '", tensor.name, "' is there twice");
    }
    checkpoint.files.push_back(std::move(part.file));
  }
  return fill_factors(checkpoint);
}

}  // namespace

StatusOr<std::shared_ptr<const Checkpoint>> open_gguf(const std::string& path) {
  std::vector<Part> parts;
  std::vector<std::string> paths;
  const auto judge = [&](const GgufMetadata& metadata) -> Status {
    ASSIGN_OR_RETURN(paths, part_paths(path, metadata));
    return gguf_architecture(metadata).status();
  };
  ASSIGN_OR_RETURN(parts.emplace_back(), open_part(path, judge));
  for (size_t i = 1; i < paths.size(); ++i) {
    ASSIGN_OR_RETURN(parts.emplace_back(), open_part(paths[i]));
  }
  auto checkpoint = std::make_shared<Checkpoint>();
  checkpoint->path = path;
  checkpoint->format = "gguf";
  const Status built = build(path, std::move(parts), *checkpoint);
  if (!built.ok()) return annotate(built, path);
  return checkpoint;
}

StatusOr<GgufTokenizer> open_gguf_tokenizer(const std::string& path) {
  ASSIGN_OR_RETURN(const Part part, open_part(path));
  auto tokenizer = read_gguf_tokenizer(part.contents.metadata);
  if (!tokenizer.ok()) return annotate(tokenizer.status(), path);
  return tokenizer;
}

StatusOr<std::string> gguf_without_tensors(const std::string& path) {
  ASSIGN_OR_RETURN(const Part part, open_part(path));
  std::string bytes(reinterpret_cast<const char*>(part.file->bytes().data()), part.contents.metadata_end);
  std::memset(bytes.data() + kTensorCountAt, 0, sizeof(uint64_t));
  return bytes;
}

}  // namespace shoal
