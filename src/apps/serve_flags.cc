#include "apps/serve_flags.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "CLI/CLI.hpp"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "apps/admin_socket.h"
#include "base/json.h"
#include "base/nearest.h"

namespace shoal {
namespace {

constexpr size_t kKeyFileBytesMax = 1 << 20;

std::vector<std::string> names_of(const std::vector<FoundModel>& models) {
  std::vector<std::string> names;
  for (const FoundModel& model : models) names.push_back(model.entry.name);
  return names;
}

// What a flag says ("none": no file), or the default place below a folder that the environment names, or below home.
std::string kept_file(const std::string& given, const char* variable, const char* below_home, const char* name) {
  if (!given.empty()) return given == "none" ? "" : given;
  const char* folder = std::getenv(variable);
  const char* home = std::getenv("HOME");
  if (folder != nullptr && *folder == '/') return absl::StrCat(folder, name);
  return home == nullptr || *home != '/' ? "" : absl::StrCat(home, below_home, name);
}

}  // namespace

StatusOr<size_t> index_of(const std::string& name, const std::vector<FoundModel>& models, const std::string& flag) {
  for (size_t i = 0; i < models.size(); ++i) {
    if (models[i].entry.name == name) return i;
  }
  return invalid_argument(flag, ": no model '", name, "' is served", did_you_mean(name, names_of(models)));
}

std::string config_file(const ServeFlags& flags) { return flags.config == "none" ? "" : flags.config; }

std::string estimates_file(const ServeFlags& flags) { return kept_file(flags.estimates, "XDG_STATE_HOME", "/.local/state", "/shoal/estimates.json"); }
std::string digests_file(const ServeFlags& flags) { return kept_file(flags.digests, "XDG_CACHE_HOME", "/.cache", "/shoal/digests.json"); }

std::vector<std::string> changed_flags(const ServeFlags& before, const ServeFlags& after) {
  std::set<std::string> names;
  for (const auto* side : {&before.settled, &after.settled}) {
    for (const auto& [name, words] : *side) names.insert(name);
  }
  const auto words = [](const GivenOptions& options, const std::string& name) {
    const auto found = options.find(name);
    return found == options.end() ? std::vector<std::string>() : found->second;
  };
  std::vector<std::string> out;
  for (const std::string& name : names) {
    if (words(before.settled, name) != words(after.settled, name)) out.push_back(name);
  }
  return out;
}

StatusOr<ServeFlags> settle_again(const ServeFlags& before, const AddFlags& add) {
  CLI::App verb;
  ServeFlags flags;
  add(verb, flags);
  RETURN_IF_ERROR(give_options(verb, before.given));
  RETURN_IF_ERROR(settle_config(verb));
  flags.given = before.given;
  std::vector<std::string> problems;
  flags.settled = given_options(verb);
  flags.models = read_model_settings(config_file(flags), problems);
  if (!problems.empty()) return invalid_argument(absl::StrJoin(problems, "; "));
  return flags;
}

void add_edge_flags(CLI::App& verb, ServeFlags& flags) {
  verb.add_option("--host", flags.host, "Address to listen on")->capture_default_str();
  verb.add_option("--port", flags.port, "Port to listen on (0: any)")->capture_default_str()->check(CLI::Range(0, 65535));
  verb.add_option("--uds", flags.uds, "Listen on this UNIX socket instead");
  verb.add_option("--api-key", flags.api_keys, "Key that clients must send; may be repeated")->delimiter(',');
  verb.add_option("--api-key-file", flags.api_key_file, "File with a line per key: SECRET (or sha256:HEX) [name=N] [rpm=N] [tpm=N] "
                  "[concurrency=N] [weight=N] [models=A,B]");
  verb.add_option("--requests-per-minute", flags.key_limits.requests_per_minute, "Limit of a key that has none of its own (0: none)");
  verb.add_option("--tokens-per-minute", flags.key_limits.tokens_per_minute, "As above, prompt and answer tokens together (0: none)");
  verb.add_option("--requests-at-once", flags.key_limits.concurrency, "As above, requests under way (0: no limit)");
  verb.add_option("--ssl-certfile", flags.ssl_certfile, "PEM certificate chain: serve HTTPS");
  verb.add_option("--ssl-keyfile", flags.ssl_keyfile, "PEM private key of the certificate");
  verb.add_option("--cors-origins", flags.cors_origins, "Origins whose pages may call this server from a browser; '*': any")->delimiter(',');
  verb.add_option("--admin-socket", flags.admin_socket, "UNIX socket of the operator's endpoints (default: "
                  "$XDG_RUNTIME_DIR/shoal-UID/PORT.sock; none: no socket)");
  verb.add_option("--admin-host", flags.admin_host, "Address of the operator's endpoints, with --admin-port")->capture_default_str();
  verb.add_option("--admin-port", flags.admin_port, "Port of the operator's endpoints (0: any free one; default: none)")->check(CLI::Range(-1, 65535));
  verb.add_option("--admin-key", flags.admin_key, "Key of the operator's endpoints");
  verb.add_flag("--no-ollama-api", flags.no_ollama_api, "Do not answer under /api, as Ollama does");
  verb.add_flag("--no-llamacpp-api", flags.no_llama_cpp_api, "Do not answer /completion, /infill, /props and /slots, as llama.cpp's server does");
  verb.add_option("--response-store", flags.response_store_mib, "MiB of responses of /v1/responses that are kept for each API key, the latest ones (0: none)")
      ->capture_default_str()->check(CLI::Range(0, 65'536));
  verb.add_option("--record", flags.record, "Write the run to this file, a JSON object per line: requests (lengths and times, never text) and what the devices did");
  verb.add_option("--request-timeout", flags.request_timeout_s, "Longest life of one request in seconds")
      ->capture_default_str()->check(CLI::Range(1.0, 864000.0));
  verb.add_option("--max-connections", flags.max_connections, "Open client connections")->capture_default_str()->check(CLI::Range(1, 1'000'000));
  verb.add_option("--http-threads", flags.http_threads, "Threads for HTTP, and as many for tokenising (large bodies have their own)")
      ->capture_default_str()->check(CLI::Range(1, 256));
}

void add_model_flags(CLI::App& verb, ServeFlags& flags) {
  verb.add_option("path", flags.path, "Folder of models, one model folder, or one GGUF file")->capture_default_str();
  verb.add_option("--alias,--served-model-name", flags.aliases, "Further name of a model: MODEL=NAME (or NAME, if there is one model)")
      ->delimiter(',');
  verb.add_option("--tool-call-parser", flags.tool_call_parsers, "Format of tool calls, by vLLM's names: PARSER or MODEL=PARSER "
                  "(default: told by the chat template)")->delimiter(',');
  verb.add_option("--reasoning-parser", flags.reasoning_parsers, "Likewise for reasoning; none: it stays in the content")->delimiter(',');
  add_pooling_flags(verb, flags);
  add_engine_flags(verb, flags.engine);
  add_expert_flags(verb, flags.engine);
}

void add_process_flags(CLI::App& verb, ServeFlags& flags) {
  verb.final_callback([&] { flags.given = given_options(verb); });
  verb.add_option("--config", flags.config, "YAML file whose keys are these flags (default: shoal.yaml among the models or above them; none: no file)");
  verb.add_option("--shutdown-timeout", flags.shutdown_timeout_s, "Seconds that running requests get after SIGTERM")
      ->capture_default_str()->check(CLI::Range(0.0, 86400.0));
  add_log_flags(verb, flags.log, "info");
}

void add_serve_flags(CLI::App& verb, ServeFlags& flags) {
  add_model_flags(verb, flags);
  add_edge_flags(verb, flags);
  verb.add_option("--processes", flags.processes, "Run as processes of their own, supervised: a gateway, a controller, and so many nodes, each with its share of cores and memory (0: all in this one)")
      ->capture_default_str()->check(CLI::Range(0, 64));
  verb.add_option("--expert-busy", flags.expert_busy, "With --experts auto:MIN-MAX, LOW-HIGH: one expert server more while they compute for more than HIGH of their time, one less below LOW")->capture_default_str();
  verb.add_option("--expert-cooldown", flags.expert_cooldown_s, "Seconds between two such changes")->capture_default_str()->check(CLI::Range(0.0, 86400.0));
  verb.add_flag("--enable-auto-tool-choice", flags.auto_tool_choice, "Always on; accepted for command lines of vLLM");
  add_process_flags(verb, flags);
}

bool is_serve_flag(const std::string& name) {
  CLI::App verb;
  ServeFlags flags;
  add_serve_flags(verb, flags);
  return verb.get_option_no_throw("--" + name) != nullptr;
}

Status apply_aliases(const std::vector<std::string>& aliases, std::vector<FoundModel>& models) {
  std::set<std::string> taken;
  for (const FoundModel& model : models) taken.insert(model.entry.name);
  for (const std::string& text : aliases) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos && models.size() != 1) {
      return invalid_argument("--alias ", text, ": there are ", models.size(), " models; write MODEL=", text);
    }
    size_t index = 0;
    if (equals != std::string::npos) {
      ASSIGN_OR_RETURN(index, index_of(text.substr(0, equals), models, "--alias"));
    }
    const std::string alias = equals == std::string::npos ? text : text.substr(equals + 1);
    if (alias.empty()) return invalid_argument("--alias ", text, ": the name is empty");
    if (!taken.insert(alias).second) return invalid_argument("--alias ", text, ": the name '", alias, "' is taken");
    models[index].entry.aliases.push_back(alias);
  }
  return OkStatus();
}

// One flag of apply_parsers(): the names go where `field` says.
static Status apply_parser(const std::vector<std::string>& given, const std::string& flag, std::string ModelEntry::*field,
                           std::vector<FoundModel>& models) {
  for (const std::string& text : given) {
    const size_t equals = text.find('=');
    const std::string name = equals == std::string::npos ? text : text.substr(equals + 1);
    if (equals != std::string::npos) {
      ASSIGN_OR_RETURN(const size_t index, index_of(text.substr(0, equals), models, flag));
      models[index].entry.*field = name;
    } else {
      for (FoundModel& model : models) model.entry.*field = name;
    }
  }
  return OkStatus();
}

Status apply_parsers(const ServeFlags& flags, std::vector<FoundModel>& models) {
  RETURN_IF_ERROR(apply_parser(flags.tool_call_parsers, "--tool-call-parser", &ModelEntry::tool_call_parser, models));
  RETURN_IF_ERROR(apply_parser(flags.reasoning_parsers, "--reasoning-parser", &ModelEntry::reasoning_parser, models));
  for (const FoundModel& model : models) {
    RETURN_IF_ERROR(choose_format("", model.entry.tool_call_parser, model.entry.reasoning_parser).status());
  }
  return OkStatus();
}

StatusOr<std::vector<ModelId>> models_to_preload(const std::string& preload, const std::vector<FoundModel>& models) {
  const bool none = preload == "none" || preload == "false" || (preload.empty() && models.size() != 1);
  const bool all = !none && (preload.empty() || preload == "all" || preload == "true");
  std::vector<ModelId> ids;
  for (const FoundModel& model : models) {
    if (model.preload.value_or(all)) ids.push_back(model.entry.id);
  }
  if (none || all) return ids;
  for (const std::string& name : std::vector<std::string>(absl::StrSplit(preload, ','))) {
    std::error_code ignored;
    const auto found = index_of(name, models, "--preload");
    if (!found.ok() && std::filesystem::exists(name, ignored)) return invalid_argument(found.status().message(), "; what is served goes before --preload, or write --preload=all");
    ASSIGN_OR_RETURN(const size_t index, found);
    const ModelId id = models[index].entry.id;
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  }
  return ids;
}

StatusOr<std::vector<ApiKey>> api_keys(const ServeFlags& flags) {
  std::vector<ApiKey> keys;
  for (const std::string& text : flags.api_keys) {
    auto key = parse_api_key(text, flags.key_limits);
    if (!key.ok()) return annotate(key.status(), "--api-key");
    keys.push_back(*std::move(key));
  }
  if (flags.api_key_file.empty()) return keys;
  ASSIGN_OR_RETURN(const std::string text, read_file(flags.api_key_file, kKeyFileBytesMax));
  size_t number = 0;
  const size_t before = keys.size();
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(text, '\n'))) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos || line[line.find_first_not_of(" \t")] == '#') continue;
    auto key = parse_api_key(line, flags.key_limits);
    if (!key.ok()) return annotate(key.status(), absl::StrCat(flags.api_key_file, ":", number));
    keys.push_back(*std::move(key));
  }
  if (keys.size() == before) return invalid_argument(flags.api_key_file, ": holds no key");
  return keys;
}

std::string admin_socket_path(const ServeFlags& flags, uint16_t port) {
  if (flags.admin_socket == "none") return "";
  if (!flags.admin_socket.empty()) return flags.admin_socket;
  return flags.uds.empty() ? default_admin_socket(port) : flags.uds + ".admin";
}

Status check_serve_flags(const ServeFlags& flags) {
  if (flags.ssl_certfile.empty() != flags.ssl_keyfile.empty()) {
    return invalid_argument("--ssl-certfile and --ssl-keyfile go together: one of them is missing");
  }
  if (!flags.ssl_certfile.empty() && !flags.uds.empty()) return invalid_argument("--uds: a UNIX socket needs no TLS; leave out --ssl-certfile");
  if (flags.admin_port >= 0 && flags.admin_key.empty()) {
    return invalid_argument("--admin-port: needs --admin-key, or every page in a browser on this machine could stop models; "
                            "the socket (--admin-socket) needs none");
  }
  for (const std::string& origin : flags.cors_origins) {
    if (origin == "*" || origin.starts_with("http://") || origin.starts_with("https://")) continue;
    return invalid_argument("--cors-origins ", origin, ": must be '*' or an origin such as https://chat.example.org");
  }
  return OkStatus();
}

}  // namespace shoal
