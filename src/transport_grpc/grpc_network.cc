#include "transport_grpc/grpc_network.h"

#include <grpc/support/log.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/log.h"
#include "transport_grpc/link.h"
#include "transport_grpc/peer_service.h"

namespace shoal {
namespace {

constexpr Duration kLook = std::chrono::milliseconds(50);
constexpr Duration kRedial = std::chrono::milliseconds(200), kRedialRefused = std::chrono::seconds(3);
constexpr int kFrameBytesMax = 300 << 20;  // a message of wire/message.h and its frame
constexpr auto kCardsTime = std::chrono::seconds(10), kTextTime = std::chrono::seconds(120), kOperateTime = std::chrono::seconds(300);

std::shared_ptr<grpc::ServerCredentials> server_credentials(const TlsIdentity& tls) {
  if (!tls.given()) return grpc::InsecureServerCredentials();
  grpc::SslServerCredentialsOptions options(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = tls.ca;
  options.pem_key_cert_pairs.push_back({tls.key, tls.certificate});
  return grpc::SslServerCredentials(options);
}

std::shared_ptr<grpc::ChannelCredentials> client_credentials(const TlsIdentity& tls) {
  if (!tls.given()) return grpc::InsecureChannelCredentials();
  return grpc::SslCredentials({tls.ca, tls.key, tls.certificate});
}

Status from_grpc(const grpc::Status& status, const PeerAddress& peer) {
  if (status.ok()) return OkStatus();
  return Status(static_cast<StatusCode>(status.error_code()), absl::StrCat("'", peer.name, "' at ", peer.address, ": ", status.error_message()));
}

class GrpcNetworkImpl : public GrpcNetwork, public LinkOwner, public PeerHost {
 public:
  GrpcNetworkImpl(GrpcNetworkConfig config, OnLink on_link, PeerHandlers handlers)
      : config_(std::move(config)), on_link_(std::move(on_link)), handlers_(std::move(handlers)), service_(*this) {
    hello_.set_protocol(config_.protocol);
    hello_.set_cluster(config_.cluster);
    hello_.set_name(config_.name);
    hello_.set_instance(config_.instance);
  }

  Status listen() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(config_.listen, server_credentials(config_.tls), &port);
    builder.SetMaxReceiveMessageSize(kFrameBytesMax);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port == 0) {
      return unavailable("--listen ", config_.listen, ": nothing can be served there: is the address this machine's, the port free",
                         config_.tls.given() ? ", and do --tls-cert, --tls-key and --tls-ca hold a certificate, its key and an authority in PEM?" : "?");
    }
    port_ = static_cast<uint16_t>(port);
    keeper_ = std::thread([this] { keep(); });
    return OkStatus();
  }

  ~GrpcNetworkImpl() override {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    if (keeper_.joinable()) keeper_.join();
    if (operator_.joinable()) operator_.join();
    close_all();
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(500));
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return streams_ == 0; });  // each of them refers to this
      peers_.clear();
    }
    server_.reset();
  }

  uint16_t port() const override { return port_; }

  std::unique_ptr<Transport> connect(NodeId self, Transport::OnMessage on_message) override;

  void set_peers(std::vector<PeerAddress> peers) override {
    std::vector<std::shared_ptr<Link>> over;
    {
      std::lock_guard lock(mutex_);
      std::map<NodeId, Peer> next;
      for (PeerAddress& address : peers) {
        Peer& peer = next[address.id];
        if (const auto known = peers_.find(address.id); known != peers_.end() && known->second.address == address) peer = std::move(known->second);
        peer.address = std::move(address);
        const auto link = links_.find(peer.address.id);
        if (link != links_.end() && link->second->peer_instance != peer.address.instance) over.push_back(link->second);
      }
      peers_ = std::move(next);
    }
    for (const auto& link : over) link->close();
    changed_.notify_all();
  }

  StatusOr<std::string> cards(const PeerAddress& peer) override {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kCardsTime);
    peer::CardsReply reply;
    RETURN_IF_ERROR(from_grpc(peer::Peer::NewStub(channel(peer))->Cards(&context, {}, &reply), peer));
    return std::move(*reply.mutable_json());
  }

  Status text(const PeerAddress& peer, const std::string& model, uint64_t stamp, const PeerHandlers::Emit& emit) override {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kTextTime);
    peer::TextRequest request;
    request.set_model(model);
    request.set_stamp(stamp);
    const auto stub = peer::Peer::NewStub(channel(peer));
    const auto stream = stub->Text(&context, request);
    peer::TextPart part;
    while (stream->Read(&part)) {
      if (!emit(part.file(), part.data())) context.TryCancel();
    }
    return from_grpc(stream->Finish(), peer);
  }

  StatusOr<std::string> operate(const PeerAddress& peer, const std::string& verb) override {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kOperateTime);
    peer::OperateRequest request;
    request.set_verb(verb);
    peer::OperateReply reply;
    RETURN_IF_ERROR(from_grpc(peer::Peer::NewStub(channel(peer))->Operate(&context, request, &reply), peer));
    return std::move(*reply.mutable_json());
  }

  // One at a time; who comes meanwhile waits.
  void apart(std::function<void()> work) override {
    std::lock_guard lock(mutex_);
    operations_.push_back(std::move(work));
    if (!std::exchange(operator_idle_, false)) return;
    if (operator_.joinable()) operator_.join();
    operator_ = std::thread([this] {
      std::unique_lock running(mutex_);
      while (!operations_.empty()) {
        const auto next = std::move(operations_.front());
        operations_.pop_front();
        running.unlock();
        next();
        running.lock();
      }
      operator_idle_ = true;
    });
  }

  // ---- LinkOwner ----------------------------------------------------------------------------------------------------------

  grpc::Status greeted(const std::shared_ptr<Link>& link, const peer::Hello& hello) override {
    if (hello.protocol() != config_.protocol) {
      return {grpc::FAILED_PRECONDITION, absl::StrCat("'", hello.name(), "' speaks protocol ", hello.protocol(), " and '", config_.name, "' protocol ", config_.protocol,
                                                      ": run the same version of shoal on both")};
    }
    if (hello.cluster() != config_.cluster) {
      return {grpc::FAILED_PRECONDITION, absl::StrCat("'", hello.name(), "' belongs to cluster '", hello.cluster(), "', '", config_.name, "' to '", config_.cluster, "'")};
    }
    if (hello.name().empty() || hello.name() == config_.name) return {grpc::INVALID_ARGUMENT, absl::StrCat("a peer named '", hello.name(), "'")};
    std::shared_ptr<Link> before;
    bool answer = false;
    {
      std::lock_guard lock(mutex_);
      if (stop_ || !receives_) return {grpc::UNAVAILABLE, absl::StrCat("'", config_.name, stop_ ? "' is ending" : "' is still starting")};
      answer = link->peer_name.empty();  // who dialled has said already who it is
      if (!answer && link->peer_name != hello.name()) {
        return {grpc::FAILED_PRECONDITION, absl::StrCat("'", hello.name(), "' is there, not '", link->peer_name, "'")};
      }
      link->peer = config_.id_of(hello.name());
      link->peer_name = hello.name();
      link->peer_instance = hello.instance();
      if (const auto found = links_.find(link->peer); found != links_.end() && found->second != link) before = found->second;
    }
    if (before != nullptr) drop(before);
    {
      std::lock_guard receiving(receiving_);
      std::lock_guard lock(mutex_);
      links_[link->peer] = link;
      link->up = true;
      dialling_.erase(link->peer);
      on_link_(link->peer, link->peer_name, true);
    }
    if (answer) {
      peer::Frame frame;
      *frame.mutable_hello() = hello_;
      link->send(std::move(frame), config_.waiting_bytes_max);
    }
    return grpc::Status::OK;
  }

  bool message(Link& link, std::string bytes) override {
    std::lock_guard lock(receiving_);
    if (!link.up) return true;  // it was lost a moment ago; what comes late is of nobody
    return on_message_ == nullptr || on_message_(link.peer, std::move(bytes));
  }

  void ended(const std::shared_ptr<Link>& link, const grpc::Status& status) override {
    drop(link);
    std::lock_guard lock(mutex_);
    if (const auto dialled = dialling_.find(link->peer); dialled != dialling_.end() && dialled->second == link) dialling_.erase(dialled);
    if (const auto peer = peers_.find(link->peer); peer != peers_.end()) note_end(peer->second, status);
  }

  void gone() override {
    std::lock_guard lock(mutex_);
    --streams_;
    changed_.notify_all();
  }

  // ---- PeerHost -----------------------------------------------------------------------------------------------------------

  grpc::ServerBidiReactor<peer::Frame, peer::Frame>* begin_answer(grpc::CallbackServerContext* context) override {
    {
      std::lock_guard lock(mutex_);
      ++streams_;
    }
    return answer(*this, context);
  }
  const PeerHandlers& handlers() const override { return handlers_; }

  Status send(NodeId to, std::string bytes) {
    std::shared_ptr<Link> link;
    {
      std::lock_guard lock(mutex_);
      const auto found = links_.find(to);
      if (found == links_.end()) return unavailable("process ", to.value, " is not connected");
      link = found->second;
    }
    peer::Frame frame;
    frame.set_message(std::move(bytes));
    return link->send(std::move(frame), config_.waiting_bytes_max) ? OkStatus() : unavailable("the stream to '", link->peer_name, "' has ended");
  }
  void set_receiver(Transport::OnMessage on_message) {
    std::lock_guard receiving(receiving_);
    std::lock_guard lock(mutex_);
    receives_ = on_message != nullptr;
    on_message_ = std::move(on_message);
  }

 private:
  struct Peer {
    PeerAddress address;
    std::shared_ptr<grpc::Channel> channel;
    TimePoint dial_at{};
    std::string last_end;  // as last said of it
  };

  std::shared_ptr<grpc::Channel> channel_to(const std::string& address) const {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(kFrameBytesMax);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1'000);
    arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 2'000);  // how long one attempt may take: a peer may accept and say nothing
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel(address, client_credentials(config_.tls), arguments);
  }
  std::shared_ptr<grpc::Channel> channel(const PeerAddress& address) {
    std::lock_guard lock(mutex_);
    const auto known = peers_.find(address.id);
    return known != peers_.end() && known->second.channel ? known->second.channel : channel_to(address.address);
  }

  // It is a stream no more, if it was one.
  void drop(const std::shared_ptr<Link>& link) {
    {
      std::lock_guard receiving(receiving_);
      std::lock_guard lock(mutex_);
      if (!link->up.exchange(false)) return;
      const auto found = links_.find(link->peer);
      if (found != links_.end() && found->second == link) links_.erase(found);
      on_link_(link->peer, link->peer_name, false);
    }
    link->close();
  }

  void close_all() {
    std::vector<std::shared_ptr<Link>> all;
    {
      std::lock_guard lock(mutex_);
      for (const auto& [id, link] : links_) all.push_back(link);
      for (const auto& [id, link] : dialling_) all.push_back(link);
    }
    for (const auto& link : all) link->close();
  }

  // REQUIRES: mutex_ held. Says once why a peer cannot be reached, and when to try again.
  void note_end(Peer& peer, const grpc::Status& status) {
    const bool refused = status.error_code() == grpc::FAILED_PRECONDITION || status.error_code() == grpc::INVALID_ARGUMENT;
    peer.dial_at = steady_now() + (refused ? kRedialRefused : kRedial);
    peer.channel.reset();
    if (status.ok() || status.error_code() == grpc::CANCELLED || stop_) return;
    if (std::exchange(peer.last_end, status.error_message()) != status.error_message()) {
      log_warning("no stream to '", peer.address.name, "' at ", peer.address.address, ": ", status.error_message(), refused ? "" : "; trying again");
    }
  }

  // Dials whom it has to, beats, and ends what is silent.
  void keep() {
    std::unique_lock lock(mutex_);
    while (!stop_) {
      const TimePoint now = steady_now();
      // With thousands of peers beats alone would be work.
      const Duration silence = std::max(config_.silence_max, Duration(std::chrono::milliseconds(5)) * static_cast<int64_t>(links_.size()));
      std::vector<std::shared_ptr<Link>> silent, beat, dialled;
      for (const auto& [id, link] : links_) {
        if (now - link->heard() > silence) silent.push_back(link);
        else if (now - link->sent() > silence / 5) beat.push_back(link);
      }
      for (const auto& [id, link] : dialling_) {
        if (now - link->heard() > 2 * silence) silent.push_back(link);
      }
      for (auto& [id, peer] : peers_) {
        if (receives_ && config_.self < id && !links_.contains(id) && !dialling_.contains(id) && now >= peer.dial_at) begin_dial(id, peer, dialled);
      }
      lock.unlock();
      for (const auto& link : silent) {
        log_debug("nothing was heard of '", link->peer_name, "' for too long");
        drop(link);
        link->close();
      }
      for (const auto& link : beat) link->send({}, config_.waiting_bytes_max);
      dialled.clear();
      lock.lock();
      changed_.wait_for(lock, kLook, [&] { return stop_; });
    }
  }

  // REQUIRES: mutex_ held.
  void begin_dial(NodeId id, Peer& peer, std::vector<std::shared_ptr<Link>>& dialled) {
    if (peer.channel == nullptr) peer.channel = channel_to(peer.address.address);
    peer.dial_at = steady_now() + kRedial;
    ++streams_;
    auto link = dial(peer.channel, hello_, *this, config_.waiting_bytes_max);
    link->peer = id;
    link->peer_name = peer.address.name;
    dialling_[id] = link;
    dialled.push_back(std::move(link));
  }

  const GrpcNetworkConfig config_;
  const OnLink on_link_;
  const PeerHandlers handlers_;
  peer::Hello hello_;
  PeerService service_;
  std::unique_ptr<grpc::Server> server_;
  uint16_t port_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  bool receives_ = false;                              // there is an endpoint
  size_t streams_ = 0;                                 // that refer to this
  std::map<NodeId, Peer> peers_;
  std::map<NodeId, std::shared_ptr<Link>> links_;      // greeted
  std::map<NodeId, std::shared_ptr<Link>> dialling_;   // by this side, not greeted yet
  std::mutex receiving_;                               // held while the handler runs; taken before mutex_
  Transport::OnMessage on_message_;
  std::deque<std::function<void()>> operations_;
  bool operator_idle_ = true;                          // its thread has nothing left to do
  std::thread operator_;
  std::thread keeper_;
};

class Endpoint : public Transport {
 public:
  explicit Endpoint(GrpcNetworkImpl& network) : network_(network) {}
  ~Endpoint() override { network_.set_receiver(nullptr); }
  Status send(NodeId to, std::string bytes) override { return network_.send(to, std::move(bytes)); }

 private:
  GrpcNetworkImpl& network_;
};

std::unique_ptr<Transport> GrpcNetworkImpl::connect(NodeId self, Transport::OnMessage on_message) {
  CHECK_EQ(self, config_.self);
  set_receiver(std::move(on_message));
  return std::make_unique<Endpoint>(*this);
}

}  // namespace

StatusOr<std::unique_ptr<GrpcNetwork>> GrpcNetwork::start(GrpcNetworkConfig config, OnLink on_link, PeerHandlers handlers) {
  gpr_set_log_function([](gpr_log_func_args* said) { log_debug("gRPC: ", said->message); });  // what matters is said by us
  auto network = std::make_unique<GrpcNetworkImpl>(std::move(config), std::move(on_link), std::move(handlers));
  RETURN_IF_ERROR(network->listen());
  return network;
}

}  // namespace shoal
