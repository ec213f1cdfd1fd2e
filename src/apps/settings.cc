#include "apps/settings.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <set>

#include "CLI/CLI.hpp"
#include "absl/strings/str_join.h"
#include "base/bytes.h"
#include "base/json.h"
#include "base/log.h"
#include "base/nearest.h"
#include "yaml-cpp/yaml.h"

namespace shoal {
namespace {

constexpr char kConfigName[] = "shoal.yaml";
constexpr char kNoConfig[] = "none";  // --config none: not even a shoal.yaml that lies there

const std::map<std::string, Quantization> kQuantizations = {
    {"none", Quantization::kNone}, {"q8_0", Quantization::kQ8_0}, {"q4_0", Quantization::kQ4_0}};
const std::map<std::string, KvType> kKvTypes = {
    {"auto", KvType::kAuto}, {"f32", KvType::kF32}, {"f16", KvType::kF16}, {"bf16", KvType::kBF16}, {"q8_0", KvType::kQ8_0}};

const std::map<std::string, Scheduling> kSchedulings = {{"request", Scheduling::kRequest}, {"static", Scheduling::kStatic}, {"token", Scheduling::kToken}};
const std::map<std::string, ModelIo> kModelIos = {{"mmap", ModelIo::kMapped}, {"direct", ModelIo::kDirect}};

template <typename Map>
std::vector<std::string> keys_of(const Map& map) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : map) keys.push_back(key);
  return keys;
}

std::vector<std::string> long_flags(const CLI::App& verb) {
  std::vector<std::string> names;
  for (const CLI::Option* option : verb.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      if (name != "help" && name != "config") names.push_back(name);
    }
  }
  names.emplace_back(kModelsKey);
  return names;
}

// A scalar, or a list of scalars, as the words a command line would have.
Status words_of(const YAML::Node& value, std::vector<std::string>& out) {
  const auto add = [&](const YAML::Node& item) {
    if (!item.IsScalar()) return invalid_argument("must be a value or a list of values");
    out.push_back(item.Scalar());
    return OkStatus();
  };
  if (!value.IsSequence()) return add(value);
  for (const YAML::Node& item : value) RETURN_IF_ERROR(add(item));
  return OkStatus();
}

// Long flags by their names; `path`, which has none, as well.
CLI::Option* option_of(CLI::App& verb, const std::string& key) {
  if (key == "config" || key == "help") return nullptr;
  CLI::Option* option = verb.get_option_no_throw("--" + key);
  return option != nullptr || key != "path" ? option : verb.get_option_no_throw("path");
}

// Gives the option the words, as if they stood on the command line.
Status set_option(CLI::Option& option, const std::vector<std::string>& words) {
  try {
    for (const std::string& word : words) option.add_result(word);
    option.run_callback();
  } catch (const CLI::Error& error) {
    option.clear();
    return invalid_argument(error.what());
  }
  return OkStatus();
}

// Keys that were set before stay as they are. Sets `applied` if this one did something.
Status apply_key(CLI::App& verb, const std::string& key, const YAML::Node& value, bool* applied, const std::function<bool(const std::string&)>& others = nullptr) {
  CLI::Option* option = option_of(verb, key);
  if (option == nullptr && others && others(key)) return OkStatus();
  if (option == nullptr) return invalid_argument("unknown key '", key, "'", did_you_mean(key, long_flags(verb)));
  if (option->count() > 0) return OkStatus();  // the command line or the environment said it
  std::vector<std::string> words;
  RETURN_IF_ERROR(annotate(words_of(value, words), "key '" + key + "'"));
  RETURN_IF_ERROR(annotate(set_option(*option, words), "key '" + key + "'"));
  if (applied != nullptr) *applied = true;
  return OkStatus();
}

// Calls `take` with each key, its value and its place ("FILE:LINE") until it gives an error.
Status each_key(const std::string& path, const std::function<Status(const std::string&, const YAML::Node&, const std::string&)>& take) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path, kConfigBytesMax));
  try {
    const YAML::Node root = YAML::Load(text);
    if (!root.IsMap() && !root.IsNull()) return invalid_argument(path, ": must be a map of flags to values");
    std::set<std::string> seen;
    for (const auto& entry : root) {
      const std::string where = absl::StrCat(path, ":", entry.first.Mark().line + 1);
      if (!entry.first.IsScalar()) return invalid_argument(where, ": a key must be a word");
      std::string key = entry.first.Scalar();
      std::replace(key.begin(), key.end(), '_', '-');
      if (key == kModelsKey) continue;
      if (!seen.insert(key).second) return invalid_argument(where, ": the key '", key, "' is there twice");
      RETURN_IF_ERROR(take(key, entry.second, where));
    }
  } catch (const YAML::Exception& error) {
    return invalid_argument(path, ":", error.mark.line + 1, ": ", error.msg);
  }
  return OkStatus();
}

// shoal.yaml among the models of `path` or in the folder above; "" if there is none.
std::string find_config(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path models = fs::absolute(path, ignored).lexically_normal();
  const fs::path folder = models.has_filename() ? models : models.parent_path();
  for (const fs::path& place : {folder / kConfigName, folder.parent_path() / kConfigName}) {
    if (fs::is_regular_file(place, ignored)) return place.string();
  }
  return "";
}

std::string environment_name(const CLI::Option& option) {
  std::string name = "SHOAL_" + option.get_lnames()[0];
  for (char& c : name) c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

std::string name_of(const CLI::Option& option) { return option.get_lnames().empty() ? option.get_single_name() : option.get_lnames()[0]; }

}  // namespace

void name_environment(CLI::App& verb) {
  for (CLI::Option* option : verb.get_options()) {
    if (option->get_lnames().empty() || option->get_lnames()[0] == "help") continue;
    option->envname(environment_name(*option));
  }
}

GivenOptions given_options(const CLI::App& verb) {
  GivenOptions given;
  for (const CLI::Option* option : verb.get_options()) {
    if (option->count() > 0 && name_of(*option) != "help") given[name_of(*option)] = option->results();
  }
  return given;
}

Status give_options(CLI::App& verb, const GivenOptions& given) {
  for (const auto& [name, words] : given) {
    CLI::Option* option = verb.get_option_no_throw(name == "path" ? name : "--" + name);
    if (option == nullptr) return invalid_argument("--", name, " is unknown");
    RETURN_IF_ERROR(annotate(set_option(*option, words), "--" + name));
  }
  return OkStatus();
}

StatusOr<std::string> config_of(CLI::App& verb) {
  CLI::Option* config = verb.get_option_no_throw("--config");
  if (config == nullptr) return std::string();
  if (config->count() == 0) {
    const CLI::Option* path = verb.get_option_no_throw("path");
    const std::string found = path == nullptr ? "" : find_config(path->as<std::string>());
    if (found.empty()) return found;
    RETURN_IF_ERROR(set_option(*config, {found}));
  }
  const std::string file = config->as<std::string>();
  return file == kNoConfig ? "" : file;
}

Status settle_config(CLI::App& verb, const std::function<bool(const std::string& key)>& others) {
  ASSIGN_OR_RETURN(const std::string path, config_of(verb));
  if (path.empty()) return OkStatus();
  return each_key(path, [&](const std::string& key, const YAML::Node& value, const std::string& where) {
    return annotate(apply_key(verb, key, value, nullptr, others), where);
  });
}

bool is_secret(const std::string& flag) { return flag == "api-key" || flag == "admin-key"; }

Explained explain_settings(CLI::App& verb, const std::string& config_path) {
  Explained out;
  std::map<const CLI::Option*, std::string> sources;
  for (CLI::Option* option : verb.get_options()) {
    if (option->count() > 0) sources[option] = "flag";
    if (option->get_lnames().empty() || option->count() > 0) continue;
    const std::string name = environment_name(*option);
    const char* value = std::getenv(name.c_str());
    if (value == nullptr || *value == '\0') continue;
    const Status status = set_option(*option, {value});
    if (!status.ok()) out.problems.push_back(absl::StrCat(name, ": ", status.message()));
    sources[option] = "environment " + name;
  }
  if (!config_path.empty()) {
    const Status status = each_key(config_path, [&](const std::string& key, const YAML::Node& value, const std::string& where) {
      bool applied = false;
      const Status applying = annotate(apply_key(verb, key, value, &applied), where);
      if (!applying.ok()) out.problems.emplace_back(applying.message());
      if (applied) sources[option_of(verb, key)] = where;
      return OkStatus();
    });
    if (!status.ok()) out.problems.emplace_back(status.message());
  }
  for (const CLI::Option* option : verb.get_options()) {
    const std::string name = name_of(*option);
    if (name == "help" || name == "config" || name == "json" || name == "all") continue;
    const auto source = sources.find(option);
    const bool set = option->count() > 0;
    out.settings.push_back({name, set ? (is_secret(name) ? "(set)" : absl::StrJoin(option->results(), ",")) : option->get_default_str(),
                            source == sources.end() ? "default" : source->second, option->get_description()});
  }
  return out;
}

void add_engine_flags(CLI::App& verb, EngineFlags& flags) {
  verb.add_option("--threads", flags.threads, "Compute threads (0: one per core)")->capture_default_str()->check(CLI::Range(0, 1024));
  verb.add_option("--devices", flags.devices, "Cores of each device, with commas between devices, e.g. cpu:0-3,cpu:4-7 (default: one device of all cores)")->delimiter(',');
  verb.add_option("--partition", flags.partition, "Of several devices: how many compute prompts and how many decode, e.g. 3+5; both: each does both; auto: about 3 of 8 compute prompts")
      ->capture_default_str();
  verb.add_option("--device-memory", flags.device_memory, "Memory of each device for weights, KV and workspace, e.g. 8GiB (default: most of what is free)");
  verb.add_option("--host-memory", flags.host_memory, "Memory for KV of requests whose model is not on the device now (default: a quarter of the device's, if free; 0: none)");
  verb.add_option("--weight-cache", flags.weight_cache, "Memory for raw weights of models that are not loaded now, with --model-io direct, so that loading them again reads nothing (0: none)")->capture_default_str();
  verb.add_option("--scheduling", flags.scheduling, "When models do not all fit the device. token: turns between tokens; request: a model stays until its answers end; "
                  "static: only those that fit together are served")->capture_default_str()->check(CLI::IsMember(keys_of(kSchedulings)));
  verb.add_option("--max-model-len", flags.max_model_len, "Longest sequence in tokens (0: what the model allows)")->capture_default_str();
  verb.add_option("--max-num-seqs", flags.max_num_seqs, "Sequences running at once, per model")->capture_default_str()->check(CLI::Range(1, 65536));
  verb.add_option("--max-num-batched-tokens", flags.max_num_batched_tokens, "Tokens of one step")->capture_default_str()->check(CLI::Range(16, 1 << 20));
  verb.add_option("--max-num-queued-reqs", flags.max_num_queued_reqs, "Requests waiting, per model; of more, those leave that cannot be on time any more")->capture_default_str()->check(CLI::Range(1, 1 << 20));
  verb.add_option("--quantization", flags.quantization, "Quantise unquantised weights at load")->capture_default_str()->check(CLI::IsMember(keys_of(kQuantizations)));
  verb.add_option("--kv-cache-dtype", flags.kv_cache_dtype, "Type of the KV cache")->capture_default_str()->check(CLI::IsMember(keys_of(kKvTypes)));
  verb.add_option("--model-io", flags.model_io, "How weights are read: mmap through the system's cache, direct past it (O_DIRECT)")->capture_default_str()->check(CLI::IsMember(keys_of(kModelIos)));
  verb.add_flag("--no-prefix-cache", flags.no_prefix_cache, "Do not keep the KV of common prompt beginnings");
}

void add_expert_flags(CLI::App& verb, EngineFlags& flags) {
  verb.add_option("--experts", flags.experts, "Who computes the routed experts of models that have some: here; auto:N, N processes of this machine that are started and supervised, or auto:MIN-MAX, as many as their load needs; "
                  "unix:PATH or HOST:PORT of expert servers, with commas; cluster: those of the cluster")->capture_default_str();
  verb.add_option("--expert-lanes", flags.expert_lanes, "Passes under way at once while experts elsewhere compute, so that neither side waits (0: up to 4, by measured times)")->capture_default_str()->check(CLI::Range(0, 4));
}

void add_log_flags(CLI::App& verb, LogFlags& flags, const std::string& default_level) {
  flags.level = default_level;
  verb.add_option("--log-level", flags.level, "debug, info, warning or error")
      ->capture_default_str()->check(CLI::IsMember(std::vector<std::string>{"debug", "info", "warning", "error"}));
  verb.add_option("--log-format", flags.format, "text or json")->capture_default_str()->check(CLI::IsMember(std::vector<std::string>{"text", "json"}));
}

Status apply(const LogFlags& flags) { return configure_log(flags.level, flags.format == "json"); }

StatusOr<LoadOptions> load_options(const EngineFlags& flags) {
  const auto quantization = kQuantizations.find(flags.quantization);
  const auto kv_type = kKvTypes.find(flags.kv_cache_dtype);
  if (quantization == kQuantizations.end()) return invalid_argument("--quantization ", flags.quantization, " is unknown");
  if (kv_type == kKvTypes.end()) return invalid_argument("--kv-cache-dtype ", flags.kv_cache_dtype, " is unknown");
  const auto io = kModelIos.find(flags.model_io);
  if (io == kModelIos.end()) return invalid_argument("--model-io ", flags.model_io, " is unknown");
  return LoadOptions{.quantization = quantization->second, .kv_type = kv_type->second, .io = io->second, .experts_elsewhere = flags.experts != "here"};
}

StatusOr<std::optional<uint64_t>> host_memory_bytes(const EngineFlags& flags) {
  if (flags.host_memory.empty()) return std::nullopt;
  if (flags.host_memory == "0") return uint64_t{0};
  auto bytes = parse_bytes(flags.host_memory);
  if (!bytes.ok()) return annotate(bytes.status(), "--host-memory");
  return *bytes;
}

StatusOr<uint64_t> weight_cache_bytes(const EngineFlags& flags) {
  if (flags.weight_cache == "0") return uint64_t{0};
  auto bytes = parse_bytes(flags.weight_cache);
  if (!bytes.ok()) return annotate(bytes.status(), "--weight-cache");
  if (flags.model_io == "direct") return *bytes;
  return invalid_argument("--weight-cache is for --model-io direct; with mmap the system's page cache keeps the files. Leave one of them out");
}

StatusOr<Scheduling> scheduling_of(const EngineFlags& flags) {
  const auto found = kSchedulings.find(flags.scheduling);
  if (found == kSchedulings.end()) return invalid_argument("--scheduling ", flags.scheduling, " is unknown");
  return found->second;
}

StatusOr<uint64_t> device_memory_bytes(const EngineFlags& flags) {
  if (flags.device_memory.empty()) return uint64_t{0};
  auto bytes = parse_bytes(flags.device_memory);
  if (!bytes.ok()) return annotate(bytes.status(), "--device-memory");
  return *bytes;
}

}  // namespace shoal
