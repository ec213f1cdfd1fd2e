// The thread that computes a node's steps; it drives the device's pool. Of several that are in flight it goes on with the first that can:
// the one that began first, and while that waits for experts, the next one, layer by layer.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/bell.h"
#include "base/ids.h"
#include "base/queue.h"
#include "base/time.h"
#include "models/model.h"
#include "runner/step_runner.h"
#include "runner/token_constraints.h"

namespace shoal {

class StepThread {
 public:
  struct Job {
    ModelId id;
    Model* model;
    uint32_t vocab_size;
    TokenConstraints* constraints;
    ResolvedStep step;
    bool before_packing = false;  // the load waits for this step
    ExchangePartner* partner = nullptr;  // of a model whose experts are elsewhere; outlives the thread
  };
  // Runs on the thread.
  using OnDone = std::function<void(ModelId id, StepResult result)>;
  struct Options {
    std::vector<int> cpus;       // to run on; empty: wherever the system likes
    std::shared_ptr<Bell> bell;  // that partners ring when something comes; null: no job has one
  };

  // As many steps in flight as there are runners. These, and the models and constraints of jobs, outlive the thread.
  StepThread(std::vector<StepRunner*> runners, Options options, OnDone on_done);
  ~StepThread();

  // Not before on_done() of the one before, if all runners are in use. One caller.
  void start(Job job);
  // Waits while a step is to be computed, or runs, that the load waits for. Any thread.
  void give_way() const { load_waits_.wait(true); }
  // Computes what was started, and ends the thread; nobody waits for it any more.
  void stop();

 private:
  // A step under way.
  struct Step {
    Job job;
    StepRunner* runner;
    TimePoint begun{};
    Duration computed{0}, idle{0};  // idle: nothing was computed because it waited
    bool alone = true;              // nothing else was computed since it began
  };

  void work();
  void take_jobs();
  void compute();
  bool go_on(size_t at);
  void rest();
  void end(size_t at);
  void let_load_go_on();

  const Options options_;
  const OnDone on_done_;
  BoundedQueue<Job> jobs_{2};
  std::atomic<bool> load_waits_{false};
  std::vector<StepRunner*> free_;  // of the thread, as the next
  std::deque<std::unique_ptr<Step>> steps_;  // the one that began first in front
  std::thread thread_;
};

}  // namespace shoal
