// What a run leaves behind: vLLM's console block and JSON, one CSV line per request, and a page to look at. Text in all
// cases: nothing here writes a file.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "loadgen/summary.h"
#include "nlohmann/json.hpp"

namespace shoal {

// What the figures belong to.
struct ReportFacts {
  std::string date;                 // 20260102-150405
  std::string day;                  // for people: 2 Jan 2026 15:04 UTC
  std::string backend = "openai";
  std::string model;
  std::string url;
  std::string tokenizer;            // what counted the tokens of prompts
  std::string prompt_lengths;       // the same as a sentence without its stop, with what the server made of it
  uint32_t num_prompts = 0;
  double request_rate = 0;          // infinite: all at once
  double burstiness = 1;
  uint32_t concurrency_max = 0;     // 0: no limit
  Goodput goodput;
  std::vector<std::string> shown_metrics;                       // keys, in the console block
  std::vector<std::pair<std::string, std::string>> settings;    // every flag that was set, for the page
  std::vector<std::pair<std::string, std::string>> metadata;    // KEY=VALUE of --metadata, for the JSON
};

std::string console_report(const ReportFacts& facts, const Summary& summary);

// `detailed`: with input_lens, output_lens, ttfts, itls, generated_texts and errors, one item per request.
nlohmann::ordered_json json_report(const ReportFacts& facts, const Summary& summary, const RunResult& run, bool detailed);

std::string csv_report(const ReportFacts& facts, const RunResult& run);

// One self-contained page: nothing fetched.
std::string html_report(const ReportFacts& facts, const Summary& summary, const RunResult& run);

}  // namespace shoal
