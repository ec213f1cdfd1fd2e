#include "host/step_thread.h"

#include <optional>
#include <utility>

#include "device/thread_pool.h"

namespace shoal {

StepThread::StepThread(StepRunner& runner, std::vector<int> cpus, OnDone on_done)
    : runner_(runner), cpus_(std::move(cpus)), on_done_(std::move(on_done)), thread_([this] { work(); }) {}

StepThread::~StepThread() { stop(); }

void StepThread::start(Job job) {
  if (job.before_packing) load_waits_ = true;
  jobs_.push(std::move(job));
}

void StepThread::stop() {
  jobs_.close();
  if (thread_.joinable()) thread_.join();
  let_load_go_on();
}

void StepThread::let_load_go_on() {
  load_waits_ = false;
  load_waits_.notify_all();
}

void StepThread::work() {
  bind_this_thread(cpus_);
  while (true) {
    std::optional<Job> job = jobs_.pop(std::chrono::seconds(1));
    if (!job && jobs_.closed()) return;
    if (!job) continue;
    StepResult result = runner_.run(*job->model, job->vocab_size, job->step, job->constraints, job->partner);
    if (job->before_packing) let_load_go_on();
    on_done_(job->id, std::move(result));
  }
}

}  // namespace shoal
