#include "loadgen/answer_reader.h"

#include "absl/strings/str_cat.h"
#include "workload/views.h"

namespace shoal {
namespace {

constexpr size_t kWholeBytesMax = 16u << 20;
constexpr size_t kMessageBytesMax = 400;
constexpr int kOk = 200;

}  // namespace

void AnswerReader::head(int status, bool event_stream) {
  status_ = status;
  event_stream_ = event_stream && status == kOk;
}

bool AnswerReader::body(std::string_view bytes, double at_s) {
  if (!event_stream_) {
    whole_.append(bytes.substr(0, kWholeBytesMax - whole_.size()));
    return whole_.size() < kWholeBytesMax;
  }
  if (!sse_.feed(bytes, [&](std::string_view data) { event(data, at_s); })) fail("protocol", "an event is longer than 1 MiB", at_s);
  return !failed();
}

void AnswerReader::event(std::string_view data, double at_s) {
  if (failed() || done_) return;
  if (data == "[DONE]") {
    done_ = true;
    return;
  }
  const auto chunk = read_chunk(data, keep_text_);
  if (!chunk.ok()) return fail("protocol", absl::StrCat(chunk.status().message(), ": ", own(data.substr(0, 80))), at_s);
  if (chunk->error) return fail("error_event", *chunk->error, at_s);
  take(*chunk, at_s);
}

void AnswerReader::take(const Chunk& chunk, double at_s) {
  if (chunk.has_token) {
    if (events_ == 0) record_.ttft_s = at_s;
    if (events_ > 0) record_.gaps_s.push_back(static_cast<float>(at_s - last_token_s_));
    last_token_s_ = at_s;
    ++events_;
    record_.text += chunk.text;
  }
  if (!chunk.finish_reason.empty()) {
    record_.finish_reason = chunk.finish_reason;
    finish_s_ = at_s;
  }
  if (chunk.prompt_tokens) record_.input_tokens = *chunk.prompt_tokens;
  if (chunk.completion_tokens) completion_tokens_ = chunk.completion_tokens;
}

void AnswerReader::end_whole(double at_s) {
  const auto chunk = read_chunk(whole_, keep_text_);
  if (status_ != kOk) {
    const std::string said = chunk.ok() && chunk->error ? *chunk->error : whole_;
    return fail(absl::StrCat("http_", status_), said, at_s);
  }
  if (!chunk.ok()) return fail("protocol", "the answer is neither a stream of events nor a JSON object", at_s);
  if (chunk->error) return fail("error_event", *chunk->error, at_s);
  take(*chunk, at_s);
}

void AnswerReader::end(std::string_view problem, double at_s) {
  if (failed()) return;
  if (status_ == 0) return fail("protocol", problem.empty() ? "the server closed the connection without an answer" : problem, at_s);
  if (!event_stream_ && problem.empty()) end_whole(at_s);
  if (failed()) return;
  if (event_stream_ && !done_ && record_.finish_reason.empty()) {
    return fail("truncated", problem.empty() ? "the stream ended without [DONE]" : problem, at_s);
  }
  if (!event_stream_ && !problem.empty()) return fail("truncated", problem, at_s);
  if (events_ == 0 && record_.finish_reason.empty()) return fail("empty", "the answer holds no token and no finish_reason", at_s);
  if (events_ == 0) record_.ttft_s = last_token_s_ = finish_s_;  // tokens without text, or none: its end is what can be seen
  record_.has_usage = completion_tokens_.has_value();
  record_.output_tokens = completion_tokens_.value_or(events_);
  record_.latency_s = last_token_s_;
}

void AnswerReader::fail(std::string_view kind, std::string_view message, double at_s) {
  if (failed()) return;
  record_.failure = kind;
  record_.message = message.substr(0, kMessageBytesMax);
  record_.output_tokens = events_;
  record_.latency_s = at_s;
}

}  // namespace shoal
