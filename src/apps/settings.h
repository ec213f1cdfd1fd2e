// Where a flag's value comes from: command line, then environment (SHOAL_...), then the YAML file of --config, then the
// default. Plus the flags that several verbs share.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/instance_role.h"
#include "base/status.h"
#include "models/model.h"
#include "policy/model_switch.h"

namespace CLI {
class App;
}

namespace shoal {

// The section of the file that is not a flag: see model_settings.h.
constexpr char kModelsKey[] = "models";
constexpr size_t kConfigBytesMax = 1 << 20;

// What the command line and the environment said, by option; `path` is one of them.
using GivenOptions = std::map<std::string, std::vector<std::string>>;
GivenOptions given_options(const CLI::App& verb);
// Gives a fresh verb what was given before, as if on its command line.
Status give_options(CLI::App& verb, const GivenOptions& given);

// Gives every long flag of the verb its variable: --max-model-len is SHOAL_MAX_MODEL_LEN.
void name_environment(CLI::App& verb);

// Fills flags that neither the command line nor the environment set from the file of config_of(). Keys are the long flags ("_" is "-"); an
// unknown key is InvalidArgument and names the nearest one, unless `others` says that it is of another verb, which reads the same
// file. The section of models is left to read_model_settings().
Status settle_config(CLI::App& verb, const std::function<bool(const std::string& key)>& others = nullptr);

// The file that settle_config() reads: that of --config, or a shoal.yaml among the models of the argument `path` or in the
// folder above; "" for none, which `--config none` asks for.
StatusOr<std::string> config_of(CLI::App& verb);

// One flag of a verb, with its value and where that comes from.
struct Setting {
  std::string name;
  std::string value;     // "(set)" for secrets
  std::string source;    // "flag", "environment SHOAL_PORT", "shoal.yaml:3", "default"
  std::string help;
};
struct Explained {
  std::vector<Setting> settings;
  std::vector<std::string> problems;  // each names its place: "shoal.yaml:3: key 'prot' is unknown; ..."
};
// What settle_config() and the environment do, told in full: goes on after a problem. REQUIRES: the verb's options have
// no environment names yet (name_environment), so that what is set now comes from the command line.
Explained explain_settings(CLI::App& verb, const std::string& config_path);

// Flags of everything that loads models.
struct EngineFlags {
  uint32_t threads = 0;
  std::vector<std::string> devices;  // "cpu:0-3", a device each; none: one of all cores
  std::string partition = "auto";  // of the devices: "auto", "both" or "PREFILL+DECODE"
  std::string device_memory;       // "8GiB", of each device; empty: most of what is free
  std::string host_memory;         // "4GiB"; empty: a share of what is left
  std::string weight_cache = "0";
  std::string scheduling = "token";
  uint32_t max_model_len = 0;
  uint32_t max_num_seqs = 256;
  uint32_t max_num_batched_tokens = 512;
  uint32_t max_num_queued_reqs = 1024;
  std::string quantization = "none";
  std::string kv_cache_dtype = "auto";
  std::string model_io = "mmap";
  bool no_prefix_cache = false;
  std::string experts = "here";    // or who computes them: see apps/expert_routing.h
  uint32_t expert_lanes = 0;       // passes under way at once of a model whose experts are elsewhere; 0: as measured
  std::string estimates_file;      // of host/estimate_store.h; empty: none
  std::string digests_file;        // of host/digest_store.h; empty: none
  std::string record_events;       // file for what nodes were told and answered; empty: none
};
void add_engine_flags(CLI::App& verb, EngineFlags& flags);
void add_expert_flags(CLI::App& verb, EngineFlags& flags);

struct LogFlags {
  std::string level;
  std::string format = "text";
};
void add_log_flags(CLI::App& verb, LogFlags& flags, const std::string& default_level);
Status apply(const LogFlags& flags);

// Everything that config files and `config show` must not print.
bool is_secret(const std::string& flag);

StatusOr<LoadOptions> load_options(const EngineFlags& flags);
StatusOr<uint64_t> device_memory_bytes(const EngineFlags& flags);
StatusOr<std::optional<uint64_t>> host_memory_bytes(const EngineFlags& flags);
StatusOr<uint64_t> weight_cache_bytes(const EngineFlags& flags);
StatusOr<Scheduling> scheduling_of(const EngineFlags& flags);

struct DeviceSpec {
  std::vector<int> cpus;  // empty: all
  bool guarded = false;   // see DeviceGuard
  InstanceRole instance_role = InstanceRole::kBoth;
};
// --devices and --partition. InvalidArgument for cores that this process may not use or that two devices share, and for a
// partition that does not add up.
StatusOr<std::vector<DeviceSpec>> device_specs(const EngineFlags& flags);

}  // namespace shoal
