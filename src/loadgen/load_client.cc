#include "loadgen/load_client.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/open_files.h"
#include "loadgen/load_lane.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr Duration kLook = std::chrono::milliseconds(100);
constexpr uint64_t kOtherFiles = 50;

double end_of(const RequestRecord& record) { return record.sent() ? record.start_s + record.latency_s : 0; }

uint64_t share_of(uint64_t total, uint32_t lane, uint32_t lanes) { return total / lanes + (lane < total % lanes ? 1 : 0); }

void follow(const LoadSpec& spec, TimePoint begin, LoadCounters& counters) {
  if (spec.stop && spec.stop()) counters.stop.store(true);
  if (!spec.progress) return;
  spec.progress({.sent = counters.sent.load(), .completed = counters.completed.load(), .failed = counters.failed.load(),
                 .tokens = counters.tokens.load(), .elapsed_s = to_seconds(steady_now() - begin)});
}

}  // namespace

std::string request_body(const LoadSpec& spec, const LoadRequest& request, const std::string& prompt) {
  const bool chat = absl::StrContains(spec.path, "chat/completions");
  const std::string text = dump_json(prompt);
  std::string body = absl::StrCat("{\"model\":", dump_json(request.model.empty() ? spec.model : request.model));
  if (chat) {
    absl::StrAppend(&body, ",\"messages\":[{\"role\":\"user\",\"content\":", text, "}],\"max_completion_tokens\":", request.output_tokens);
  } else {
    absl::StrAppend(&body, ",\"prompt\":", text, ",\"max_tokens\":", request.output_tokens);
  }
  absl::StrAppend(&body, ",\"stream\":true,\"stream_options\":{\"include_usage\":true}");
  if (spec.ignore_eos) absl::StrAppend(&body, ",\"ignore_eos\":true");
  return absl::StrCat(body, spec.extra_fields, "}");
}

RunResult run_load(const LoadSpec& spec, const Destination& destination, std::span<const LoadRequest> requests, const WordBook& words) {
  RunResult result;
  result.records.resize(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) result.records[i].due_s = requests[i].due_s;
  const uint64_t concurrency = spec.concurrency_max > 0 ? spec.concurrency_max : requests.size();
  // No lane without a request or without leave to run one.
  const uint64_t lanes_max = std::max<uint64_t>(1, std::min<uint64_t>(requests.size(), concurrency));
  const auto lanes = static_cast<uint32_t>(std::clamp<uint64_t>(spec.threads, 1, lanes_max));
  LoadCounters counters;
  std::vector<std::unique_ptr<LoadLane>> running;
  std::vector<std::thread> threads;
  std::atomic<uint32_t> ended{0};
  const TimePoint begin = steady_now();
  for (uint32_t i = 0; i < lanes; ++i) {
    const LoadLane::Share share{.requests = requests, .records = result.records, .index = i, .lanes = lanes,
                                .concurrency = share_of(concurrency, i, lanes)};
    running.push_back(std::make_unique<LoadLane>(spec, destination, words, share, begin, counters));
    threads.emplace_back([lane = running.back().get(), &ended] {
      lane->run();
      ended.fetch_add(1);
    });
  }
  while (ended.load() < lanes) {
    follow(spec, begin, counters);
    std::this_thread::sleep_for(ended.load() < lanes ? kLook : Duration(0));
  }
  for (std::thread& thread : threads) thread.join();
  follow(spec, begin, counters);
  result.interrupted = counters.stop.load();
  for (const RequestRecord& record : result.records) result.duration_s = std::max(result.duration_s, end_of(record));
  for (const auto& lane : running) result.lag_max_s = std::max(result.lag_max_s, lane->lag_max_s());
  return result;
}

uint64_t raise_connection_limit() {
  const uint64_t files = raise_open_files();
  return files > kOtherFiles ? files - kOtherFiles : 0;
}

}  // namespace shoal
