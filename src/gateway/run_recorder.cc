#include "gateway/run_recorder.h"

#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "base/log.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {
constexpr Duration kFlushInterval = std::chrono::seconds(1);
}  // namespace

StatusOr<std::shared_ptr<RunRecorder>> RunRecorder::open(const std::string& path, TimePoint start) {
  std::FILE* file = std::fopen(path.c_str(), "wbe");
  if (file == nullptr) return unavailable(path, ": cannot be written: ", std::strerror(errno));
  return std::shared_ptr<RunRecorder>(new RunRecorder(file, path, start));
}

RunRecorder::~RunRecorder() {
  if (file_ != nullptr) std::fclose(file_);
}

void RunRecorder::write(const Json& line) { write_bytes(dump_json(line) + "\n"); }

void RunRecorder::write_bytes(std::string_view text) {
  std::lock_guard lock(mutex_);
  if (file_ == nullptr) return;
  bytes_ += text.size();
  const bool written = bytes_ <= kBytesMax && std::fwrite(text.data(), 1, text.size(), file_) == text.size();
  const TimePoint now = steady_now();
  if (written && now >= flushed_ + kFlushInterval) {
    flushed_ = now;
    std::fflush(file_);
  }
  if (written) return;
  log_error(path_, ": the recording of this run ends here: ", bytes_ > kBytesMax ? "it is at its limit of 4 GiB" : std::strerror(errno));
  std::fclose(file_);
  file_ = nullptr;
}

}  // namespace shoal
