#include "workload/trace.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "absl/time/civil_time.h"
#include "absl/time/time.h"
#include "base/json.h"
#include "workload/views.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr size_t kRowsMax = 20'000'000;
constexpr uint32_t kSpotServeOutputTokens = 128;

using Cells = std::vector<std::string_view>;

StatusOr<uint32_t> tokens_of(std::string_view cell, const char* column) {
  const double value = number_in<double>(cell).value_or(-1);  // some files write counts as 512.0
  if (value != std::floor(value) || value < 0 || value > kTraceTokensMax) {
    return invalid_argument("column '", column, "': '", own(cell.substr(0, 40)), "' is not a number of tokens (0 to ", kTraceTokensMax, ")");
  }
  return static_cast<uint32_t>(value);
}

StatusOr<double> seconds_of(std::string_view cell, const char* column) {
  const auto value = number_in<double>(cell);
  if (!value || !std::isfinite(*value)) {
    return invalid_argument("column '", column, "': '", own(cell.substr(0, 40)), "' is not a time in seconds");
  }
  return *value;
}

// "2023-11-16 18:15:46.6805900" or "00:00:00.418", in seconds.
StatusOr<double> clock_time_of(std::string_view cell, const char* column) {
  absl::Time time;
  const std::string text(cell);
  std::string error;
  for (const char* format : {"%Y-%m-%d %H:%M:%E*S%Ez", "%Y-%m-%d %H:%M:%E*S", "%H:%M:%E*S"}) {
    if (absl::ParseTime(format, text, &time, &error)) return absl::ToDoubleSeconds(time - absl::UnixEpoch());
  }
  return invalid_argument("column '", column, "': '", own(cell.substr(0, 40)), "' is not a time such as 2023-11-16 18:15:46.68");
}

struct CsvFormat {
  const char* name;
  std::vector<const char*> columns;  // of the header; the first line tells the format
  bool has_header = true;
  bool has_arrivals = true;
  std::function<StatusOr<TraceRow>(const Cells&, const std::vector<size_t>& at)> row;
};

StatusOr<TraceRow> lengths_row(StatusOr<double> arrival_s, const Cells& cells, size_t in, const char* in_name, size_t out,
                               const char* out_name) {
  TraceRow row;
  ASSIGN_OR_RETURN(row.arrival_s, std::move(arrival_s));
  ASSIGN_OR_RETURN(row.input_tokens, tokens_of(cells[in], in_name));
  ASSIGN_OR_RETURN(row.output_tokens, tokens_of(cells[out], out_name));
  return row;
}

StatusOr<TraceRow> spotserve_row(const Cells& cells) {
  TraceRow row{.output_tokens = kSpotServeOutputTokens};
  ASSIGN_OR_RETURN(row.arrival_s, seconds_of(cells[1], "arrival_s"));
  ASSIGN_OR_RETURN(row.input_tokens, tokens_of(cells[2], "prompt_tokens"));
  return row;
}

std::vector<CsvFormat> csv_formats() {
  using At = std::vector<size_t>;
  return {
      {.name = "azure", .columns = {"TIMESTAMP", "ContextTokens", "GeneratedTokens"},
       .row = [](const Cells& c, const At& at) {
         return lengths_row(clock_time_of(c[at[0]], "TIMESTAMP"), c, at[1], "ContextTokens", at[2], "GeneratedTokens");
       }},
      {.name = "burstgpt", .columns = {"Timestamp", "Request tokens", "Response tokens", "Model"},
       .row = [](const Cells& c, const At& at) -> StatusOr<TraceRow> {
         ASSIGN_OR_RETURN(TraceRow row, lengths_row(seconds_of(c[at[0]], "Timestamp"), c, at[1], "Request tokens", at[2], "Response tokens"));
         row.model = c[at[3]];
         return row;
       }},
      {.name = "pooling", .columns = {"Request Time", "Input Length", "Output Length", "Model Name"},
       .row = [](const Cells& c, const At& at) -> StatusOr<TraceRow> {
         ASSIGN_OR_RETURN(TraceRow row, lengths_row(clock_time_of(c[at[0]], "Request Time"), c, at[1], "Input Length", at[2], "Output Length"));
         row.model = c[at[3]];
         return row;
       }},
      {.name = "vidur", .columns = {"num_prefill_tokens", "num_decode_tokens"}, .has_arrivals = false,
       .row = [](const Cells& c, const At& at) {
         return lengths_row(0.0, c, at[0], "num_prefill_tokens", at[1], "num_decode_tokens");
       }},
      {.name = "spotserve", .columns = {}, .has_header = false, .row = [](const Cells& c, const At&) { return spotserve_row(c); }}};
}

// The lines of `text`, without their ends, with their numbers from 1; empty ones are passed over.
Status each_line(std::string_view text, const std::function<Status(std::string_view)>& take) {
  size_t number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    drop_suffix(line, "\r");
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (number > kRowsMax) return invalid_argument("more than ", kRowsMax, " lines");
    if (!line.empty()) RETURN_IF_ERROR(annotate(take(line), absl::StrCat("line ", number)));
  }
  return OkStatus();
}

Cells cells_of(std::string_view line) {
  Cells cells;
  while (true) {
    const size_t comma = line.find(',');
    cells.push_back(without_blanks(line.substr(0, comma)));
    if (comma == std::string_view::npos) return cells;
    line.remove_prefix(comma + 1);
  }
}

// Where the format's columns are in the header; empty if one is missing.
std::vector<size_t> places_of(const CsvFormat& format, const Cells& header) {
  std::vector<size_t> at;
  for (const char* column : format.columns) {
    const auto found = std::find(header.begin(), header.end(), column);
    if (found == header.end()) return {};
    at.push_back(static_cast<size_t>(found - header.begin()));
  }
  return at;
}

StatusOr<Trace> parse_csv(std::string_view text, const CsvFormat& format, const Cells& header, const std::vector<size_t>& at) {
  Trace trace{.format = format.name, .has_arrivals = format.has_arrivals};
  bool in_header = format.has_header;
  RETURN_IF_ERROR(each_line(text, [&](std::string_view line) -> Status {
    if (std::exchange(in_header, false)) return OkStatus();
    const Cells cells = cells_of(line);
    if (cells.size() != header.size()) {
      return invalid_argument("has ", cells.size(), " columns, the first line has ", header.size());
    }
    ASSIGN_OR_RETURN(TraceRow row, format.row(cells, at));
    if (row.output_tokens > 0) trace.rows.push_back(std::move(row));
    return OkStatus();
  }));
  return trace;
}

StatusOr<int64_t> required_int(const Json& object, const char* key, int64_t max) {
  if (!object.contains(key)) return invalid_argument("has no '", key, "'");
  return json_int(object, key, 0, 0, max);
}

StatusOr<TraceRow> mooncake_row(const Json& object) {
  TraceRow row;
  ASSIGN_OR_RETURN(const int64_t ms, required_int(object, "timestamp", int64_t{1} << 50));
  row.arrival_s = static_cast<double>(ms) * 1e-3;
  ASSIGN_OR_RETURN(row.input_tokens, required_int(object, "input_length", kTraceTokensMax));
  ASSIGN_OR_RETURN(row.output_tokens, required_int(object, "output_length", kTraceTokensMax));
  const auto ids = object.find("hash_ids");
  if (ids == object.end()) return row;
  if (!ids->is_array()) return invalid_argument("'hash_ids' is not a list");
  for (const Json& id : *ids) {
    if (!id.is_number_unsigned()) return invalid_argument("'hash_ids' holds something that is not a number");
    row.block_ids.push_back(id.get<uint64_t>());
  }
  return row;
}

StatusOr<TraceRow> lengths_jsonl_row(const Json& object) {
  TraceRow row;
  ASSIGN_OR_RETURN(const int64_t ns, required_int(object, "arrival_time_ns", int64_t{1} << 60));
  row.arrival_s = static_cast<double>(ns) * 1e-9;
  ASSIGN_OR_RETURN(row.input_tokens, required_int(object, "input_toks", kTraceTokensMax));
  ASSIGN_OR_RETURN(row.output_tokens, required_int(object, "output_toks", kTraceTokensMax));
  return row;
}

// Of `shoal serve --record`; a line that is not a request has no tokens, and so is left out.
StatusOr<TraceRow> shoal_row(const Json& object) {
  TraceRow row;
  if (object.value("type", Json()) != Json("request")) return row;
  ASSIGN_OR_RETURN(row.arrival_s, json_double(object, "arrival", 0));
  if (!std::isfinite(row.arrival_s)) return invalid_argument("'arrival' is not a time in seconds");
  ASSIGN_OR_RETURN(row.input_tokens, required_int(object, "prompt_tokens", kTraceTokensMax));
  ASSIGN_OR_RETURN(row.output_tokens, required_int(object, "output_tokens", kTraceTokensMax));
  ASSIGN_OR_RETURN(row.model, json_string(object, "model", ""));
  return row;
}

StatusOr<TraceRow> jsonl_row(const std::string& format, const Json& object) {
  if (format == "shoal") return shoal_row(object);
  return format == "mooncake" ? mooncake_row(object) : lengths_jsonl_row(object);
}

StatusOr<Trace> parse_jsonl(std::string_view text) {
  Trace trace;
  RETURN_IF_ERROR(each_line(text, [&](std::string_view line) -> Status {
    ASSIGN_OR_RETURN(const Json object, parse_json(line));
    if (!object.is_object()) return invalid_argument("is not a JSON object");
    if (trace.format.empty()) {
      const bool run = object.value("type", Json()) == Json("run");
      trace.format = run ? "shoal" : object.contains("timestamp") ? "mooncake" : object.contains("input_toks") ? "lengths-jsonl" : "";
      if (trace.format.empty()) return invalid_argument("has neither 'timestamp' (Mooncake) nor 'input_toks', and is not the begin of a recorded run");
    }
    ASSIGN_OR_RETURN(TraceRow row, jsonl_row(trace.format, object));
    if (row.output_tokens > 0) trace.rows.push_back(std::move(row));
    return OkStatus();
  }));
  return trace;
}

StatusOr<Trace> parse_any(std::string_view text) {
  drop_prefix(text, "\xef\xbb\xbf");
  const std::string_view first = without_blanks(text.substr(0, text.find('\n')));
  if (first.starts_with("{")) return parse_jsonl(text);
  const Cells header = cells_of(first);
  for (const CsvFormat& format : csv_formats()) {
    const auto at = places_of(format, header);
    if (format.has_header && !at.empty()) return parse_csv(text, format, header, at);
    if (!format.has_header && header.size() == 4 && number_in<uint64_t>(header[0])) return parse_csv(text, format, header, at);
  }
  return invalid_argument("line 1: '", own(first.substr(0, 60)), "' begins no known trace; known are Azure, BurstGPT, pooling, SpotServe "
                          "and Vidur CSV, Mooncake and lengths JSONL, and runs that `shoal serve --record` wrote (see `shoal bench --help`)");
}

}  // namespace

StatusOr<Trace> parse_trace(std::string_view text) {
  ASSIGN_OR_RETURN(Trace trace, parse_any(text));
  if (trace.rows.empty()) return invalid_argument("holds no request");
  std::stable_sort(trace.rows.begin(), trace.rows.end(), [](const auto& a, const auto& b) { return a.arrival_s < b.arrival_s; });
  const double first_s = trace.rows.front().arrival_s;
  for (TraceRow& row : trace.rows) row.arrival_s -= first_s;
  return trace;
}

StatusOr<std::vector<TraceRow>> cut_trace(const Trace& trace, const TraceCut& cut) {
  if (!(cut.speedup > 0) || std::isinf(cut.speedup)) return invalid_argument("--trace-speedup must be above 0 and finite");
  if (!(cut.start_s >= 0) || !(cut.duration_s >= 0)) return invalid_argument("--trace-start and --trace-duration must not be negative");
  std::vector<TraceRow> rows;
  for (const TraceRow& row : trace.rows) {
    if (row.arrival_s < cut.start_s) continue;
    if (cut.duration_s > 0 && row.arrival_s >= cut.start_s + cut.duration_s) break;
    if (cut.rows_max > 0 && rows.size() == cut.rows_max) break;
    rows.push_back(row);
    rows.back().arrival_s = (row.arrival_s - cut.start_s) / cut.speedup;
  }
  if (rows.empty()) {
    return invalid_argument("no request between second ", cut.start_s, " and its end: the trace spans ", trace.rows.back().arrival_s, " s");
  }
  return rows;
}

}  // namespace shoal
