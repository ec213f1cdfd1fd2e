#include "transport_ucx/ucx_worker.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

namespace shoal {
namespace {

constexpr int kIdleRounds = 100;  // without progress, before it sleeps: an answer is often there at once

}  // namespace

StatusOr<std::shared_ptr<UcxContext>> UcxContext::make() {
  ucp_config_t* config = nullptr;
  if (const ucs_status_t status = ucp_config_read(nullptr, nullptr, &config); status != UCS_OK) return unavailable("UCX: its settings (UCX_...): ", ucs_status_string(status));
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.mt_workers_shared = 1;
  ucp_context_h context = nullptr;
  const ucs_status_t status = ucp_init(&params, config, &context);
  ucp_config_release(config);
  if (status != UCS_OK) return unavailable("UCX: ", ucs_status_string(status));
  return std::shared_ptr<UcxContext>(new UcxContext(context));
}

StatusOr<std::unique_ptr<UcxWorker>> UcxWorker::make(std::shared_ptr<UcxContext> context) {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  ucp_worker_h worker = nullptr;
  if (const ucs_status_t status = ucp_worker_create(context->get(), &params, &worker); status != UCS_OK) return unavailable("UCX: a worker: ", ucs_status_string(status));
  int events = -1;
  const ucs_status_t status = ucp_worker_get_efd(worker, &events);
  const int wake = ::eventfd(0, EFD_CLOEXEC);
  if (status == UCS_OK && wake >= 0) return std::unique_ptr<UcxWorker>(new UcxWorker(std::move(context), worker, events, wake));
  if (wake >= 0) ::close(wake);
  ucp_worker_destroy(worker);
  return unavailable("UCX: events of a worker: ", ucs_status_string(status));
}

UcxWorker::~UcxWorker() {
  ucp_worker_destroy(worker_);
  ::close(wake_);
}

Status UcxWorker::until(const std::function<bool()>& done, Duration most) {
  TimePoint moved = steady_now();
  for (int idle = 0; !done();) {
    if (ended_) return unavailable("it was shut down");
    if (ucp_worker_progress(worker_) != 0) {
      idle = 0;
      moved = steady_now();
      continue;
    }
    if (++idle < kIdleRounds) continue;
    const Duration left = most > Duration(0) ? moved + most - steady_now() : Duration(0);
    if (most > Duration(0) && left <= Duration(0)) return unavailable("nothing moved for ", to_seconds(most), " s");
    RETURN_IF_ERROR(sleep(left));
  }
  return OkStatus();
}

Status UcxWorker::sleep(Duration most) {
  const ucs_status_t armed = ucp_worker_arm(worker_);
  if (armed == UCS_ERR_BUSY) return OkStatus();  // something came meanwhile
  if (armed != UCS_OK) return unavailable("UCX: ", ucs_status_string(armed));
  pollfd wait[2] = {{.fd = events_, .events = POLLIN, .revents = 0}, {.fd = wake_, .events = POLLIN, .revents = 0}};
  const auto ms = most > Duration(0) ? std::chrono::ceil<std::chrono::milliseconds>(most).count() : -1;
  ::poll(wait, 2, static_cast<int>(ms));
  return OkStatus();
}

void UcxWorker::settle(ucs_status_ptr_t request, Duration most) {
  if (!UCS_PTR_IS_PTR(request)) return;
  const TimePoint end = steady_now() + most;
  while (ucp_request_check_status(request) == UCS_INPROGRESS && steady_now() < end) {
    if (ucp_worker_progress(worker_) == 0) ::poll(nullptr, 0, 1);
  }
  ucp_request_free(request);
}

void UcxWorker::drain() {
  for (int i = 0; i < kIdleRounds; ++i) ucp_worker_progress(worker_);
}

void UcxWorker::end() {
  ended_ = true;
  const uint64_t one = 1;
  if (::write(wake_, &one, sizeof(one)) < 0) log_debug("a stream could not be woken");
}

}  // namespace shoal
