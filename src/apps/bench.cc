// shoal bench: loads any OpenAI server and says how it did.
#include <cmath>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <memory>
#include <set>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "apps/bench_flags.h"
#include "apps/model_text.h"
#include "apps/output_file.h"
#include "apps/progress.h"
#include "apps/signals.h"
#include "apps/terminal.h"
#include "apps/verbs.h"
#include "base/json.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr char kExamples[] =
    "Examples:\n"
    "  shoal bench --num-prompts 200 --request-rate 10 --random-input-len 256 --random-output-len 64\n"
    "  shoal bench --base-url http://gpu7:8000 --backend openai-chat --max-concurrency 32 --goodput ttft:500 tpot:50\n"
    "  shoal bench --dataset-name trace --dataset-path conversation_trace.jsonl --trace-speedup 4 --save-result\n"
    "  shoal bench --dataset-name sharegpt --dataset-path sharegpt.json --request-rate 4 --report run.html";
constexpr Duration kCallTime = std::chrono::seconds(30);
constexpr size_t kFileBytesMax = size_t{2} << 30;
constexpr int kHttpOk = 200;

// What a run needs to know of the server, asked before it begins.
struct Bench {
  BenchFlags flags;
  Destination destination;
  std::vector<std::string> listed;   // models
  WordBook words = WordBook::approximate();
  CountTokens count;
  std::string counted_by;            // a URL, a file, or "words"
  std::string not_counted;           // why by words
  std::vector<LoadRequest> requests;
};

Status ask_models(Bench& bench) {
  HttpCaller caller(bench.destination, bench.flags.load.headers);
  const auto answer = caller.call("GET", "/v1/models", "", kCallTime);
  if (!answer.ok()) {
    return annotate(answer.status(), "the server cannot be reached (start one with `shoal serve`, or name another with --base-url)");
  }
  const auto json = parse_json(answer->body);
  if (json.ok() && json->is_object() && json->contains("data") && (*json)["data"].is_array()) {
    for (const Json& item : (*json)["data"]) {
      if (item.is_object() && item.contains("id") && item["id"].is_string()) bench.listed.push_back(item["id"]);
    }
  }
  if (!bench.flags.model.empty()) return OkStatus();
  if (bench.listed.empty()) {
    return not_found(bench.destination.target.shown(), "/v1/models answered ", answer->status, " and lists no model; name one with --model");
  }
  bench.flags.model = bench.listed.front();
  return OkStatus();
}

// Tokens of `text` by the server's `path`: vLLM's and Shoal's {"model","prompt"} -> {"count"}, or llama.cpp's {"content"} -> {"tokens"}.
StatusOr<uint32_t> count_by_server(HttpCaller& caller, const std::string& path, const std::string& model, std::string_view text) {
  const Json body = {{"model", model}, {"prompt", std::string(text)}, {"content", std::string(text)}, {"add_special", true}};
  ASSIGN_OR_RETURN(const HttpAnswer answer, caller.call("POST", path, dump_json(body), kCallTime));
  const auto json = parse_json(answer.body);
  if (answer.status == kHttpOk && json.ok() && json->is_object()) {
    if (json->contains("count") && (*json)["count"].is_number_unsigned()) return (*json)["count"].get<uint32_t>();
    if (json->contains("tokens") && (*json)["tokens"].is_array()) return static_cast<uint32_t>((*json)["tokens"].size());
  }
  return unimplemented(path, " answers ", answer.status);
}

Status count_locally(Bench& bench) {
  ASSIGN_OR_RETURN(auto loaded, load_tokenizer(bench.flags.tokenizer));
  const std::shared_ptr<Tokenizer> tokenizer = std::move(loaded);
  bench.count = [tokenizer](std::string_view text) -> StatusOr<uint32_t> {
    return static_cast<uint32_t>(tokenizer->encode(text, {.add_special = true, .parse_special = false}).size());
  };
  bench.counted_by = bench.flags.tokenizer;
  ASSIGN_OR_RETURN(bench.words, WordBook::measure(bench.count));
  return OkStatus();
}

// How long a text is: by --tokenizer, by the server, or by its words.
Status settle_counting(Bench& bench) {
  const std::string& asked = bench.flags.tokenizer;
  if (!asked.empty() && asked != "words") return annotate(count_locally(bench), "--tokenizer");
  const auto caller = std::make_shared<HttpCaller>(bench.destination, bench.flags.load.headers);
  for (const std::string path : {"/tokenize", "/v1/tokenize"}) {  // beside /v1, where vLLM, llama.cpp and Shoal have it; or behind a proxy of /v1 alone
    if (!asked.empty()) break;
    bench.count = [caller, path, model = bench.flags.model](std::string_view text) { return count_by_server(*caller, path, model, text); };
    auto measured = WordBook::measure(bench.count);
    bench.counted_by = bench.destination.target.shown() + path;
    if (measured.ok()) {
      bench.words = *std::move(measured);
      bench.not_counted.clear();
      return OkStatus();
    }
    absl::StrAppend(&bench.not_counted, bench.not_counted.empty() ? "" : ", ", std::string(measured.status().message()));
  }
  if (asked.empty()) {
    note(absl::StrCat("prompt lengths are approximate: ", bench.destination.target.shown(), " has no tokenizer to ask (", bench.not_counted,
                      "), so every word of a prompt counts as one token; name a model folder or GGUF file with --tokenizer to count exactly"));
  }
  bench.counted_by = "words";
  bench.count = [](std::string_view text) -> StatusOr<uint32_t> {
    return static_cast<uint32_t>(std::vector<std::string>(absl::StrSplit(std::string(text), ' ', absl::SkipEmpty())).size());
  };
  return OkStatus();
}

// The models of a trace are dealt to those of --trace-models in the order of their names; without it all are the run's.
Status place_models(Bench& bench) {
  std::set<std::string> names;
  for (const LoadRequest& request : bench.requests) names.insert(request.model);
  std::vector<std::string> models = bench.flags.trace_models;
  if (models == std::vector<std::string>{"all"}) models = bench.listed;
  if (models.empty()) models = {bench.flags.model};
  std::map<std::string, std::string> stands_for;
  for (const std::string& name : names) stands_for.emplace(name, models[stands_for.size() % models.size()]);
  for (LoadRequest& request : bench.requests) request.model = stands_for.at(request.model);
  return OkStatus();
}

Status plan_requests(const CLI::App& verb, Bench& bench) {
  BenchFlags& flags = bench.flags;
  std::string file;
  if (!flags.dataset_path.empty()) {
    ASSIGN_OR_RETURN(file, read_file(flags.dataset_path, kFileBytesMax));
  }
  auto requests = make_requests(flags.dataset, file, bench.count);
  if (!requests.ok()) return flags.dataset_path.empty() ? requests.status() : annotate(requests.status(), flags.dataset_path);
  bench.requests = *std::move(requests);
  for (LoadRequest& request : bench.requests) {  // what surrounds a text counts as well
    if (request.prompt.runs.empty()) continue;
    uint32_t& tokens = request.prompt.runs.back().tokens;
    tokens -= std::min(bench.words.overhead(), tokens > 0 ? tokens - 1 : 0);
  }
  const bool timed = flags.dataset.name == "trace" && bench.requests.front().due_s >= 0;
  if (timed && verb.get_option("--request-rate")->count() > 0) {
    return invalid_argument("--request-rate: the trace has times of its own; --trace-speedup changes them");
  }
  if (!timed) RETURN_IF_ERROR(schedule(flags.arrivals, bench.requests));
  return flags.dataset.name == "trace" ? place_models(bench) : OkStatus();
}

Status check_connections(const Bench& bench) {
  const uint64_t allowed = raise_connection_limit();
  const uint64_t wanted = std::min<uint64_t>(bench.requests.size(), bench.flags.load.concurrency_max > 0 ? bench.flags.load.concurrency_max : UINT64_MAX);
  if (wanted > allowed) {
    note(absl::StrCat("up to ", wanted, " connections may be wanted at once, but this process may only open ", allowed,
                      "; raise the hard limit (ulimit -Hn) or set --max-concurrency"));
  }
  return OkStatus();
}

// Shows how far a run is, and ends it at Ctrl-C.
RunResult watched_run(const Bench& bench, std::span<const LoadRequest> requests, const std::string& what) {
  LoadSpec spec = bench.flags.load;
  spec.model = bench.flags.model;
  ProgressLine line;
  bool stopped = false;
  spec.stop = [&] { return stopped = stopped || wait_stop_signal(Duration(0)); };
  spec.progress = [&](const RunProgress& p) {
    if (bench.flags.no_progress) return;
    const uint64_t ended = p.completed + p.failed;
    line.show(static_cast<double>(ended), static_cast<double>(requests.size()),
              absl::StrFormat("%s %u/%u  in flight %u  failed %u  %.0f tok/s  %.0f s", what, ended, requests.size(), p.sent - ended, p.failed,
                              p.elapsed_s > 0 ? static_cast<double>(p.tokens) / p.elapsed_s : 0.0, p.elapsed_s));
  };
  return run_load(spec, bench.destination, requests, bench.words);
}

// How prompts got their lengths, and what the server made of them where it says so.
std::string prompt_lengths(const Bench& bench, const RunResult& run) {
  const bool words = bench.counted_by == "words";
  std::string out = words ? "approximate, every word as one token" : "counted by " + bench.counted_by;
  if (!bench.not_counted.empty()) absl::StrAppend(&out, ", as the server has no tokenizer to ask (", bench.not_counted, ")");
  uint64_t answers = 0, wanted = 0, counted = 0;
  for (size_t i = 0; i < run.records.size(); ++i) {
    if (!run.records[i].ok() || !run.records[i].has_usage) continue;
    ++answers, wanted += bench.requests[i].input_tokens, counted += run.records[i].input_tokens;
  }
  if (!words || answers == 0) return out;
  const auto mean = [&](uint64_t tokens) { return static_cast<double>(tokens) / static_cast<double>(answers); };
  return out + absl::StrFormat("; %.4g tokens a prompt were asked for, and the server counted %.4g", mean(wanted), mean(counted));
}

std::string date_text(const char* format, const std::tm* time) {
  char text[64];
  std::strftime(text, sizeof text, format, time);
  return text;
}

ReportFacts facts_of(const CLI::App& verb, const Bench& bench, const RunResult& run) {
  const BenchFlags& flags = bench.flags;
  const std::time_t now = std::time(nullptr);
  ReportFacts facts{.date = date_text("%Y%m%d-%H%M%S", std::localtime(&now)), .day = date_text("%e %b %Y %H:%M UTC", std::gmtime(&now)), .backend = flags.backend, .model = flags.model, .url = bench.destination.target.shown() + flags.endpoint,
                    .tokenizer = bench.counted_by, .prompt_lengths = prompt_lengths(bench, run), .num_prompts = static_cast<uint32_t>(bench.requests.size()),
                    .request_rate = flags.arrivals.rate, .burstiness = flags.arrivals.burstiness,
                    .concurrency_max = flags.load.concurrency_max, .goodput = flags.slo,
                    .shown_metrics = absl::StrSplit(flags.percentile_metrics, ','), .settings = shown_settings(verb)};
  if (flags.dataset.name == "trace") {  // the rate that it offered
    const double span_s = bench.requests.back().due_s;
    if (span_s > 0) facts.request_rate = static_cast<double>(bench.requests.size()) / span_s;
  }
  facts.settings.emplace_back("prompt lengths", facts.prompt_lengths);
  for (const std::string& pair : flags.metadata) facts.metadata.emplace_back(pair.substr(0, pair.find('=')), pair.substr(pair.find('=') + 1));
  return facts;
}

Status write_file(const std::filesystem::path& path, const std::string& text) {
  RETURN_IF_ERROR(write_output(path, text));
  note("wrote " + path.string());
  return OkStatus();
}

// vLLM's name for the file: what was asked for, of which model, when.
std::string result_name(const BenchFlags& flags, const ReportFacts& facts) {
  if (!flags.result_filename.empty()) return flags.result_filename;
  const std::string rate = std::isfinite(facts.request_rate) ? absl::StrFormat("%.4g", facts.request_rate) : "inf";
  const std::string concurrency = facts.concurrency_max > 0 ? absl::StrCat("-concurrency", facts.concurrency_max) : "";
  return absl::StrCat(facts.backend, "-", rate, "qps", concurrency, "-", facts.model.substr(facts.model.rfind('/') + 1), "-", facts.date, ".json");
}

Status check_results(const BenchFlags& flags) {
  if (flags.save_result) {
    const std::string name = flags.result_filename.empty() ? "result.json" : flags.result_filename;  // its own is known after the run
    RETURN_IF_ERROR(check_output("--result-dir", std::filesystem::path(flags.result_dir) / name));
  }
  return check_output("--report", flags.report);
}

Status write_results(const BenchFlags& flags, const ReportFacts& facts, const Summary& summary, const RunResult& run) {
  if (flags.save_result) {
    std::filesystem::path path = std::filesystem::path(flags.result_dir) / result_name(flags, facts);
    const auto json = json_report(facts, summary, run, flags.save_detailed);
    RETURN_IF_ERROR(write_file(path, json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n"));
    RETURN_IF_ERROR(write_file(path.replace_extension(".csv"), csv_report(facts, run)));
    RETURN_IF_ERROR(write_file(path.replace_extension(".html"), html_report(facts, summary, run)));
  }
  return flags.report.empty() ? OkStatus() : write_file(flags.report, html_report(facts, summary, run));
}

std::string stopped_note(const Summary& summary, const RunResult& run) {
  return absl::StrFormat("stopped early: the figures are of the %d requests of %d that had ended; %d were under way and %d had not been sent",
                         summary.completed + summary.failed, run.records.size(), summary.interrupted, summary.unsent);
}

StatusOr<int> bench(const CLI::App& verb, Bench& bench) {
  BenchFlags& flags = bench.flags;
  RETURN_IF_ERROR(check_results(flags));
  ASSIGN_OR_RETURN(bench.destination, find_destination(flags.target, !flags.insecure));
  RETURN_IF_ERROR(ask_models(bench));
  RETURN_IF_ERROR(settle_counting(bench));
  RETURN_IF_ERROR(plan_requests(verb, bench));
  RETURN_IF_ERROR(check_connections(bench));
  block_stop_signals();
  if (flags.num_warmups > 0) {
    std::vector<LoadRequest> warmups(flags.num_warmups, bench.requests.front());
    for (LoadRequest& request : warmups) request.due_s = 0;
    if (watched_run(bench, warmups, "warming up").interrupted) {
      note("stopped while warming up; nothing was measured");
      return kExitInterrupted;
    }
  }
  const RunResult run = watched_run(bench, bench.requests, "requests");
  const Summary summary = summarize(run, flags.slo, flags.ranks);
  const ReportFacts facts = facts_of(verb, bench, run);
  const std::string shown = flags.as_json ? json_report(facts, summary, run, flags.save_detailed).dump(1, ' ', false, Json::error_handler_t::replace) + "\n"
                                          : console_report(facts, summary);
  show_text(shown);
  if (run.interrupted) note(stopped_note(summary, run));
  RETURN_IF_ERROR(write_results(flags, facts, summary, run));
  if (run.interrupted) return kExitInterrupted;
  return summary.completed > 0 ? kExitOk : kExitFailed;
}

}  // namespace

RunVerb add_bench(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("bench", "Load an OpenAI server and measure it");
  auto state = std::make_shared<Bench>();
  add_bench_flags(*verb, state->flags);
  verb->footer(kExamples);
  return [verb, state] {
    if (const Status status = settle(*verb, state->flags); !status.ok()) {
      fail(std::string(status.message()));
      return kExitUsage;
    }
    const auto result = bench(*verb, *state);
    return result.ok() ? *result : fail(std::string(result.status().message()));
  };
}

}  // namespace shoal
