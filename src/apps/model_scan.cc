#include "apps/model_scan.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>

#include "base/nearest.h"
#include "formats/checkpoint.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;

bool is_hf_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored) && fs::exists(path / "config.json", ignored);
}

bool is_gguf(const fs::path& path) {
  std::error_code ignored;
  return path.extension() == ".gguf" && fs::is_regular_file(path, ignored);
}

// "x-00002-of-00003.gguf" -> 2; 0 if it is not a shard.
uint32_t shard_number(const std::string& stem, std::string& base) {
  constexpr size_t kSuffix = 15;  // "-00002-of-00003"
  if (stem.size() <= kSuffix) return 0;
  const std::string suffix = stem.substr(stem.size() - kSuffix);
  if (suffix[0] != '-' || suffix.substr(6, 4) != "-of-") return 0;
  const auto digits = [&](size_t at) { return std::all_of(&suffix[at], &suffix[at] + 5, [](char c) { return c >= '0' && c <= '9'; }); };
  if (!digits(1) || !digits(10)) return 0;
  base = stem.substr(0, stem.size() - kSuffix);
  return static_cast<uint32_t>(std::stoul(suffix.substr(1, 5)));
}

std::string name_of(const fs::path& path) {
  if (!is_gguf(path)) {
    const fs::path clean = fs::absolute(path).lexically_normal();
    return clean.has_filename() ? clean.filename().string() : clean.parent_path().filename().string();
  }
  std::string name = path.stem().string();
  std::string base;
  return shard_number(name, base) > 0 ? base : name;
}

// The folder itself if it is a model, and what lies in it, by name.
std::vector<fs::path> candidates(const fs::path& root) {
  std::vector<fs::path> paths;
  std::error_code error;
  if (!fs::is_directory(root, error)) return {root};
  if (is_hf_folder(root)) paths.push_back(root);
  for (const auto& item : fs::directory_iterator(root, error)) {
    std::string base;
    if (is_hf_folder(item.path())) paths.push_back(item.path());
    if (is_gguf(item.path()) && shard_number(item.path().stem().string(), base) <= 1) paths.push_back(item.path());
  }
  std::sort(paths.begin(), paths.end(), [](const auto& a, const auto& b) { return name_of(a) < name_of(b); });
  return paths;
}

// "; did you mean 'models/tiny-llama'?": of folders and models beside the path and, for a bare name, of the models of `models_dir`.
std::string nearest_model(const fs::path& given, const fs::path& models_dir) {
  std::vector<std::string> names;
  const fs::path beside = given.parent_path();
  std::error_code ignored;
  for (const auto& item : fs::directory_iterator(beside.empty() ? "." : beside, ignored)) {
    if (item.is_directory(ignored) || is_gguf(item.path())) names.push_back((beside / item.path().filename()).string());
  }
  if (beside.empty() && !models_dir.empty()) {
    for (const fs::path& path : candidates(models_dir)) names.push_back(name_of(path));
  }
  return did_you_mean(given.string(), names);
}

int64_t modified_unix_seconds(const fs::path& path) {
  std::error_code error;
  const auto time = fs::last_write_time(path, error);
  if (error) return 0;
  const auto since = std::chrono::file_clock::to_sys(time).time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(since).count();
}

GenerationDefaults defaults_of(const GenerationConfig& config) {
  GenerationDefaults out;
  if (config.temperature) out.temperature = static_cast<float>(*config.temperature);
  if (config.top_p) out.top_p = static_cast<float>(*config.top_p);
  if (config.min_p) out.min_p = static_cast<float>(*config.min_p);
  if (config.repetition_penalty) out.repetition_penalty = static_cast<float>(*config.repetition_penalty);
  if (config.top_k) out.top_k = static_cast<uint32_t>(std::clamp<int64_t>(*config.top_k, 0, INT32_MAX));
  if (config.max_new_tokens && *config.max_new_tokens > 0) {
    out.max_new_tokens = static_cast<uint32_t>(std::min<int64_t>(*config.max_new_tokens, INT32_MAX));
  }
  return out;
}

std::optional<PooledEntry> pooled_entry(const ModelConfig& config) {
  if (!config.pooled) return std::nullopt;
  PooledEntry entry{.width = config.hidden_size, .labels = config.pooled->labels, .normalize = config.pooled->normalize};
  entry.pairs = config.architecture == Architecture::kRoberta ? PairForm::kTwoMarks : config.encoder ? PairForm::kOneMark : PairForm::kJoined;
  return entry;
}

StatusOr<FoundModel> describe(const fs::path& path, const LoadOptions& options, uint32_t max_model_len) {
  ASSIGN_OR_RETURN(const auto checkpoint, open_checkpoint(path.string()));
  if (!is_gguf(path) && !fs::exists(path / "tokenizer.json")) {
    return not_found(path.string(), ": has no tokenizer.json, so its text cannot be read");
  }
  ASSIGN_OR_RETURN(const auto plan, plan_model(checkpoint, options));
  FoundModel found;
  found.path = path.string();
  found.format = checkpoint->format;
  found.disk_bytes = checkpoint->weights.bytes();
  ModelEntry& entry = found.entry;
  entry.name = name_of(path);
  entry.path = found.path;
  entry.architecture = architecture_name(checkpoint->config.architecture);
  entry.trained_len = plan->context_length();
  entry.max_model_len = entry.trained_len;
  if (max_model_len > 0) entry.max_model_len = std::min(entry.max_model_len, max_model_len);
  entry.vocab_size = plan->vocab_size();
  entry.eos_ids = checkpoint->generation.eos;
  entry.defaults = defaults_of(checkpoint->generation);
  entry.parameter_count = plan->parameter_count();
  entry.weight_bytes = plan->weight_bytes();
  entry.created_unix_seconds = modified_unix_seconds(path);
  entry.pooled = pooled_entry(checkpoint->config);
  return found;
}

}  // namespace

StatusOr<ScanResult> scan_models(const std::string& path, const LoadOptions& options, uint32_t max_model_len) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return not_found(path, ": no such file or folder", nearest_model(path, ""));
  if (access(path.c_str(), R_OK) != 0) return unavailable(path, ": cannot be read: ", std::strerror(errno));
  ScanResult result;
  std::set<std::string> names;
  for (const fs::path& candidate : candidates(path)) {
    const std::string name = name_of(candidate);
    auto found = describe(candidate, options, max_model_len);
    if (found.ok() && !names.insert(name).second) {
      found = invalid_argument("another model of this folder has the same name; rename one of them");
    }
    if (!found.ok()) {
      result.unservable.push_back({name, candidate.string(), std::string(found.status().message())});
      continue;
    }
    found->entry.id = ModelId(static_cast<uint32_t>(result.models.size()));
    result.models.push_back(*std::move(found));
  }
  return result;
}

Status check_any_model(const std::string& path, const ScanResult& scan) {
  if (!scan.models.empty()) return OkStatus();
  return not_found(path, ": holds no model that can be served; expected HF folders (config.json, tokenizer.json, *.safetensors) or .gguf files",
                   scan.unservable.empty() ? "" : " (see above what is wrong with those that are there)");
}

StatusOr<std::string> model_path(const std::string& model, const std::string& models_dir) {
  std::error_code ignored;
  for (const fs::path& path : {fs::path(model), fs::path(models_dir) / model, fs::path(models_dir) / (model + ".gguf")}) {
    if (is_hf_folder(path) || is_gguf(path)) return path.string();
  }
  if (fs::exists(model, ignored)) return model;
  const char* where = fs::is_directory(models_dir, ignored) ? "" : ", which does not exist";
  return not_found(model, ": neither a model folder or GGUF file nor a model of ", models_dir, where,
                   *where == '\0' ? absl::StrCat("; `shoal list ", models_dir, "` shows those", nearest_model(model, models_dir)) : nearest_model(model, ""));
}

StatusOr<FoundModel> find_model(const std::string& model, const std::string& models_dir, const LoadOptions& options,
                                uint32_t max_model_len) {
  ASSIGN_OR_RETURN(const fs::path path, model_path(model, models_dir));
  if (is_hf_folder(path) || is_gguf(path)) return describe(path, options, max_model_len);
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return invalid_argument(model, ": is neither a model folder nor a .gguf file");
  return invalid_argument(model, ": is not a model (no config.json); name one of the models in it");
}

}  // namespace shoal
