// The flags of `bench`, under vLLM's names, and what they make of a run.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/status.h"
#include "workload/arrivals.h"
#include "loadgen/dataset.h"
#include "loadgen/http_target.h"
#include "loadgen/load_client.h"
#include "loadgen/report.h"

namespace CLI {
class App;
}

namespace shoal {

struct BenchFlags {
  std::string base_url, host = "127.0.0.1", endpoint, backend = "openai", model, api_key, tokenizer;
  uint16_t port = 8080;
  std::vector<std::string> headers;
  bool insecure = false;
  DatasetSpec dataset;
  std::string dataset_path;
  std::vector<std::string> trace_models;
  ArrivalSpec arrivals;
  LoadSpec load;
  double request_timeout_s = 3600;
  uint32_t num_warmups = 0;
  double temperature = 0;
  std::string top_p, top_k, min_p, extra_body;      // as they were written; "" is not sent
  std::vector<std::string> goodput, metadata;
  std::string percentile_metrics = "ttft,tpot,itl,e2el", metric_percentiles = "99";
  bool save_result = false, save_detailed = false, as_json = false, no_progress = false;
  std::string result_dir = ".", result_filename, report;

  // Made of the above by settle().
  HttpTarget target;
  Goodput slo;
  std::vector<double> ranks;   // with 99, whose keys are always there
};

void add_bench_flags(CLI::App& verb, BenchFlags& flags);

// Checks what the parser cannot, and fills in what follows from other flags. InvalidArgument names the flag.
Status settle(const CLI::App& verb, BenchFlags& flags);

// The flags that were set, for the report; keys are masked.
std::vector<std::pair<std::string, std::string>> shown_settings(const CLI::App& verb);

}  // namespace shoal
