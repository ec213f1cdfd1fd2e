// A UCX worker as a thread that blocks uses it: progress, and sleep where there is none.
#pragma once

#include <ucp/api/ucp.h>

#include <atomic>
#include <functional>
#include <memory>

#include "base/status.h"
#include "base/time.h"

namespace shoal {

// UCX of this process. Its own settings are UCX's environment (UCX_TLS, UCX_NET_DEVICES ...).
class UcxContext {
 public:
  static StatusOr<std::shared_ptr<UcxContext>> make();  // Unavailable
  ~UcxContext() { ucp_cleanup(context_); }
  UcxContext(const UcxContext&) = delete;
  UcxContext& operator=(const UcxContext&) = delete;
  ucp_context_h get() const { return context_; }

 private:
  explicit UcxContext(ucp_context_h context) : context_(context) {}
  const ucp_context_h context_;
};

// One thread at a time, but for end().
class UcxWorker {
 public:
  static StatusOr<std::unique_ptr<UcxWorker>> make(std::shared_ptr<UcxContext> context);  // Unavailable
  ~UcxWorker();
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;
  ucp_worker_h get() const { return worker_; }

  // Until `done` holds. Unavailable: it was ended, or nothing moved for `most` (0: however long).
  Status until(const std::function<bool()>& done, Duration most);
  // What is under way ends, good or bad, even if the worker was ended, within `most` at best. Frees it. Null: nothing to wait for.
  void settle(ucs_status_ptr_t request, Duration most);
  void drain();  // what follows from an end point that was closed
  void end();    // any thread
  bool ended() const { return ended_; }

 private:
  UcxWorker(std::shared_ptr<UcxContext> context, ucp_worker_h worker, int events, int wake)
      : context_(std::move(context)), worker_(worker), events_(events), wake_(wake) {}
  Status sleep(Duration most);

  const std::shared_ptr<UcxContext> context_;
  const ucp_worker_h worker_;
  const int events_, wake_;  // descriptors; UCX's is its own
  std::atomic<bool> ended_{false};
};

}  // namespace shoal
