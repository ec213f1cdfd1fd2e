#include "formats/checkpoint.h"

#include <sys/stat.h>

#include <algorithm>
#include <set>

#include "base/json.h"
#include "formats/gguf_file.h"
#include "formats/gguf_names.h"
#include "formats/hf_config.h"
#include "formats/hf_encoders.h"
#include "formats/hf_names.h"
#include "formats/python_json.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr size_t kConfigBytesMax = 16u << 20;
constexpr size_t kIndexBytesMax = 256u << 20;
constexpr size_t kShardsMax = 10'000;

bool exists(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0;
}

StatusOr<Json> read_json(const std::string& path, size_t bytes_max) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path, bytes_max));
  auto json = parse_python_json(text, {.bytes_max = bytes_max});
  if (!json.ok()) return annotate(json.status(), path);
  return json;
}

// The shards named by model.safetensors.index.json, each once. A name may not leave the folder.
StatusOr<std::vector<std::string>> indexed_shards(const std::string& path) {
  ASSIGN_OR_RETURN(const Json index, read_json(path, kIndexBytesMax));
  const auto map = index.is_object() ? index.find("weight_map") : index.end();
  if (!index.is_object() || map == index.end() || !map->is_object()) {
    return invalid_argument(path, ": has no 'weight_map'; fetch it again");
  }
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : map->items()) {
    if (!shard.is_string()) return invalid_argument(path, ": 'weight_map' gives no file for tensor '", tensor, "'");
    const std::string& name = shard.get_ref<const std::string&>();
    if (name.empty() || name.find('/') != std::string::npos || name.find('\0') != std::string::npos) {
      return invalid_argument(path, ": shard '", name, "' of tensor '", tensor, "' is not a file of the folder");
    }
    shards.insert(name);
    if (shards.size() > kShardsMax) return invalid_argument(path, ": names more than ", kShardsMax, " shards");
  }
  return std::vector<std::string>(shards.begin(), shards.end());
}

Status add_safetensors(const std::string& path, Checkpoint& checkpoint) {
  ASSIGN_OR_RETURN(std::shared_ptr<const MappedFile> file, MappedFile::open(path));
  auto tensors = parse_safetensors(file->bytes());
  if (!tensors.ok()) return annotate(tensors.status(), path);
  for (NamedTensor& tensor : *tensors) {
    std::optional<std::string> name = model_tensor_name(checkpoint.config.architecture, tensor.name);
    if (!name) continue;
    if (name->starts_with("model.layers.")) checkpoint.outer = tensor.name.substr(0, tensor.name.find("layers."));
    if (!checkpoint.weights.add(*std::move(name), tensor.view)) return invalid_argument(path, ": tensor '", tensor.name, "' is there twice");
  }
  checkpoint.files.push_back(std::move(file));
  return OkStatus();
}

Status add_weights(const std::string& folder, Checkpoint& checkpoint) {
  const std::string single = folder + "/model.safetensors", index = single + ".index.json";
  if (exists(index)) {
    ASSIGN_OR_RETURN(const std::vector<std::string> shards, indexed_shards(index));
    for (const std::string& shard : shards) RETURN_IF_ERROR(add_safetensors(folder + "/" + shard, checkpoint));
    return OkStatus();
  }
  if (exists(single)) return add_safetensors(single, checkpoint);
  return not_found(folder, ": holds neither model.safetensors nor model.safetensors.index.json; fetch the weights in "
                   "safetensors form");
}

StatusOr<std::shared_ptr<const Checkpoint>> open_hf(const std::string& folder) {
  auto checkpoint = std::make_shared<Checkpoint>();
  checkpoint->path = folder;
  checkpoint->format = "safetensors";
  for (const char* name : {"/config.json", "/generation_config.json", "/model.safetensors.index.json", "/modules.json", "/sentence_bert_config.json"}) {
    checkpoint->described_by.emplace_back(folder + name, file_identity(folder + name));
  }
  const std::string config_path = folder + "/config.json";
  ASSIGN_OR_RETURN(const Json config, read_json(config_path, kConfigBytesMax));
  auto parsed = is_hf_encoder(config) ? parse_hf_encoder(config) : parse_hf_config(without_score_head(config));
  if (!parsed.ok()) return annotate(parsed.status(), config_path);
  checkpoint->config = *std::move(parsed);
  RETURN_IF_ERROR(read_pooling_files(folder, config, checkpoint->config));
  const std::string generation_path = folder + "/generation_config.json";
  Json generation;
  if (exists(generation_path)) {
    ASSIGN_OR_RETURN(generation, read_json(generation_path, kConfigBytesMax));
  }
  auto generation_config = parse_generation_config(config, generation);
  if (!generation_config.ok()) return annotate(generation_config.status(), generation_path);
  checkpoint->generation = *std::move(generation_config);
  RETURN_IF_ERROR(add_weights(folder, *checkpoint));
  return checkpoint;
}

}  // namespace

std::string Checkpoint::name_in_file(const std::string& name) const {
  return format == "gguf" ? gguf_tensor_name(config.architecture, name) : folder_tensor_name(config.architecture, name, outer);
}

bool WeightMap::add(std::string name, const TensorView& view) {
  const bool added = tensors_.emplace(std::move(name), view).second;
  if (added) bytes_ += view.bytes;
  return added;
}

const TensorView* WeightMap::find(const std::string& name) const {
  const auto at = tensors_.find(name);
  return at == tensors_.end() ? nullptr : &at->second;
}

bool Checkpoint::current() const {
  const auto same_file = [](const auto& file) { return !file->lost() && file_identity(file->path()) == file->identity(); };
  const auto same_description = [](const auto& file) { return file_identity(file.first) == file.second; };
  return std::all_of(files.begin(), files.end(), same_file) && std::all_of(described_by.begin(), described_by.end(), same_description);
}

Status Checkpoint::check() const {
  for (const auto& file : files) RETURN_IF_ERROR(file->check());
  return OkStatus();
}

StatusOr<std::shared_ptr<const Checkpoint>> open_checkpoint(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return not_found(path, ": no such file or folder; check the path");
  const bool gguf = path.size() > 5 && path.compare(path.size() - 5, 5, ".gguf") == 0;
  if (!S_ISDIR(info.st_mode) && !gguf) return invalid_argument(path, ": is neither a model folder nor a .gguf file");
  ASSIGN_OR_RETURN(auto checkpoint, S_ISDIR(info.st_mode) ? open_hf(path) : open_gguf(path));
  RETURN_IF_ERROR(checkpoint->check());
  return checkpoint;
}

}  // namespace shoal
