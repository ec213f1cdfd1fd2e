// The flags of a process of a cluster: where the others are, and who this one is.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "cluster/cluster_link.h"
#include "experts/client.h"

namespace CLI {
class App;
}

namespace shoal {

struct ClusterFlags {
  std::string join;
  std::string cluster = "default";
  std::string name;
  std::string listen = "127.0.0.1:0";
  std::string advertise;
  std::string failure_domain;
  std::string tls_cert, tls_key, tls_ca;  // files
  std::string kv_transport = "auto";
  std::string bulk = "tcp";
};

void add_cluster_flags(CLI::App& verb, ClusterFlags& flags);

// The expert servers among members, those of this machine by shared memory.
std::vector<ExpertAddress> expert_members(const std::map<std::string, MemberRecord>& members);

// With the files read. An empty name is made of the role, the machine's name and the process. InvalidArgument names the flag.
StatusOr<ClusterOptions> cluster_options(const ClusterFlags& flags, Role role);

// Of who is asked for bytes in bulk: nodes and expert servers.
void add_bulk_flag(CLI::App& verb, ClusterFlags& flags);

// How bytes in bulk go to other machines and come from them: in clear, or as the options say. In a build with UCX "ucx:HOST:PORT" is
// reached as well, if nothing has to be encrypted.
std::shared_ptr<BulkNetwork> clear_bulk_network(const ClusterFlags& flags = {});
StatusOr<std::shared_ptr<BulkNetwork>> bulk_network(const ClusterOptions& options);

}  // namespace shoal
