#include "apps/cluster_flags.h"

#include <unistd.h>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "base/json.h"

#ifndef SHOAL_WITH_UCX
#define SHOAL_WITH_UCX 0
#endif
#if SHOAL_WITH_UCX
#include "transport_ucx/ucx_network.h"
#endif

namespace shoal {
namespace {

constexpr size_t kPemBytesMax = 1 << 20;

// Letters, digits and '-' of the machine's name.
std::string machine_word() {
  char name[256] = {};
  if (::gethostname(name, sizeof(name) - 1) != 0) return "machine";
  std::string word;
  for (const char c : std::string(name)) {
    if (word.size() < 32) word += (std::isalnum(static_cast<unsigned char>(c)) != 0) ? c : '-';
  }
  return word.empty() ? "machine" : word;
}

}  // namespace

void add_cluster_flags(CLI::App& verb, ClusterFlags& flags) {
  verb.add_option("--join", flags.join, "Where the cluster meets: etcd://HOST:PORT[,HOST:PORT...] (etcds:// with TLS), or unix:PATH, the directory that "
                  "`shoal controller --listen unix:PATH` of this machine serves")->required();
  verb.add_option("--cluster", flags.cluster, "Name of the cluster, where several meet in one place")->capture_default_str();
  verb.add_option("--name", flags.name, "Name of this process in the cluster, the same after a restart (default: of role, machine and process)");
  verb.add_option("--listen", flags.listen, "ADDR:PORT where the other processes reach this one (port 0: any free one)")->capture_default_str();
  verb.add_option("--advertise", flags.advertise, "Name or address of this machine for the others, where that is not the one of --listen");
  verb.add_option("--failure-domain", flags.failure_domain, "What fails together with this process: a rack, a zone (default: its machine)");
  verb.add_option("--tls-cert", flags.tls_cert, "PEM certificate of this process: everything between processes is encrypted, and others need one too");
  verb.add_option("--tls-key", flags.tls_key, "PEM private key of the certificate");
  verb.add_option("--tls-ca", flags.tls_ca, "PEM certificate of the authority that signs those of all processes");
}

void add_bulk_flag(CLI::App& verb, ClusterFlags& flags) {
  verb.add_option("--bulk", flags.bulk, "What other machines get bytes in bulk over: tcp, or ucx (RDMA where there is, in clear; of builds with UCX)")
      ->check([](const std::string& word) -> std::string {
        if (word == "ucx" && !SHOAL_WITH_UCX) return "this build has no UCX: configure it with -DSHOAL_UCX=ON, which needs libucx-dev";
        return word == "tcp" || word == "ucx" ? "" : "'" + word + "' is neither tcp nor ucx";
      })
      ->capture_default_str();
}

std::vector<ExpertAddress> expert_members(const std::map<std::string, MemberRecord>& members) {
  std::vector<ExpertAddress> result;
  const std::string machine = machine_name();
  for (const auto& [name, record] : members) {
    if (record.role != Role::kExpert || record.draining || record.bulk_address.empty() || record.protocol != kClusterProtocol) continue;
    if (record.machine == machine) result.push_back({name, "unix:" + bulk_socket(record.pid, name), record.bulk_address});
    else result.push_back({name, record.bulk_address, ""});
  }
  return result;
}

StatusOr<ClusterOptions> cluster_options(const ClusterFlags& flags, Role role) {
  ClusterOptions options{.cluster = flags.cluster, .name = flags.name, .role = role, .listen = flags.listen, .advertise = flags.advertise, .failure_domain = flags.failure_domain};
  ASSIGN_OR_RETURN(options.directory, parse_directory_address(flags.join));
  if (options.name.empty()) options.name = absl::StrCat(std::string(role_name(role)), "-", machine_word(), "-", ::getpid());
  if (const Status status = check_member_name(flags.cluster); !status.ok()) return invalid_argument("--cluster '", flags.cluster, "': letters, digits, '.', '_' and '-', up to 64");
  if (flags.bulk == "ucx") options.bulk_scheme = kUcxScheme;
  const int given = !flags.tls_cert.empty() + !flags.tls_key.empty() + !flags.tls_ca.empty();
  if (given != 0 && given != 3) return invalid_argument("--tls-cert, --tls-key and --tls-ca go together: one of them is missing");
  if (given == 0) return options;
  if (flags.bulk == "ucx") return invalid_argument("--bulk ucx sends in clear: leave out --tls-cert, --tls-key and --tls-ca, or --bulk ucx");
  ASSIGN_OR_RETURN(options.tls.certificate, read_file(flags.tls_cert, kPemBytesMax));
  ASSIGN_OR_RETURN(options.tls.key, read_file(flags.tls_key, kPemBytesMax));
  ASSIGN_OR_RETURN(options.tls.ca, read_file(flags.tls_ca, kPemBytesMax));
  // Says here what gRPC would only say as a stream that never comes up.
  RETURN_IF_ERROR(make_bulk_tcp(options.tls).status());
  return options;
}

std::shared_ptr<BulkNetwork> clear_bulk_network(const ClusterFlags& flags) {
#if SHOAL_WITH_UCX
  return make_bulk_ucx(make_bulk_tcp(), /*listens=*/flags.bulk == "ucx");
#else
  return make_bulk_tcp();
#endif
}

StatusOr<std::shared_ptr<BulkNetwork>> bulk_network(const ClusterOptions& options) {
  return options.tls.given() ? make_bulk_tcp(options.tls) : clear_bulk_network({.bulk = options.bulk_scheme.empty() ? "tcp" : "ucx"});
}

}  // namespace shoal
