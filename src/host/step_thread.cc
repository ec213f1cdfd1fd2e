#include "host/step_thread.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "device/thread_pool.h"

namespace shoal {

StepThread::StepThread(std::vector<StepRunner*> runners, Options options, OnDone on_done)
    : options_(std::move(options)), on_done_(std::move(on_done)), free_(std::move(runners)), thread_([this] { work(); }) {}

StepThread::~StepThread() { stop(); }

void StepThread::start(Job job) {
  if (job.before_packing) load_waits_ = true;
  jobs_.push(std::move(job));
  if (options_.bell != nullptr) options_.bell->ring();
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
  bind_this_thread(options_.cpus);
  while (true) {
    take_jobs();
    if (!steps_.empty()) compute();
    else if (jobs_.closed()) return;
  }
}

// Waits for one if there is nothing else to do.
void StepThread::take_jobs() {
  while (std::optional<Job> job = jobs_.pop(steps_.empty() ? std::chrono::seconds(1) : Duration(0))) {
    CHECK(!free_.empty());
    Step& step = *steps_.emplace_back(std::make_unique<Step>(Step{std::move(*job), free_.back(), steady_now()}));
    free_.pop_back();
    step.runner->begin({step.job.model, step.job.vocab_size, &step.job.step, step.job.constraints, step.job.partner});
    step.computed = steady_now() - step.begun;
    for (const auto& other : steps_) other->alone &= steps_.size() == 1;
  }
}

// Of the first that can.
void StepThread::compute() {
  for (size_t at = 0; at < steps_.size(); ++at) {
    if (go_on(at)) return;
  }
  rest();
}

// False: it waits.
bool StepThread::go_on(size_t at) {
  Step& step = *steps_[at];
  if (!step.runner->ready()) return false;
  const auto before_it = [&] { return std::any_of(steps_.begin(), steps_.begin() + static_cast<ptrdiff_t>(at), [](const auto& other) { return other->runner->ready(); }); };
  const TimePoint begun = steady_now();
  const StepRunner::Progress progress = step.runner->go_on(at == 0 ? Pass::Pause() : before_it);
  step.computed += steady_now() - begun;
  if (progress == StepRunner::Progress::kDone) end(at);
  return true;
}

// Until something comes for one of those that wait, or another step.
void StepThread::rest() {
  Duration most = std::chrono::milliseconds(5);
  const TimePoint begun = steady_now();
  for (const auto& step : steps_) most = std::min(most, step->job.partner->doze());
  if (most > Duration(0)) options_.bell->wait(most);
  for (const auto& step : steps_) step->job.partner->woken();
  steps_.front()->idle += steady_now() - begun;
}

void StepThread::end(size_t at) {
  const std::unique_ptr<Step> step = std::move(steps_[at]);
  steps_.erase(steps_.begin() + static_cast<ptrdiff_t>(at));
  const TimePoint begun = steady_now();
  StepResult result = step->runner->end(step->alone);
  const TimePoint ended = steady_now();
  step->computed += ended - begun;
  result.experts.waited_us = static_cast<uint64_t>(to_seconds(step->idle) * 1e6);
  if (!step->alone || step->job.partner != nullptr) result.away = std::max(ended - step->begun - step->computed, Duration(0));
  free_.push_back(step->runner);
  if (step->job.before_packing) let_load_go_on();
  on_done_(step->job.id, std::move(result));
}

}  // namespace shoal
