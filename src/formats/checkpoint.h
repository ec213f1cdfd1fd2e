// A model on disk, opened: its config, its weights as views into mapped files, and how to talk to it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/status.h"
#include "formats/mapped_file.h"
#include "formats/model_config.h"
#include "formats/safetensors.h"
#include "tensor/tensor.h"

namespace shoal {

// Tensors by the names that Hugging Face checkpoints use ("model.layers.0.self_attn.q_proj.weight"); GGUF names are
// translated when a file is opened, so that architectures know one naming.
class WeightMap {
 public:
  // Whether it was added: a name is taken once.
  bool add(std::string name, const TensorView& view);
  // Null if there is no such tensor. The pointer is valid as long as the map is not added to.
  const TensorView* find(const std::string& name) const;
  size_t size() const { return tensors_.size(); }
  uint64_t bytes() const { return bytes_; }
  const absl::flat_hash_map<std::string, TensorView>& all() const { return tensors_; }

 private:
  absl::flat_hash_map<std::string, TensorView> tensors_;
  uint64_t bytes_ = 0;
};

struct GgufTokenizer;  // gguf_config.h

struct Checkpoint {
  std::string path;    // as given
  std::string outer = "model.";  // what stands before "layers." in a folder's names of tensors
  std::string format;  // "safetensors" or "gguf"
  ModelConfig config;
  GenerationConfig generation;
  WeightMap weights;
  std::shared_ptr<const GgufTokenizer> tokenizer;        // of a GGUF file; an HF folder has its own files
  std::vector<std::shared_ptr<const MappedFile>> files;  // what the views point into

  std::vector<std::pair<std::string, FileIdentity>> described_by;  // files that say how to read them, as they were; zeros: none

  // What the file calls a tensor of `weights`.
  std::string name_in_file(const std::string& name) const;

  // Whether opening the path again would give the same.
  bool current() const;

  // DataLoss if what was read through the views is not to be believed: see MappedFile::check().
  Status check() const;
};

// Opens an HF folder (config.json and *.safetensors, sharded or not) or a .gguf file. Reads headers only. Every error
// names the file, the field and the cause.
StatusOr<std::shared_ptr<const Checkpoint>> open_checkpoint(const std::string& path);

}  // namespace shoal
