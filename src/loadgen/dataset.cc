#include "loadgen/dataset.h"

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "base/rng.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr uint32_t kDefaultOutputTokens = 256;
constexpr size_t kShareGptBytesMax = 2u << 30;
constexpr uint64_t kPrefixStream = 1, kPromptStream = 2, kBlockStream = 3;
constexpr uint32_t kShareGptTokensMin = 4;  // shorter turns are left out, as vLLM does

uint64_t stream_seed(const DatasetSpec& spec, uint64_t stream, uint64_t index) { return counter_bits(spec.seed, stream, index); }

uint32_t length_within(Rng& rng, uint32_t length, double ratio) {
  const double low = std::floor(length * (1 - ratio)), high = std::ceil(length * (1 + ratio));
  return static_cast<uint32_t>(low) + static_cast<uint32_t>(rng.below(static_cast<uint64_t>(high - low) + 1));
}

StatusOr<std::vector<LoadRequest>> random_requests(const DatasetSpec& spec) {
  if (!(spec.range_ratio >= 0) || spec.range_ratio >= 1) return invalid_argument("--random-range-ratio must be at least 0 and below 1");
  Rng rng(spec.seed);
  std::vector<LoadRequest> requests(spec.num_prompts);
  for (size_t i = 0; i < requests.size(); ++i) {
    const uint32_t body = length_within(rng, spec.input_len, spec.range_ratio);
    requests[i].output_tokens = std::max(1u, length_within(rng, spec.output_len, spec.range_ratio));
    requests[i].input_tokens = std::max(1u, spec.prefix_len + body);
    if (spec.prefix_len > 0) requests[i].prompt.runs.push_back({stream_seed(spec, kPrefixStream, 0), spec.prefix_len});
    if (body > 0 || spec.prefix_len == 0) requests[i].prompt.runs.push_back({stream_seed(spec, kPromptStream, i), std::max(1u, body)});
  }
  return requests;
}

// Each prefix is used equally often, in an order that a seed shuffles.
StatusOr<std::vector<LoadRequest>> prefix_requests(const DatasetSpec& spec) {
  if (spec.num_prefixes == 0) return invalid_argument("--prefix-repetition-num-prefixes must be at least 1");
  Rng rng(spec.seed);
  std::vector<LoadRequest> requests(spec.num_prompts);
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].input_tokens = spec.repetition_prefix_len + spec.suffix_len;
    requests[i].output_tokens = spec.repetition_output_len;
    requests[i].prompt.runs = {{stream_seed(spec, kPrefixStream, i % spec.num_prefixes), spec.repetition_prefix_len},
                               {stream_seed(spec, kPromptStream, i), spec.suffix_len}};
  }
  for (size_t i = requests.size(); i > 1; --i) std::swap(requests[i - 1], requests[rng.below(i)]);
  return requests;
}

std::string turn_text(const Json& turn) {
  for (const char* key : {"value", "content"}) {
    if (turn.is_object() && turn.contains(key) && turn[key].is_string()) return turn[key].get<std::string>();
  }
  return "";
}

// The first two turns of each conversation: a prompt, and an answer whose length is asked for.
StatusOr<std::vector<LoadRequest>> sharegpt_requests(const DatasetSpec& spec, std::string_view text, const CountTokens& count) {
  ASSIGN_OR_RETURN(const Json file, parse_json(text, {.bytes_max = kShareGptBytesMax, .values_max = size_t{1} << 28}));
  if (!file.is_array()) return invalid_argument("is not a list of conversations, as ShareGPT files are");
  std::vector<size_t> order(file.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  Rng rng(spec.seed);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);
  std::vector<LoadRequest> requests;
  for (const size_t at : order) {
    if (requests.size() == spec.num_prompts) break;
    const Json& item = file[at];
    if (!item.is_object() || !item.contains("conversations") || !item["conversations"].is_array()) {
      return invalid_argument("item ", at, " has no list 'conversations'");
    }
    if (item["conversations"].size() < 2) continue;
    LoadRequest request;
    request.prompt.literal = turn_text(item["conversations"][0]);
    ASSIGN_OR_RETURN(request.input_tokens, count(request.prompt.literal));
    ASSIGN_OR_RETURN(const uint32_t answer, count(turn_text(item["conversations"][1])));
    request.output_tokens = spec.fixed_output_len.value_or(answer);
    if (request.input_tokens >= kShareGptTokensMin && request.output_tokens >= kShareGptTokensMin) requests.push_back(std::move(request));
  }
  if (requests.empty()) return invalid_argument("holds no conversation of two turns");
  return requests;
}

// Lines {"prompt": text, "output_tokens"?: n}; taken again from the first when they do not suffice.
StatusOr<std::vector<LoadRequest>> custom_requests(const DatasetSpec& spec, std::string_view text, const CountTokens& count) {
  std::vector<LoadRequest> lines;
  for (size_t number = 1; !text.empty() && lines.size() < spec.num_prompts; ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string where = absl::StrCat("line ", number);
    const auto json = parse_json(line);
    if (!json.ok()) return annotate(json.status(), where);
    if (!json->is_object() || !json->contains("prompt") || !(*json)["prompt"].is_string()) {
      return invalid_argument(where, ": has no text 'prompt'");
    }
    LoadRequest request;
    request.prompt.literal = (*json)["prompt"].get<std::string>();
    const auto wanted = json_int(*json, "output_tokens", kDefaultOutputTokens, 1, kTraceTokensMax);
    if (!wanted.ok()) return annotate(wanted.status(), where);
    request.output_tokens = spec.fixed_output_len.value_or(static_cast<uint32_t>(*wanted));
    ASSIGN_OR_RETURN(request.input_tokens, count(request.prompt.literal));
    lines.push_back(std::move(request));
  }
  if (lines.empty()) return invalid_argument("holds no prompt");
  std::vector<LoadRequest> requests;
  for (size_t i = 0; i < spec.num_prompts; ++i) requests.push_back(lines[i % lines.size()]);
  return requests;
}

// A trace's blocks are hashes of text that was not published: equal ids become equal text.
PromptRecipe trace_prompt(const DatasetSpec& spec, const TraceRow& row, size_t index) {
  PromptRecipe prompt;
  uint32_t left = std::max(1u, row.input_tokens);
  for (const uint64_t id : row.block_ids) {
    if (left == 0) break;
    const uint32_t tokens = std::min(left, kTraceBlockTokens);
    prompt.runs.push_back({stream_seed(spec, kBlockStream, id), tokens});
    left -= tokens;
  }
  if (left > 0) prompt.runs.push_back({stream_seed(spec, kPromptStream, index), left});
  return prompt;
}

StatusOr<std::vector<LoadRequest>> trace_requests(const DatasetSpec& spec, std::string_view text) {
  ASSIGN_OR_RETURN(const Trace trace, parse_trace(text));
  ASSIGN_OR_RETURN(const std::vector<TraceRow> rows, cut_trace(trace, spec.cut));
  std::vector<LoadRequest> requests(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    requests[i].due_s = trace.has_arrivals ? rows[i].arrival_s : -1;
    requests[i].prompt = trace_prompt(spec, rows[i], i);
    requests[i].input_tokens = std::max(1u, rows[i].input_tokens);
    requests[i].output_tokens = spec.fixed_output_len.value_or(rows[i].output_tokens);
    requests[i].model = rows[i].model;
  }
  return requests;
}

}  // namespace

StatusOr<std::vector<LoadRequest>> make_requests(const DatasetSpec& spec, std::string_view text, const CountTokens& count) {
  if (spec.name == "random") return random_requests(spec);
  if (spec.name == "prefix_repetition") return prefix_requests(spec);
  if (spec.name == "sharegpt") return sharegpt_requests(spec, text, count);
  if (spec.name == "custom") return custom_requests(spec, text, count);
  if (spec.name == "trace") return trace_requests(spec, text);
  return invalid_argument("--dataset-name ", spec.name, " is none of random, prefix_repetition, sharegpt, custom, trace");
}

Status schedule(const ArrivalSpec& arrivals, std::vector<LoadRequest>& requests) {
  ASSIGN_OR_RETURN(const std::vector<double> times, arrival_times_s(arrivals, requests.size()));
  for (size_t i = 0; i < requests.size(); ++i) requests[i].due_s = times[i];
  return OkStatus();
}

}  // namespace shoal
