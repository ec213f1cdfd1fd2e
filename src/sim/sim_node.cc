#include "sim/sim_node.h"

#include <algorithm>
#include <utility>

namespace shoal {
namespace {

constexpr double kAdopt = 0.5e-3;                            // seconds of a load that finds its weights there
constexpr Duration kCancel = std::chrono::milliseconds(1);  // until a load that is called off has stopped

}  // namespace

SimNode::SimNode(WorldState& world, uint32_t index, Checkers& checkers, SendMessage send, Connect connect)
    : world_(world), index_(index), spec_(world.setup.nodes[index]), checkers_(checkers), send_(std::move(send)), connect_(std::move(connect)),
      bus_(world, spec_.load_bytes_per_second) {}

void SimNode::start() {
  NodeConfig config = spec_.config;
  std::erase_if(config.models, [this](const NodeModel& m) { return !world_.served[m.model.value]; });
  node_ = std::make_unique<Node>(config);
  if (world_.setup.strict) {
    device_ = std::make_unique<StrictDevice>(spec_.config);
  } else {
    device_ = std::make_unique<LightDevice>();
  }
  wake_ = kForever;
  copies_end_ = world_.now;
  paused_until_ = {};
  ++life_;
}

void SimNode::stop() {
  settle();
  node_.reset();
  device_.reset();
  bus_.clear();
  held_.clear();
  for (auto& [model, held] : weights_) {
    if (std::exchange(held.now, false)) held.left = world_.now;
  }
  ++life_;
}

void SimNode::settle() {
  if (!alive()) return;
  computing_ = false;
  load_.reset();
  for (const ModelStatus& model : node_->status().models) {
    world_.outcome.preemptions += model.preemptions;
    world_.outcome.prefix_hits += model.prefix_hits;
  }
  checkers_.life_ended(NodeId(index_), *node_);
}

bool SimNode::held_since(ModelId model, TimePoint then) const {
  const auto found = weights_.find(model);
  return found != weights_.end() && (found->second.now || found->second.left >= then);
}

void SimNode::handle(const Event& event) {
  if (world_.now < paused_until_) return held_.push_back([this, event] { handle(event); });
  checkers_.event(NodeId(index_), event);
  const Interceptor* interceptor = world_.setup.interceptor.get();
  std::vector<Effect> effects;
  if (interceptor != nullptr && interceptor->event) {
    Event spoilt = event;
    if (!interceptor->event(NodeId(index_), spoilt)) return;
    effects = node_->handle(spoilt, world_.now);
  } else {
    effects = node_->handle(event, world_.now);
  }
  if (interceptor != nullptr && interceptor->effects) interceptor->effects(NodeId(index_), effects);
  checkers_.effects(NodeId(index_), effects);
  for (Effect& effect : effects) perform(std::move(effect));
}

void SimNode::pause(TimePoint until) {
  paused_until_ = until;
  in_this_life(until - world_.now, [this] {
    if (world_.now < paused_until_) return;
    for (EventHeap::Act& act : std::exchange(held_, {})) {
      if (alive()) act();
    }
  });
}

void SimNode::in_this_life(Duration delay, EventHeap::Act act, bool work) {
  world_.heap.at(world_.now + std::max(delay, Duration(0)), [this, life = life_, act = std::move(act)]() mutable {
    if (life_ == life) act();
  }, work);
}

void SimNode::perform(Effect effect) {
  if (auto* e = std::get_if<Send>(&effect)) {
    send_(NodeId(index_), e->to, std::move(e->message));
  } else if (auto* e = std::get_if<StartStep>(&effect)) {
    start_step(std::move(*e));
  } else if (const auto* e = std::get_if<LoadWeights>(&effect)) {
    load(*e);
  } else if (const auto* e = std::get_if<CancelLoad>(&effect)) {
    cancel_load(e->model);
  } else if (std::holds_alternative<ReadAhead>(effect)) {
    world_.note(11, index_);  // what a disk takes is part of the cost of a load here
  } else if (const auto* e = std::get_if<DropWeights>(&effect)) {
    world_.note(3, index_, e->model.value);
    weights_[e->model] = {false, world_.now};
    device_->drop(*e);
  } else if (const auto* e = std::get_if<ReturnPages>(&effect)) {
    device_->return_pages(*e);
  } else if (const auto* e = std::get_if<RemapSlabs>(&effect)) {
    world_.note(4, index_, e->changes.size());
    device_->remap(*e);
  } else if (const auto* e = std::get_if<CopyKv>(&effect)) {
    copy(*e);
  } else if (const auto* e = std::get_if<WakeAt>(&effect)) {
    wake_at(e->at);
  } else {
    world_.violate("a node gave an effect that is not its own");
  }
}

void SimNode::start_step(StartStep effect) {
  world_.note(1, index_, effect.input.rows());
  const Duration takes = spec_.steps.at(effect.model.value).of(effect.input);
  StepResult result = device_->run(effect.model, effect.input);
  if (deferral_ > 0 && world_.rng.chance(deferral_)) {
    result = {result.step, {}, unavailable("a server of experts is away")};
    ++world_.outcome.steps_deferred;
  }
  ++seen().steps;
  ++world_.outcome.steps;
  seen().busy_seconds += to_seconds(takes);
  if (load_ && !computing_) seen().visible_load_seconds += world_.seconds() - visible_from_;
  computing_ = true;
  const double from = world_.seconds();
  in_this_life(takes, [this, from, done = StepDone{effect.model, std::move(result)}]() mutable {
    computing_ = false;
    visible_from_ = world_.seconds();
    span(TimelineSpan::Kind::kCompute, done.model, from);
    seen().tokens += done.result.slices.size();
    handle(std::move(done));
  });
}

void SimNode::load(const LoadWeights& effect) {
  world_.note(2, index_, effect.model.value);
  ++world_.outcome.loads;
  ++seen().loads;
  device_->begin_load(effect);
  visible_from_ = world_.seconds();
  const uint64_t weight_bytes = spec_.config.models.at(effect.model.value).weight_bytes;
  const auto bytes = static_cast<double>(spec_.load_bytes.empty() ? weight_bytes : spec_.load_bytes.at(effect.model.value));
  const double pages = page_count(effect.pages);
  const double copied = pages > 0 ? 1 - page_count(effect.whole) / pages : 1;
  world_.outcome.loads_copied += copied;
  world_.outcome.loads_copied_nothing += copied == 0;
  load_ = Load{.number = ++loads_, .model = effect.model, .since = world_.now, .pages = page_count(effect.pages), .whole = effect.whole};
  load_->fails = load_failure_ > 0 && world_.rng.chance(load_failure_);
  load_->bytes = bytes * copied * disk_factor_;
  in_this_life(from_seconds((spec_.load_seconds * copied + kAdopt * (1 - copied)) * disk_factor_), [this, number = loads_] {
    if (load_ && load_->number == number) move_weights();
  });
}

void SimNode::move_weights() {
  load_->moves_since = world_.now;
  auto done = [this, number = load_->number] {
    if (load_ && load_->number == number) end_load(load_->fails ? data_loss("the file vanished") : OkStatus());
  };
  if (spec_.shared_link) {
    load_->transfer = bus_.transfer(load_->bytes, std::move(done));
  } else {
    in_this_life(from_seconds(load_->bytes / spec_.load_bytes_per_second), std::move(done));
  }
}

// It stops a moment later, or comes too late.
void SimNode::cancel_load(ModelId model) {
  world_.note(10, index_, model.value);
  if (world_.rng.chance(0.1) || !load_) return;
  ++world_.outcome.loads_cancelled;
  double left = load_->bytes;
  if (load_->transfer) {
    left = bus_.cancel(*load_->transfer);
  } else if (load_->moves_since) {
    left = std::max(0.0, left - to_seconds(world_.now - *load_->moves_since) * spec_.load_bytes_per_second);
  }
  load_->fill(load_->bytes > 0 ? 1 - left / load_->bytes : 0);
  load_->number = ++loads_;
  in_this_life(kCancel, [this, number = loads_] {
    if (load_ && load_->number == number) end_load(absl::CancelledError("called off"));
  });
}

// So much of what was missing is there, from the first page on.
void SimNode::Load::fill(double share) {
  auto fills = static_cast<uint32_t>(share * (pages - page_count(whole)));
  std::vector<PageSpan> filled;
  uint32_t at = 0;
  const auto fill_until = [&](uint32_t end) {
    const uint32_t count = std::min(end - at, fills);
    if (count > 0) filled.push_back({at, count});
    fills -= count;
  };
  for (const PageSpan& span : whole) {
    fill_until(span.first);
    filled.push_back(span);
    at = span.first + span.count;
  }
  fill_until(pages);
  whole = std::move(filled);
}

void SimNode::end_load(const Status& status) {
  const Load load = *std::exchange(load_, std::nullopt);
  const double from = to_seconds(load.since.time_since_epoch());
  seen().load_seconds += world_.seconds() - from;
  if (!computing_) seen().visible_load_seconds += world_.seconds() - visible_from_;
  span(TimelineSpan::Kind::kLoad, load.model, from);
  weights_[load.model].now = status.ok();
  WeightsReady ready{load.model, status, {}};
  if (status.code() == StatusCode::kCancelled) ready.whole = load.whole;
  device_->end_load(load.model, status.ok(), ready.whole);
  handle(std::move(ready));
}

// One after the other, as a node's copier does it.
void SimNode::copy(const CopyKv& effect) {
  world_.note(9, index_, effect.move.copies.size());
  ++world_.outcome.copies;
  ++seen().copies;
  device_->begin_copy(effect);
  const auto bytes = static_cast<double>(effect.move.copies.size() * effect.move.block_bytes) * disk_factor_;
  world_.outcome.fetches += effect.move.remote;
  const Connection source = effect.move.remote ? connect_(NodeId(index_), effect.from) : Connection{};
  auto done = [this, effect, source] { end_copy(effect, source); };
  if (spec_.shared_link) {
    bus_.transfer(bytes, std::move(done));
    return;
  }
  copies_end_ = std::max(copies_end_, world_.now) + from_seconds(bytes / spec_.copy_bytes_per_second);
  in_this_life(copies_end_ - world_.now, std::move(done));
}

// The last bytes of a remote one wait until they can pass.
void SimNode::end_copy(const CopyKv& effect, const Connection& source) {
  bool ok = true;
  if (effect.move.remote) {
    const Connection connection = connect_(NodeId(index_), effect.from);
    ok = source.device != nullptr && source.device == connection.device && source.number == connection.number;
    if (ok && connection.passable > world_.now) {
      return in_this_life(connection.passable - world_.now, [this, effect, source] { end_copy(effect, source); });
    }
  }
  if (ok) device_->end_copy(effect, source.device);
  handle(KvCopied{effect.model, effect.move.id, ok});
}

void SimNode::wake_at(TimePoint when) {
  if (when >= wake_) return;
  wake_ = when;
  in_this_life(when - world_.now, [this, when] {
    if (wake_ != when) return;
    wake_ = kForever;
    handle(Tick{});
  }, /*work=*/false);
}

void SimNode::span(TimelineSpan::Kind kind, ModelId model, double from) {
  std::vector<TimelineSpan>& spans = world_.outcome.spans;
  if (world_.setup.spans_max == 0) return;
  // Steps of one model without a gap are one stretch.
  for (size_t back = 1; kind == TimelineSpan::Kind::kCompute && back <= std::min<size_t>(spans.size(), 2 * world_.setup.nodes.size()); ++back) {
    TimelineSpan& last = spans[spans.size() - back];
    if (last.node != index_ || last.kind != kind) continue;
    if (last.model != model || from - last.to > 0.1) break;
    last.to = world_.seconds();
    return;
  }
  if (spans.size() < world_.setup.spans_max) spans.push_back({kind, index_, model, from, world_.seconds()});
}

}  // namespace shoal
