// What the gateway counts, and the Prometheus text of it: Shoal's own names (shoal_...) and those of the vLLM boards
// (vllm:...), one series per model. Names, labels and buckets are part of the interface.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "gateway/catalog.h"
#include "policy/slo.h"

namespace shoal {

struct MetricsView;

// One finished request, for the histograms.
struct RequestRecord {
  int http_status = 200;              // 499: the client went away
  std::string_view finish_reason;     // stop, length; empty if there was no answer
  uint32_t prompt_tokens = 0;
  uint32_t completion_tokens = 0;
  uint32_t n = 1;
  uint32_t max_tokens = 0;
  double first_token_s = -1;          // since arrival; negative: there was none
  double queued_s = 0;                // of that, before the first step
  double total_s = 0;
};

// All methods may be called from any thread.
class Metrics {
 public:
  Metrics();
  ~Metrics();

  void request_started(const ModelEntry& model);
  void request_ended(const ModelEntry& model, const RequestRecord& record);
  void token_gap(const ModelEntry& model, double seconds);   // between two deliveries of one choice
  void token_lateness(const ModelEntry& model, double seconds);  // after its deadline; negative: before
  // One choice ended: all that was owed of it is scored. Not finished: it failed, and counts as nothing on time.
  void answer_scored(const ModelEntry& model, const TokenScore& answer, bool finished);
  Attainment attainment(const ModelEntry& model) const;       // since the start, of all models of this name
  void refused(std::string_view reason);                     // before a model was known or a node tried
  void http_request(std::string_view route, int status);
  void connections(int64_t change);
  void streams_dropped();                                    // readers too slow to keep

  // Prometheus text format 0.0.4.
  std::string text(const MetricsView& view) const;

 private:
  void count(const ModelEntry& model, const RequestRecord& record);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace shoal
