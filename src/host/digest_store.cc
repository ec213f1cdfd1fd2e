#include "host/digest_store.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/json.h"
#include "base/log.h"
#include "host/state_file.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr int kVersion = 1;

bool is_digest(const std::string& hex) {
  return hex.size() == 2 * sizeof(ModelDigest::Content) && hex.find_first_not_of("0123456789abcdef") == std::string::npos;
}

StatusOr<std::map<std::string, std::string>> parse(const std::string& text) {
  ASSIGN_OR_RETURN(const Json root, parse_json(text));
  if (!root.is_object() || root.value("version", Json()) != Json(kVersion) || !root.contains("models") || !root["models"].is_object()) {
    return invalid_argument("is not a file of digests of version ", kVersion);
  }
  std::map<std::string, std::string> out;
  for (const auto& [key, value] : root["models"].items()) {
    if (!value.is_string() || !is_digest(value.get<std::string>())) return invalid_argument(key, ": is no SHA-256");
    if (out.size() < DigestStore::kModelsMax) out.emplace(key, value.get<std::string>());
  }
  return out;
}

std::string key_of(const Checkpoint& checkpoint) {
  std::vector<std::string> parts;
  for (const auto& file : checkpoint.files) parts.push_back(absl::StrJoin(file->identity(), "."));
  for (const auto& [path, identity] : checkpoint.described_by) parts.push_back(absl::StrJoin(identity, "."));
  return absl::StrJoin(parts, " ");
}

}  // namespace

DigestStore::DigestStore(std::string path) : path_(std::move(path)) {
  std::error_code ignored;
  if (path_.empty() || !std::filesystem::exists(path_, ignored)) return;
  const auto text = read_file(path_, kFileBytesMax);
  auto models = text.ok() ? parse(*text) : StatusOr<std::map<std::string, std::string>>(text.status());
  if (models.ok()) {
    models_ = *std::move(models);
  } else {
    log_warning(path_, ": the digests of earlier runs are left out: ", models.status().message());
  }
}

std::optional<ModelDigest::Content> DigestStore::find(const Checkpoint& checkpoint) const {
  std::lock_guard lock(mutex_);
  const auto found = models_.find(key_of(checkpoint));
  if (found == models_.end()) return std::nullopt;
  const std::string bytes = absl::HexStringToBytes(found->second);
  ModelDigest::Content content{};
  std::copy(bytes.begin(), bytes.end(), content.begin());
  return content;
}

Status DigestStore::put(const Checkpoint& checkpoint, const ModelDigest::Content& content) {
  std::lock_guard lock(mutex_);
  if (models_.size() >= kModelsMax) models_.clear();  // files that were replaced long ago, most of them
  models_[key_of(checkpoint)] = absl::BytesToHexString({reinterpret_cast<const char*>(content.data()), content.size()});
  if (path_.empty()) return OkStatus();
  Json models = Json::object();
  for (const auto& [key, hex] : models_) models[key] = hex;
  const Status written = replace_file(path_, dump_json({{"version", kVersion}, {"models", std::move(models)}}, 1) + "\n");
  if (written.ok()) return written;
  return unavailable(path_, ": the digests of model files cannot be kept for the next run: ", written.message(),
                     "; make the folder writable, or name another file with --digests (none: keep none)");
}

}  // namespace shoal
