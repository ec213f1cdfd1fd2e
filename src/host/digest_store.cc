#include "host/digest_store.h"

#include <algorithm>
#include <filesystem>
#include <tuple>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/json.h"
#include "base/log.h"
#include "host/state_file.h"
#include "host/weights_identity.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr int kVersion = 1;

bool is_digest(const std::string& hex) {
  return hex.size() == 2 * sizeof(ModelDigest::Content) && hex.find_first_not_of("0123456789abcdef") == std::string::npos;
}

using Digests = std::map<std::string, std::string>;

StatusOr<Digests> digests_in(const Json& object) {
  if (!object.is_object()) return invalid_argument("is not a file of digests of version ", kVersion);
  Digests out;
  for (const auto& [key, value] : object.items()) {
    if (!value.is_string() || !is_digest(value.get<std::string>())) return invalid_argument(key, ": is no SHA-256");
    if (out.size() < DigestStore::kModelsMax) out.emplace(key, value.get<std::string>());
  }
  return out;
}

StatusOr<std::pair<Digests, Digests>> parse(const std::string& text) {
  ASSIGN_OR_RETURN(const Json root, parse_json(text));
  if (!root.is_object() || root.value("version", Json()) != Json(kVersion)) return invalid_argument("is not a file of digests of version ", kVersion);
  std::pair<Digests, Digests> out;
  ASSIGN_OR_RETURN(out.first, digests_in(root.value("models", Json())));
  ASSIGN_OR_RETURN(out.second, digests_in(root.value("sketches", Json::object())));
  return out;
}

ModelDigest::Content content_from(const std::string& hex) {
  const std::string bytes = absl::HexStringToBytes(hex);
  ModelDigest::Content content{};
  std::copy(bytes.begin(), bytes.end(), content.begin());
  return content;
}

std::string hex_of(const ModelDigest::Content& content) {
  return absl::BytesToHexString({reinterpret_cast<const char*>(content.data()), content.size()});
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
  auto known = text.ok() ? parse(*text) : StatusOr<std::pair<Digests, Digests>>(text.status());
  if (known.ok()) {
    std::tie(models_, sketches_) = *std::move(known);
  } else {
    log_warning(path_, ": the digests of earlier runs are left out: ", known.status().message());
  }
}

DigestStore::~DigestStore() {
  if (const Status saved = unsaved_ ? save() : OkStatus(); !saved.ok()) log_warning(saved.message());
}

std::optional<ModelDigest::Content> DigestStore::find(const Checkpoint& checkpoint) const {
  std::lock_guard lock(mutex_);
  const auto found = models_.find(key_of(checkpoint));
  if (found == models_.end()) return std::nullopt;
  return content_from(found->second);
}

StatusOr<ModelDigest::Content> DigestStore::sketch(const Checkpoint& checkpoint) {
  const std::string key = key_of(checkpoint);
  {
    std::lock_guard lock(mutex_);
    if (const auto found = sketches_.find(key); found != sketches_.end()) return content_from(found->second);
  }
  ASSIGN_OR_RETURN(const ModelDigest::Content sketch, sketch_of(checkpoint));
  std::lock_guard lock(mutex_);
  if (sketches_.size() >= kModelsMax) sketches_.clear();  // files that were replaced long ago, most of them
  sketches_[key] = hex_of(sketch);
  unsaved_ = true;
  return sketch;
}

Status DigestStore::put(const Checkpoint& checkpoint, const ModelDigest::Content& content) {
  std::lock_guard lock(mutex_);
  if (models_.size() >= kModelsMax) models_.clear();  // files that were replaced long ago, most of them
  models_[key_of(checkpoint)] = hex_of(content);
  return save();
}

Status DigestStore::save() {
  unsaved_ = false;
  if (path_.empty()) return OkStatus();
  Json models = Json::object(), sketches = Json::object();
  for (const auto& [key, hex] : models_) models[key] = hex;
  for (const auto& [key, hex] : sketches_) sketches[key] = hex;
  const Status written = replace_file(path_, dump_json({{"version", kVersion}, {"models", std::move(models)}, {"sketches", std::move(sketches)}}, 1) + "\n");
  if (written.ok()) return written;
  return unavailable(path_, ": the digests of model files cannot be kept for the next run: ", written.message(),
                     "; make the folder writable, or name another file with --digests (none: keep none)");
}

}  // namespace shoal
