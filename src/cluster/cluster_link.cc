#include "cluster/cluster_link.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <fstream>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/log.h"

namespace shoal {
namespace {

constexpr Duration kSayAfter = std::chrono::seconds(2);

std::string host_of(const std::string& address) { return address.substr(0, address.rfind(':')); }

// Who has to be linked with whom: a node with everybody, the others with nodes.
bool linked(Role a, Role b) { return a == Role::kNode || b == Role::kNode || a == Role::kExpert || b == Role::kExpert; }

bool any_address(const std::string& host) { return host.empty() || host == "0.0.0.0" || host == "[::]" || host == "::"; }

StatusOr<std::string> advertised_host(const ClusterOptions& options) {
  const std::string host = options.advertise.empty() ? host_of(options.listen) : options.advertise;
  if (!any_address(host)) return host;
  char name[256] = {};
  if (::gethostname(name, sizeof(name) - 1) == 0 && name[0] != '\0') return std::string(name);
  return invalid_argument("--listen ", options.listen, " is every address of this machine: --advertise HOST must say by which others reach it");
}

}  // namespace

std::string machine_name() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  char space[64] = {};
  if (::readlink("/proc/self/ns/pid", space, sizeof(space) - 1) < 0) space[0] = '\0';
  return absl::StrCat(boot, "/", space);
}

std::string bulk_socket(int64_t pid, const std::string& name) { return absl::StrCat("@shoal-bulk-", pid, "-", name); }

std::string mint_instance() {
  std::random_device random;
  return absl::StrFormat("%08x%08x%08x%08x", random(), random(), random(), random());
}

StatusOr<std::unique_ptr<ClusterLink>> ClusterLink::start(ClusterOptions options, std::shared_ptr<const ModelNames> names, PeerHandlers handlers) {
  RETURN_IF_ERROR(check_member_name(options.name));
  ASSIGN_OR_RETURN(const std::string host, advertised_host(options));
  std::unique_ptr<ClusterLink> link(new ClusterLink(std::move(options), std::move(names)));
  ClusterLink* self = link.get();
  self->instance_ = mint_instance();
  GrpcNetworkConfig config{.cluster = self->options_.cluster, .name = self->options_.name, .instance = self->instance_, .self = self->self(),
                           .protocol = kClusterProtocol, .listen = self->options_.listen, .tls = self->options_.tls,
                           .id_of = [](const std::string& name) { return id_of_member(name); }};
  ASSIGN_OR_RETURN(self->network_, GrpcNetwork::start(std::move(config), [self](NodeId peer, const std::string& name, bool up) { self->on_link(peer, name, up); }, std::move(handlers)));
  self->address_ = absl::StrCat(host, ":", self->network_->port());
  self->directory_ = open_directory(self->options_.directory, self->options_.tls);
  return link;
}

ClusterLink::~ClusterLink() {
  leave();
  network_.reset();
}

void ClusterLink::leave() {
  {
    std::lock_guard lock(calling_);
    hooks_ = {};
  }
  std::unique_ptr<Roster> roster;
  {
    std::lock_guard lock(mutex_);
    roster.swap(roster_);
  }
}

template <typename Hook, typename... Args>
void ClusterLink::call(Hook Hooks::*hook, const Args&... args) {
  std::lock_guard lock(calling_);
  if (hooks_.*hook) (hooks_.*hook)(args...);
}

Status ClusterLink::join(Hooks hooks, uint16_t bulk_port, std::vector<RecordedModel> models, const std::function<bool()>& stop) {
  {
    std::lock_guard lock(calling_);
    hooks_ = std::move(hooks);
  }
  RosterConfig config{.cluster = options_.cluster, .campaigns = options_.role == Role::kController, .lease = options_.lease, .now = [] { return steady_now(); },
                      .unix_seconds = [] { return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count(); },
                      .process_lives = [](int64_t pid) { return ::kill(static_cast<pid_t>(pid), 0) == 0 || errno == EPERM; }};
  MemberRecord& record = config.self;
  record.name = options_.name;
  record.role = options_.role;
  record.address = address_;
  if (bulk_port > 0) record.bulk_address = absl::StrCat(options_.bulk_scheme, host_of(address_), ":", bulk_port);
  record.machine = machine_name();
  record.pid = ::getpid();
  record.failure_domain = options_.failure_domain;
  record.instance = instance_;
  record.models = std::move(models);
  roster_ = std::make_unique<Roster>(std::move(config), *directory_, Roster::Callbacks{
      [this](const std::map<std::string, MemberRecord>& members, uint64_t) { on_members(members); },
      [this](bool leads) { call(&Hooks::leads, leads); }});
  {
    std::lock_guard lock(mutex_);
    joined_ = true;
    for (const auto& [name, up] : early_links_) roster_->connected(name, up);
  }
  const TimePoint since = steady_now();
  bool said = false;
  return roster_->wait_joined([&] {
    if (!said && steady_now() - since > kSayAfter) {
      said = true;
      log_warning("waiting for the directory of the cluster (", absl::StrJoin(options_.directory.endpoints, ", "), "); this process begins when it answers");
    }
    return stop();
  });
}

PeerAddress ClusterLink::peer(const MemberRecord& record) const { return {id_of_member(record.name), record.name, record.address, record.instance}; }

std::map<std::string, MemberRecord> ClusterLink::members() const {
  std::lock_guard lock(mutex_);
  return members_;
}

ClusterState ClusterLink::picture() const {
  ClusterState state{.version = version_};
  for (const auto& [name, record] : members_) {
    Member member{.id = id_of_member(name), .role = record.role, .epoch = record.life, .draining = record.draining};
    for (const RecordedModel& model : record.models) {
      const auto here = names_->here(ModelId(UINT32_MAX), {model.name, model.stamp});
      if (here.ok()) member.models.push_back(*here);
    }
    state.members[member.id] = std::move(member);
  }
  return state;
}

void ClusterLink::on_members(const std::map<std::string, MemberRecord>& members) {
  std::vector<PeerAddress> peers;
  std::map<NodeId, BulkAddress> bulk;
  const std::string machine = machine_name();
  for (const auto& [name, record] : members) {
    if (name == options_.name) continue;
    if (record.protocol != kClusterProtocol) {
      log_warning("'", name, "' speaks protocol ", record.protocol, " and this process ", kClusterProtocol, ": nothing is exchanged with it; run the same version of shoal on both");
      continue;
    }
    if (linked(options_.role, record.role)) peers.push_back(peer(record));
    if (!record.bulk_address.empty()) bulk[id_of_member(name)] = {record.bulk_address, record.machine == machine ? bulk_socket(record.pid, name) : ""};
  }
  network_->set_peers(std::move(peers));
  call(&Hooks::bulk, bulk);
  ClusterState state;
  {
    std::lock_guard lock(mutex_);
    members_ = members;
    std::erase_if(members_, [](const auto& member) { return member.second.protocol != kClusterProtocol; });
    ++version_;
    state = picture();
  }
  call(&Hooks::cluster, state);
  call(&Hooks::members, members);
}

void ClusterLink::renew() {
  ClusterState state;
  {
    std::lock_guard lock(mutex_);
    ++version_;
    state = picture();
  }
  call(&Hooks::cluster, state);
}

void ClusterLink::on_link(NodeId peer, const std::string& name, bool up) {
  {
    std::lock_guard lock(mutex_);
    if (joined_ && roster_ != nullptr) roster_->connected(name, up);
    else early_links_[name] = up;
  }
  log_info(up ? "connected with '" : "lost '", name, "'");
  call(&Hooks::link, peer, up);
}

}  // namespace shoal
