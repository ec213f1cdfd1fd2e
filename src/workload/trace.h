// Published request traces, read into one shape.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace shoal {

struct TraceRow {
  double arrival_s = 0;                // from the first row; 0 where the format has no times
  uint32_t input_tokens = 0;
  uint32_t output_tokens = 0;
  std::string model;                   // as the trace names it; often empty
  std::vector<uint64_t> block_ids;     // prompts with the same ids in front share that text (kTraceBlockTokens each)
};

constexpr uint32_t kTraceBlockTokens = 512;
constexpr uint32_t kTraceTokensMax = 4'000'000;  // of one request; more is taken for a fault in the file

struct Trace {
  std::string format;       // azure | mooncake | burstgpt | pooling | lengths-jsonl | spotserve | vidur | shoal
  bool has_arrivals = true;
  std::vector<TraceRow> rows;  // by arrival
};

// Formats are told apart by their first line:
//   azure       TIMESTAMP,ContextTokens,GeneratedTokens
//   burstgpt    Timestamp,[Session ID,Elapsed time,]Model,Request tokens,Response tokens,...
//   pooling     Request Time,Model Name,Input Length,Output Length
//   vidur       num_prefill_tokens,num_decode_tokens,... (no times)
//   spotserve   id,arrival_s,prompt_tokens,byte_offset without a header; 128 output tokens each, as its paper has it
//   mooncake    {"timestamp" (ms),"input_length","output_length","hash_ids"} per line
//   lengths     {"input_toks","output_toks","arrival_time_ns"} per line
//   shoal       what `shoal serve --record` wrote
// InvalidArgument names the line and the column; rows that answer nothing (BurstGPT's failures) are left out.
StatusOr<Trace> parse_trace(std::string_view text);

struct TraceCut {
  double start_s = 0;      // rows before this time of the trace are left out
  double duration_s = 0;   // 0: to its end
  double speedup = 1;      // 2: gaps halved
  size_t rows_max = 0;     // 0: all
};
// The part that is asked for, its first possible arrival at 0. InvalidArgument if nothing is left.
StatusOr<std::vector<TraceRow>> cut_trace(const Trace& trace, const TraceCut& cut);

}  // namespace shoal
