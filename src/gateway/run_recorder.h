// A run as a file that a simulator can replay and a person can read: one JSON object per line.
//
//   {"type":"run","version":1,"started":"2026-01-02T03:04:05Z", ...}           first; what the server was told
//   {"type":"model","model":NAME,"weight_bytes":..,"ttft":..,"tbt":.., ...}     one per model, again when it changes
//   {"type":"request","id":..,"model":NAME,"arrival":1.25,"prompt_tokens":100,"output_tokens":20,"max_tokens":64,
//    "first_token":1.5,"end":2.5,"finish":"stop","ttft":10,"tbt":0.1,"tokens_on_time":20}     when it has ended
//   {"type":"turn","node":2,"model":NAME,"act":"decode","begin":1.3,"end":1.4,"steps":5,"tokens":5}
//   {"type":"switch","node":2,"model":NAME,"dropped":[NAME],"ended":"served","asked":..,"begun":..,"ready":..,"first_step":..,
//    "visible":0.2,"stages":{"drain":0,...},"bytes":..}
//
// Times are seconds since the first line. Requests are in the order of their ends. Never a word of a prompt or an answer.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/status.h"
#include "base/time.h"

namespace shoal {

// Any thread.
class RunRecorder {
 public:
  static constexpr uint64_t kBytesMax = 4ull << 30;  // then it ends, with a line in the log

  // Overwrites the file. Unavailable if it cannot be written.
  static StatusOr<std::shared_ptr<RunRecorder>> open(const std::string& path, TimePoint start);
  ~RunRecorder();

  double seconds(TimePoint at) const { return to_seconds(at - start_); }
  void write(const Json& line);
  void write_bytes(std::string_view bytes);  // as they are

 private:
  RunRecorder(std::FILE* file, std::string path, TimePoint start) : file_(file), path_(std::move(path)), start_(start) {}

  std::FILE* file_;       // null: it ended
  const std::string path_;
  const TimePoint start_;
  std::mutex mutex_;
  uint64_t bytes_ = 0;    // guarded by mutex_, as is file_
  TimePoint flushed_{};
};

}  // namespace shoal
