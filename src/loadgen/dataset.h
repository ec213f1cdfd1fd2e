// What is sent: the requests of a run, from a synthetic distribution or a file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "workload/arrivals.h"
#include "loadgen/prompt_text.h"
#include "workload/trace.h"

namespace shoal {

struct LoadRequest {
  double due_s = 0;              // from the start of the run
  PromptRecipe prompt;
  uint32_t input_tokens = 0;     // wanted; what it came to is the server's `usage`
  uint32_t output_tokens = 0;    // asked for as max_tokens
  std::string model;             // empty: the run's
};

struct DatasetSpec {
  std::string name = "random";   // random | prefix_repetition | sharegpt | custom | trace
  uint32_t num_prompts = 1000;
  uint64_t seed = 0;
  // random
  uint32_t input_len = 1024;
  uint32_t output_len = 128;
  uint32_t prefix_len = 0;       // shared by all prompts, in front of input_len
  double range_ratio = 0;        // lengths are uniform within [1 - r, 1 + r] times the length
  // prefix_repetition
  uint32_t num_prefixes = 10;
  uint32_t repetition_prefix_len = 256;
  uint32_t suffix_len = 256;
  uint32_t repetition_output_len = 128;
  // sharegpt, custom, trace: instead of the lengths of the file
  std::optional<uint32_t> fixed_output_len;
  TraceCut cut;
};

// The requests without their arrival times. `text`: the file's content, for those datasets that have one; `count` gives
// the tokens of texts that come without their length. InvalidArgument names the line or item.
StatusOr<std::vector<LoadRequest>> make_requests(const DatasetSpec& spec, std::string_view text, const CountTokens& count);

// Sets due_s of each from the arrival process.
Status schedule(const ArrivalSpec& arrivals, std::vector<LoadRequest>& requests);

}  // namespace shoal
