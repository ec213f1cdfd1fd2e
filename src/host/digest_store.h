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

  // Of the files of this checkpoint, if they were read before as they are now.
  std::optional<ModelDigest::Content> find(const Checkpoint& checkpoint) const;
  // Also writes the file anew, through a second one. Unavailable says why it cannot, and what to do; found it is all the same.
  Status put(const Checkpoint& checkpoint, const ModelDigest::Content& content);

 private:
  const std::string path_;
  mutable std::mutex mutex_;
  std::map<std::string, std::string> models_;  // SHA-256 in hex, by the identities of the files; guarded by mutex_
};

}  // namespace shoal
