// A recorded run as a file: a line that names its form, then records, each behind its length (a varint, as protobuf delimits
// messages). The end of the file may cut a record short: the recording server ended within it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace shoal {

constexpr std::string_view kEventLogHead = "shoal events 2\n";
constexpr size_t kRecordBytesMax = 300u << 20;  // of the longest message, and what is about it

// A record as it stands in the file.
std::string framed(std::string_view record);

// Takes a file apart, in whatever pieces its bytes come. Holds no more than one record and the last piece.
class RecordReader {
 public:
  void add(std::string_view bytes);

  // The next record, valid until add(); none: its bytes are still to come. InvalidArgument, for good: this is no recorded run, or
  // of another form, or damaged, and what to do about it.
  StatusOr<std::optional<std::string_view>> next();

  uint64_t records() const { return records_; }  // given so far

 private:
  Status check_head();

  std::string bytes_;
  size_t at_ = 0;  // of the first byte not given yet
  bool headed_ = false;
  uint64_t records_ = 0;
};

}  // namespace shoal
