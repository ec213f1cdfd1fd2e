#include "host/node_host.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <thread>
#include <utility>
#include <variant>

#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/queue.h"
#include "device/device.h"
#include "device/thread_pool.h"
#include "formats/checkpoint.h"
#include "host/model_loader.h"
#include "roles/node.h"
#include "runner/kv_store.h"
#include "runner/step_runner.h"
#include "tensor/tensor.h"

namespace shoal {
namespace {

constexpr Duration kProgressInterval = std::chrono::milliseconds(100);
constexpr size_t kEventsMax = 65536;

using HostEvent = std::variant<Event, LoadedModel>;

// What a step thread is given.
struct StepJob {
  ModelId id;
  Model* model;
  uint32_t vocab_size;
  ResolvedStep step;
};

struct Budget {
  uint64_t workspace_bytes = 0;
  uint32_t pages = 0;
};

class NodeHostImpl : public NodeHost {
 public:
  NodeHostImpl(const NodeConfig& node, std::map<ModelId, ServedModel> models, std::unique_ptr<Device> device,
               Buffer workspace, int threads, LoopbackNetwork& network)
      : config_(node),
        models_(std::move(models)),
        device_(std::move(device)),
        kv_(*device_),
        workspace_(std::move(workspace)),
        step_threads_(threads),
        runner_(workspace_.span()),
        node_(node),
        transport_(network.connect(node.self, [this](NodeId from, std::string bytes) { receive(from, bytes); })),
        loader_(*device_, step_threads_, threads, [this](LoadedModel loaded) { events_.push(std::move(loaded)); }),
        step_thread_([this] { step_loop(); }),
        loop_thread_([this] { event_loop(); }) {}

  ~NodeHostImpl() override {
    events_.close();
    loop_thread_.join();
    transport_.reset();
    steps_.close();
    step_thread_.join();
  }

  double stalled_seconds() const override {
    const int64_t since = busy_since_ns_.load();
    return since == 0 ? 0 : to_seconds(steady_now().time_since_epoch() - Duration(since));
  }

 private:
  struct Resident {
    std::span<std::byte> memory;
    std::unique_ptr<Model> model;
  };

  void receive(NodeId from, const std::string& bytes) {
    StatusOr<Message> message = decode(bytes);
    if (!message.ok()) {
      log_error("message from ", from.value, " dropped: ", message.status().message());
      return;
    }
    events_.push(Event(MessageFrom{from, *std::move(message)}));
  }

  // ---- the loop: pop, handle, perform --------------------------------------------------------------------------------

  void event_loop() {
    while (true) {
      const TimePoint before = steady_now();
      const Duration wait = std::clamp<Duration>(wake_ - before, Duration(0), std::chrono::seconds(1));
      std::optional<HostEvent> event = events_.pop(wait);
      if (!event && events_.closed()) return;
      const TimePoint now = steady_now();
      if (event) dispatch(*std::move(event), now);
      if (now >= wake_) {
        wake_ = kForever;
        if (loading_) handle(LoadProgress{*loading_, loader_.progress()}, now);
        handle(Tick{}, now);
        if (loading_) wake_ = std::min(wake_, now + kProgressInterval);
      }
    }
  }

  void dispatch(HostEvent event, TimePoint now) {
    if (auto* loaded = std::get_if<LoadedModel>(&event)) {
      loading_.reset();
      const ServedModel& served = models_.at(loaded->id);
      if (loaded->status.ok()) {
        log_info("loaded '", served.name, "' (", format_bytes(loaded->memory.size()), ") in ",
                 static_cast<int64_t>(to_seconds(now - load_started_) * 1000), " ms");
      } else {
        log_error("could not load '", served.name, "': ", loaded->status.message());
      }
      const Status status = loaded->status;
      const ModelId id = loaded->id;
      residents_[id] = {loaded->memory, std::move(loaded->model)};
      handle(WeightsReady{id, status}, now);
      return;
    }
    if (std::holds_alternative<StepDone>(std::get<Event>(event))) busy_since_ns_ = 0;
    handle(std::get<Event>(event), now);
  }

  void handle(const Event& event, TimePoint now) {
    for (Effect& effect : node_.handle(event, now)) perform(effect, now);
    if (node_.idle()) node_.check();
    // A load counts as progress; otherwise the time since the last step ended while there is work.
    if (node_.idle() || loading_) {
      busy_since_ns_ = 0;
    } else if (busy_since_ns_ == 0) {
      busy_since_ns_ = now.time_since_epoch().count();
    }
  }

  void perform(Effect& effect, TimePoint now) {
    if (auto* send = std::get_if<Send>(&effect)) {
      if (const Status sent = transport_->send(send->to, encode(send->message)); !sent.ok()) {
        log_debug("message lost: ", sent.message());
      }
    } else if (auto* start = std::get_if<StartStep>(&effect)) {
      start_step(*start);
    } else if (auto* load = std::get_if<LoadWeights>(&effect)) {
      const ServedModel& model = models_.at(load->model);
      log_info("loading '", model.name, "' from ", model.path);
      loading_ = load->model;
      load_started_ = now;
      wake_ = std::min(wake_, now + kProgressInterval);
      loader_.start({model, facts(load->model).weight_bytes, page_ranges(load->pages)});
    } else if (auto* drop = std::get_if<DropWeights>(&effect)) {
      drop_weights(drop->model);
    } else if (auto* remap = std::get_if<RemapSlabs>(&effect)) {
      const Status mapped = kv_.apply(remap->changes);
      if (!mapped.ok()) log_error("KV memory: ", mapped.message());
      CHECK(mapped.ok());  // out of mappings: nothing this process does next would be right
    } else if (auto* wake = std::get_if<WakeAt>(&effect)) {
      wake_ = std::min(wake_, wake->at);
    }
  }

  void start_step(StartStep& start) {
    const NodeModel& model = facts(start.model);
    StepJob job{start.model, residents_.at(start.model).model.get(), model.vocab_size, {std::move(start.input), {}}};
    for (const StepSlice& slice : job.step.input.slices) {
      for (const BlockId block : slice.blocks) job.step.blocks.push_back(kv_.block(model.kv_block_bytes, block));
    }
    steps_.push(std::move(job));
  }

  void drop_weights(ModelId id) {
    const auto found = residents_.find(id);
    CHECK(found != residents_.end());
    found->second.model.reset();
    if (!found->second.memory.empty()) device_->unmap(found->second.memory);
    if (models_.contains(id)) log_debug("dropped '", models_.at(id).name, "'");
    residents_.erase(found);
  }

  const NodeModel& facts(ModelId id) const {
    const auto found = std::find_if(config_.models.begin(), config_.models.end(), [&](const NodeModel& m) { return m.model == id; });
    CHECK(found != config_.models.end());
    return *found;
  }

  // ---- the step thread -------------------------------------------------------------------------------------------------

  void step_loop() {
    while (true) {
      std::optional<StepJob> job = steps_.pop(std::chrono::seconds(1));
      if (!job && steps_.closed()) return;
      if (!job) continue;
      StepResult result = runner_.run(*job->model, job->vocab_size, job->step);
      events_.push(Event(StepDone{job->id, std::move(result)}));
    }
  }

  const NodeConfig config_;
  const std::map<ModelId, ServedModel> models_;
  const std::unique_ptr<Device> device_;
  KvStore kv_;
  Buffer workspace_;
  ThreadPool step_threads_;
  StepRunner runner_;
  std::map<ModelId, Resident> residents_;
  Node node_;
  BoundedQueue<HostEvent> events_{kEventsMax};
  BoundedQueue<StepJob> steps_{2};
  TimePoint wake_{};  // the first tick is due at once: it reports the models before anybody asks for one
  std::optional<ModelId> loading_;
  TimePoint load_started_{};
  std::atomic<int64_t> busy_since_ns_{0};
  std::unique_ptr<Transport> transport_;
  ModelLoader loader_;
  std::thread step_thread_;
  std::thread loop_thread_;
};

// The workspace is made once, for the largest step of any model; the rest of the budget is pages.
StatusOr<Budget> split_budget(const NodeHostConfig& config, const std::vector<std::unique_ptr<ModelPlan>>& plans) {
  uint64_t budget = config.device_memory_bytes;
  if (budget == 0) budget = available_memory_bytes() / 10 * 8;
  Budget result;
  for (const auto& plan : plans) {
    if (plan == nullptr) continue;
    const uint64_t logits = uint64_t{config.sequences_max} * plan->vocab_size() * sizeof(float);
    result.workspace_bytes = std::max(result.workspace_bytes, plan->workspace_bytes(config.tokens_per_step, config.sequences_max) + logits);
  }
  if (budget < result.workspace_bytes + kPageBytes) {
    return resource_exhausted("device memory of ", format_bytes(budget), " is less than the workspace of one step (",
                              format_bytes(result.workspace_bytes), "); raise --device-memory or lower --max-num-batched-tokens");
  }
  result.pages = static_cast<uint32_t>(std::min<uint64_t>((budget - result.workspace_bytes) / kPageBytes, UINT32_MAX / 2));
  return result;
}

StatusOr<NodeModel> node_model(const ServedModel& served, const ModelPlan& plan, uint32_t pages) {
  NodeModel model;
  model.model = served.id;
  model.name = served.name;
  model.weight_bytes = plan.weight_bytes();
  model.kv_block_bytes = plan.kv_block_bytes();
  model.vocab_size = plan.vocab_size();
  model.kv_salt_above = plan.kv_salt_above();
  const uint32_t wanted = served.max_model_len == 0 ? plan.context_length() : std::min(served.max_model_len, plan.context_length());
  model.max_model_len = fitting_model_len(model, pages, wanted);
  if (model.max_model_len < std::min<uint32_t>(wanted, 256)) {
    return resource_exhausted("its weights of ", format_bytes(model.weight_bytes), " and KV for ", std::min<uint32_t>(wanted, 256),
                              " tokens do not fit the device memory of ", format_bytes(pages * kPageBytes), "; raise --device-memory");
  }
  if (model.max_model_len < wanted) {
    log_warning("'", served.name, "': the context is limited to ", model.max_model_len, " of ", wanted,
                " tokens, because KV for more does not fit the device memory");
  }
  return model;
}

}  // namespace

StatusOr<std::unique_ptr<NodeHost>> NodeHost::start(const NodeHostConfig& config, std::vector<ServedModel> models,
                                                    LoopbackNetwork& network) {
  std::vector<std::unique_ptr<ModelPlan>> plans;
  for (const ServedModel& served : models) {
    const auto plan = [&]() -> StatusOr<std::unique_ptr<ModelPlan>> {
      ASSIGN_OR_RETURN(const std::shared_ptr<const Checkpoint> checkpoint, open_checkpoint(served.path));
      return plan_model(checkpoint, served.load);
    };
    StatusOr<std::unique_ptr<ModelPlan>> made = plan();
    if (!made.ok()) log_error("'", served.name, "' is not served: ", made.status().message());
    plans.push_back(made.ok() ? *std::move(made) : nullptr);
  }
  ASSIGN_OR_RETURN(const Budget budget, split_budget(config, plans));

  NodeConfig node;
  node.self = config.self;
  node.pages = budget.pages;
  node.gateways = config.gateways;
  node.limits.tokens_per_step = config.tokens_per_step;
  node.limits.sequences_max = config.sequences_max;
  node.limits.logit_rows_max = config.sequences_max;
  node.waiting_max = config.waiting_max;
  node.prefix_cache = config.prefix_cache;
  std::map<ModelId, ServedModel> served;
  for (size_t i = 0; i < models.size(); ++i) {
    if (plans[i] == nullptr) continue;
    StatusOr<NodeModel> facts = node_model(models[i], *plans[i], budget.pages);
    if (!facts.ok()) {
      log_error("'", models[i].name, "' is not served: ", facts.status().message());
      continue;
    }
    node.models.push_back(*std::move(facts));
    served.emplace(models[i].id, models[i]);
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Device> device, make_cpu_device(budget.pages));
  const int threads = config.threads == 0 ? static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))
                                          : static_cast<int>(config.threads);
  ASSIGN_OR_RETURN(Buffer workspace, Buffer::allocate(budget.workspace_bytes));
  return std::make_unique<NodeHostImpl>(node, std::move(served), std::move(device), std::move(workspace), threads, network);
}

}  // namespace shoal
