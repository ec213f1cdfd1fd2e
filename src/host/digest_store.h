// What model files hold, by SHA-256, kept between runs beside what the files were when they were read: a start need not read them again.
// A JSON file; losing it costs reading the files once more, when nothing else is to be done.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "base/model_digest.h"
#include "base/status.h"
#include "formats/checkpoint.h"

namespace shoal {

// Any thread.
class DigestStore {
 public:
  static constexpr size_t kFileBytesMax = 4u << 20;
  static constexpr size_t kModelsMax = 8192;

  // Reads the file. One that is damaged is left out, with a line in the log; one that is not there yet is no fault. "": what was read
  // by this process only.
  explicit DigestStore(std::string path);
  ~DigestStore();

  // Of the files of this checkpoint, if they were read before as they are now.
  std::optional<ModelDigest::Content> find(const Checkpoint& checkpoint) const;
  // Their sketch (host/weights_identity.h), looked at if it is not known. Kept with the next put(), or at the end.
  StatusOr<ModelDigest::Content> sketch(const Checkpoint& checkpoint);
  // Also writes the file anew, through a second one. Unavailable says why it cannot, and what to do; found it is all the same.
  Status put(const Checkpoint& checkpoint, const ModelDigest::Content& content);

 private:
  using Digests = std::map<std::string, std::string>;  // SHA-256 in hex, by the identities of the files

  Status save();  // REQUIRES: mutex_ held

  const std::string path_;
  mutable std::mutex mutex_;
  Digests models_, sketches_;  // guarded by mutex_, as is what follows
  bool unsaved_ = false;
};

}  // namespace shoal
