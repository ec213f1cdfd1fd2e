#include "apps/bench_flags.h"

#include <algorithm>
#include <cstdlib>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/json.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr uint32_t kPromptsMax = 10'000'000;
const std::vector<std::string> kMetricKeys = {"ttft", "tpot", "itl", "e2el"};

void add_server_flags(CLI::App& verb, BenchFlags& f) {
  verb.add_option("--base-url", f.base_url, "Server, e.g. http://host:8000, https://host/v1, unix:/path (instead of --host and --port)");
  verb.add_option("--host", f.host, "Host of the server")->capture_default_str();
  verb.add_option("--port", f.port, "Port of the server")->capture_default_str()->check(CLI::Range(1, 65535));
  verb.add_option("--backend", f.backend, "openai (completions) or openai-chat; vllm is openai")
      ->capture_default_str()->check(CLI::IsMember({"openai", "openai-chat", "vllm"}));
  verb.add_option("--endpoint", f.endpoint, "Path (default: /v1/completions, or /v1/chat/completions for openai-chat)");
  verb.add_option("--model", f.model, "Model to ask (default: the first that the server lists)");
  verb.add_option("--api-key", f.api_key, "Key to send (default: OPENAI_API_KEY)");
  verb.add_option("--header", f.headers, "Further header NAME=VALUE; may be repeated");
  verb.add_flag("--insecure", f.insecure, "Do not check the server's certificate");
  verb.add_option("--tokenizer", f.tokenizer, "Model folder, GGUF file or `words`: how prompt lengths are counted (default: ask the "
                  "server's /tokenize; without one a word counts as a token)");
}

void add_dataset_flags(CLI::App& verb, BenchFlags& f) {
  DatasetSpec& d = f.dataset;
  verb.add_option("--dataset-name", d.name, "random, prefix_repetition, sharegpt, custom or trace")
      ->capture_default_str()->check(CLI::IsMember({"random", "prefix_repetition", "sharegpt", "custom", "trace"}));
  verb.add_option("--dataset-path", f.dataset_path, "File of sharegpt, custom (JSONL with \"prompt\") and trace");
  verb.add_option("--num-prompts", d.num_prompts, "Requests to send; a trace is sent whole unless this is given")->capture_default_str()->check(CLI::Range(1u, kPromptsMax));
  verb.add_option("--seed", d.seed, "The same seed gives the same requests at the same times")->capture_default_str();
  verb.add_option("--random-input-len,--input-len", d.input_len, "Prompt tokens")->capture_default_str()->check(CLI::Range(1u, kTraceTokensMax));
  verb.add_option("--random-output-len", d.output_len, "Answer tokens (max_tokens)")->capture_default_str()->check(CLI::Range(1u, kTraceTokensMax));
  verb.add_option("--random-range-ratio", d.range_ratio, "Lengths are uniform within 1 - R to 1 + R times theirs")->capture_default_str();
  verb.add_option("--random-prefix-len", d.prefix_len, "Tokens that all prompts begin with")->capture_default_str()->check(CLI::Range(0u, kTraceTokensMax));
  verb.add_option("--prefix-repetition-prefix-len", d.repetition_prefix_len, "Tokens of each shared prefix")->capture_default_str()->check(CLI::Range(0u, kTraceTokensMax));
  verb.add_option("--prefix-repetition-suffix-len", d.suffix_len, "Tokens of its own of each prompt")->capture_default_str()->check(CLI::Range(1u, kTraceTokensMax));
  verb.add_option("--prefix-repetition-num-prefixes", d.num_prefixes, "Different prefixes")->capture_default_str();
  verb.add_option("--prefix-repetition-output-len", d.repetition_output_len, "Answer tokens")->capture_default_str()->check(CLI::Range(1u, kTraceTokensMax));
  verb.add_option("--output-len,--sharegpt-output-len,--custom-output-len", d.fixed_output_len, "Answer tokens, instead of the dataset's")->check(CLI::Range(1u, kTraceTokensMax));
  verb.add_option("--trace-speedup", d.cut.speedup, "2 halves the gaps of a trace")->capture_default_str();
  verb.add_option("--trace-start", d.cut.start_s, "Second of the trace to begin at")->capture_default_str();
  verb.add_option("--trace-duration", d.cut.duration_s, "Seconds of the trace to send (0: to its end)")->capture_default_str();
  verb.add_option("--trace-models", f.trace_models, "Models that stand for those of the trace, in turn; `all` is every model of the server")->delimiter(',');
}

void add_load_flags(CLI::App& verb, BenchFlags& f) {
  verb.add_option("--request-rate", f.arrivals.rate, "Requests per second; inf sends all at once")->default_str("inf");
  verb.add_option("--burstiness", f.arrivals.burstiness, "Shape of the gaps' gamma distribution: 1 Poisson, below burstier, inf even")->capture_default_str();
  verb.add_option("--burst-size", f.arrivals.burst_size, "Requests that arrive together")->capture_default_str();
  verb.add_option("--ramp-up-strategy", f.arrivals.ramp, "linear or exponential: from one rate to another");
  verb.add_option("--ramp-up-start-rps", f.arrivals.ramp_start, "Rate at the start");
  verb.add_option("--ramp-up-end-rps", f.arrivals.ramp_end, "Rate at the end");
  verb.add_option("--max-concurrency", f.load.concurrency_max, "Requests in flight at most (0: no limit)")->capture_default_str();
  verb.add_option("--duration", f.load.duration_s, "Send nothing after so many seconds (0: no bound)")->capture_default_str()->check(CLI::Range(0.0, 1e7));
  verb.add_option("--num-warmups", f.num_warmups, "Requests before the run, not counted")->capture_default_str();
  verb.add_option("--max-retries", f.load.retries_max, "Tries again after 429 and 503, when their Retry-After says")->capture_default_str();
  verb.add_option("--request-timeout", f.request_timeout_s, "Longest life of a request in seconds")->capture_default_str()->check(CLI::Range(0.001, 1e6));
  verb.add_option("--client-threads", f.load.threads, "Event loops; one is enough for tens of thousands of streams")->capture_default_str()->check(CLI::Range(1, 64));
  verb.add_flag("--ignore-eos", f.load.ignore_eos, "Ask for answers of full length");
  verb.add_option("--temperature", f.temperature, "Sampling temperature")->capture_default_str();
  verb.add_option("--top-p", f.top_p, "Sampling top_p")->check(CLI::Number);
  verb.add_option("--top-k", f.top_k, "Sampling top_k")->check(CLI::Number);
  verb.add_option("--min-p", f.min_p, "Sampling min_p")->check(CLI::Number);
  verb.add_option("--extra-body", f.extra_body, "JSON object whose fields go into every request");
}

void add_report_flags(CLI::App& verb, BenchFlags& f) {
  verb.add_option("--goodput", f.goodput, "Objectives in milliseconds: ttft:500 tpot:50 e2el:10000")->expected(1, 3);
  verb.add_option("--percentile-metrics", f.percentile_metrics, "What the summary shows")->capture_default_str();
  verb.add_option("--metric-percentiles", f.metric_percentiles, "Which percentiles, e.g. 50,90,99")->capture_default_str();
  verb.add_flag("--save-result", f.save_result, "Write NAME.json, NAME.csv and NAME.html");
  verb.add_flag("--save-detailed", f.save_detailed, "The same, the JSON with every request");
  verb.add_option("--result-dir", f.result_dir, "Folder of these files")->capture_default_str();
  verb.add_option("--result-filename", f.result_filename, "Name of the JSON file; the others are beside it");
  verb.add_option("--report", f.report, "Write the HTML page to this file");
  verb.add_option("--metadata", f.metadata, "KEY=VALUE pairs for the JSON file")->expected(1, 64);
  verb.add_flag("--json", f.as_json, "Print the JSON instead of the summary");
  verb.add_flag("--no-progress,--disable-tqdm", f.no_progress, "Show no progress bar");
}

std::string json_number(const std::string& text) {  // checked by the parser: a number
  double value = 0;
  return absl::SimpleAtod(text, &value) ? dump_json(Json(value == static_cast<int64_t>(value) ? Json(static_cast<int64_t>(value)) : Json(value))) : "0";
}

StatusOr<std::string> extra_fields(const BenchFlags& f) {
  std::string out = absl::StrCat(",\"temperature\":", f.temperature);
  if (!f.top_p.empty()) absl::StrAppend(&out, ",\"top_p\":", json_number(f.top_p));
  if (!f.top_k.empty()) absl::StrAppend(&out, ",\"top_k\":", json_number(f.top_k));
  if (!f.min_p.empty()) absl::StrAppend(&out, ",\"min_p\":", json_number(f.min_p));
  if (f.extra_body.empty()) return out;
  const auto extra = parse_json(f.extra_body);
  if (!extra.ok()) return annotate(extra.status(), "--extra-body");
  if (!extra->is_object()) return invalid_argument("--extra-body: is not a JSON object");
  for (const auto& [key, value] : extra->items()) absl::StrAppend(&out, ",", dump_json(key), ":", dump_json(value));
  return out;
}

Status settle_headers(BenchFlags& f) {
  for (const std::string& header : f.headers) {
    const size_t equals = header.find_first_of("=:");
    if (equals == std::string::npos) return invalid_argument("--header ", header, ": write NAME=VALUE");
    const size_t value = header.find_first_not_of(' ', equals + 1);
    f.load.headers.emplace_back(header.substr(0, equals), value == std::string::npos ? "" : header.substr(value));
  }
  const char* environment = std::getenv("OPENAI_API_KEY");
  const std::string key = !f.api_key.empty() ? f.api_key : environment != nullptr ? environment : "";
  if (!key.empty()) f.load.headers.emplace_back("Authorization", "Bearer " + key);
  return check_headers(f.load.headers);
}

StatusOr<HttpTarget> bench_target(const BenchFlags& flags) {
  if (!flags.base_url.empty()) {
    const auto target = parse_url(flags.base_url);
    return target.ok() ? target : annotate(target.status(), "--base-url");
  }
  const bool v6 = flags.host.find(':') != std::string::npos;
  return parse_url(absl::StrCat("http://", v6 ? "[" : "", flags.host, v6 ? "]" : "", ":", flags.port));
}

StatusOr<std::vector<double>> percentile_ranks(const BenchFlags& flags) {
  std::vector<double> ranks;
  for (const std::string& text : std::vector<std::string>(absl::StrSplit(flags.metric_percentiles, ','))) {
    double rank = 0;
    if (!absl::SimpleAtod(text, &rank) || !(rank >= 0 && rank <= 100)) {
      return invalid_argument("--metric-percentiles: '", text, "' is not a number from 0 to 100");
    }
    ranks.push_back(rank);
  }
  if (std::find(ranks.begin(), ranks.end(), 99.0) == ranks.end()) ranks.push_back(99);
  return ranks;
}

bool needs_file(const std::string& dataset) { return dataset == "sharegpt" || dataset == "custom" || dataset == "trace"; }

}  // namespace

void add_bench_flags(CLI::App& verb, BenchFlags& flags) {
  add_server_flags(verb, flags);
  add_dataset_flags(verb, flags);
  add_load_flags(verb, flags);
  add_report_flags(verb, flags);
}

Status settle(const CLI::App& verb, BenchFlags& f) {
  const bool trace = f.dataset.name == "trace";
  if (needs_file(f.dataset.name) && f.dataset_path.empty()) return invalid_argument("--dataset-name ", f.dataset.name, " needs --dataset-path FILE");
  if (!needs_file(f.dataset.name) && !f.dataset_path.empty()) return invalid_argument("--dataset-path: --dataset-name ", f.dataset.name, " reads no file");
  if (trace && verb.get_option("--num-prompts")->count() > 0) f.dataset.cut.rows_max = f.dataset.num_prompts;
  if (!trace && !f.trace_models.empty()) return invalid_argument("--trace-models goes with --dataset-name trace");
  if (f.endpoint.empty()) f.endpoint = f.backend == "openai-chat" ? "/v1/chat/completions" : "/v1/completions";
  if (f.endpoint.front() != '/') return invalid_argument("--endpoint ", f.endpoint, ": must begin with /");
  ASSIGN_OR_RETURN(f.target, bench_target(f));
  if (f.target.names_v1 && !f.endpoint.starts_with("/v1/")) f.endpoint = "/v1" + f.endpoint;  // it was said to be below that URL
  for (const std::string& metric : std::vector<std::string>(absl::StrSplit(f.percentile_metrics, ','))) {
    if (std::find(kMetricKeys.begin(), kMetricKeys.end(), metric) == kMetricKeys.end()) {
      return invalid_argument("--percentile-metrics: '", metric, "' is none of ", absl::StrJoin(kMetricKeys, ", "));
    }
  }
  for (const std::string& pair : f.metadata) {
    if (pair.find('=') == std::string::npos) return invalid_argument("--metadata ", pair, ": write KEY=VALUE");
  }
  f.arrivals.seed = f.dataset.seed;
  RETURN_IF_ERROR(arrival_times_s(f.arrivals, 0).status());
  ASSIGN_OR_RETURN(f.slo, parse_goodput(f.goodput));
  ASSIGN_OR_RETURN(f.ranks, percentile_ranks(f));
  f.load.path = f.endpoint;
  f.load.request_timeout = from_seconds(f.request_timeout_s);
  f.load.keep_text = f.save_detailed;
  f.save_result |= f.save_detailed;
  ASSIGN_OR_RETURN(f.load.extra_fields, extra_fields(f));
  return settle_headers(f);
}

std::vector<std::pair<std::string, std::string>> shown_settings(const CLI::App& verb) {
  std::vector<std::pair<std::string, std::string>> settings;
  for (const CLI::Option* option : verb.get_options()) {
    if (option->get_lnames().empty() || option->count() == 0) continue;
    const std::string& name = option->get_lnames()[0];
    const bool secret = name == "api-key" || name == "header";
    settings.emplace_back("--" + name, secret ? "(set)" : absl::StrJoin(option->results(), " "));
  }
  return settings;
}

}  // namespace shoal
