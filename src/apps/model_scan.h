// What of a path can be served: HF folders and GGUF files, one level deep.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "gateway/catalog.h"
#include "host/node_plan.h"
#include "models/model.h"

namespace shoal {

struct FoundModel {
  std::string path;          // folder or GGUF file
  std::string format;        // "safetensors" or "gguf"
  ModelEntry entry;          // id is the index in ScanResult::models
  uint64_t disk_bytes = 0;
  PoolingSettings pooling;
  uint32_t context = 0;          // wanted by the settings; 0: as for all models
  std::optional<bool> preload;   // likewise
};

struct Unservable {
  std::string name;
  std::string path;
  std::string reason;
};

struct ScanResult {
  std::vector<FoundModel> models;      // by name
  std::vector<Unservable> unservable;  // looked like models
};

// `path`: a GGUF file, an HF folder, or a folder of such. Reads headers and configs only. NotFound if there is no such
// path; models that cannot be served are reported in the result, not as an error.
StatusOr<ScanResult> scan_models(const std::string& path, const LoadOptions& options, uint32_t max_model_len);

// NotFound with what a folder of models should hold, if none of these can be served.
Status check_any_model(const std::string& path, const ScanResult& scan);

// The folder or file that `model` means: a path, or a name of a model in `models_dir`. NotFound with the nearest name.
StatusOr<std::string> model_path(const std::string& model, const std::string& models_dir);

// MODEL of run, chat and the like: a path, or a name of a model in `models_dir`.
StatusOr<FoundModel> find_model(const std::string& model, const std::string& models_dir, const LoadOptions& options,
                                uint32_t max_model_len);

}  // namespace shoal
