#include "experts/server.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <list>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "base/log.h"
#include "device/memory_limits.h"
#include "experts/orders.h"
#include "experts/server_status.h"
#include "experts/serving.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr size_t kConnectionsMax = 256;
constexpr Duration kTidy = std::chrono::milliseconds(100);
constexpr Duration kSayAgain = kBulkTimeout / 4;  // what it holds: a stream on which nothing comes is taken for broken

class Server : public ExpertServer {
 public:
  Server(ExpertServerConfig config, std::vector<ExpertModel> models)
      : config_(std::move(config)), holdings_(std::move(models), config_.memory_bytes, config_.threads), epoch_(static_cast<uint16_t>(std::random_device()() | 1)) {}
  ~Server() override;

  Status begin();
  uint16_t port() const override { return remote_ == nullptr ? 0 : remote_->port(); }
  Json status(bool rows) const override;
  void set_peers(std::vector<ExpertAddress> peers) override;
  Status hold(uint64_t stamp, const Json& experts) override;
  Status drop(uint64_t stamp, const Json& experts) override;

 private:
  // Of a connection until its channel takes over, or of an operator.
  struct Visit {
    std::thread thread;
    std::atomic<bool> over{false};
    BulkSocket* socket = nullptr;  // guarded by visits_mutex_; null: it is somebody else's
  };

  template <typename Listener>
  void accept(Listener& listener);
  void visit(Visit& visit, std::unique_ptr<BulkSocket> socket, LocalSocket* shared);
  Status greet(Visit& visit, std::unique_ptr<BulkSocket>& socket, LocalSocket* shared);
  Status greet_client(Visit& visit, std::unique_ptr<BulkSocket>& socket, LocalSocket* shared, const Json& note);
  StatusOr<size_t> model_of(const ExpertHello& hello) const;
  Status connect(Visit& visit, std::unique_ptr<BulkSocket>& socket, LocalSocket* shared, const ExpertHello& hello, size_t model);
  Status join_answers(Visit& visit, std::unique_ptr<BulkSocket>& socket, const Json& note);
  Json operate(const Json& request);
  StatusOr<std::pair<size_t, ExpertSet>> named(uint64_t stamp, const Json& experts) const;
  void admit(std::shared_ptr<ExpertClientSide> client);
  void publish(bool streamed_only = false);
  void tell(const ExpertClientSide& client);
  std::vector<ExpertAddress> machine() const;
  void tell_relays();
  void forget(Visit& visit);
  void tidy();
  void drain();

  const ExpertServerConfig config_;
  Holdings holdings_;
  std::shared_ptr<Bell> bell_;
  std::unique_ptr<Serving> serving_;
  std::unique_ptr<LocalListener> unix_;
  std::unique_ptr<BulkListener> remote_;
  std::atomic<bool> stop_{false};
  std::atomic<uint16_t> epoch_;
  std::atomic<uint64_t> next_client_{1};
  std::mutex visits_mutex_;
  std::list<Visit> visits_;
  // Clients over the network whose second stream is to come, by the token that it brings.
  struct Half {
    std::shared_ptr<ExpertClientSide> client;
    std::unique_ptr<BulkSocket> in;
    TimePoint until;
  };
  std::map<std::string, Half> halves_;  // guarded by visits_mutex_
  ExpertOrders orders_{config_.name};
  mutable std::mutex peers_mutex_;
  std::vector<ExpertAddress> peers_ = config_.peers;  // guarded by peers_mutex_
  std::vector<std::thread> threads_;
};

Status Server::begin() {
  for (size_t i = 0; i < holdings_.models().size(); ++i) orders_.add_model(holdings_.shape(i));
  for (size_t i = 0; i < holdings_.models().size(); ++i) {
    const ExpertSet& wanted = holdings_.models()[i].holds;
    if (wanted.count() == 0) continue;
    RETURN_IF_ERROR(holdings_.hold(i, wanted));
    orders_.pin(i, wanted, true);
  }
  RETURN_IF_ERROR(holdings_.self_test());
  ASSIGN_OR_RETURN(bell_, Bell::make());
  serving_ = std::make_unique<Serving>(config_, holdings_, bell_);
  if (!config_.unix_address.empty()) {
    ASSIGN_OR_RETURN(unix_, LocalListener::start(config_.unix_address));
    threads_.emplace_back([this] { accept(*unix_); });
  }
  if (!config_.network_address.empty()) {
    ASSIGN_OR_RETURN(remote_, config_.network->listen(config_.network_address));
    threads_.emplace_back([this] { accept(*remote_); });
  }
  threads_.emplace_back([this] { tidy(); });
  return OkStatus();
}

Server::~Server() {
  stop_ = true;
  if (unix_ != nullptr) unix_->shut_down();
  if (remote_ != nullptr) remote_->shut_down();
  for (std::thread& thread : threads_) thread.join();
  {
    std::lock_guard lock(visits_mutex_);
    for (Visit& visit : visits_) {
      if (visit.socket != nullptr) visit.socket->shut_down();
    }
    halves_.clear();
  }
  for (Visit& visit : visits_) visit.thread.join();
  if (serving_ != nullptr) {
    for (const auto& client : serving_->clients()) client->channel->end();
  }
  serving_.reset();
}

template <typename Listener>
void Server::accept(Listener& listener) {
  while (auto socket = listener.accept()) {
    LocalSocket* shared = nullptr;
    if constexpr (std::is_same_v<Listener, LocalListener>) shared = socket.get();
    std::lock_guard lock(visits_mutex_);
    if (stop_) return;
    if (visits_.size() >= kConnectionsMax) continue;  // closed; who asks tries again
    Visit& next = visits_.emplace_back();
    next.socket = socket.get();
    next.thread = std::thread([this, &next, shared, moved = std::unique_ptr<BulkSocket>(std::move(socket))]() mutable { visit(next, std::move(moved), shared); });
  }
}

void Server::forget(Visit& visit) {
  std::lock_guard lock(visits_mutex_);
  visit.socket = nullptr;
}

void Server::visit(Visit& visit, std::unique_ptr<BulkSocket> socket, LocalSocket* shared) {
  if (shared != nullptr) shared->set_timeout(kHandshakeTime);
  const Status status = greet(visit, socket, shared);
  if (!status.ok() && socket != nullptr) {
    log_debug("a connection was refused: ", status.message());
    write_note(*socket, refusal(status)).IgnoreError();
  }
  forget(visit);
  visit.over = true;
}

// What is left in `socket` is closed.
Status Server::greet(Visit& visit, std::unique_ptr<BulkSocket>& socket, LocalSocket* shared) {
  ASSIGN_OR_RETURN(const Json note, read_note(*socket));
  RETURN_IF_ERROR(check_protocol(note, "the client"));
  ASSIGN_OR_RETURN(const std::string kind, json_string(note, "kind", ""));
  if (kind == "client") return greet_client(visit, socket, shared, note);
  if (kind == "answers") return join_answers(visit, socket, note);
  if (kind != "control") return invalid_argument("a connection of a kind that this server does not know");
  while (true) {
    ASSIGN_OR_RETURN(const Json request, read_note(*socket));
    if (shared != nullptr) shared->set_timeout(Duration(0));
    RETURN_IF_ERROR(write_note(*socket, operate(request)));
  }
}

Status Server::greet_client(Visit& visit, std::unique_ptr<BulkSocket>& socket, LocalSocket* shared, const Json& note) {
  ASSIGN_OR_RETURN(const ExpertHello hello, read_hello(note));
  ASSIGN_OR_RETURN(const size_t model, model_of(hello));
  return connect(visit, socket, shared, hello, model);
}

// The model that the client means, if it is of the same files.
StatusOr<size_t> Server::model_of(const ExpertHello& hello) const {
  const std::optional<size_t> model = holdings_.find(hello.stamp);
  if (!model) {
    std::string here;
    for (const ExpertModel& m : holdings_.models()) absl::StrAppend(&here, here.empty() ? "" : ", ", "'", m.name, "' (", stamp_text(m.stamp), ")");
    return absl::FailedPreconditionError(absl::StrCat("expert server '", config_.name, "' has experts of ", here, ", and '", hello.client, "' asks for those of '", hello.model, "' (",
                                                      stamp_text(hello.stamp), "): other files, or other --quantization; start both with the same"));
  }
  const ExpertPlan& plan = *holdings_.models()[*model].plan;
  if (!(hello.shape == holdings_.shape(*model)) || hello.hidden != plan.hidden()) return absl::FailedPreconditionError("the model has another shape here");
  return *model;
}

Status Server::connect(Visit& visit, std::unique_ptr<BulkSocket>& socket, LocalSocket* shared, const ExpertHello& hello, size_t model) {
  const ExpertPlan& plan = *holdings_.models()[model].plan;
  auto client = std::make_shared<ExpertClientSide>();
  client->id = next_client_++;
  client->model = model;
  client->hello = hello;
  client->slots.resize(hello.lanes);
  client->answer_bytes.resize(hello.lanes);
  ExpertWelcome welcome{.server = config_.name, .pid = ::getpid(), .client = client->id};
  do welcome.epoch = ++epoch_; while (welcome.epoch == 0);
  welcome.rows_max = rows_per_request(plan.hidden());
  welcome.tokens_max = welcome.rows_max;
  client->welcomed_at = welcome.version = holdings_.version();
  welcome.holds = holdings_.set(model);
  for (ServerSlot& slot : client->slots) slot.attach(welcome.epoch);
  Json reply = write_welcome(welcome, holdings_.shape(model));
  const SlotSizes in{hello.lanes, request_bytes(welcome.tokens_max, welcome.rows_max, plan.hidden())};
  const SlotSizes out{hello.lanes, response_bytes(welcome.rows_max, plan.hidden())};
  SlotChannel::Parts parts{.bell = bell_};
  if (shared == nullptr) {
    std::string token;
    std::random_device random;
    for (int i = 0; i < 4; ++i) absl::StrAppendFormat(&token, "%08x", random());
    reply["token"] = token;
    RETURN_IF_ERROR(write_note(*socket, reply));
    forget(visit);
    std::lock_guard lock(visits_mutex_);
    halves_[token] = {std::move(client), std::move(socket), steady_now() + kHandshakeTime};
    return OkStatus();
  }
  ASSIGN_OR_RETURN(parts.inbox, Region::make_shared(in));
  RETURN_IF_ERROR(write_note(*socket, reply));
  ASSIGN_OR_RETURN(const std::vector<int> theirs, shared->receive_descriptors(2));
  parts.peer_bell = Bell::of(theirs[1]);
  ASSIGN_OR_RETURN(parts.outbox, Region::map(theirs[0], out));
  const int own[] = {parts.inbox->fd(), bell_->fd()};
  RETURN_IF_ERROR(shared->send_descriptors(own));
  shared->set_timeout(Duration(0));
  forget(visit);
  parts.in = std::move(socket);
  client->channel = std::make_unique<SlotChannel>(std::move(parts), hello.lanes, client->hears());
  log_info("'", hello.client, "' is connected over shared memory for experts of '", holdings_.models()[model].name, "'");
  admit(std::move(client));
  return OkStatus();
}

Status Server::join_answers(Visit& visit, std::unique_ptr<BulkSocket>& socket, const Json& note) {
  ASSIGN_OR_RETURN(const std::string token, json_string(note, "token", ""));
  Half half;
  {
    std::lock_guard lock(visits_mutex_);
    auto found = halves_.extract(token);
    if (found.empty()) return not_found("no client waits for these answers");
    half = std::move(found.mapped());
  }
  const ExpertHello& hello = half.client->hello;
  const uint32_t rows = rows_per_request(hello.hidden);
  SlotChannel::Parts parts{.bell = bell_};
  ASSIGN_OR_RETURN(parts.inbox, Region::make_private({hello.lanes, request_bytes(rows, rows, hello.hidden)}));
  ASSIGN_OR_RETURN(parts.outbox, Region::make_private({hello.lanes, response_bytes(rows, hello.hidden)}));
  RETURN_IF_ERROR(write_note(*socket, Json::object()));
  forget(visit);
  parts.in = std::move(half.in);
  parts.out = std::move(socket);
  half.client->channel = std::make_unique<SlotChannel>(std::move(parts), hello.lanes, half.client->hears());
  if (!config_.unix_address.empty()) {
    ASSIGN_OR_RETURN(half.client->relay, ExpertRelay::start(config_.name, hello, holdings_.models()[half.client->model].plan, bell_));
  }
  log_info("'", hello.client, "' is connected over ", std::string(half.client->channel->kind()), " for experts of '", holdings_.models()[half.client->model].name, "'");
  admit(std::move(half.client));
  return OkStatus();
}

// Connections that ended, and threads that are over.
void Server::tidy() {
  TimePoint said = steady_now();
  while (!stop_) {
    bell_->ring();
    std::this_thread::sleep_for(kTidy);
    if (steady_now() - said >= kSayAgain) {
      said = steady_now();
      publish(/*streamed_only=*/true);
    }
    serving_->take_ended();  // their channels end here
    tell_relays();
    std::list<Visit> over;
    std::lock_guard lock(visits_mutex_);
    for (auto it = visits_.begin(); it != visits_.end();) {
      const auto next = std::next(it);
      if (it->over) over.splice(over.end(), visits_, it);
      it = next;
    }
    for (Visit& visit : over) visit.thread.join();
    std::erase_if(halves_, [now = steady_now()](const auto& half) { return half.second.until < now; });
  }
}

// The servers that rows of clients may be given to; none if there is no other.
std::vector<ExpertAddress> Server::machine() const {
  std::lock_guard lock(peers_mutex_);
  std::vector<ExpertAddress> all = peers_;
  if (!all.empty()) all.push_back({.name = config_.name, .address = "unix:" + config_.unix_address});
  return all;
}

void Server::set_peers(std::vector<ExpertAddress> peers) {
  {
    std::lock_guard lock(peers_mutex_);
    if (peers == peers_) return;
    peers_ = std::move(peers);
  }
  for (const auto& client : serving_->clients()) {
    if (client->relay != nullptr) client->relay->set_servers(machine());
  }
}

void Server::tell_relays() {
  for (const auto& client : serving_->clients()) {
    if (client->relay == nullptr) continue;
    std::vector<std::string> names = client->relay->servers();
    if (names == client->told_relays) continue;
    client->channel->note({{"relays", names}});
    client->told_relays = std::move(names);
  }
}

Json Server::operate(const Json& request) {
  const auto run = [&]() -> StatusOr<Json> {
    ASSIGN_OR_RETURN(const std::string verb, json_string(request, "verb", ""));
    ASSIGN_OR_RETURN(const bool rows, json_bool(request, "rows", false));
    if (verb == "status") return status(rows);
    if (verb == "hold" || verb == "drop") {
      ASSIGN_OR_RETURN(const uint64_t stamp, read_stamp(request, "model"));
      ASSIGN_OR_RETURN(const bool pinned, json_bool(request, "pin", false));
      const Json experts = request.value("experts", Json::object());
      RETURN_IF_ERROR(verb == "hold" ? hold(stamp, experts) : drop(stamp, experts));
      ASSIGN_OR_RETURN(const auto set, named(stamp, experts));
      if (pinned || verb == "drop") orders_.pin(set.first, set.second, verb == "hold");
    } else if (verb == "unpin") {
      for (size_t i = 0; i < holdings_.models().size(); ++i) orders_.pin(i, holdings_.set(i), false);
    } else if (verb == "keep") {
      RETURN_IF_ERROR(orders_.keep(request, steady_now()));
    } else if (verb == "close") {
      orders_.drain(true);
    } else if (verb == "drain") {
      drain();
    } else if (verb == "resume") {
      orders_.drain(false);
    } else {
      return invalid_argument("an expert server takes no '", verb, "'; it takes status, hold, drop, unpin, keep, close, drain and resume");
    }
    return status(rows);
  };
  auto answer = run();
  return answer.ok() ? *std::move(answer) : refusal(answer.status());
}

// What only it holds is copied before: by whoever asks for this.
void Server::drain() {
  orders_.drain(true);
  for (size_t i = 0; i < holdings_.models().size(); ++i) holdings_.drop(i, holdings_.set(i));
  publish();
  log_info("draining: nothing is held any more");
  if (config_.on_drain) config_.on_drain();
}

StatusOr<std::pair<size_t, ExpertSet>> Server::named(uint64_t stamp, const Json& experts) const {
  const std::optional<size_t> model = holdings_.find(stamp);
  if (!model) return not_found("expert server '", config_.name, "' has no model of the stamp ", stamp_text(stamp));
  ASSIGN_OR_RETURN(ExpertSet set, read_set(holdings_.shape(*model), experts));
  return std::pair(*model, std::move(set));
}

Status Server::hold(uint64_t stamp, const Json& experts) {
  ASSIGN_OR_RETURN(const auto named_set, named(stamp, experts));
  RETURN_IF_ERROR(orders_.check_takes());
  RETURN_IF_ERROR(holdings_.hold(named_set.first, named_set.second));
  if (const Status tested = holdings_.self_test(); !tested.ok()) {
    holdings_.drop(named_set.first, named_set.second);
    return tested;
  }
  publish();
  return OkStatus();
}

Status Server::drop(uint64_t stamp, const Json& experts) {
  ASSIGN_OR_RETURN(const auto named_set, named(stamp, experts));
  const ExpertSet held = holdings_.set(named_set.first);
  for (const uint32_t index : named_set.second.list()) {
    if (!held.has(index)) return not_found("'", config_.name, "' does not hold ", expert_text(holdings_.shape(named_set.first), index));
  }
  holdings_.drop(named_set.first, named_set.second);
  publish();
  return OkStatus();
}

// What changes from now on it is told with the others; what changed meanwhile it has not heard.
void Server::admit(std::shared_ptr<ExpertClientSide> client) {
  serving_->add(client);
  if (client->relay != nullptr) client->relay->set_servers(machine());
  if (holdings_.version() != client->welcomed_at) tell(*client);
}

// To everybody who is connected; who has not heard of it yet is told when it asks for what is gone.
void Server::publish(bool streamed_only) {
  for (const auto& client : serving_->clients()) {
    if (streamed_only && !client->channel->streamed()) continue;
    tell(*client);
  }
}

void Server::tell(const ExpertClientSide& client) {
  client.channel->note({{"version", holdings_.version()}, {"holds", write_set(holdings_.shape(client.model), holdings_.set(client.model))}});
}

Json Server::status(bool with_rows) const { return expert_server_status({config_, holdings_, *serving_, orders_}, with_rows); }

}  // namespace

StatusOr<std::unique_ptr<ExpertServer>> ExpertServer::start(ExpertServerConfig config, std::vector<ExpertModel> models) {
  if (config.memory_bytes == 0) config.memory_bytes = available_memory_bytes() / 10 * 8;
  auto server = std::make_unique<Server>(std::move(config), std::move(models));
  RETURN_IF_ERROR(server->begin());
  return std::unique_ptr<ExpertServer>(std::move(server));
}

}  // namespace shoal
