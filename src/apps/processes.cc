#include "apps/processes.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "apps/admin_socket.h"
#include "apps/cluster_flags.h"
#include "apps/expert_routing.h"
#include "apps/expert_scaling.h"
#include "apps/supervisor.h"
#include "device/memory_limits.h"

namespace shoal {
namespace {

// The flags that this verb has too, as they were given.
std::vector<std::string> passed_on(const ServeFlags& flags, const AddFlags& add, std::initializer_list<std::string_view> without) {
  CLI::App verb;
  ServeFlags ignored;
  add(verb, ignored);
  std::vector<std::string> words;
  for (const auto& [name, values] : flags.settled) {
    if (name == "path" || verb.get_option_no_throw("--" + name) == nullptr || std::find(without.begin(), without.end(), name) != without.end()) continue;
    for (const std::string& value : values) words.push_back(absl::StrCat("--", name, "=", value));
  }
  return words;
}

// The cores that this process may use, in as many equal parts; none if there are fewer cores.
std::vector<std::string> core_shares(uint32_t parts) {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (::sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set)) cores.push_back(cpu);
    }
  }
  std::vector<std::string> shares;
  if (cores.size() < parts) return shares;
  for (uint32_t i = 0; i < parts; ++i) {
    const size_t begin = cores.size() * i / parts, end = cores.size() * (i + 1) / parts;
    std::string word = "cpu:";
    for (size_t c = begin; c < end; ++c) absl::StrAppend(&word, c > begin ? "+" : "", cores[c]);
    shares.push_back(std::move(word));
  }
  return shares;
}

// What a file that each node keeps for itself is called.
std::string own_file(const std::string& file, uint32_t node) { return file.empty() ? "none" : absl::StrCat(file, ".", node); }

// An expert server with its share of what the machine has; `cores` empty: there are too few to share.
ProcessSpec expert_spec(const ServeFlags& flags, const std::string& name, const std::string& cores, uint64_t memory) {
  ProcessSpec spec{name, {"expert", flags.path, absl::StrCat("--name=", name), "--experts=auto", absl::StrCat("--memory=", memory >> 20, "MiB"),
                          absl::StrCat("--quantization=", flags.engine.quantization), absl::StrCat("--log-level=", flags.log.level), absl::StrCat("--log-format=", flags.log.format)}};
  spec.words.push_back(cores.empty() ? std::string("--threads=1") : absl::StrCat("--cores=", cores));
  return spec;
}

ProcessSpec gateway_spec(const ServeFlags& flags, const std::string& join, const std::string& config) {
  const auto gateway_flags = [](CLI::App& verb, ServeFlags& f) {
    add_edge_flags(verb, f);
    add_process_flags(verb, f);
  };
  ProcessSpec gateway{"gateway", {"gateway", join, "--name=gateway", config}};
  for (std::string& word : passed_on(flags, gateway_flags, {"config"})) gateway.words.push_back(std::move(word));
  return gateway;
}

}  // namespace

StatusOr<ProcessSet> process_specs(const ServeFlags& flags, const std::string& socket) {
  const uint32_t count = flags.processes;
  ASSIGN_OR_RETURN(const ExpertProcesses experts, expert_processes(flags.engine.experts));
  EngineFlags engine = flags.engine;
  const bool shared_cores = engine.devices.empty();
  std::vector<std::string> cores = shared_cores ? core_shares(count + experts.max) : std::vector<std::string>();
  if (shared_cores) engine.devices.assign(cores.begin(), cores.begin() + static_cast<ptrdiff_t>(std::min<size_t>(cores.size(), count)));
  cores.resize(count + experts.max);
  const uint64_t memory = available_memory_bytes() / 10 * 8 / (count + experts.max);
  if (!shared_cores && engine.devices.size() != count) {
    return invalid_argument("--processes ", count, ": --devices names ", engine.devices.size(), "; name one for each node, or none");
  }
  const bool own_cores = engine.devices.size() == count;
  std::vector<DeviceSpec> devices(count);
  if (own_cores) {
    ASSIGN_OR_RETURN(devices, device_specs(engine));
  }
  const std::string join = absl::StrCat("--join=unix:", socket), config = absl::StrCat("--config=", flags.config.empty() ? "none" : flags.config);
  ProcessSet set;
  std::vector<ProcessSpec>& specs = set.always;
  specs.push_back({"controller", {"controller", absl::StrCat("--listen=unix:", socket), "--name=controller", config}});
  const auto node_flags = [](CLI::App& verb, ServeFlags& f) {
    add_model_flags(verb, f);
    add_process_flags(verb, f);
  };
  for (uint32_t i = 0; i < experts.max; ++i) {
    ProcessSpec spec = expert_spec(flags, expert_name(i), cores[count + i], memory);
    spec.words.insert(spec.words.end(), {join, "--listen=127.0.0.1:0"});
    (i < experts.min ? specs : set.more_experts).push_back(std::move(spec));
  }
  for (uint32_t i = 0; i < count; ++i) {
    const std::string name = absl::StrCat("node-", i);
    ProcessSpec spec{name, {"node", flags.path, join, absl::StrCat("--name=", name), config, absl::StrCat("--role=", std::string(instance_role_name(devices[i].instance_role)))}};
    if (own_cores) spec.words.push_back(absl::StrCat("--devices=", engine.devices[i]));
    else spec.words.emplace_back("--threads=1");
    if (engine.device_memory.empty()) spec.words.push_back(absl::StrCat("--device-memory=", memory >> 20, "MiB"));
    spec.words.push_back(absl::StrCat("--estimates=", own_file(flags.engine.estimates_file, i)));
    if (experts.max > 0) spec.words.emplace_back("--experts=cluster");
    for (std::string& word : passed_on(flags, node_flags, {"config", "devices", "partition", "estimates", "record-events", experts.max > 0 ? "experts" : "config"})) spec.words.push_back(std::move(word));
    specs.push_back(std::move(spec));
  }
  specs.push_back(gateway_spec(flags, join, config));
  return set;
}

// Expert servers, and the process that serves with them.
StatusOr<ProcessSet> expert_process_specs(const ServeFlags& flags, const std::string& socket) {
  ASSIGN_OR_RETURN(const ExpertProcesses experts, expert_processes(flags.engine.experts));
  std::vector<std::string> cores = core_shares(experts.max + 1);
  cores.resize(experts.max + 1);
  const std::string config = absl::StrCat("--config=", flags.config.empty() ? "none" : flags.config);
  const uint64_t memory = available_memory_bytes() / 10 * 8 / (experts.max + 1);
  ProcessSet set;
  std::vector<std::string> addresses;
  for (uint32_t i = 0; i < experts.max; ++i) {
    set.expert_addresses.push_back(absl::StrCat("unix:", socket, ".", i));
    ProcessSpec spec = expert_spec(flags, expert_name(i), cores[i + 1], memory);
    spec.words.push_back(absl::StrCat("--listen=", set.expert_addresses.back()));
    if (i < experts.min) addresses.push_back(set.expert_addresses.back());
    (i < experts.min ? set.always : set.more_experts).push_back(std::move(spec));
  }
  ProcessSpec serve{"serve", {"serve", flags.path, config, absl::StrCat("--experts=", absl::StrJoin(addresses, ","))}};
  if (flags.engine.device_memory.empty()) serve.words.push_back(absl::StrCat("--device-memory=", memory >> 20, "MiB"));
  if (flags.engine.devices.empty() && flags.engine.threads == 0) {
    serve.words.push_back(cores[0].empty() ? std::string("--threads=1") : absl::StrCat("--devices=", cores[0]));
  }
  for (std::string& word : passed_on(flags, add_serve_flags, {"config", "experts", "processes", "expert-busy", "expert-cooldown"})) serve.words.push_back(std::move(word));
  set.always.push_back(std::move(serve));
  return set;
}

StatusOr<int> serve_in_processes(const ServeFlags& flags) {
  const std::string socket = absl::StrCat(default_admin_socket(flags.port), ".", ::getpid(), ".cluster");
  RETURN_IF_ERROR(make_admin_socket_folder(socket));
  ASSIGN_OR_RETURN(ProcessSet set, flags.processes > 0 ? process_specs(flags, socket) : expert_process_specs(flags, socket));
  ASSIGN_OR_RETURN(const ExpertScaleOptions scale, expert_scale_options(flags));
  std::vector<ProcessSpec> always = std::move(set.always);
  Supervisor supervisor(std::move(always));
  std::optional<ExpertScaling> scaling;
  if (!set.more_experts.empty()) scaling.emplace(ExpertScaling::Options{.scale = scale, .socket = admin_socket_path(flags, flags.port), .more = std::move(set.more_experts), .addresses = std::move(set.expert_addresses)}, supervisor);
  return supervisor.run(from_seconds(flags.shutdown_timeout_s));
}

}  // namespace shoal
