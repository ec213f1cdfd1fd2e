#include "replay/record_reader.h"

#include <utility>

namespace shoal {
namespace {

constexpr std::string_view kAnyHead = "shoal events ";
constexpr int kLengthBytesMax = 5;

}  // namespace

std::string framed(std::string_view record) {
  std::string out;
  size_t length = record.size();
  for (; length >= 0x80; length >>= 7) out += static_cast<char>(length | 0x80);
  out += static_cast<char>(length);
  return out.append(record);
}

void RecordReader::add(std::string_view bytes) {
  bytes_.erase(0, std::exchange(at_, 0));
  bytes_ += bytes;
}

Status RecordReader::check_head() {
  const std::string_view begins = std::string_view(bytes_).substr(0, kEventLogHead.size());
  if (begins == kEventLogHead.substr(0, begins.size())) {
    if (begins.size() < kEventLogHead.size()) return OkStatus();
    headed_ = true;
    at_ = kEventLogHead.size();
    return OkStatus();
  }
  if (begins.starts_with('{')) return invalid_argument("was recorded before version 2 of this form, as lines of JSON; convert it: tools/convert_events.py OLD NEW");
  if (begins.starts_with(kAnyHead)) return invalid_argument("is of another version of this form than ", std::string(kEventLogHead.substr(kAnyHead.size(), 1)), "; replay it with the build that recorded it");
  return invalid_argument("is no recorded run; record one with `shoal serve --record-events`");
}

StatusOr<std::optional<std::string_view>> RecordReader::next() {
  if (!headed_) RETURN_IF_ERROR(check_head());
  if (!headed_) return std::nullopt;
  uint64_t length = 0;
  size_t at = at_;
  for (int shift = 0;; shift += 7) {
    if (shift == 7 * kLengthBytesMax || length > kRecordBytesMax) return invalid_argument("a record is longer than can be: the file is damaged; record the run again");
    if (at == bytes_.size()) return std::nullopt;
    const uint64_t byte = static_cast<unsigned char>(bytes_[at++]);
    length |= (byte & 0x7f) << shift;
    if (byte < 0x80) break;
  }
  if (length > kRecordBytesMax) return invalid_argument("a record is longer than can be: the file is damaged; record the run again");
  if (bytes_.size() - at < length) return std::nullopt;
  at_ = at + length;
  ++records_;
  return std::string_view(bytes_).substr(at, length);
}

}  // namespace shoal
