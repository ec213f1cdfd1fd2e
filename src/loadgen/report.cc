#include "loadgen/report.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace shoal {
namespace {

constexpr double kMsPerS = 1000;

std::string rank_word(double rank) { return absl::StrCat(rank); }  // "99", "99.9"

void heading(std::string& out, const std::string& title, char fill) {
  constexpr size_t kWidth = 50;
  const size_t left = (kWidth - std::min(kWidth, title.size())) / 2;
  out += std::string(left, fill) + title + std::string(kWidth - std::min(kWidth, left + title.size()), fill) + "\n";
}

void row(std::string& out, const std::string& name, uint64_t value) { absl::StrAppendFormat(&out, "%-40s %-10u\n", name + ":", value); }
void row(std::string& out, const std::string& name, double value) { absl::StrAppendFormat(&out, "%-40s %-10.2f\n", name + ":", value); }

void metric_rows(std::string& out, const Metric& metric, const Distribution& d) {
  heading(out, metric.title, '-');
  row(out, "Mean " + metric.label + " (ms)", d.mean);
  row(out, "Median " + metric.label + " (ms)", d.median);
  for (const Percentile& p : d.percentiles) row(out, "P" + rank_word(p.rank) + " " + metric.label + " (ms)", p.value);
}

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c == '\n' || c == '\r' ? ' ' : c;
  }
  return out + '"';
}

void add_details(const RunResult& run, nlohmann::ordered_json& out) {
  for (const char* key : {"input_lens", "output_lens", "ttfts", "itls", "generated_texts", "errors"}) out[key] = nlohmann::ordered_json::array();
  for (const RequestRecord& record : run.records) {
    out["input_lens"].push_back(record.input_tokens);
    out["output_lens"].push_back(record.ok() ? record.output_tokens : 0);
    out["ttfts"].push_back(record.ttft_s);
    out["itls"].push_back(record.gaps_s);
    out["generated_texts"].push_back(record.text);
    out["errors"].push_back(record.ok() ? "" : record.sent() ? absl::StrCat(record.failure, ": ", record.message) : "not sent");
  }
}

}  // namespace

std::string console_report(const ReportFacts& facts, const Summary& summary) {
  std::string out;
  heading(out, " Serving Benchmark Result ", '=');
  row(out, "Successful requests", summary.completed);
  row(out, "Failed requests", summary.failed);
  for (const auto& [kind, count] : summary.failures) row(out, "  " + kind, count);
  if (summary.interrupted > 0) row(out, "Requests ended by the interruption", summary.interrupted);
  if (summary.unsent > 0) row(out, "Requests not sent", summary.unsent);
  if (facts.concurrency_max > 0) row(out, "Maximum request concurrency", uint64_t{facts.concurrency_max});
  if (std::isfinite(facts.request_rate)) row(out, "Request rate configured (RPS)", facts.request_rate);
  row(out, "Benchmark duration (s)", summary.duration_s);
  row(out, "Total input tokens", summary.input_tokens);
  row(out, "Total generated tokens", summary.output_tokens);
  row(out, "Request throughput (req/s)", summary.request_throughput);
  if (summary.request_goodput) row(out, "Request goodput (req/s)", *summary.request_goodput);
  row(out, "Output token throughput (tok/s)", summary.output_throughput);
  row(out, "Peak output token throughput (tok/s)", summary.peak_output_throughput);
  row(out, "Peak concurrent requests", summary.peak_concurrency);
  row(out, "Total Token throughput (tok/s)", summary.total_token_throughput);
  for (const auto& [metric, distribution] : summary.metrics) {
    const auto& shown = facts.shown_metrics;
    if (std::find(shown.begin(), shown.end(), metric.key) != shown.end()) metric_rows(out, metric, distribution);
  }
  heading(out, "", '=');
  for (const auto& [kind, message] : summary.failure_samples) absl::StrAppend(&out, kind, ", for example: ", message, "\n");
  if (!facts.prompt_lengths.empty()) absl::StrAppend(&out, "Prompt lengths: ", facts.prompt_lengths, ".\n");
  if (summary.counts_are_events) out += "The server sends no usage for streams: generated tokens are counted as events.\n";
  return out;
}

nlohmann::ordered_json json_report(const ReportFacts& facts, const Summary& summary, const RunResult& run, bool detailed) {
  nlohmann::ordered_json out = {{"date", facts.date}, {"endpoint_type", facts.backend}, {"backend", facts.backend}, {"label", nullptr},
                                {"model_id", facts.model}, {"tokenizer_id", facts.tokenizer}, {"num_prompts", facts.num_prompts}};
  out["prompt_lengths"] = facts.prompt_lengths;
  for (const auto& [key, value] : facts.metadata) out[key] = value;
  out["request_rate"] = std::isfinite(facts.request_rate) ? nlohmann::ordered_json(facts.request_rate) : nlohmann::ordered_json("inf");
  out["burstiness"] = facts.burstiness;
  out["max_concurrency"] = facts.concurrency_max > 0 ? nlohmann::ordered_json(facts.concurrency_max) : nlohmann::ordered_json(nullptr);
  out["duration"] = summary.duration_s;
  out["completed"] = summary.completed;
  out["failed"] = summary.failed;
  out["total_input_tokens"] = summary.input_tokens;
  out["total_output_tokens"] = summary.output_tokens;
  out["request_throughput"] = summary.request_throughput;
  out["request_goodput"] = summary.request_goodput ? nlohmann::ordered_json(*summary.request_goodput) : nlohmann::ordered_json(nullptr);
  out["output_throughput"] = summary.output_throughput;
  out["total_token_throughput"] = summary.total_token_throughput;
  out["max_output_tokens_per_s"] = summary.peak_output_throughput;
  out["max_concurrent_requests"] = summary.peak_concurrency;
  for (const auto& [metric, d] : summary.metrics) {
    out["mean_" + metric.key + "_ms"] = d.mean;
    out["median_" + metric.key + "_ms"] = d.median;
    out["std_" + metric.key + "_ms"] = d.deviation;
    for (const Percentile& p : d.percentiles) out["p" + rank_word(p.rank) + "_" + metric.key + "_ms"] = p.value;
  }
  out["failures"] = summary.failures;
  out["ended_by_interruption"] = summary.interrupted;
  out["not_sent"] = summary.unsent;
  out["interrupted"] = run.interrupted;
  out["send_lag_max_ms"] = run.lag_max_s * kMsPerS;
  if (detailed) add_details(run, out);
  return out;
}

std::string csv_report(const ReportFacts& facts, const RunResult& run) {
  std::string out = "request,model,due_s,start_s,ttft_ms,tpot_ms,e2el_ms,input_tokens,output_tokens,finish_reason,slo_met,failure,retries,message\n";
  for (size_t i = 0; i < run.records.size(); ++i) {
    const RequestRecord& r = run.records[i];
    absl::StrAppendFormat(&out, "%d,%s,%.6f,", i, csv_cell(r.model), r.due_s);
    out += r.sent() ? absl::StrFormat("%.6f,", r.start_s) : ",";
    out += r.ok() ? absl::StrFormat("%.3f,%.3f,%.3f,", r.ttft_s * kMsPerS, r.tpot_s() * kMsPerS, r.latency_s * kMsPerS) : ",,,";
    absl::StrAppendFormat(&out, "%u,%u,%s,%s,%s,%u,%s\n", r.input_tokens, r.output_tokens, csv_cell(r.finish_reason),
                          facts.goodput.asked() ? (facts.goodput.met(r) ? "1" : "0") : "", csv_cell(r.sent() ? r.failure : "not_sent"),
                          r.retries, csv_cell(r.message));
  }
  return out;
}

}  // namespace shoal
