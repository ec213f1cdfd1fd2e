// The flags of `serve` that are not the engine's, and the names that models get from them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "apps/model_scan.h"
#include "apps/model_settings.h"
#include "apps/settings.h"
#include "base/status.h"
#include "gateway/api_keys.h"

namespace CLI {
class App;
}

namespace shoal {

struct ServeFlags {
  std::string path = "models";
  std::string config;
  std::string host = "127.0.0.1";
  uint16_t port = 8080;
  std::string uds;
  std::vector<std::string> api_keys;
  std::string api_key_file;             // a line per key: SECRET [name=N] [rpm=N] [tpm=N] [concurrency=N] [weight=N] [models=A,B]
  KeyLimits key_limits;                 // of keys that name none of their own
  std::string ssl_certfile;
  std::string ssl_keyfile;
  std::vector<std::string> cors_origins;
  std::string admin_socket;             // empty: the default one; "none": no socket
  std::string admin_host = "127.0.0.1";
  int32_t admin_port = -1;              // -1: no TCP listener
  std::string admin_key;
  std::vector<std::string> aliases;     // "NAME=ALIAS", or "ALIAS" where one model is served
  std::vector<std::string> tool_call_parsers;  // "PARSER", or "NAME=PARSER" for one model
  std::vector<std::string> reasoning_parsers;
  bool auto_tool_choice = false;        // vLLM's switch for what is always on here
  // By key of the table of pooling settings: "VALUE" for every model or "NAME=VALUE" for one; of switches names.
  std::map<std::string, std::vector<std::string>> pooling;
  std::string preload;                  // "" (the only model), "all", "none" or names with commas
  bool no_ollama_api = false;
  bool no_llama_cpp_api = false;
  uint64_t response_store_mib = 64;     // for each key
  double shutdown_timeout_s = 45;
  double request_timeout_s = 3600;
  uint32_t max_connections = 10'000;
  uint32_t http_threads = 2;
  std::string expert_busy = "0.70-0.85";  // share of time that expert servers compute: one less below, one more above
  double expert_cooldown_s = 60;        // between two such changes
  uint32_t processes = 0;               // nodes in processes of their own; 0: none
  std::string record;                   // file; empty: none
  std::string estimates;                // file; empty: the default one; "none"
  std::string digests;                  // likewise
  EngineFlags engine;
  LogFlags log;
  GivenOptions given;                   // what the command line and the environment said; the rest is the file's
  GivenOptions settled;                 // with the file's, but not its section of models
  std::vector<ModelSettings> models;    // of the file
};

using AddFlags = std::function<void(CLI::App& verb, ServeFlags& flags)>;
void add_serve_flags(CLI::App& verb, ServeFlags& flags);
// Whether it is the name of one of these.
bool is_serve_flag(const std::string& name);
// Parts of these: what clients see, models and devices, and what every process has.
void add_edge_flags(CLI::App& verb, ServeFlags& flags);
void add_model_flags(CLI::App& verb, ServeFlags& flags);
void add_process_flags(CLI::App& verb, ServeFlags& flags);
void add_pooling_flags(CLI::App& verb, ServeFlags& flags);  // of these, those about sharing the device

// Gives the models the aliases asked for. InvalidArgument for an unknown model or a name that is taken.
Status apply_aliases(const std::vector<std::string>& aliases, std::vector<FoundModel>& models);

// Gives the models the parsers asked for. InvalidArgument for an unknown model or parser.
Status apply_parsers(const ServeFlags& flags, std::vector<FoundModel>& models);

// The file that the settings are read from; "" for none.
std::string config_file(const ServeFlags& flags);

// Where its operator reaches a server that listens at `port`; "": nowhere.
std::string admin_socket_path(const ServeFlags& flags, uint16_t port);

// The file that --estimates means; "" for none.
std::string estimates_file(const ServeFlags& flags);
// Likewise --digests.
std::string digests_file(const ServeFlags& flags);

// Names of flags that have other values in the one than in the other.
std::vector<std::string> changed_flags(const ServeFlags& before, const ServeFlags& after);

// The settings as if the verb, whose flags `add` adds, were started now, with the same command line and environment and the file as it is.
StatusOr<ServeFlags> settle_again(const ServeFlags& before, const AddFlags& add);

// Gives the models their deadlines, priorities and stays: first what the file says of all models, then what it says of one,
// then the command line. InvalidArgument for an unknown model or a number out of range.
Status apply_pooling(const ServeFlags& flags, std::vector<FoundModel>& models);

// The index of the model of this name; InvalidArgument with the nearest one. `flag` is for the error.
StatusOr<size_t> index_of(const std::string& name, const std::vector<FoundModel>& models, const std::string& flag);

// The models that --preload and the file name, as indices.
StatusOr<std::vector<ModelId>> models_to_preload(const std::string& preload, const std::vector<FoundModel>& models);

// --api-key and the lines of --api-key-file, with their limits.
StatusOr<std::vector<ApiKey>> api_keys(const ServeFlags& flags);

// Flags that only make sense together.
Status check_serve_flags(const ServeFlags& flags);

}  // namespace shoal
