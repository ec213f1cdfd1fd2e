#include "cluster/controller_loop.h"

#include <utility>

#include "base/clock.h"
#include "base/log.h"

namespace shoal {
namespace {

constexpr size_t kCommandsMax = 65'536;
constexpr Duration kIdleWait = std::chrono::seconds(1);

}  // namespace

ControllerLoop::ControllerLoop(const ControllerConfig& config, Network& network, std::shared_ptr<ModelNames> names)
    : names_(std::move(names)), queue_(kCommandsMax), controller_(config), self_(config.self) {
  transport_ = network.connect(self_, [this](NodeId from, std::string bytes) { return receive(from, std::move(bytes)); });
  thread_ = std::thread([this] { run(); });
}

ControllerLoop::~ControllerLoop() {
  queue_.close();
  thread_.join();
  transport_.reset();
}

bool ControllerLoop::receive(NodeId from, std::string bytes) {
  const PeerBudget::Answer answer = peers_.take(from, bytes.size());
  if (answer == PeerBudget::Answer::kTaken) queue_.push(Incoming{from, std::move(bytes)});
  if (answer == PeerBudget::Answer::kLost) queue_.push(Event(PeerLost{from}));
  return answer == PeerBudget::Answer::kTaken;
}

void ControllerLoop::run() {
  while (!queue_.closed()) {
    auto command = queue_.pop(kIdleWait);
    if (!command) continue;
    if (auto* incoming = std::get_if<Incoming>(&*command)) {
      peers_.give(incoming->from, incoming->bytes.size());
      auto arrival = decode(incoming->bytes, *names_);
      if (!arrival.ok()) {
        log_warning("message from ", incoming->from.value, " dropped: ", arrival.status().message());
        continue;
      }
      handle(MessageFrom{incoming->from, std::move(arrival->message), arrival->life});
      continue;
    }
    const Event& event = std::get<Event>(*command);
    if (const auto* lost = std::get_if<PeerLost>(&event)) peers_.heard(lost->peer);
    if (const auto* cluster = std::get_if<ClusterChanged>(&event)) {
      const auto self = cluster->state.members.find(self_);
      if (self != cluster->state.members.end()) life_ = self->second.epoch;
    }
    handle(event);
  }
}

void ControllerLoop::handle(const Event& event) {
  for (const Effect& effect : controller_.handle(event, steady_now())) {
    const auto* send = std::get_if<Send>(&effect);
    if (send == nullptr) continue;
    const Status sent = transport_->send(send->to, encode(send->message, life_, *names_));
    if (!sent.ok()) log_debug("node ", send->to.value, " cannot be reached: ", sent.message());
  }
}

}  // namespace shoal
