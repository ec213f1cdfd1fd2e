#include "apps/processes.h"

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "apps/admin_socket.h"
#include "apps/cluster_flags.h"
#include "apps/expert_routing.h"
#include "apps/signals.h"
#include "apps/verbs.h"
#include "base/clock.h"
#include "base/log.h"
#include "device/memory_limits.h"

namespace shoal {
namespace {

constexpr Duration kLook = std::chrono::milliseconds(100);
constexpr Duration kRestartMin = std::chrono::milliseconds(200), kRestartMax = std::chrono::seconds(5);
constexpr Duration kLivedWell = std::chrono::seconds(10);
constexpr int kFailuresAtStart = 3;  // in a row, by one that never lived well: it never will
constexpr Duration kLastWords = std::chrono::seconds(5);

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

struct Child {
  ProcessSpec spec;
  pid_t pid = 0;
  TimePoint started{};
  TimePoint start_at{};
  Duration pause = kRestartMin;
  int failures = 0;  // at its start, in a row
  bool lived = false;
};

pid_t start(const ProcessSpec& spec) {
  std::vector<std::string> words = {"shoal"};
  words.insert(words.end(), spec.words.begin(), spec.words.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // they end with who watches them
  if (::getppid() != parent) ::_exit(kExitFailed);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::setpgid(0, 0);  // Ctrl-C is for the watcher, which ends them in order
  ::execv("/proc/self/exe", argv.data());
  ::_exit(kExitFailed);
}

class Supervisor {
 public:
  explicit Supervisor(std::vector<ProcessSpec> specs) {
    for (ProcessSpec& spec : specs) children_.push_back({std::move(spec)});
  }
  ~Supervisor() {
    for (const Child& child : children_) {
      if (child.pid > 0) ::kill(child.pid, SIGKILL), ::waitpid(child.pid, nullptr, 0);
    }
  }

  StatusOr<int> run(Duration patience) {
    while (true) {
      const TimePoint now = steady_now();
      for (Child& child : children_) {
        if (child.pid == 0 && now >= child.start_at) {
          child.pid = start(child.spec);
          child.started = now;
          if (child.pid < 0) return unavailable("no process can be started: ", std::strerror(errno));
          log_info("started ", child.spec.name, ", process ", child.pid);
        }
        child.lived |= child.pid > 0 && now - child.started > kLivedWell;
      }
      const Signal signal = wait_signal(kLook);
      if (signal == Signal::kStop) return end(patience);
      if (signal == Signal::kReload && children_.back().pid > 0) ::kill(children_.back().pid, SIGHUP);  // the gateway asks the nodes
      ASSIGN_OR_RETURN(const bool asked, reap());
      if (asked) return end(patience);
    }
  }

 private:
  // Whether the gateway ended as it was asked to (`shoal stop`): then all do.
  StatusOr<bool> reap() {
    for (Child& child : children_) {
      int status = 0;
      if (child.pid <= 0 || ::waitpid(child.pid, &status, WNOHANG) != child.pid) continue;
      if (&child == &children_.back() && WIFEXITED(status) && WEXITSTATUS(status) == kExitOk) {
        child.pid = 0;
        return true;
      }
      const TimePoint now = steady_now();
      const bool at_start = now - child.started < kLivedWell && !child.lived;
      child.failures = at_start ? child.failures + 1 : 0;
      child.pause = at_start ? std::min(child.pause * 2, kRestartMax) : kRestartMin;
      child.start_at = now + child.pause;
      child.pid = 0;
      const std::string how = WIFSIGNALED(status) ? absl::StrCat("was ended by signal ", WTERMSIG(status)) : absl::StrCat("ended with ", WEXITSTATUS(status));
      const bool wrong_use = WIFEXITED(status) && WEXITSTATUS(status) == kExitUsage;
      if (wrong_use || child.failures >= kFailuresAtStart) return unavailable(child.spec.name, " ", how, " and cannot run; see the log above");
      log_warning(child.spec.name, " ", how, "; it is started again");
    }
    return false;
  }

  // The gateway first, so that its answers end on nodes that live.
  StatusOr<int> end(Duration patience) {
    for (auto child = children_.rbegin(); child != children_.rend(); ++child) {
      if (child->pid <= 0) continue;
      ::kill(child->pid, SIGTERM);
      const TimePoint until = steady_now() + (child == children_.rbegin() ? patience : Duration(0)) + kLastWords;
      while (::waitpid(child->pid, nullptr, WNOHANG) == 0 && steady_now() < until) {
        if (wait_stop_signal(kLook)) ::kill(child->pid, SIGTERM);
      }
      if (::kill(child->pid, 0) == 0) ::kill(child->pid, SIGKILL), ::waitpid(child->pid, nullptr, 0);
      child->pid = 0;
    }
    log_info("stopped");
    return kExitOk;
  }

  std::vector<Child> children_;
};

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

StatusOr<std::vector<ProcessSpec>> process_specs(const ServeFlags& flags, const std::string& socket) {
  const uint32_t count = flags.processes;
  ASSIGN_OR_RETURN(const uint32_t experts, expert_processes(flags.engine.experts));
  EngineFlags engine = flags.engine;
  const bool shared_cores = engine.devices.empty();
  std::vector<std::string> cores = shared_cores ? core_shares(count + experts) : std::vector<std::string>();
  if (shared_cores) engine.devices.assign(cores.begin(), cores.begin() + static_cast<ptrdiff_t>(std::min<size_t>(cores.size(), count)));
  cores.resize(count + experts);
  const uint64_t memory = available_memory_bytes() / 10 * 8 / (count + experts);
  if (!shared_cores && engine.devices.size() != count) {
    return invalid_argument("--processes ", count, ": --devices names ", engine.devices.size(), "; name one for each node, or none");
  }
  const bool own_cores = engine.devices.size() == count;
  std::vector<DeviceSpec> devices(count);
  if (own_cores) {
    ASSIGN_OR_RETURN(devices, device_specs(engine));
  }
  const std::string join = absl::StrCat("--join=unix:", socket), config = absl::StrCat("--config=", flags.config.empty() ? "none" : flags.config);
  std::vector<ProcessSpec> specs;
  specs.push_back({"controller", {"controller", absl::StrCat("--listen=unix:", socket), "--name=controller", config}});
  const auto node_flags = [](CLI::App& verb, ServeFlags& f) {
    add_model_flags(verb, f);
    add_process_flags(verb, f);
  };
  for (uint32_t i = 0; i < experts; ++i) {
    specs.push_back(expert_spec(flags, absl::StrCat("expert-", i), cores[count + i], memory));
    specs.back().words.insert(specs.back().words.end(), {join, "--listen=127.0.0.1:0"});
  }
  for (uint32_t i = 0; i < count; ++i) {
    const std::string name = absl::StrCat("node-", i);
    ProcessSpec spec{name, {"node", flags.path, join, absl::StrCat("--name=", name), config, absl::StrCat("--role=", std::string(instance_role_name(devices[i].instance_role)))}};
    if (own_cores) spec.words.push_back(absl::StrCat("--devices=", engine.devices[i]));
    else spec.words.emplace_back("--threads=1");
    if (engine.device_memory.empty()) spec.words.push_back(absl::StrCat("--device-memory=", memory >> 20, "MiB"));
    spec.words.push_back(absl::StrCat("--estimates=", own_file(flags.engine.estimates_file, i)));
    if (experts > 0) spec.words.emplace_back("--experts=cluster");
    for (std::string& word : passed_on(flags, node_flags, {"config", "devices", "partition", "estimates", "record-events", experts > 0 ? "experts" : "config"})) spec.words.push_back(std::move(word));
    specs.push_back(std::move(spec));
  }
  specs.push_back(gateway_spec(flags, join, config));
  return specs;
}

// Expert servers, and the process that serves with them.
StatusOr<std::vector<ProcessSpec>> expert_process_specs(const ServeFlags& flags, const std::string& socket) {
  ASSIGN_OR_RETURN(const uint32_t count, expert_processes(flags.engine.experts));
  std::vector<std::string> cores = core_shares(count + 1);
  cores.resize(count + 1);
  const std::string config = absl::StrCat("--config=", flags.config.empty() ? "none" : flags.config);
  const uint64_t memory = available_memory_bytes() / 10 * 8 / (count + 1);
  std::vector<ProcessSpec> specs;
  std::string addresses;
  for (uint32_t i = 0; i < count; ++i) {
    const std::string at = absl::StrCat("unix:", socket, ".", i);
    specs.push_back(expert_spec(flags, absl::StrCat("expert-", i), cores[i + 1], memory));
    specs.back().words.push_back(absl::StrCat("--listen=", at));
    absl::StrAppend(&addresses, i == 0 ? "" : ",", at);
  }
  ProcessSpec serve{"serve", {"serve", flags.path, config, absl::StrCat("--experts=", addresses)}};
  if (flags.engine.device_memory.empty()) serve.words.push_back(absl::StrCat("--device-memory=", memory >> 20, "MiB"));
  if (flags.engine.devices.empty() && flags.engine.threads == 0) {
    serve.words.push_back(cores[0].empty() ? std::string("--threads=1") : absl::StrCat("--devices=", cores[0]));
  }
  for (std::string& word : passed_on(flags, add_serve_flags, {"config", "experts", "processes"})) serve.words.push_back(std::move(word));
  specs.push_back(std::move(serve));
  return specs;
}

StatusOr<int> serve_in_processes(const ServeFlags& flags) {
  const std::string socket = absl::StrCat(default_admin_socket(flags.port), ".", ::getpid(), ".cluster");
  RETURN_IF_ERROR(make_admin_socket_folder(socket));
  ASSIGN_OR_RETURN(std::vector<ProcessSpec> specs, flags.processes > 0 ? process_specs(flags, socket) : expert_process_specs(flags, socket));
  return Supervisor(std::move(specs)).run(from_seconds(flags.shutdown_timeout_s));
}

}  // namespace shoal
