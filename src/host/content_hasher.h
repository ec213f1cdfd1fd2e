// Reads all bytes of model files once, when nothing else is to be done, to learn which weights they are (base/model_digest.h).
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "formats/checkpoint.h"
#include "host/digest_store.h"

namespace shoal {

class ContentHasher {
 public:
  using OnKnown = std::function<void(const ModelDigest::Content&)>;

  // `busy`, and `on_known` below, are called on a thread of its own, of low priority. Without a store nothing is read.
  ContentHasher(std::shared_ptr<DigestStore> store, std::function<bool()> busy);
  ~ContentHasher();  // within milliseconds

  // Any thread.
  std::optional<ModelDigest::Content> find(const Checkpoint& checkpoint) const;  // known already
  void want(std::shared_ptr<const Checkpoint> checkpoint, OnKnown on_known);

 private:
  struct Job {
    std::shared_ptr<const Checkpoint> checkpoint;
    OnKnown on_known;
  };

  void work();
  bool may_go_on();
  void learn(const Job& job);

  const std::shared_ptr<DigestStore> store_;
  const std::function<bool()> busy_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;   // guarded by mutex_, as is stopping_
  bool stopping_ = false;
  std::thread thread_;     // last: it uses all of the above
};

// SHA-256 of the files, one after the other, each behind its size, and of those that say how to read them. `go_on` is asked before each
// piece: Cancelled if it says no. DataLoss if the files changed meanwhile.
StatusOr<ModelDigest::Content> content_of(const Checkpoint& checkpoint, const std::function<bool()>& go_on);

}  // namespace shoal
