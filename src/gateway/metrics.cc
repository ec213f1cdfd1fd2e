#include "gateway/metrics.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <utility>

#include "gateway/metrics_page.h"
#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"
#include "prometheus/text_serializer.h"

namespace shoal {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;
using Buckets = Histogram::BucketBoundaries;

// The bucket boundaries of the boards that read the vllm: names.
const Buckets kFirstTokenBuckets = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
                                    1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560};
const Buckets kTokenGapBuckets = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
                                  0.75, 1,     2.5,  5,     7.5, 10,   20,  40,  80};
const Buckets kRequestBuckets = {0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,  15,  20,
                                 30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680};
// The first: on time.
const Buckets kLatenessBuckets = {0, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120};
const Buckets kChoiceBuckets = {1, 2, 5, 10, 20};

// 1, 2, 5, 10, 20, 50 ... up to `max`.
Buckets decades(uint32_t max) {
  Buckets out;
  for (double decade = 1; decade <= max; decade *= 10) {
    for (const double step : {1.0, 2.0, 5.0}) {
      if (decade * step <= max) out.push_back(decade * step);
    }
  }
  return out;
}

// A histogram of each model. kTokens: its buckets end at the model's context.
enum Series : size_t {
  kFirstToken, kTokenGap, kTokenGapOld, kTokenTime, kTotal, kDecode, kQueue, kPrefill, kInference, kPromptTokens, kGenerationTokens,
  kChoices, kMaxTokens, kLateness, kSeries
};
struct SeriesRow {
  Series series;
  const char* name;
  const char* help;
  const Buckets* buckets;  // null: decades() of the model's context
  const char* label = "model_name";
};
const SeriesRow kRows[] = {
    {kFirstToken, "vllm:time_to_first_token_seconds", "Arrival to first token.", &kFirstTokenBuckets},
    {kTokenGap, "vllm:inter_token_latency_seconds", "Between deliveries of one choice.", &kTokenGapBuckets},
    {kTokenGapOld, "vllm:time_per_output_token_seconds", "As inter_token_latency_seconds.", &kTokenGapBuckets},
    {kTokenTime, "vllm:request_time_per_output_token_seconds", "Mean time per token after the first.", &kTokenGapBuckets},
    {kTotal, "vllm:e2e_request_latency_seconds", "Arrival to the end of the answer.", &kRequestBuckets},
    {kDecode, "vllm:request_decode_time_seconds", "First token to the end of the answer.", &kRequestBuckets},
    {kQueue, "vllm:request_queue_time_seconds", "Arrival at the node to the first step.", &kRequestBuckets},
    {kPrefill, "vllm:request_prefill_time_seconds", "First step to first token.", &kRequestBuckets},
    {kInference, "vllm:request_inference_time_seconds", "First step to the end of the answer.", &kRequestBuckets},
    {kPromptTokens, "vllm:request_prompt_tokens", "Prompt length in tokens.", nullptr},
    {kGenerationTokens, "vllm:request_generation_tokens", "Answer length in tokens.", nullptr},
    {kChoices, "vllm:request_params_n", "Choices asked for.", &kChoiceBuckets},
    {kMaxTokens, "vllm:request_params_max_tokens", "max_tokens asked for.", nullptr},
    {kLateness, "shoal_token_lateness_seconds", "How long after its deadline each token came; 0: on time.", &kLatenessBuckets, "model"},
};
static_assert(std::size(kRows) == kSeries);

// What is counted of one model; made at its first request so that a thousand idle models do not fill the page.
struct ModelSeries {
  Gauge* inflight;
  std::array<Histogram*, kSeries> histograms;

  void observe(Series series, double value) { histograms[series]->Observe(value); }
};

}  // namespace

struct Metrics::State {
  State() {
    for (const SeriesRow& row : kRows) histograms[row.series] = &prometheus::BuildHistogram().Name(row.name).Help(row.help).Register(registry);
  }
  Family<Counter>& counter(const char* name, const char* help) { return prometheus::BuildCounter().Name(name).Help(help).Register(registry); }
  Family<Gauge>& gauge(const char* name, const char* help) { return prometheus::BuildGauge().Name(name).Help(help).Register(registry); }

  ModelSeries& series(const ModelEntry& model);

  prometheus::Registry registry;
  std::mutex mutex;
  std::map<ModelId, ModelSeries> per_model;  // guarded by mutex; entries stay where they are
  std::map<std::string, Attainment> attainment;  // by name of the model; guarded by mutex

  std::array<Family<Histogram>*, kSeries> histograms;
  Family<Counter>& success = counter("vllm:request_success_total", "Answers by how they ended.");
  Family<Counter>& requests = counter("shoal_requests_total", "Generation requests by model and HTTP status.");
  Family<Counter>& http = counter("shoal_http_requests_total", "HTTP requests by route and status.");
  Family<Counter>& rejections = counter("shoal_admission_rejections_total", "Requests refused before any work.");
  Family<Gauge>& inflight = gauge("shoal_inflight_requests", "Generation requests under way.");
  Gauge& connections = gauge("shoal_http_connections", "Open client connections.").Add({});
  Counter& disconnects =
      counter("shoal_client_disconnects_total", "Clients that went away before their answer ended.").Add({});
  Counter& dropped = counter("shoal_slow_readers_dropped_total", "Streams given up because nobody read them.").Add({});
};

ModelSeries& Metrics::State::series(const ModelEntry& model) {
  std::lock_guard lock(mutex);
  const auto known = per_model.find(model.id);
  if (known != per_model.end()) return known->second;
  ModelSeries made{.inflight = &inflight.Add({{"model_name", model.name}})};
  for (const SeriesRow& row : kRows) {
    made.histograms[row.series] = &histograms[row.series]->Add({{row.label, model.name}}, row.buckets ? *row.buckets : decades(model.max_model_len));
  }
  return per_model.emplace(model.id, made).first->second;
}

Metrics::Metrics() : state_(std::make_unique<State>()) {}
Metrics::~Metrics() = default;

void Metrics::request_started(const ModelEntry& model) { state_->series(model).inflight->Increment(); }

void Metrics::request_ended(const ModelEntry& model, const RequestRecord& record) {
  count(model, record);
  state_->series(model).inflight->Decrement();  // last: who sees 0 in flight sees every request counted
}

void Metrics::count(const ModelEntry& model, const RequestRecord& record) {
  ModelSeries& series = state_->series(model);
  state_->requests.Add({{"model", model.name}, {"code", std::to_string(record.http_status)}}).Increment();
  if (record.http_status == 499) state_->disconnects.Increment();
  if (record.finish_reason.empty()) return;
  state_->success.Add({{"model_name", model.name}, {"finished_reason", std::string(record.finish_reason)}}).Increment();
  series.observe(kTotal, record.total_s);
  series.observe(kPromptTokens, record.prompt_tokens);
  series.observe(kGenerationTokens, record.completion_tokens);
  series.observe(kChoices, record.n);
  series.observe(kMaxTokens, record.max_tokens);
  if (record.first_token_s < 0) return;
  series.observe(kFirstToken, record.first_token_s);
  series.observe(kDecode, record.total_s - record.first_token_s);
  series.observe(kQueue, record.queued_s);
  series.observe(kPrefill, std::max(0.0, record.first_token_s - record.queued_s));
  series.observe(kInference, std::max(0.0, record.total_s - record.queued_s));
  if (record.completion_tokens > 1) {
    series.observe(kTokenTime, (record.total_s - record.first_token_s) / (record.completion_tokens - 1));
  }
}

void Metrics::token_gap(const ModelEntry& model, double seconds) {
  ModelSeries& series = state_->series(model);
  series.observe(kTokenGap, seconds);
  series.observe(kTokenGapOld, seconds);
}

void Metrics::token_lateness(const ModelEntry& model, double seconds) { state_->series(model).observe(kLateness, std::max(0.0, seconds)); }

void Metrics::answer_scored(const ModelEntry& model, const TokenScore& answer, bool finished) {
  std::lock_guard lock(state_->mutex);
  state_->attainment[model.name].add(answer, finished);
}

Attainment Metrics::attainment(const ModelEntry& model) const {
  std::lock_guard lock(state_->mutex);
  const auto found = state_->attainment.find(model.name);
  return found == state_->attainment.end() ? Attainment() : found->second;
}

void Metrics::refused(std::string_view reason) {
  state_->rejections.Add({{"reason", std::string(reason)}}).Increment();
}

void Metrics::http_request(std::string_view route, int status) {
  state_->http.Add({{"route", std::string(route)}, {"code", std::to_string(status)}}).Increment();
}

void Metrics::connections(int64_t change) { state_->connections.Increment(static_cast<double>(change)); }
void Metrics::streams_dropped() { state_->dropped.Increment(); }

std::string Metrics::text(const MetricsView& view) const {
  std::vector<prometheus::MetricFamily> families = state_->registry.Collect();
  add_reported_families(view, [this](const ModelEntry& model) { return attainment(model); }, families);
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace shoal
