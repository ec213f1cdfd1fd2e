// shoal ps, load, unload, stop: the operator's side of a running server.
#include "apps/operate.h"

#include <atomic>
#include <cmath>
#include <cstdio>
#include <memory>
#include <thread>

#include "CLI/CLI.hpp"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "apps/admin_client.h"
#include "apps/json_values.h"
#include "apps/progress.h"
#include "apps/signals.h"
#include "apps/table.h"
#include "apps/terminal.h"
#include "apps/verbs.h"
#include "base/bytes.h"
#include "base/rng.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr Duration kLook = std::chrono::milliseconds(100);
constexpr Duration kWatch = std::chrono::seconds(1);
constexpr Duration kAnswerTime = std::chrono::seconds(2);
constexpr Duration kLoadTime = std::chrono::minutes(31);

std::string state_of(const Json& model) {
  const Json status = member(model, "status");
  const std::string value = text_at(status, "value");
  const double progress = number_at(status, "progress", -1);
  return value == "loading" && progress >= 0 ? absl::StrFormat("loading %.0f %%", progress * 100) : value;
}

// Twelve digits that change when the model's files do.
std::string short_id(const Json& model) {
  uint64_t hash = static_cast<uint64_t>(number_at(model, "created"));
  for (const char c : text_at(model, "id")) hash = mix64(hash ^ static_cast<unsigned char>(c));
  return absl::StrFormat("%012x", hash & 0xffffffffffff);
}

std::string place_text(double place) { return place > 0 ? absl::StrFormat("%.0f", place) : "-"; }

std::string processor(const Json& ollama, const std::string& name) {
  for (const Json& model : list_at(ollama, "models")) {
    if (text_at(model, "name") != name) continue;
    const double size = number_at(model, "size"), device = number_at(model, "size_vram");
    const int share = size > 0 ? static_cast<int>(device / size * 100 + 0.5) : 0;
    return share == 0 ? "100% CPU" : share >= 100 ? "100% GPU" : absl::StrFormat("%d%%/%d%% CPU/GPU", 100 - share, share);
  }
  return "-";
}

std::string memory_lines(const Json& device, size_t width) {
  const double total = number_at(device, "memory"), free = number_at(device, "free"), workspace = number_at(device, "workspace");
  if (!(total >= free && free >= 0 && total > 0 && workspace >= 0)) return "";
  const std::string text = absl::StrFormat("Memory: %s of %s for weights and KV, and %s of workspace", format_bytes(static_cast<uint64_t>(total - free)),
                                           format_bytes(static_cast<uint64_t>(total)), format_bytes(static_cast<uint64_t>(workspace)));
  return "\n" + absl::StrJoin(wrap_text(text, width, 2), "\n") + "\n";
}

std::optional<Json> find_model(const Json& models, const std::string& name) {
  for (const Json& model : list_at(models, "data")) {
    if (text_at(model, "id") == name) return model;
    for (const Json& alias : list_at(model, "aliases")) {
      if (alias.is_string() && alias.get<std::string>() == name) return model;
    }
  }
  return std::nullopt;
}

struct PsFlags : AdminFlags {
  bool all = false, quiet = false, watch = false;
};

Status show_models(AdminClient& client, const PsFlags& flags) {
  ASSIGN_OR_RETURN(const Json models, client.call("GET", "/models"));
  // The public port answers this path, and Ollama's, too; /running it does not know.
  if (!models.contains("device")) RETURN_IF_ERROR(client.call("GET", "/running").status());
  std::string text;
  if (flags.as_json) {
    text = dump_json(models, 2) + "\n";
  } else if (flags.quiet) {
    for (const Json& model : list_at(models, "data")) text += text_at(model, "id") + "\n";
  } else {
    ASSIGN_OR_RETURN(const Json ollama, client.call("GET", "/api/ps"));
    text = ps_table(models, ollama, flags.all, stdout_columns());
  }
  if (flags.watch && stdout_is_terminal()) text = "\033[H\033[2J" + text;
  return show_text(text) ? OkStatus() : unavailable("nobody reads the output any more");
}

Status ps(const PsFlags& flags) {
  ASSIGN_OR_RETURN(const auto client, AdminClient::open(flags));
  if (!flags.watch) return show_models(*client, flags);
  block_stop_signals();
  int looks = 0;
  do {
    RETURN_IF_ERROR(show_models(*client, flags));
    ++looks;
  } while (!wait_stop_signal(kWatch));
  return absl::CancelledError("stopped after " + count_text(looks, "look"));
}

struct LoadFlags : AdminFlags {
  std::string model;
  bool wait = false;
};

void report(const AdminFlags& flags, const Json& answer, const std::string& text) {
  show_text((flags.as_json ? dump_json(answer) : text) + "\n");
}

// Waits for the load in one connection, and looks at its progress in another.
StatusOr<Json> load_and_watch(AdminClient& client, const LoadFlags& flags) {
  block_stop_signals();
  ASSIGN_OR_RETURN(const auto watcher, AdminClient::open(flags));
  StatusOr<Json> answer = unavailable("");
  std::atomic<bool> done{false};
  std::thread waiting([&] {
    answer = client.call("POST", "/models/load", dump_json({{"model", flags.model}, {"wait", true}}), kLoadTime);
    done.store(true);
  });
  ProgressLine line;
  double progress = 0;
  while (!done.load()) {
    if (wait_stop_signal(kLook)) {
      client.cancel();
      break;
    }
    const auto models = watcher->call("GET", "/models");
    const auto model = models.ok() ? find_model(*models, flags.model) : std::nullopt;
    if (model) progress = number_at(member(*model, "status"), "progress");
    if (model) line.show(progress, 1, absl::StrCat("loading ", flags.model));
  }
  waiting.join();
  line.clear();
  if (answer.status().code() != StatusCode::kCancelled) return answer;
  return absl::CancelledError(absl::StrFormat("stopped waiting; the server goes on loading '%s', of which %.0f %% is there (`shoal ps` shows it)", flags.model, progress * 100));
}

Status load(const LoadFlags& flags) {
  ASSIGN_OR_RETURN(const auto client, AdminClient::open(flags));
  if (flags.wait) {
    ASSIGN_OR_RETURN(const Json answer, load_and_watch(*client, flags));
    report(flags, answer, absl::StrCat("'", flags.model, "' is loaded"));
    return OkStatus();
  }
  ASSIGN_OR_RETURN(const Json answer, client->call("POST", "/models/load", dump_json({{"model", flags.model}, {"wait", false}})));
  report(flags, answer, absl::StrCat("'", flags.model, "' is being loaded; `shoal ps` shows how far it is"));
  return OkStatus();
}

Status unload(const AdminFlags& flags, const std::string& model) {
  ASSIGN_OR_RETURN(const auto client, AdminClient::open(flags));
  ASSIGN_OR_RETURN(const Json answer, client->call("POST", "/models/unload", dump_json({{"model", model}})));
  const double busy = number_at(answer, "requests_under_way");
  report(flags, answer, busy > 0 ? absl::StrFormat("'%s' is unloaded when its %s %s ended", model, count_text(busy, "request"), busy == 1 ? "has" : "have")
                                 : absl::StrCat("'", model, "' is unloaded"));
  return OkStatus();
}

struct StopFlags : AdminFlags {
  std::string model;
  double timeout_s = -1;
  bool no_wait = false;
};

// Until nothing listens there any more. A server that has too much to do to answer is still there.
Status wait_for_end(AdminClient& client) {
  ProgressLine line;
  double running = 0;
  block_stop_signals();
  while (true) {
    const auto models = client.call("GET", "/models", "", kAnswerTime);
    if (!models.ok() && models.status().code() != StatusCode::kDeadlineExceeded) return OkStatus();
    if (models.ok()) running = 0;
    for (const Json& model : list_at(models.ok() ? *models : Json(), "data")) {
      running += number_at(member(model, "requests"), "running") + number_at(member(model, "requests"), "waiting");
    }
    line.show(0, 0, models.ok() ? absl::StrFormat("draining: %s still there", count_text(running, "request")) : "draining: the server does not answer");
    if (wait_stop_signal(kLook)) break;
  }
  line.clear();
  return absl::CancelledError(absl::StrFormat("stopped waiting; the server goes on draining, with %s still there", count_text(running, "request")));
}

Status stop(const StopFlags& flags) {
  if (!flags.model.empty()) return unload(flags, flags.model);
  ASSIGN_OR_RETURN(const auto client, AdminClient::open(flags));
  Json body = Json::object();
  if (flags.timeout_s >= 0) body["timeout_s"] = flags.timeout_s;
  ASSIGN_OR_RETURN(const Json answer, client->call("POST", "/admin/shutdown", dump_json(body)));
  if (!flags.no_wait) RETURN_IF_ERROR(wait_for_end(*client));
  report(flags, answer, flags.no_wait ? "the server is draining and will end" : "the server has ended");
  return OkStatus();
}

}  // namespace

std::string ago(double seconds) {
  const std::pair<double, const char*> units[] = {{86400, "day"}, {3600, "hour"}, {60, "minute"}};
  for (const auto& [size, name] : units) {
    if (seconds >= size) return absl::StrFormat("%.0f %s%s ago", std::floor(seconds / size), name, seconds >= 2 * size ? "s" : "");
  }
  return absl::StrFormat("%.0f seconds ago", seconds);
}

std::string ps_table(const Json& models, const Json& ollama, bool all, size_t width) {
  Table table({{"NAME"}, {"ID", 9}, {"SIZE", 2, true}, {"PROCESSOR", 8}, {"CONTEXT", 6, true}, {"UNTIL", 7}, {"STATE"}, {"NEXT", 5}, {"REQUESTS", 1}, {"LAST USED", 4}});
  std::vector<std::string> errors;
  for (const Json& model : list_at(models, "data")) {
    const std::string name = text_at(model, "id"), state = state_of(model);
    if (!all && state == "unloaded" && number_at(model, "next") == 0) continue;  // who waits is shown
    const Json memory = member(model, "memory"), requests = member(model, "requests");
    const double held = number_at(memory, "weights") + number_at(memory, "kv_used");
    const double size = held > 0 ? held : number_at(member(model, "meta"), "size");
    const std::string until = text_at(model, "expires_at").empty() ? (state == "loaded" ? "Forever" : "-") : text_at(model, "expires_at");
    const double used = number_at(model, "last_used_seconds_ago", -1);
    table.row({name, short_id(model), format_bytes(static_cast<uint64_t>(size)), processor(ollama, name),
               absl::StrFormat("%.0f", number_at(model, "max_model_len")), until, state, place_text(number_at(model, "next")),
               absl::StrFormat("%.0f+%.0f", number_at(requests, "running"), number_at(requests, "waiting")), used < 0 ? "never" : ago(used)});
    errors.push_back(text_at(member(model, "status"), "error"));
  }
  const Table::Lines lines = table.lines(width);
  std::string out = lines.heading + "\n";
  for (size_t i = 0; i < lines.rows.size(); ++i) {
    absl::StrAppend(&out, lines.rows[i], "\n");
    if (!errors[i].empty()) absl::StrAppend(&out, absl::StrJoin(wrap_text("    " + errors[i], width, 4), "\n"), "\n");
  }
  for (const std::string& line : left_out_lines(lines.left_out, width)) absl::StrAppend(&out, line, "\n");
  return out + memory_lines(member(models, "device"), width);
}

RunVerb add_ps(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("ps", "Show the models of a running server");
  auto flags = std::make_shared<PsFlags>();
  add_admin_flags(*verb, *flags);
  verb->add_flag("-a,--all", flags->all, "Also models that are not loaded");
  verb->add_flag("-q,--quiet", flags->quiet, "Names of all models only");
  verb->add_flag("-w,--watch", flags->watch, "Again every second, until Ctrl-C");
  verb->footer("REQUESTS are those running and those waiting. NEXT is the place of a model in the line for the device.\n\nExamples:\n  shoal ps\n  shoal ps --all --port 9000\n  shoal ps --watch\n"
               "  shoal ps --url http://127.0.0.1:8081 --key SECRET --json");
  return [flags] { return exit_code(ps(*flags)); };
}

RunVerb add_load(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("load", "Load a model on a running server");
  auto flags = std::make_shared<LoadFlags>();
  verb->add_option("model", flags->model, "Name of a model")->required();
  add_admin_flags(*verb, *flags);
  verb->add_flag("--wait", flags->wait, "Return when it is loaded; exit 1 if it cannot be");
  verb->footer("Examples:\n  shoal load tiny-llama --wait\n  shoal load tiny-qwen3 --port 9000");
  return [flags] { return exit_code(load(*flags)); };
}

RunVerb add_unload(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("unload", "Take a model off a running server's device");
  auto flags = std::make_shared<StopFlags>();
  verb->add_option("model", flags->model, "Name of a model")->required();
  add_admin_flags(*verb, *flags);
  verb->footer("Requests that are running end first.\n\nExamples:\n  shoal unload tiny-llama\n  shoal unload tiny-llama --json");
  return [flags] { return exit_code(unload(*flags, flags->model)); };
}

RunVerb add_stop(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("stop", "Unload a model, or end a running server");
  auto flags = std::make_shared<StopFlags>();
  verb->add_option("model", flags->model, "Unload this model; without it the server drains and ends");
  add_admin_flags(*verb, *flags);
  verb->add_option("--timeout", flags->timeout_s, "Seconds that running requests get (default: the server's --shutdown-timeout)")->check(CLI::Range(0.0, 86400.0));
  verb->add_flag("--no-wait", flags->no_wait, "Return before it has ended");
  verb->footer("Examples:\n  shoal stop                  drain and end the server of port 8080\n  shoal stop --port 9000 --timeout 5\n"
               "  shoal stop tiny-llama       as `shoal unload`");
  return [flags] { return exit_code(stop(*flags)); };
}

}  // namespace shoal
