#include "membership_etcd/directory_server.h"

#include <grpcpp/grpcpp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "membership_etcd/rpc.grpc.pb.h"

namespace shoal {
namespace {

namespace pb = etcdserverpb;
constexpr Duration kLook = std::chrono::milliseconds(200);  // of a watch, whether its client or the server has ended
constexpr uint32_t kStreamsMax = 1024;
constexpr int kMessageBytesMax = 4 << 20;

grpc::Status to_grpc(const Status& status) { return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())}; }

void put_entry(const DirectoryEntry& entry, pb::KeyValue* to) {
  to->set_key(entry.key);
  to->set_value(entry.value);
  to->set_mod_revision(entry.revision);
  to->set_lease(entry.lease.value);
}

// The prefix that a range means: one key, or all that begin with it. Others are not served.
StatusOr<std::string> prefix_of(const std::string& key, const std::string& range_end) {
  if (range_end.empty()) return key;
  std::string end = key;
  while (!end.empty() && static_cast<unsigned char>(end.back()) == 0xff) end.pop_back();
  if (!end.empty()) ++end.back();
  if (end.empty() || end != range_end) return unimplemented("this directory serves ranges of a prefix only");
  return key;
}

StatusOr<pb::RangeResponse> range(const DirectoryStore& store, const pb::RangeRequest& request) {
  pb::RangeResponse response;
  ASSIGN_OR_RETURN(const std::string prefix, prefix_of(request.key(), request.range_end()));
  for (const DirectoryEntry& entry : store.list(prefix).entries) {
    if (request.range_end().empty() && entry.key != request.key()) continue;
    put_entry(entry, response.add_kvs());
  }
  response.set_count(response.kvs_size());
  response.mutable_header()->set_revision(store.revision());
  return response;
}

bool holds(const DirectoryStore& store, const pb::Compare& compare) {
  return compare.target() == pb::Compare::MOD && compare.result() == pb::Compare::EQUAL && store.revision_of(compare.key()) == compare.mod_revision();
}

Status perform(DirectoryStore& store, const pb::RequestOp& op, pb::ResponseOp* response) {
  if (op.has_request_put()) {
    const pb::PutRequest& put = op.request_put();
    RETURN_IF_ERROR(store.put(put.key(), put.value(), LeaseId(put.lease())).status());
    response->mutable_response_put();
  } else if (op.has_request_delete_range()) {
    const std::string& key = op.request_delete_range().key();
    if (!op.request_delete_range().range_end().empty()) return unimplemented("this directory removes one key at a time");
    RETURN_IF_ERROR(store.remove_if(key, store.revision_of(key)));
    response->mutable_response_delete_range();
  } else {
    ASSIGN_OR_RETURN(*response->mutable_response_range(), range(store, op.request_range()));
  }
  return OkStatus();
}

class KvService : public pb::KV::Service {
 public:
  explicit KvService(MemoryDirectory& directory) : directory_(directory) {}

  grpc::Status Range(grpc::ServerContext*, const pb::RangeRequest* request, pb::RangeResponse* response) override {
    auto result = directory_.with([&](DirectoryStore& store) { return range(store, *request); });
    if (result.ok()) *response = *std::move(result);
    return to_grpc(result.status());
  }
  grpc::Status Txn(grpc::ServerContext*, const pb::TxnRequest* request, pb::TxnResponse* response) override {
    for (const pb::Compare& compare : request->compare()) {
      if (compare.target() != pb::Compare::MOD || compare.result() != pb::Compare::EQUAL) return to_grpc(unimplemented("this directory compares revisions of writes only"));
    }
    return to_grpc(directory_.with([&](DirectoryStore& store) -> Status {
      response->set_succeeded(std::all_of(request->compare().begin(), request->compare().end(), [&](const pb::Compare& c) { return holds(store, c); }));
      for (const pb::RequestOp& op : response->succeeded() ? request->success() : request->failure()) RETURN_IF_ERROR(perform(store, op, response->add_responses()));
      response->mutable_header()->set_revision(store.revision());
      return OkStatus();
    }));
  }

 private:
  MemoryDirectory& directory_;
};

class LeaseService : public pb::Lease::Service {
 public:
  explicit LeaseService(MemoryDirectory& directory) : directory_(directory) {}

  grpc::Status LeaseGrant(grpc::ServerContext*, const pb::LeaseGrantRequest* request, pb::LeaseGrantResponse* response) override {
    const auto lease = directory_.grant(std::chrono::seconds(std::clamp<int64_t>(request->ttl(), 0, 1 << 20)));
    if (lease.ok()) {
      response->set_id(lease->value);
      response->set_ttl(request->ttl());
    }
    return to_grpc(lease.status());
  }
  grpc::Status LeaseRevoke(grpc::ServerContext*, const pb::LeaseRevokeRequest* request, pb::LeaseRevokeResponse*) override {
    return to_grpc(directory_.revoke(LeaseId(request->id())));
  }
  grpc::Status LeaseKeepAlive(grpc::ServerContext*, grpc::ServerReaderWriter<pb::LeaseKeepAliveResponse, pb::LeaseKeepAliveRequest>* stream) override {
    pb::LeaseKeepAliveRequest request;
    while (stream->Read(&request)) {
      const LeaseId lease(request.id());
      pb::LeaseKeepAliveResponse response;
      response.set_id(request.id());
      if (directory_.keep_alive(lease).ok()) {
        response.set_ttl(std::chrono::ceil<std::chrono::seconds>(directory_.with([&](DirectoryStore& store) { return store.ttl(lease); })).count());
      }
      if (!stream->Write(response)) break;
    }
    return grpc::Status::OK;
  }

 private:
  MemoryDirectory& directory_;
};

// One watch a stream, which is all that our client asks for.
class WatchService : public pb::Watch::Service {
 public:
  explicit WatchService(MemoryDirectory& directory) : directory_(directory) {}
  void end() { ending_ = true; }

  grpc::Status Watch(grpc::ServerContext* context, grpc::ServerReaderWriter<pb::WatchResponse, pb::WatchRequest>* stream) override {
    struct Count {
      explicit Count(std::atomic<uint32_t>& n) : n(n), now(++n) {}
      ~Count() { --n; }
      std::atomic<uint32_t>& n;
      const uint32_t now;
    } count(streams_);
    if (count.now > kStreamsMax) return to_grpc(resource_exhausted("this directory serves ", kStreamsMax, " watches, which is all it takes"));
    pb::WatchRequest request;
    if (!stream->Read(&request)) return grpc::Status::OK;
    if (!request.has_create_request()) return to_grpc(invalid_argument("a watch begins with what is to be watched"));
    const auto prefix = prefix_of(request.create_request().key(), request.create_request().range_end());
    if (!prefix.ok()) return to_grpc(prefix.status());
    int64_t after = request.create_request().start_revision() - 1;
    pb::WatchResponse created;
    created.set_created(true);
    if (!stream->Write(created)) return grpc::Status::OK;
    while (!ending_ && !context->IsCancelled()) {
      const auto events = directory_.next(*prefix, after, kLook);
      pb::WatchResponse response;
      if (!events.ok()) {
        response.set_canceled(true);
        response.set_compact_revision(1);
        stream->Write(response);
        return grpc::Status::OK;
      }
      if (events->empty()) continue;
      for (const DirectoryEvent& event : *events) {
        pb::Event* to = response.add_events();
        if (event.removed) to->set_type(pb::Event::DELETE);
        put_entry(event.entry, to->mutable_kv());
      }
      response.mutable_header()->set_revision(after);
      if (!stream->Write(response)) return grpc::Status::OK;
    }
    return grpc::Status::OK;
  }

 private:
  MemoryDirectory& directory_;
  std::atomic<bool> ending_{false};
  std::atomic<uint32_t> streams_{0};
};

// Whether a process accepts connections there.
bool somebody_serves(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return false;
  std::memcpy(address.sun_path, path.data(), path.size());
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  const bool connected = ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  ::close(fd);
  return connected;
}

class DirectoryServerImpl : public DirectoryServer {
 public:
  explicit DirectoryServerImpl(MemoryDirectory& directory) : kv_(directory), lease_(directory), watch_(directory) {}
  ~DirectoryServerImpl() override {
    watch_.end();
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(2));
    if (!path_.empty()) ::unlink(path_.c_str());
  }

  Status serve(const std::string& address) {
    const bool is_path = address.starts_with("unix:");
    const std::string path = is_path ? address.substr(5) : "";
    if (is_path) {
      if (path.size() >= sizeof(sockaddr_un::sun_path)) return invalid_argument("'", path, "' is too long for a socket: ", sizeof(sockaddr_un::sun_path) - 1, " bytes are possible");
      if (somebody_serves(path)) return absl::AlreadyExistsError(absl::StrCat("another process serves a directory at ", path, "; join it with --join unix:", path, ", or name another path"));
      struct stat info{};
      if (::stat(path.c_str(), &info) == 0) {
        if (!S_ISSOCK(info.st_mode)) return absl::AlreadyExistsError(absl::StrCat(path, " exists and is no socket"));
        ::unlink(path.c_str());
      }
    }
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials());
    builder.SetMaxReceiveMessageSize(kMessageBytesMax);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1'000);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    for (grpc::Service* service : std::initializer_list<grpc::Service*>{&kv_, &lease_, &watch_}) builder.RegisterService(service);
    const mode_t before = ::umask(0077);
    server_ = builder.BuildAndStart();
    ::umask(before);
    if (server_ == nullptr) return unavailable("no directory can be served at ", address, ": is the folder there and may this user write to it?");
    path_ = path;
    return OkStatus();
  }

 private:
  KvService kv_;
  LeaseService lease_;
  WatchService watch_;
  std::unique_ptr<grpc::Server> server_;
  std::string path_;  // to be removed
};

}  // namespace

StatusOr<std::unique_ptr<DirectoryServer>> DirectoryServer::start(const std::string& address, MemoryDirectory& directory) {
  auto server = std::make_unique<DirectoryServerImpl>(directory);
  RETURN_IF_ERROR(server->serve(address));
  return server;
}

}  // namespace shoal
