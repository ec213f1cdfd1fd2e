// One answer of an OpenAI server, read as it comes, into the record of its request. Knows no socket and no clock.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "loadgen/chunk.h"
#include "loadgen/record.h"
#include "loadgen/sse.h"

namespace shoal {

class AnswerReader {
 public:
  // `record` outlives the reader. Times are seconds since the request was sent.
  AnswerReader(RequestRecord& record, bool keep_text) : record_(record), keep_text_(keep_text) {}

  void head(int status, bool event_stream);
  // False: the answer is broken or too long; read no more of it.
  bool body(std::string_view bytes, double at_s);
  // The answer is over. `problem`: what ended it early, "" if it is complete.
  void end(std::string_view problem, double at_s);
  // It ended for a reason that only the caller knows: connect, timeout, interrupted.
  void fail(std::string_view kind, std::string_view message, double at_s);

  int status() const { return status_; }
  bool failed() const { return !record_.failure.empty(); }

 private:
  void event(std::string_view data, double at_s);
  void take(const Chunk& chunk, double at_s);
  void end_whole(double at_s);

  RequestRecord& record_;
  bool keep_text_;
  SseParser sse_;
  int status_ = 0;
  bool event_stream_ = false;
  bool done_ = false;         // [DONE] has come
  uint32_t events_ = 0;       // that held tokens
  double last_token_s_ = 0, finish_s_ = 0;
  std::optional<uint32_t> completion_tokens_;
  std::string whole_;         // an answer that is no stream
};

}  // namespace shoal
