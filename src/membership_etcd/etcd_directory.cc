#include "membership_etcd/etcd_directory.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "membership_etcd/rpc.grpc.pb.h"

namespace shoal {
namespace {

namespace pb = etcdserverpb;
constexpr auto kCallTime = std::chrono::seconds(2);
constexpr size_t kEventsWaiting = 100'000;  // of a watch that nobody reads
constexpr int kMessageBytesMax = 64 << 20;

// The end of all keys that begin with this one, as etcd wants ranges.
std::string prefix_end(std::string prefix) {
  while (!prefix.empty()) {
    if (static_cast<unsigned char>(prefix.back()) != 0xff) {
      ++prefix.back();
      return prefix;
    }
    prefix.pop_back();
  }
  return std::string(1, '\0');
}

Status status_of(const grpc::Status& status, const std::string& endpoint) {
  if (status.ok()) return OkStatus();
  return Status(static_cast<StatusCode>(status.error_code()), absl::StrCat("the directory at ", endpoint, ": ", status.error_message()));
}

DirectoryEntry entry_of(const pb::KeyValue& kv) { return {kv.key(), kv.value(), kv.mod_revision(), LeaseId(kv.lease())}; }

pb::Compare unchanged(const std::string& key, int64_t revision) {
  pb::Compare compare;
  compare.set_result(pb::Compare::EQUAL);
  compare.set_target(pb::Compare::MOD);
  compare.set_key(key);
  compare.set_mod_revision(revision);
  return compare;
}

// The endpoints, one of them in use. Thread-safe.
class Endpoints {
 public:
  Endpoints(const DirectoryAddress& address, const TlsIdentity& tls) : address_(address) {
    if (address.tls) {
      credentials_ = grpc::SslCredentials({tls.ca, tls.key, tls.certificate});
    } else {
      credentials_ = grpc::InsecureChannelCredentials();
    }
  }

  struct Use {
    std::shared_ptr<grpc::Channel> channel;
    std::string endpoint, token;
  };
  StatusOr<Use> use() {
    std::lock_guard lock(mutex_);
    const std::string& endpoint = address_.endpoints[next_ % address_.endpoints.size()];
    if (channel_ == nullptr) {
      grpc::ChannelArguments arguments;
      arguments.SetMaxReceiveMessageSize(kMessageBytesMax);
      arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
      arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 3'000);
      arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1'000);
      arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 2'000);  // how long one attempt may take
      arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
      channel_ = grpc::CreateCustomChannel(endpoint, credentials_, arguments);
      token_.clear();
    }
    if (token_.empty() && !address_.user.empty()) {
      pb::AuthenticateRequest request;
      request.set_name(address_.user);
      request.set_password(address_.password);
      pb::AuthenticateResponse response;
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + kCallTime);
      const Status status = status_of(pb::Auth::NewStub(channel_)->Authenticate(&context, request, &response), endpoint);
      if (!status.ok()) return annotate(status, absl::StrCat("user '", address_.user, "'"));
      token_ = response.token();
    }
    return Use{channel_, endpoint, token_};
  }
  // It did not answer, or does not know the token any more: the next one.
  void give_up(const Use& use, bool token_only) {
    std::lock_guard lock(mutex_);
    if (channel_ != use.channel) return;
    token_.clear();
    if (token_only) return;
    channel_.reset();
    ++next_;
  }
  size_t count() const { return address_.endpoints.size(); }

 private:
  const DirectoryAddress address_;
  std::shared_ptr<grpc::ChannelCredentials> credentials_;
  std::mutex mutex_;
  std::shared_ptr<grpc::Channel> channel_;
  std::string token_;
  size_t next_ = 0;
};

bool next_may_answer(const Status& status) {
  return status.code() == StatusCode::kUnavailable || status.code() == StatusCode::kDeadlineExceeded || status.code() == StatusCode::kUnauthenticated;
}

// A thread reads the stream, so that next() can be left when its time is over.
class EtcdWatch : public Directory::Watch {
 public:
  EtcdWatch(const Endpoints::Use& use, const std::string& prefix, int64_t after) : endpoint_(use.endpoint) {
    if (!use.token.empty()) context_.AddMetadata("token", use.token);
    stub_ = pb::Watch::NewStub(use.channel);
    stream_ = stub_->Watch(&context_);
    pb::WatchRequest request;
    pb::WatchCreateRequest* create = request.mutable_create_request();
    create->set_key(prefix);
    create->set_range_end(prefix_end(prefix));
    create->set_start_revision(after + 1);
    stream_->Write(request);
    reader_ = std::thread([this] { read(); });
  }
  ~EtcdWatch() override {
    context_.TryCancel();
    reader_.join();
  }

  StatusOr<std::vector<DirectoryEvent>> next(Duration timeout) override {
    std::unique_lock lock(mutex_);
    ready_.wait_for(lock, timeout, [&] { return !events_.empty() || ended_; });
    std::vector<DirectoryEvent> out(std::make_move_iterator(events_.begin()), std::make_move_iterator(events_.end()));
    events_.clear();
    if (out.empty() && ended_) return *ended_;
    return out;
  }

 private:
  void read() {
    pb::WatchResponse response;
    Status end;
    while (end.ok() && stream_->Read(&response)) {
      if (response.compact_revision() > 0) end = absl::OutOfRangeError("the directory was compacted");
      else if (response.canceled()) end = unavailable("the directory ended the watch: ", response.cancel_reason());
      std::lock_guard lock(mutex_);
      for (const pb::Event& event : response.events()) events_.push_back({event.type() == pb::Event::DELETE, entry_of(event.kv())});
      if (events_.size() > kEventsWaiting) end = absl::OutOfRangeError("more changed than anybody read");
      ready_.notify_all();
    }
    context_.TryCancel();
    const grpc::Status status = stream_->Finish();
    std::lock_guard lock(mutex_);
    ended_ = !end.ok() ? end : unavailable("the directory at ", endpoint_, " ended the watch: ", status.error_message());
    ready_.notify_all();
  }

  const std::string endpoint_;
  grpc::ClientContext context_;
  std::unique_ptr<pb::Watch::Stub> stub_;
  std::unique_ptr<grpc::ClientReaderWriter<pb::WatchRequest, pb::WatchResponse>> stream_;
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<DirectoryEvent> events_;
  std::optional<Status> ended_;
  std::thread reader_;
};

class EtcdDirectory : public Directory {
 public:
  EtcdDirectory(const DirectoryAddress& address, const TlsIdentity& tls) : endpoints_(address, tls) {}

  StatusOr<LeaseId> grant(Duration ttl) override {
    pb::LeaseGrantRequest request;
    request.set_ttl(std::max<int64_t>(1, std::chrono::ceil<std::chrono::seconds>(ttl).count()));
    pb::LeaseGrantResponse response;
    RETURN_IF_ERROR(call([&](grpc::ClientContext& context, auto channel) { return pb::Lease::NewStub(channel)->LeaseGrant(&context, request, &response); }));
    if (!response.error().empty()) return unavailable("the directory grants no lease: ", response.error());
    return LeaseId(response.id());
  }

  Status keep_alive(LeaseId lease) override {
    pb::LeaseKeepAliveRequest request;
    request.set_id(lease.value);
    pb::LeaseKeepAliveResponse response;
    RETURN_IF_ERROR(call([&](grpc::ClientContext& context, auto channel) {
      const auto stub = pb::Lease::NewStub(channel);
      const auto stream = stub->LeaseKeepAlive(&context);
      if (stream->Write(request) && stream->Read(&response)) {
        context.TryCancel();
        stream->Finish();
        return grpc::Status::OK;
      }
      const grpc::Status status = stream->Finish();
      return status.ok() ? grpc::Status(grpc::UNAVAILABLE, "no answer to a keep-alive") : status;
    }));
    return response.ttl() > 0 ? OkStatus() : not_found("the lease has ended");
  }

  Status revoke(LeaseId lease) override {
    pb::LeaseRevokeRequest request;
    request.set_id(lease.value);
    pb::LeaseRevokeResponse response;
    const Status status = call([&](grpc::ClientContext& context, auto channel) { return pb::Lease::NewStub(channel)->LeaseRevoke(&context, request, &response); });
    return status.code() == StatusCode::kNotFound ? OkStatus() : status;
  }

  StatusOr<int64_t> put_if(const std::string& key, int64_t expected, const std::string& value, LeaseId lease) override {
    pb::TxnRequest request;
    *request.add_compare() = unchanged(key, expected);
    pb::PutRequest* put = request.add_success()->mutable_request_put();
    put->set_key(key);
    put->set_value(value);
    put->set_lease(lease.value);
    pb::TxnResponse response;
    RETURN_IF_ERROR(call([&](grpc::ClientContext& context, auto channel) { return pb::KV::NewStub(channel)->Txn(&context, request, &response); }));
    if (!response.succeeded()) return absl::AbortedError(absl::StrCat("'", key, "' was changed by another"));
    return response.header().revision();
  }

  Status remove_if(const std::string& key, int64_t expected) override {
    pb::TxnRequest request;
    *request.add_compare() = unchanged(key, expected);
    request.add_success()->mutable_request_delete_range()->set_key(key);
    request.add_failure()->mutable_request_range()->set_key(key);
    pb::TxnResponse response;
    RETURN_IF_ERROR(call([&](grpc::ClientContext& context, auto channel) { return pb::KV::NewStub(channel)->Txn(&context, request, &response); }));
    const bool gone = !response.succeeded() && response.responses_size() > 0 && response.responses(0).response_range().kvs_size() == 0;
    return response.succeeded() || gone ? OkStatus() : absl::AbortedError(absl::StrCat("'", key, "' was changed by another"));
  }

  StatusOr<DirectoryListing> list(const std::string& prefix) override {
    pb::RangeRequest request;
    request.set_key(prefix);
    request.set_range_end(prefix_end(prefix));
    pb::RangeResponse response;
    RETURN_IF_ERROR(call([&](grpc::ClientContext& context, auto channel) { return pb::KV::NewStub(channel)->Range(&context, request, &response); }));
    DirectoryListing listing{.revision = response.header().revision()};
    for (const pb::KeyValue& kv : response.kvs()) listing.entries.push_back(entry_of(kv));
    return listing;
  }

  StatusOr<std::unique_ptr<Watch>> watch(const std::string& prefix, int64_t after_revision) override {
    ASSIGN_OR_RETURN(const Endpoints::Use use, endpoints_.use());
    return std::make_unique<EtcdWatch>(use, prefix, after_revision);
  }

 private:
  // With each endpoint once, until one answers.
  template <typename Rpc>
  Status call(const Rpc& rpc) {
    Status status;
    for (size_t tried = 0; tried < endpoints_.count() + 1; ++tried) {
      const auto use = endpoints_.use();
      if (!use.ok()) return use.status();
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + kCallTime);
      if (!use->token.empty()) context.AddMetadata("token", use->token);
      status = status_of(rpc(context, use->channel), use->endpoint);
      if (!next_may_answer(status)) return status;
      endpoints_.give_up(*use, status.code() == StatusCode::kUnauthenticated);
      if (tried + 1 >= endpoints_.count() && status.code() != StatusCode::kUnauthenticated) break;
    }
    return status;
  }

  Endpoints endpoints_;
};

Status bad_address(const std::string& text, std::string_view why) {
  return invalid_argument("--join '", text, "': ", std::string(why), "; it is etcd://HOST:PORT[,HOST:PORT...] (etcds:// with TLS) or unix:PATH");
}

}  // namespace

StatusOr<DirectoryAddress> parse_directory_address(const std::string& text) {
  DirectoryAddress address;
  if (text.starts_with("unix:")) {
    const std::string path = text.substr(5);
    if (path.empty()) return bad_address(text, "no path follows 'unix:'");
    address.endpoints.push_back(text);
    return address;
  }
  address.tls = text.starts_with("etcds://");
  if (!address.tls && !text.starts_with("etcd://")) return bad_address(text, "it begins with none of etcd://, etcds://, unix:");
  std::string rest = text.substr(text.find("://") + 3);
  if (const size_t at = rest.rfind('@'); at != std::string::npos) {
    const std::string login = rest.substr(0, at);
    const size_t colon = login.find(':');
    if (colon == std::string::npos || colon == 0) return bad_address(text.substr(0, text.find("://") + 3), "what stands before '@' is not USER:PASSWORD");
    address.user = login.substr(0, colon);
    address.password = login.substr(colon + 1);
    rest = rest.substr(at + 1);
  }
  while (!rest.empty() && rest.back() == '/') rest.pop_back();
  for (const std::string& endpoint : std::vector<std::string>(absl::StrSplit(rest, ','))) {
    const size_t colon = endpoint.rfind(':');
    uint32_t port = 0;
    if (colon == std::string::npos || colon == 0 || !absl::SimpleAtoi(endpoint.substr(colon + 1), &port) || port == 0 || port > 65535) {
      return bad_address(text, absl::StrCat("'", endpoint, "' is not HOST:PORT with a port of 1 to 65535"));
    }
    address.endpoints.push_back(endpoint);
  }
  return address;
}

std::unique_ptr<Directory> open_directory(const DirectoryAddress& address, const TlsIdentity& tls) { return std::make_unique<EtcdDirectory>(address, tls); }

}  // namespace shoal
