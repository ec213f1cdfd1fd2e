#include "host/node_host.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <utility>
#include <variant>

#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "device/cpu_device.h"
#include "device/memory_limits.h"
#include "device/thread_pool.h"
#include "host/estimate_store.h"
#include "host/event_loop.h"
#include "host/kv_driver.h"
#include "host/kv_peers.h"
#include "host/page_filler.h"
#include "host/served_models.h"
#include "host/step_thread.h"
#include "host/weights_driver.h"
#include "models/backend.h"
#include "replay/event_log.h"
#include "roles/node.h"
#include "runner/step_runner.h"
#include "transport/peer_budget.h"

namespace shoal {
namespace {

constexpr Duration kProgressInterval = std::chrono::milliseconds(100);
constexpr size_t kEventsMax = 65536;
constexpr uint64_t kProcessBytes = 64 * kMiB;
constexpr uint64_t kThreadsBeside = 16, kStackBytes = 8 * kMiB;

// One more model, with its files.
struct NewModel {
  ServedModel served;
  NodeModel facts;
};
struct PeerMessage {
  MessageFrom message;
  uint64_t bytes = 0;
};
using HostEvent = std::variant<Event, LoadedModel, NewModel, PeerMessage>;

ServedModels served_models(const NodeConfig& node, std::map<ModelId, ServedModel> models) {
  ServedModels served;
  for (const NodeModel& facts : node.models) served.add(std::move(models.at(facts.model)), facts);
  return served;
}

// What the largest model takes to begin with, from above: its weights and a little KV.
uint32_t pages_of_the_largest(const NodeConfig& node) {
  constexpr uint64_t kKvPages = 8;
  uint64_t pages = 0;
  for (const NodeModel& model : node.models) pages = std::max(pages, round_up(model.weight_bytes, kPageBytes) / kPageBytes + kKvPages);
  return static_cast<uint32_t>(std::min<uint64_t>(pages, node.pages));
}

// With places for weights in what KV leaves to the host tier: the memory is counted once, the addresses are not.
uint32_t device_pages(const NodeConfig& node) { return node.pages + (node.one_memory && node.adopt_weights ? node.host_pages : 0); }

// The names of this node's models among those of the process.
std::shared_ptr<ModelNames> named(const NodeConfig& node, std::shared_ptr<ModelNames> names) {
  if (names == nullptr) names = std::make_shared<ModelNames>();
  for (const NodeModel& model : node.models) names->add(model.model, {model.name, model.stamp});
  return names;
}

std::deque<StepRunner> runners(const std::vector<DeviceSpan>& workspaces, uint32_t lanes) {
  std::deque<StepRunner> result;
  for (const DeviceSpan& workspace : workspaces) result.emplace_back(workspace, StepRunner::Options{lanes});
  return result;
}
std::vector<StepRunner*> pointers(std::deque<StepRunner>& runners) {
  std::vector<StepRunner*> result;
  for (StepRunner& runner : runners) result.push_back(&runner);
  return result;
}

class NodeHostImpl : public NodeHost {
 public:
  // What was reserved for it.
  struct Memory {
    std::unique_ptr<CpuDevice> device;
    std::unique_ptr<PagedMemory> host_tier;
    std::vector<DeviceSpan> workspaces;  // one for each step that may be in flight
    std::unique_ptr<WeightCache> cache;
    uint32_t pages_ahead = 0;  // to be filled in idle moments
    KvListeners kv_listeners;                         // without one of TCP: its KV is for this process
    std::shared_ptr<const MemoryFile> host_memory;  // of the host tier, for other processes to read; null: for this one alone
  };

  NodeHostImpl(NodePlan plan, Memory memory, EstimateStore estimates, Network& network, std::shared_ptr<KvPeers> peers)
      : config_(std::move(plan.node)),
        names_(named(config_, std::move(plan.names))),
        record_(std::move(plan.record)),
        kv_network_(plan.kv_link ? plan.kv_link->network : nullptr),
        served_(served_models(config_, std::move(plan.served))),
        estimates_(std::move(estimates)),
        node_(config_),
        device_(std::move(memory.device)),
        pool_(ThreadPoolOptions{.threads = plan.cpus.threads, .cpus = plan.cpus.cpus}),
        backend_(make_cpu_backend(*device_, pool_)),
        experts_(std::move(plan.experts)),
        runners_(runners(memory.workspaces, plan.lanes)),
        kv_(config_.self, *device_, std::move(memory.host_tier), std::move(peers),
            [this](ModelId model, uint64_t move, bool ok) { loop_.push(Event(KvCopied{model, move, ok})); }),
        steps_(pointers(runners_), {plan.cpus.cpus, plan.experts_bell}, [this](ModelId id, StepResult result) { loop_.push(Event(StepDone{id, std::move(result)})); }),
        transport_(network.connect(config_.self, [this](NodeId from, std::string bytes) { return receive(from, bytes); })),
        weights_(*device_, served_, std::make_unique<ModelLoader>(*device_, *backend_, plan.cpus, std::move(memory.cache), std::move(plan.digests),
                                                                  [this] { return working_.load(); }, [this] { give_way(); },
                                                                  [this](LoadedModel loaded) { loop_.push(std::move(loaded)); })),
        filler_(*device_, memory.pages_ahead, [this] { return working_.load(); }) {
    if (memory.kv_listeners.tcp != nullptr) kv_.link(std::move(memory.kv_listeners), std::move(memory.host_memory), kv_network_);
    if (record_) record_(logged_config(config_));
    loop_.start([this](HostEvent event, TimePoint now) { dispatch(std::move(event), now); }, [this](TimePoint now) { tick(now); });
  }

  ~NodeHostImpl() override {
    loop_.stop();
    kv_.end_fetches();
    transport_.reset();
    steps_.stop();
    estimates_.save(node_, served_);
  }

  void set_cluster(ClusterState state) override {
    if (const auto self = state.members.find(config_.self); self != state.members.end()) life_ = self->second.epoch;
    loop_.push(Event(ClusterChanged{std::move(state)}));
  }
  uint16_t kv_port() const override { return kv_.link_port(); }
  void set_kv_addresses(std::map<NodeId, BulkAddress> addresses) override { kv_.set_addresses(std::move(addresses)); }
  void peer_link(NodeId peer, bool up) override {
    if (!up) kv_.lost(peer);
    loop_.push(up ? Event(PeerConnected{peer}) : Event(PeerLost{peer}));
  }
  void tell(Message message) override { loop_.push(Event(MessageFrom{config_.self, std::move(message)})); }
  void drain() override { loop_.push(Event(DrainRequested{})); }
  bool idle() const override { return !working_.load(); }
  StatusOr<NodeModel> add_model(ServedModel model) override {
    ASSIGN_OR_RETURN(NodeModel facts, plan_another(config_, model));
    names_->add(facts.model, {facts.name, facts.stamp});
    loop_.push(NewModel{std::move(model), facts});
    return facts;
  }
  void retire_model(ModelId model) override { loop_.push(Event(ModelRetired{model})); }

  double stalled_seconds() const override {
    const int64_t since = busy_since_ns_.load();
    return since == 0 ? 0 : to_seconds(steady_now().time_since_epoch() - Duration(since));
  }

 private:
  // On the sender's thread. False: there is no room for it.
  bool receive(NodeId from, const std::string& bytes) {
    StatusOr<Arrival> arrival = decode(bytes, *names_);
    if (!arrival.ok()) {
      log_error("message from ", from.value, " dropped: ", arrival.status().message());
      return true;
    }
    if (!arrival->unknown_model.empty()) log_warning("message from ", from.value, ": ", arrival->unknown_model);
    const PeerBudget::Answer answer = peers_.take(from, bytes.size());
    if (answer == PeerBudget::Answer::kTaken) loop_.push(PeerMessage{{from, std::move(arrival->message), arrival->life, std::move(arrival->unknown_model)}, bytes.size()});
    if (answer == PeerBudget::Answer::kLost) lose(from);
    return answer == PeerBudget::Answer::kTaken;
  }
  void lose(NodeId peer) {
    log_warning("messages between this node and ", peer.value, " are lost: more wait than there is room for");
    loop_.push(Event(PeerLost{peer}));
  }

  // A peer that a message cannot reach is as one that is lost: what was to be agreed with it is not.
  void unreachable(NodeId peer, const Status& why) {
    log_debug("message to ", peer.value, " lost: ", why.message());
    loop_.push(Event(PeerLost{peer}));
  }

  // On the loader's threads, before each piece.
  void give_way() {
    device_->give_way();
    steps_.give_way();
  }

  // ---- on the loop's thread: an event in, effects performed ------------------------------------------------------------

  void dispatch(HostEvent event, TimePoint now) {
    if (auto* loaded = std::get_if<LoadedModel>(&event)) return handle(weights_.ended(std::move(*loaded), now), now);
    if (auto* added = std::get_if<NewModel>(&event)) {
      served_.add(std::move(added->served), added->facts);
      if (auto costs = estimates_.find(added->facts)) added->facts.costs = *std::move(costs);
      return handle(ModelAdded{std::move(added->facts)}, now);
    }
    if (auto* peer = std::get_if<PeerMessage>(&event)) {
      peers_.give(peer->message.from, peer->bytes);
      return handle(std::move(peer->message), now);
    }
    if (std::holds_alternative<StepDone>(std::get<Event>(event))) busy_since_ns_ = 0;
    if (const auto* lost = std::get_if<PeerLost>(&std::get<Event>(event))) peers_.heard(lost->peer);
    handle(std::get<Event>(event), now);
  }

  void tick(TimePoint now) {
    if (const LoadDesk::Loading* load = node_.loads().loading()) handle(weights_.progress(load->model), now);
    if (const auto loading = node_.loads().under_way()) weights_.log_progress(*loading, now);
    estimates_.keep(node_, served_, now);
    handle(Tick{}, now);
    if (node_.loads().under_way()) loop_.wake_at(now + kProgressInterval);
  }

  void handle(const Event& event, TimePoint now) {
    std::vector<Effect> effects = node_.handle(event, now);
    publish_grants();
    if (record_) record_(logged_turn(config_.self, event, now, effects));
    for (Effect& effect : effects) perform(effect, now);
    working_ = !node_.idle();
    if (!working_) node_.check();
    // A load counts as progress; otherwise the time since the last step ended while there is work.
    if (!working_ || node_.loads().under_way()) {
      busy_since_ns_ = 0;
    } else if (busy_since_ns_ == 0) {
      busy_since_ns_ = now.time_since_epoch().count();
    }
  }

  // Before an effect reuses what was granted.
  void publish_grants() {
    if (std::exchange(grants_version_, node_.handovers().grants_version()) == node_.handovers().grants_version()) return;
    std::vector<KvGrant> grants;
    for (Handovers::Grant& g : node_.handovers().grants()) grants.push_back({g.request, g.reader, g.block_bytes, std::move(g.blocks)});
    kv_.set_grants(std::move(grants));
  }

  void perform(Effect& effect, TimePoint now) {
    if (auto* send = std::get_if<Send>(&effect)) {
      const Status sent = transport_->send(send->to, encode(send->message, life_, *names_));
      if (sent.code() == StatusCode::kResourceExhausted) lose(send->to);
      else if (!sent.ok()) unreachable(send->to, sent);
    } else if (auto* start = std::get_if<StartStep>(&effect)) {
      start_step(*start);
    } else if (auto* load = std::get_if<LoadWeights>(&effect)) {
      weights_.start(*load, now);
      loop_.wake_at(now + kProgressInterval);
    } else if (std::holds_alternative<CancelLoad>(effect)) {
      weights_.cancel();
    } else if (const auto* next = std::get_if<ReadAhead>(&effect)) {
      weights_.read_ahead(next->model);
    } else if (auto* drop = std::get_if<DropWeights>(&effect)) {
      CHECK(!node_.loads().packing(drop->model));
      weights_.drop(drop->model);
    } else if (const auto* back = std::get_if<ReturnPages>(&effect)) {
      if (back->tier == Tier::kHost) kv_.give_back(back->pages);
      else device_->give_back(page_ranges(back->pages));
    } else if (const auto* copy = std::get_if<CopyKv>(&effect)) {
      kv_.copy(*copy);
    } else if (auto* remap = std::get_if<RemapSlabs>(&effect)) {
      kv_.remap(*remap);
    } else if (auto* wake = std::get_if<WakeAt>(&effect)) {
      loop_.wake_at(wake->at);
    }
  }

  void start_step(StartStep& start) {
    const ServedModels::Entry& served = served_.at(start.model);
    std::vector<DeviceAddress> blocks = kv_.blocks_of(start.input, served.facts.kv_block_bytes);
    steps_.start({start.model, &weights_.model(start.model), served.facts.vocab_size, served.constraints.get(),
                  {std::move(start.input), std::move(blocks)}, node_.loads().packing(start.model), experts_ ? experts_(start.model) : nullptr});
  }

  // What copies tell is heard as long as they go on, and they go on until nothing is loaded any more.
  struct EndCopies {
    ~EndCopies() { device.end_copies(); }
    Device& device;
  };

  const NodeConfig config_;
  const std::shared_ptr<ModelNames> names_;
  const std::function<void(std::string_view)> record_;
  const std::shared_ptr<BulkNetwork> kv_network_;
  ServedModels served_;
  EstimateKeeper estimates_;
  Node node_;
  PeerBudget peers_;
  EventLoop<HostEvent> loop_{kEventsMax};
  std::atomic<int64_t> busy_since_ns_{0};
  std::atomic<bool> working_{false};
  std::atomic<uint32_t> life_{0};  // as last heard from the membership
  uint64_t grants_version_ = 0;    // as published
  const std::unique_ptr<CpuDevice> device_;
  ThreadPool pool_;
  const std::unique_ptr<Backend> backend_;
  const std::function<ExchangePartner*(ModelId)> experts_;
  std::deque<StepRunner> runners_;
  KvDriver kv_;
  StepThread steps_;
  std::unique_ptr<Transport> transport_;
  EndCopies end_copies_{*device_};
  WeightsDriver weights_;
  PageFiller filler_;
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
  const uint64_t places = (uint64_t{device_pages(plan.node)} + plan.node.host_pages) * kPageBytes + plan.weight_cache_bytes;
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

StatusOr<std::unique_ptr<NodeHost>> NodeHost::start(NodePlan plan, Network& network, std::shared_ptr<KvPeers> peers) {
  const DeviceGuard guard = plan.guarded ? DeviceGuard::kGuarded : DeviceGuard::kNone;
  ASSIGN_OR_RETURN(std::unique_ptr<CpuDevice> device, reserved(CpuDevice::make(device_pages(plan.node), guard), "--device-memory"));
  const uint32_t host_pages = std::max(plan.node.host_pages, 1u);
  std::shared_ptr<const MemoryFile> host_memory;
  if (plan.kv_link) {
    ASSIGN_OR_RETURN(host_memory, reserved(MemoryFile::make("shoal-kv", host_pages * kPageBytes), "--host-memory"));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<PagedMemory> host_tier, reserved(device->make_host_tier(host_pages, host_memory), "--device-memory or --host-memory"));
  std::vector<DeviceSpan> workspaces;
  for (uint32_t i = 0; i < plan.node.steps_max; ++i) {
    ASSIGN_OR_RETURN(workspaces.emplace_back(), device->allocate(plan.workspace_bytes));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<WeightCache> cache, reserved(WeightCache::make(plan.weight_cache_bytes), "--weight-cache"));
  RETURN_IF_ERROR(check_limits(plan));
  log_info("memory: up to ", format_bytes(plan.node.pages * kPageBytes), " for weights and KV, taken as they are needed, some ahead, and ",
           format_bytes(plan.node.workspace_bytes), " of workspace; ", format_bytes(plan.node.host_pages * kPageBytes),
           " for KV of models whose turn is not now; ", format_bytes(plan.weight_cache_bytes), " for weights read directly; beside these about ",
           format_bytes(beside_bytes(plan)), "; ", plan.cpus.threads, " threads");
  EstimateStore estimates(plan.estimates_file, plan.cpus.threads);
  for (NodeModel& model : plan.node.models) {
    if (auto costs = estimates.find(model)) model.costs = *std::move(costs);
  }
  const uint32_t pages_ahead = plan.fill_ahead ? pages_of_the_largest(plan.node) : 0;
  NodeHostImpl::Memory memory{std::move(device), std::move(host_tier), std::move(workspaces), std::move(cache), pages_ahead, {}, std::move(host_memory)};
  if (plan.kv_link) {
    ASSIGN_OR_RETURN(memory.kv_listeners, KvListeners::start(*plan.kv_link));
  }
  return std::make_unique<NodeHostImpl>(std::move(plan), std::move(memory), std::move(estimates), network, std::move(peers));
}

}  // namespace shoal
