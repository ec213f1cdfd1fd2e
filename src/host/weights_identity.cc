#include "host/weights_identity.h"

#include <algorithm>

#include "base/rng.h"
#include "host/sha256.h"

namespace shoal {
namespace {

constexpr uint64_t kForm = 1;        // of what follows; rises when its meaning changes
constexpr uint64_t kPortable = 1;    // the arithmetic: the bits of kernels.h

}  // namespace

uint64_t weights_identity(std::span<const FileIdentity> files, const LoadOptions& options) {
  uint64_t identity = mix64(kForm);
  const auto add = [&](uint64_t value) { identity = mix64(identity ^ mix64(value)); };
  add(kPortable);
  add(static_cast<uint64_t>(options.quantization));
  add(static_cast<uint64_t>(options.kv_type));
  add(files.size());
  for (const FileIdentity& file : files) {
    for (const uint64_t part : file) add(part);
  }
  return std::max<uint64_t>(identity, 1);
}

ModelDigest::Content weights_content(const ModelDigest::Content& files, const LoadOptions& options) {
  Sha256 hash;
  for (const uint64_t part : {kForm, kPortable, static_cast<uint64_t>(options.quantization), static_cast<uint64_t>(options.kv_type)}) hash.add_number(part);
  hash.add(files.data(), files.size());
  return hash.result();
}

}  // namespace shoal
