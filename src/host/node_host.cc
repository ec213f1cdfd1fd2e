#include "host/node_host.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <thread>
#include <utility>
#include <variant>

#include "absl/strings/str_format.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/queue.h"
#include "device/cpu_device.h"
#include "device/memory_limits.h"
#include "device/thread_pool.h"
#include "host/estimate_store.h"
#include "host/kv_peers.h"
#include "host/model_loader.h"
#include "host/page_filler.h"
#include "models/backend.h"
#include "replay/event_log.h"
#include "roles/node.h"
#include "runner/kv_store.h"
#include "runner/step_runner.h"

namespace shoal {
namespace {

constexpr Duration kProgressInterval = std::chrono::milliseconds(100);
constexpr Duration kProgressLogInterval = std::chrono::seconds(1);
constexpr Duration kEstimatesInterval = std::chrono::seconds(60);
constexpr size_t kEventsMax = 65536;
constexpr uint64_t kProcessBytes = 64 * kMiB;
constexpr uint64_t kThreadsBeside = 16, kStackBytes = 8 * kMiB;

struct AddModel {
  ServedModel served;
  NodeModel facts;
};
using HostEvent = std::variant<Event, LoadedModel, AddModel>;

// What a step thread is given.
struct StepJob {
  ModelId id;
  Model* model;
  uint32_t vocab_size;
  TokenConstraints* constraints;
  ResolvedStep step;
  bool before_packing = false;  // the load waits for this step
};

std::map<ModelId, std::unique_ptr<TokenConstraints>> make_constraints(const std::map<ModelId, ServedModel>& models) {
  std::map<ModelId, std::unique_ptr<TokenConstraints>> out;
  for (const auto& [id, served] : models) out.emplace(id, std::make_unique<TokenConstraints>(served.vocabulary));
  return out;
}

std::map<ModelId, NodeModel> facts_of(const NodeConfig& node) {
  std::map<ModelId, NodeModel> out;
  for (const NodeModel& model : node.models) out.emplace(model.model, model);
  return out;
}

// What the largest model takes to begin with, from above: its weights and a little KV.
uint32_t pages_of_the_largest(const NodeConfig& node) {
  constexpr uint64_t kKvPages = 8;
  uint64_t pages = 0;
  for (const NodeModel& model : node.models) pages = std::max(pages, round_up(model.weight_bytes, kPageBytes) / kPageBytes + kKvPages);
  return static_cast<uint32_t>(std::min<uint64_t>(pages, node.pages));
}

class NodeHostImpl : public NodeHost {
 public:
  NodeHostImpl(const NodeConfig& node, std::map<ModelId, ServedModel> models, std::unique_ptr<CpuDevice> device,
               std::unique_ptr<PagedMemory> host_tier, DeviceSpan workspace, std::unique_ptr<WeightCache> cache, std::shared_ptr<DigestStore> digests, const CpuShare& cpus,
               EstimateStore estimates, std::function<void(std::string_view)> record, uint32_t pages_ahead, LoopbackNetwork& network, std::shared_ptr<KvPeers> peers)
      : config_(node),
        record_(std::move(record)),
        estimates_(std::move(estimates)),
        models_(std::move(models)),
        constraints_(make_constraints(models_)),
        facts_(facts_of(node)),
        device_(std::move(device)),
        kv_(*device_),
        host_tier_(std::move(host_tier)),
        host_kv_(*host_tier_),
        peers_(std::move(peers)),
        attachment_(*peers_, node.self, host_kv_),
        cpus_(cpus.cpus),
        step_threads_(ThreadPoolOptions{.threads = cpus.threads, .cpus = cpus.cpus}),
        backend_(make_cpu_backend(*device_, step_threads_)),
        runner_(workspace),
        node_(node),
        transport_(network.connect(node.self, [this](NodeId from, std::string bytes) { receive(from, bytes); })),
        loader_(*device_, *backend_, cpus, std::move(cache), std::move(digests), [this] { return working_.load(); }, [this] { give_way(); },
                [this](LoadedModel loaded) { events_.push(std::move(loaded)); }),
        filler_(*device_, pages_ahead, [this] { return working_.load(); }),
        step_thread_([this] { step_loop(); }),
        loop_thread_([this] {
          if (record_) record_(logged_config(config_));
          event_loop();
        }) {}

  ~NodeHostImpl() override {
    events_.close();
    loop_thread_.join();
    transport_.reset();
    steps_.close();
    step_thread_.join();
    let_load_go_on();
    save_estimates();
  }

  void set_cluster(ClusterState state) override {
    if (const auto self = state.members.find(config_.self); self != state.members.end()) life_ = self->second.epoch;
    events_.push(Event(ClusterChanged{std::move(state)}));
  }
  StatusOr<NodeModel> add_model(ServedModel model) override {
    ASSIGN_OR_RETURN(NodeModel facts, plan_another(config_, model));
    events_.push(AddModel{std::move(model), facts});
    return facts;
  }
  void retire_model(ModelId model) override { events_.push(Event(ModelRetired{model})); }

  double stalled_seconds() const override {
    const int64_t since = busy_since_ns_.load();
    return since == 0 ? 0 : to_seconds(steady_now().time_since_epoch() - Duration(since));
  }

 private:
  struct Resident {
    DeviceSpan memory;
    std::unique_ptr<Model> model;
  };

  void receive(NodeId from, const std::string& bytes) {
    uint32_t life = 0;
    StatusOr<Message> message = decode(bytes, &life);
    if (!message.ok()) return log_error("message from ", from.value, " dropped: ", message.status().message());
    events_.push(Event(MessageFrom{from, *std::move(message), life}));
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
        if (loading_ && !packing_) handle(LoadProgress{*loading_, loader_.progress()}, now);
        log_progress(now);
        keep_estimates(now);
        handle(Tick{}, now);
        if (loading_) wake_ = std::min(wake_, now + kProgressInterval);
      }
    }
  }

  // Of the weights as they are on the device, since the load began: "1.23 GB/s".
  std::string load_rate(TimePoint now) const {
    return absl::StrFormat("%.2f GB/s", static_cast<double>(loader_.bytes_done()) / 1e9 / std::max(to_seconds(now - load_times_.began), 1e-3));
  }

  void log_progress(TimePoint now) {
    if (!loading_ || now < load_times_.logged + kProgressLogInterval) return;
    load_times_.logged = now;
    log_info("loading '", models_.at(*loading_).name, "': ", static_cast<int>(loader_.progress() * 100), " %, ", load_rate(now));
  }

  void dispatch(HostEvent event, TimePoint now) {
    if (auto* loaded = std::get_if<LoadedModel>(&event)) {
      if (loaded->part == LoadedModel::Part::kUsable) return on_usable(*loaded, now);
      if (loaded->part == LoadedModel::Part::kNamed) return handle(DigestKnown{loaded->id, loaded->weights}, now);
      loading_.reset();
      const ServedModel& served = models_.at(loaded->id);
      if (loaded->status.ok()) {
        log_info("loaded '", served.name, "' (", format_bytes(facts(loaded->id).weight_bytes), ") in ",
                 static_cast<int64_t>(to_seconds(now - load_times_.began) * 1000), " ms, ", load_rate(now));
      } else if (loaded->status.code() == StatusCode::kCancelled) {
        log_info("loading '", served.name, "' was called off after ", static_cast<int64_t>(to_seconds(now - load_times_.began) * 1000), " ms");
      } else {
        log_error("could not load '", served.name, "': ", loaded->status.message());
      }
      const Status status = loaded->status;
      const ModelId id = loaded->id;
      loaded->stages.unmap_seconds = std::exchange(unmap_seconds_, 0);
      if (loaded->part == LoadedModel::Part::kPacked) {
        packing_.reset();
        return handle(WeightsPacked{id, status, loaded->stages}, now);
      }
      residents_[id] = {loaded->memory, std::move(loaded->model)};
      handle(WeightsReady{id, status, loaded->stages, loaded->weights}, now);
      return;
    }
    if (auto* add = std::get_if<AddModel>(&event)) {
      const ModelId id = add->facts.model;
      constraints_.emplace(id, std::make_unique<TokenConstraints>(add->served.vocabulary));
      models_.emplace(id, std::move(add->served));
      facts_.emplace(id, add->facts);
      if (auto costs = estimates_.find(add->facts)) add->facts.costs = *std::move(costs);
      return handle(ModelAdded{std::move(add->facts)}, now);
    }
    if (std::holds_alternative<StepDone>(std::get<Event>(event))) busy_since_ns_ = 0;
    handle(std::get<Event>(event), now);
  }

  void on_usable(LoadedModel& loaded, TimePoint now) {
    log_info("'", models_.at(loaded.id).name, "' computes from its files until it is loaded");
    residents_[loaded.id] = {loaded.memory, std::move(loaded.model)};
    packing_ = loaded.id;
    handle(WeightsReady{loaded.id, OkStatus(), loaded.stages, loaded.weights, /*packing=*/true}, now);
  }

  // On the loader's threads, before each piece.
  void give_way() {
    device_->give_way();
    step_before_packing_.wait(true);
  }
  void let_load_go_on() {
    step_before_packing_ = false;
    step_before_packing_.notify_all();
  }

  void handle(const Event& event, TimePoint now) {
    std::vector<Effect> effects = node_.handle(event, now);
    if (record_) record_(logged_turn(config_.self, event, now, effects));
    for (Effect& effect : effects) perform(effect, now);
    working_ = !node_.idle();
    if (!working_) node_.check();
    // A load counts as progress; otherwise the time since the last step ended while there is work.
    if (node_.idle() || loading_) {
      busy_since_ns_ = 0;
    } else if (busy_since_ns_ == 0) {
      busy_since_ns_ = now.time_since_epoch().count();
    }
  }

  void perform(Effect& effect, TimePoint now) {
    if (auto* send = std::get_if<Send>(&effect)) {
      const Status sent = transport_->send(send->to, encode(send->message, life_));
      if (!sent.ok()) log_debug("message lost: ", sent.message());
    } else if (auto* start = std::get_if<StartStep>(&effect)) {
      start_step(*start);
    } else if (auto* load = std::get_if<LoadWeights>(&effect)) {
      const ServedModel& model = models_.at(load->model);
      log_info("loading '", model.name, "' from ", model.path);
      loading_ = load->model;
      load_times_ = {now, now};
      wake_ = std::min(wake_, now + kProgressInterval);
      loader_.start({model, facts(load->model), page_ranges(load->pages), load->alone});
    } else if (std::holds_alternative<CancelLoad>(effect)) {
      loader_.cancel();
    } else if (const auto* next = std::get_if<ReadAhead>(&effect)) {
      loader_.read_ahead(models_.at(next->model));
    } else if (auto* drop = std::get_if<DropWeights>(&effect)) {
      drop_weights(drop->model);
    } else if (const auto* copy = std::get_if<CopyKv>(&effect)) {
      copy_kv(*copy);
    } else if (auto* remap = std::get_if<RemapSlabs>(&effect)) {
      const Status mapped = remap->tier == Tier::kHost ? attachment_.apply(remap->changes) : kv_.apply(remap->changes);
      if (!mapped.ok()) log_error("KV memory: ", mapped.message());
      CHECK(mapped.ok());  // out of mappings: nothing this process does next would be right
    } else if (auto* wake = std::get_if<WakeAt>(&effect)) {
      wake_ = std::min(wake_, wake->at);
    }
  }

  void start_step(StartStep& start) {
    const NodeModel& model = facts(start.model);
    StepJob job{start.model, residents_.at(start.model).model.get(), model.vocab_size, constraints_.at(start.model).get(),
                {std::move(start.input), {}}};
    for (const StepSlice& slice : job.step.input.slices) {
      for (const BlockId block : slice.blocks) job.step.blocks.push_back(kv_.block(model.kv_block_bytes, block));
    }
    job.before_packing = packing_ == start.model;
    if (job.before_packing) step_before_packing_ = true;
    steps_.push(std::move(job));
  }

  void copy_kv(const CopyKv& effect) {
    const KvMove& move = effect.move;
    const bool out = move.to == Tier::kHost;
    const auto tell = [this, model = effect.model, id = move.id](bool ok) { events_.push(Event(KvCopied{model, id, ok})); };
    std::shared_ptr<KvPeers::Reading> peer;
    if (move.remote) {
      peer = std::make_shared<KvPeers::Reading>(peers_->read(effect.from));
      if (!*peer) return tell(false);
    }
    CopyJob job{out ? CopyLane::kKvOut : CopyLane::kKvIn, move.block_bytes, {}, [tell, peer] { tell(true); }};
    for (const KvCopy& copy : move.copies) {
      const DeviceAddress from = peer ? peer->block(move.block_bytes, copy.from) : (out ? kv_ : host_kv_).block(move.block_bytes, copy.from);
      job.pieces.push_back({(out ? host_kv_ : kv_).block(move.block_bytes, copy.to), from});
    }
    device_->copy(std::move(job));
  }

  void drop_weights(ModelId id) {
    const auto found = residents_.find(id);
    CHECK(found != residents_.end());
    CHECK(packing_ != id);
    const TimePoint begin = steady_now();
    found->second.model.reset();
    if (!found->second.memory.empty()) device_->unmap(found->second.memory);
    if (models_.contains(id)) log_debug("dropped '", models_.at(id).name, "'");
    residents_.erase(found);
    unmap_seconds_ += to_seconds(steady_now() - begin);
  }

  void keep_estimates(TimePoint now) {
    if (now < estimates_kept_ + kEstimatesInterval) return;
    if (estimates_kept_ != TimePoint{}) save_estimates();
    estimates_kept_ = now;
  }
  void save_estimates() {
    for (const auto& [id, costs] : node_.costs()) {
      if (costs.measured()) estimates_.put(facts(id), costs);
    }
    const Status saved = estimates_.save();
    if (!saved.ok() && !std::exchange(complained_, true)) log_warning(saved.message());
  }

  const NodeModel& facts(ModelId id) const { return facts_.at(id); }

  // ---- the step thread -------------------------------------------------------------------------------------------------

  void step_loop() {
    bind_this_thread(cpus_);
    while (true) {
      std::optional<StepJob> job = steps_.pop(std::chrono::seconds(1));
      if (!job && steps_.closed()) return;
      if (!job) continue;
      StepResult result = runner_.run(*job->model, job->vocab_size, job->step, job->constraints);
      if (job->before_packing) let_load_go_on();
      events_.push(Event(StepDone{job->id, std::move(result)}));
    }
  }

  const NodeConfig config_;
  const std::function<void(std::string_view)> record_;
  EstimateStore estimates_;     // used by the loop thread
  TimePoint estimates_kept_{};
  bool complained_ = false;     // that they cannot be kept
  // Of all models that were ever served here; changed by the loop thread.
  std::map<ModelId, ServedModel> models_;
  std::map<ModelId, std::unique_ptr<TokenConstraints>> constraints_;  // what they point at is used by the step thread only
  std::map<ModelId, NodeModel> facts_;
  const std::unique_ptr<CpuDevice> device_;
  KvStore kv_;
  const std::unique_ptr<PagedMemory> host_tier_;
  KvStore host_kv_;
  const std::shared_ptr<KvPeers> peers_;
  KvPeers::Attachment attachment_;
  const std::vector<int> cpus_;
  ThreadPool step_threads_;
  const std::unique_ptr<Backend> backend_;
  StepRunner runner_;
  std::map<ModelId, Resident> residents_;
  Node node_;
  BoundedQueue<HostEvent> events_{kEventsMax};
  BoundedQueue<StepJob> steps_{2};
  TimePoint wake_{};  // the first tick is due at once: it reports the models before anybody asks for one
  std::optional<ModelId> loading_;
  std::optional<ModelId> packing_;  // the same model, when it computes already
  struct LoadTimes { TimePoint began, logged; } load_times_;
  double unmap_seconds_ = 0;  // of weights dropped since the last load ended
  std::atomic<int64_t> busy_since_ns_{0};
  std::atomic<bool> working_{false};
  std::atomic<bool> step_before_packing_{false};
  std::atomic<uint32_t> life_{0};  // as last heard from the membership
  std::unique_ptr<Transport> transport_;
  // When nothing is loaded any more; what copies tell is still heard.
  struct EndCopies {
    ~EndCopies() { device.end_copies(); }
    Device& device;
  } end_copies_{*device_};
  ModelLoader loader_;  // gives way to copies of KV
  PageFiller filler_;
  std::thread step_thread_;
  std::thread loop_thread_;
};

// What the process takes beside its budgets, from above for a few dozen models: threads' scratch, the ring of direct reads,
// tokenizers, connections.
uint64_t beside_bytes(const NodePlan& plan) {
  const bool ring = std::any_of(plan.served.begin(), plan.served.end(), [](const auto& m) { return m.second.load.io == ModelIo::kDirect; });
  return kProcessBytes + 2 * static_cast<uint64_t>(plan.cpus.threads) * ThreadPool::kScratchBytes + (ring ? kDirectRingBytes : 0);
}

// Of stacks, the system's figure for each thread of this node and a few of the process.
uint64_t stack_bytes(const NodePlan& plan) {
  rlimit limit{};
  const bool known = ::getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return (kThreadsBeside + 2 * static_cast<uint64_t>(plan.cpus.threads)) * (known ? limit.rlim_cur : kStackBytes);
}

// Once the budgets are reserved. A limit on the memory of a process counts addresses: pages in use by a model lie at a place
// of their own beside the one that is kept for them.
Status check_limits(const NodePlan& plan) {
  const uint64_t places = (uint64_t{plan.node.pages} + plan.node.host_pages) * kPageBytes + plan.weight_cache_bytes;
  const uint64_t needed = places + beside_bytes(plan) + stack_bytes(plan);
  const ProcessMemory memory = process_memory();
  log_debug("a limit on the memory of this process (ulimit -d) must allow ", memory.taken + needed, " bytes");
  if (needed <= memory.left) return OkStatus();
  return resource_exhausted("the limits of this process (ulimit -d, ulimit -v) leave ", format_bytes(memory.left), " beside the memory that is reserved, and ",
                            format_bytes(needed), " are needed; raise the limits, or lower --device-memory or --host-memory");
}

// Addresses for memory that `flag` sets.
template <typename T>
StatusOr<T> reserved(StatusOr<T> memory, const char* flag) {
  if (memory.ok()) return memory;
  return resource_exhausted(memory.status().message(), "; raise the limits, or lower ", flag);
}

}  // namespace

StatusOr<std::unique_ptr<NodeHost>> NodeHost::start(NodePlan plan, LoopbackNetwork& network, std::shared_ptr<KvPeers> peers) {
  const DeviceGuard guard = plan.guarded ? DeviceGuard::kGuarded : DeviceGuard::kNone;
  ASSIGN_OR_RETURN(std::unique_ptr<CpuDevice> device, reserved(CpuDevice::make(plan.node.pages, guard), "--device-memory"));
  ASSIGN_OR_RETURN(std::unique_ptr<PagedMemory> host_tier,
                   reserved(device->make_host_tier(std::max(plan.node.host_pages, 1u)), "--device-memory or --host-memory"));
  ASSIGN_OR_RETURN(const DeviceSpan workspace, device->allocate(plan.workspace_bytes));
  ASSIGN_OR_RETURN(std::unique_ptr<WeightCache> cache, reserved(WeightCache::make(plan.weight_cache_bytes), "--weight-cache"));
  RETURN_IF_ERROR(check_limits(plan));
  log_info("memory: up to ", format_bytes(plan.node.pages * kPageBytes), " for weights and KV, taken as they are needed, some ahead, and ",
           format_bytes(plan.workspace_bytes), " of workspace; ", format_bytes(plan.node.host_pages * kPageBytes),
           " for KV of models whose turn is not now; ", format_bytes(plan.weight_cache_bytes), " for weights read directly; beside these about ",
           format_bytes(beside_bytes(plan)), "; ", plan.cpus.threads, " threads");
  EstimateStore estimates(plan.estimates_file, plan.cpus.threads);
  for (NodeModel& model : plan.node.models) {
    if (auto costs = estimates.find(model)) model.costs = *std::move(costs);
  }
  const uint32_t pages_ahead = plan.fill_ahead ? pages_of_the_largest(plan.node) : 0;
  return std::make_unique<NodeHostImpl>(plan.node, std::move(plan.served), std::move(device), std::move(host_tier), workspace,
                                        std::move(cache), std::move(plan.digests), plan.cpus, std::move(estimates), std::move(plan.record), pages_ahead, network, std::move(peers));
}

}  // namespace shoal
