#include "host/model_loader.h"

#include <utility>

#include "base/bytes.h"
#include "formats/checkpoint.h"

namespace shoal {

ModelLoader::ModelLoader(Device& device, ThreadPool& step_threads, int load_threads, OnLoaded on_loaded)
    : device_(device),
      step_threads_(step_threads),
      load_threads_(ThreadPoolOptions{.threads = load_threads, .cpus = {}, .pin = false}),
      on_loaded_(std::move(on_loaded)),
      thread_([this] { work(); }) {}

ModelLoader::~ModelLoader() {
  cancelled_ = true;
  jobs_.close();
  thread_.join();
}

void ModelLoader::start(Job job) { jobs_.push(std::move(job)); }

float ModelLoader::progress() const {
  return static_cast<float>(bytes_done_.load()) / static_cast<float>(bytes_total_.load());
}

void ModelLoader::work() {
  while (true) {
    std::optional<Job> job = jobs_.pop(std::chrono::seconds(1));
    if (!job && jobs_.closed()) return;
    if (!job) continue;
    std::unique_ptr<ModelPlan> plan;  // holds the mapped files: nobody waits for their unmapping
    on_loaded_(load(*job, plan));
  }
}

LoadedModel ModelLoader::load(const Job& job, std::unique_ptr<ModelPlan>& plan) {
  LoadedModel result{job.model.id, OkStatus(), {}, nullptr};
  bytes_done_ = 0;
  bytes_total_ = std::max<uint64_t>(job.weight_bytes, 1);
  const auto attempt = [&]() -> Status {
    ASSIGN_OR_RETURN(result.memory, device_.map(job.pages));
    ASSIGN_OR_RETURN(std::shared_ptr<const Checkpoint> checkpoint, open_checkpoint(job.model.path));
    ASSIGN_OR_RETURN(plan, plan_model(std::move(checkpoint), job.model.load));
    if (plan->weight_bytes() != job.weight_bytes) {
      return data_loss(job.model.path, ": its weights take ", plan->weight_bytes(), " bytes, not the ", job.weight_bytes,
                       " of when the server started; the file was replaced, restart the server to serve the new one");
    }
    const auto memory = result.memory.first(plan->weight_bytes());
    ASSIGN_OR_RETURN(result.model, plan->load(memory, load_threads_, step_threads_, bytes_done_, cancelled_));
    return OkStatus();
  };
  result.status = attempt();
  return result;
}

}  // namespace shoal
