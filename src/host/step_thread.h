// The thread that computes a node's steps, one at a time; it drives the device's pool.
#pragma once

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "base/ids.h"
#include "base/queue.h"
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

  // `runner`, and the models and constraints of jobs, outlive the thread. `cpus`: to run on; empty: wherever the system likes.
  StepThread(StepRunner& runner, std::vector<int> cpus, OnDone on_done);
  ~StepThread();

  // Not before on_done() of the one before. One caller.
  void start(Job job);
  // Waits while a step is to be computed, or runs, that the load waits for. Any thread.
  void give_way() const { load_waits_.wait(true); }
  // Computes what was started, and ends the thread; nobody waits for it any more.
  void stop();

 private:
  void work();
  void let_load_go_on();

  StepRunner& runner_;
  const std::vector<int> cpus_;
  const OnDone on_done_;
  BoundedQueue<Job> jobs_{2};
  std::atomic<bool> load_waits_{false};
  std::thread thread_;
};

}  // namespace shoal
