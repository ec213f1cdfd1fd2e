// Sends the requests of a run when they are due and records what becomes of each. Open loop: a request that is due is
// sent whether or not earlier ones have been answered, up to the concurrency that is allowed.
//
// Each client thread is an event loop of its own with its share of the requests, connections and concurrency; a request
// is one coroutine. Nothing is shared but counters.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "base/status.h"
#include "base/time.h"
#include "loadgen/connection.h"
#include "loadgen/dataset.h"
#include "loadgen/http_call.h"
#include "loadgen/record.h"
#include "nlohmann/json_fwd.hpp"

namespace shoal {

struct RunProgress {
  uint64_t sent = 0, completed = 0, failed = 0, tokens = 0;
  double elapsed_s = 0;
};

struct LoadSpec {
  std::string path = "/v1/completions";   // /v1/chat/completions sends messages
  std::string model;
  HttpHeaders headers;
  std::string extra_fields;               // `,"key":value` pairs put into every body
  bool ignore_eos = false;
  bool keep_text = false;
  uint32_t concurrency_max = 0;           // 0: no limit
  uint32_t threads = 1;
  uint32_t connects_at_once = 512;        // per thread: more would overflow the queue of a listening socket
  uint32_t retries_max = 0;               // of 429 and 503, after their Retry-After
  double duration_s = 0;                  // nothing is sent after this; 0: no bound
  Duration request_timeout = std::chrono::hours(1);
  std::function<bool()> stop;             // asked ten times a second, on the calling thread; true ends the run early
  std::function<void(const RunProgress&)> progress;  // the same
};

// The body of a request. Chat bodies hold one user message.
std::string request_body(const LoadSpec& spec, const LoadRequest& request, const std::string& prompt);

// Returns when every request has ended. REQUIRES: requests are sorted by due_s.
RunResult run_load(const LoadSpec& spec, const Destination& destination, std::span<const LoadRequest> requests, const WordBook& words);

// Raises the limit of open files to the hard one, and says how many connections that allows; about 50 are kept back.
uint64_t raise_connection_limit();

}  // namespace shoal
