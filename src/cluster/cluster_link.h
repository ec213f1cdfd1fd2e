// One process in a cluster: its place in the directory (membership/roster.h), its streams to the others (transport_grpc), and the
// picture of all that which its roles get, in this process's numbers of models.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "membership/roster.h"
#include "membership_etcd/etcd_directory.h"
#include "transport/bulk_network.h"
#include "transport_grpc/grpc_network.h"
#include "wire/model_names.h"

namespace shoal {

// As flags say it; files are read already.
struct ClusterOptions {
  DirectoryAddress directory;
  std::string cluster = "default";
  std::string name;
  Role role = Role::kNode;
  std::string listen = "127.0.0.1:0";
  std::string advertise;       // HOST that others reach this one by; empty: that of `listen`
  std::string failure_domain;  // empty: the machine
  TlsIdentity tls;
  std::string bulk_scheme;     // before HOST:PORT of where it has bytes in bulk (transport/bulk_network.h)
  Duration lease = std::chrono::seconds(5);
};

class ClusterLink {
 public:
  // On threads of the link; they must only enqueue.
  struct Hooks {
    std::function<void(ClusterState)> cluster;
    std::function<void(NodeId, bool up)> link;
    std::function<void(const std::map<std::string, MemberRecord>&)> members;
    std::function<void(const std::map<NodeId, BulkAddress>&)> bulk;
    std::function<void(bool)> leads;
  };

  // Listens; joins when join() is called. `names`: the models of this process.
  static StatusOr<std::unique_ptr<ClusterLink>> start(ClusterOptions options, std::shared_ptr<const ModelNames> names, PeerHandlers handlers = {});
  ~ClusterLink();  // leaves
  ClusterLink(const ClusterLink&) = delete;
  ClusterLink& operator=(const ClusterLink&) = delete;

  Network& network() { return *network_; }
  GrpcNetwork& peers() { return *network_; }
  NodeId self() const { return id_of_member(options_.name); }
  uint32_t life() const { return roster_ == nullptr ? 0 : roster_->life(); }
  const std::string& name() const { return options_.name; }
  const std::string& address() const { return address_; }

  // Joins the cluster and waits until that is done; says once if it takes long. Cancelled if `stop` says so.
  Status join(Hooks hooks, uint16_t bulk_port, std::vector<RecordedModel> models, const std::function<bool()>& stop);
  void serve(std::vector<RecordedModel> models) { roster_->serve(std::move(models)); }
  void drain() { roster_->drain(); }
  // Leaves the cluster; no hook is called from then on. Before what hooks refer to ends.
  void leave();
  // The picture once more: this process knows other models now.
  void renew();
  std::map<std::string, MemberRecord> members() const;
  PeerAddress peer(const MemberRecord& record) const;

 private:
  ClusterLink(ClusterOptions options, std::shared_ptr<const ModelNames> names) : options_(std::move(options)), names_(std::move(names)) {}
  void on_members(const std::map<std::string, MemberRecord>& members);
  void on_link(NodeId peer, const std::string& name, bool up);
  template <typename Hook, typename... Args>
  void call(Hook Hooks::*hook, const Args&... args);
  ClusterState picture() const;  // REQUIRES: mutex_ held

  const ClusterOptions options_;
  const std::shared_ptr<const ModelNames> names_;
  std::string address_, instance_;
  std::unique_ptr<GrpcNetwork> network_;
  std::unique_ptr<Directory> directory_;
  std::recursive_mutex calling_;  // held while a hook runs, which may renew()
  Hooks hooks_;         // guarded by calling_
  mutable std::mutex mutex_;
  std::map<std::string, MemberRecord> members_;  // guarded by mutex_, as are the next three
  uint64_t version_ = 0;
  std::map<std::string, bool> early_links_;      // before there was a roster
  bool joined_ = false;
  std::unique_ptr<Roster> roster_;
};

// Equal for processes that can read each other's memory: of one boot of one machine and one space of process ids.
std::string machine_name();
// Where a process listens for others of its machine that want bytes in bulk.
std::string bulk_socket(int64_t pid, const std::string& name);
// A name that no other process has, ever.
std::string mint_instance();

}  // namespace shoal
