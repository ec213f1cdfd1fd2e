#include "apps/settings.h"

#include <algorithm>
#include <map>

#include "CLI/CLI.hpp"
#include "base/bytes.h"
#include "base/json.h"
#include "base/log.h"
#include "yaml-cpp/yaml.h"

namespace shoal {
namespace {

constexpr size_t kConfigBytesMax = 1 << 20;

const std::map<std::string, Quantization> kQuantizations = {
    {"none", Quantization::kNone}, {"q8_0", Quantization::kQ8_0}, {"q4_0", Quantization::kQ4_0}};
const std::map<std::string, KvType> kKvTypes = {
    {"auto", KvType::kAuto}, {"f32", KvType::kF32}, {"f16", KvType::kF16}, {"bf16", KvType::kBF16}};

template <typename Map>
std::vector<std::string> keys_of(const Map& map) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : map) keys.push_back(key);
  return keys;
}

std::vector<std::string> long_flags(const CLI::App& verb) {
  std::vector<std::string> names;
  for (const CLI::Option* option : verb.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back(name);
  }
  return names;
}

// A scalar, or a list of scalars, as the words a command line would have.
Status words_of(const YAML::Node& value, const std::string& key, std::vector<std::string>& out) {
  if (value.IsScalar()) {
    out.push_back(value.Scalar());
  } else if (value.IsSequence()) {
    for (const YAML::Node& item : value) {
      if (!item.IsScalar()) return invalid_argument("key '", key, "' must be a value or a list of values");
      out.push_back(item.Scalar());
    }
  } else {
    return invalid_argument("key '", key, "' must be a value or a list of values");
  }
  return OkStatus();
}

Status apply_key(CLI::App& verb, const std::string& key, const YAML::Node& value) {
  CLI::Option* option = verb.get_option_no_throw("--" + key);
  if (option == nullptr || key == "config" || key == "help") {
    return invalid_argument("unknown key '", key, "'; did you mean '", nearest(key, long_flags(verb)), "'?");
  }
  if (option->count() > 0) return OkStatus();  // the command line or the environment said it
  std::vector<std::string> words;
  RETURN_IF_ERROR(words_of(value, key, words));
  for (std::string& word : words) option->add_result(std::move(word));
  option->run_callback();
  return OkStatus();
}

size_t edits(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({change, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string nearest(const std::string& word, const std::vector<std::string>& candidates) {
  const auto best = std::min_element(candidates.begin(), candidates.end(), [&](const auto& a, const auto& b) {
    return edits(word, a) < edits(word, b);
  });
  return best == candidates.end() ? "" : *best;
}

void name_environment(CLI::App& verb) {
  for (CLI::Option* option : verb.get_options()) {
    if (option->get_lnames().empty() || option->get_lnames()[0] == "help") continue;
    std::string name = "SHOAL_" + option->get_lnames()[0];
    for (char& c : name) c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    option->envname(name);
  }
}

Status settle_config(CLI::App& verb) {
  const CLI::Option* config = verb.get_option_no_throw("--config");
  if (config == nullptr || config->count() == 0) return OkStatus();
  const std::string path = config->as<std::string>();
  ASSIGN_OR_RETURN(const std::string text, read_file(path, kConfigBytesMax));
  try {
    const YAML::Node root = YAML::Load(text);
    if (!root.IsMap() && !root.IsNull()) return invalid_argument(path, ": must be a map of flags to values");
    for (const auto& entry : root) RETURN_IF_ERROR(annotate(apply_key(verb, entry.first.Scalar(), entry.second), path));
  } catch (const YAML::Exception& error) {
    return invalid_argument(path, ": ", error.what());
  } catch (const CLI::Error& error) {
    return invalid_argument(path, ": ", error.what());
  }
  return OkStatus();
}

void add_engine_flags(CLI::App& verb, EngineFlags& flags) {
  verb.add_option("--threads", flags.threads, "Compute threads (0: one per core)")->check(CLI::Range(0, 1024));
  verb.add_option("--device-memory", flags.device_memory, "Memory for weights, KV and workspace, e.g. 8GiB (default: most of what is free)");
  verb.add_option("--max-model-len", flags.max_model_len, "Longest sequence in tokens (0: what the model allows)");
  verb.add_option("--max-num-seqs", flags.max_num_seqs, "Sequences running at once, per model")->check(CLI::Range(1, 65536));
  verb.add_option("--max-num-batched-tokens", flags.max_num_batched_tokens, "Tokens of one step")->check(CLI::Range(16, 1 << 20));
  verb.add_option("--max-num-queued-reqs", flags.max_num_queued_reqs, "Requests waiting, per model")->check(CLI::Range(1, 1 << 20));
  verb.add_option("--quantization", flags.quantization, "Quantise unquantised weights at load")->check(CLI::IsMember(keys_of(kQuantizations)));
  verb.add_option("--kv-cache-dtype", flags.kv_cache_dtype, "Type of the KV cache")->check(CLI::IsMember(keys_of(kKvTypes)));
  verb.add_flag("--no-prefix-cache", flags.no_prefix_cache, "Do not keep the KV of common prompt beginnings");
}

void add_log_flags(CLI::App& verb, LogFlags& flags, const std::string& default_level) {
  flags.level = default_level;
  verb.add_option("--log-level", flags.level, "debug, info, warning or error")
      ->check(CLI::IsMember(std::vector<std::string>{"debug", "info", "warning", "error"}));
  verb.add_option("--log-format", flags.format, "text or json")->check(CLI::IsMember(std::vector<std::string>{"text", "json"}));
}

Status apply(const LogFlags& flags) { return configure_log(flags.level, flags.format == "json"); }

StatusOr<LoadOptions> load_options(const EngineFlags& flags) {
  const auto quantization = kQuantizations.find(flags.quantization);
  const auto kv_type = kKvTypes.find(flags.kv_cache_dtype);
  if (quantization == kQuantizations.end()) return invalid_argument("--quantization ", flags.quantization, " is unknown");
  if (kv_type == kKvTypes.end()) return invalid_argument("--kv-cache-dtype ", flags.kv_cache_dtype, " is unknown");
  return LoadOptions{.quantization = quantization->second, .kv_type = kv_type->second};
}

StatusOr<uint64_t> device_memory_bytes(const EngineFlags& flags) {
  if (flags.device_memory.empty()) return uint64_t{0};
  auto bytes = parse_bytes(flags.device_memory);
  if (!bytes.ok()) return annotate(bytes.status(), "--device-memory");
  return *bytes;
}

}  // namespace shoal
