// shoal serve: everything on this machine behind one endpoint.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "CLI/CLI.hpp"
#include "apps/expert_scaling.h"
#include "apps/front.h"
#include "apps/local_cluster.h"
#include "apps/processes.h"
#include "apps/serve_flags.h"
#include "apps/served_folder.h"
#include "apps/signals.h"
#include "apps/verbs.h"
#include "apps/version.h"
#include "base/bytes.h"
#include "base/log.h"
#include "gateway/http_server.h"

namespace shoal {
namespace {

constexpr char kExamples[] =
    "Examples:\n"
    "  shoal serve models/ --port 9000 --preload\n"
    "  shoal serve model.gguf --alias gpt-4o --api-key secret\n"
    "  shoal serve models/ --device-memory 8GiB --quantization q8_0";
constexpr Duration kReadyWait = std::chrono::seconds(60);
constexpr Duration kExpertsWait = std::chrono::seconds(60);
constexpr size_t kTokenizersMade = 16;  // at start, for models that are loaded then

// Starts loading the models, and makes their tokenizers meanwhile, which the first request would wait for. Ends by itself;
// the thread is to be joined before the cluster ends.
std::jthread preload_models(LocalCluster& cluster, const std::vector<ModelId>& ids) {
  for (const ModelId id : ids) cluster.router().want_resident(id, true);
  return std::jthread([&cluster, ids](const std::stop_token& stop) {
    for (size_t i = 0; i < std::min(ids.size(), kTokenizersMade) && !stop.stop_requested(); ++i) {
      if (const ModelRef model = cluster.catalog().find(ids[i])) cluster.catalog().text(*model).status().IgnoreError();  // the first request will tell
    }
  });
}

// Where it is, what is there, and a line to paste.
void announce(const HttpServer& server, const ServeFlags& flags, const std::vector<ModelRef>& models) {
  std::printf("Shoal %s serves %zu model%s at %s\n", version_number().c_str(), models.size(),
              models.size() == 1 ? "" : "s", server.address().c_str());
  for (const ModelRef& model : models) {
    std::printf("  %-24s %-8s %8.1f M parameters, %s, context %u\n", model->name.c_str(), model->architecture.c_str(),
                static_cast<double>(model->parameter_count) / 1e6, format_bytes(model->weight_bytes).c_str(), model->max_model_len);
  }
  const std::string where = flags.uds.empty() ? server.address() : "--unix-socket " + flags.uds + " http://localhost";
  const bool keys = !flags.api_keys.empty() || !flags.api_key_file.empty();
  std::printf("\nTry it:\n  curl %s/v1/chat/completions -H 'Content-Type: application/json'%s \\\n"
              "    -d '{\"model\":\"%s\",\"messages\":[{\"role\":\"user\",\"content\":\"What is the capital of Denmark?\"}]}'\n",
              where.c_str(), keys ? " -H 'Authorization: Bearer YOUR_KEY'" : "", models.front()->name.c_str());
  std::fflush(stdout);
}

// The first request need not find half of them; who is not there by then may still come.
void wait_for_experts(const ExpertRouting& experts) {
  const Status complete = experts.wait_complete(kExpertsWait);
  if (!complete.ok()) log_warning(complete.message(), "; requests for such models wait until they are");
}

StatusOr<int> serve(ServeFlags& flags) {
  RETURN_IF_ERROR(settle(flags));
  block_stop_signals();
  block_reload_signal();
  RETURN_IF_ERROR(api_keys(flags).status());  // before anything is loaded
  ASSIGN_OR_RETURN(const ExpertProcesses servers, expert_processes(flags.engine.experts));
  RETURN_IF_ERROR(expert_scale_options(flags).status());
  if (flags.processes > 0 || servers.max > 0) return serve_in_processes(flags);
  ASSIGN_OR_RETURN(std::vector<FoundModel> models, models_to_serve(flags));
  ASSIGN_OR_RETURN(const std::vector<ModelId> preload, models_to_preload(flags.preload, models));
  ASSIGN_OR_RETURN(const auto cluster, LocalCluster::start(flags.engine, std::move(models)));
  if (cluster->experts() != nullptr) wait_for_experts(*cluster->experts());
  const std::jthread preloading = preload_models(*cluster, preload);
  ASSIGN_OR_RETURN(const auto front, Front::start(flags, {.catalog = cluster->catalog(), .router = cluster->router(),
                                                          .stalled_seconds = [&] { return cluster->stalled_seconds(); },
                                                          .experts = cluster->experts() == nullptr ? std::nullopt : std::optional(cluster->experts()->fleet()),
                                                          .reload = [&] { return reload_folder(flags, add_serve_flags, {
                                                            .catalog = cluster->catalog(),
                                                            .update = [&](std::vector<FoundModel> found) { return cluster->update(flags.engine, std::move(found)); },
                                                            .load = [&](ModelId id) { cluster->router().want_resident(id, true); }}); }}));
  if (!cluster->wait_ready(kReadyWait)) return unavailable("the node did not report within a minute; see the log");
  announce(front->server(), flags, cluster->catalog().models());
  front->run();
  return kExitOk;
}

}  // namespace

RunVerb add_serve(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("serve", "Serve models over HTTP, OpenAI-compatible");
  auto flags = std::make_shared<ServeFlags>();
  add_serve_flags(*verb, *flags);
  verb->footer(kExamples);
  return [flags, verb] {
    flags->settled = given_options(*verb);
    const auto result = serve(*flags);
    return result.ok() ? *result : fail(std::string(result.status().message()));
  };
}

}  // namespace shoal
