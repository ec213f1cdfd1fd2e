// What became of a run, request by request. Times are seconds from the start of the run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shoal {

// How a request failed, as a short word that counts can be kept by; "" for one that did not.
//   connect | timeout | http_NNN | error_event | truncated | empty | protocol | interrupted
struct RequestRecord {
  double due_s = 0;
  double start_s = -1;             // when it was sent; negative: never
  double ttft_s = 0;               // from start_s to the first token
  double latency_s = 0;            // from start_s to the end
  std::vector<float> gaps_s;       // between successive events that held tokens (vLLM's ITL)
  uint32_t input_tokens = 0;       // of `usage`; without it what was asked for
  uint32_t output_tokens = 0;      // of `usage`; without it the events that held tokens
  bool has_usage = false;
  uint32_t retries = 0;
  std::string model;
  std::string failure;
  std::string message;             // what the server or the system said
  std::string finish_reason;
  std::string text;                // only if it was asked for

  bool sent() const { return start_s >= 0; }
  bool ok() const { return sent() && failure.empty(); }
  // Ended by whoever stopped the run, which says nothing of the server.
  bool interrupted() const { return failure == "interrupted"; }
  // Time per output token after the first; 0 if there is none.
  double tpot_s() const { return output_tokens > 1 ? (latency_s - ttft_s) / (output_tokens - 1) : 0; }
};

struct RunResult {
  double duration_s = 0;           // from the first due time to the last end
  double lag_max_s = 0;            // the most a request was sent later than it was due and allowed to
  bool interrupted = false;
  std::vector<RequestRecord> records;
};

}  // namespace shoal
