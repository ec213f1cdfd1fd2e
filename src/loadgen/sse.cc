#include "loadgen/sse.h"

namespace shoal {

bool SseParser::feed(std::string_view bytes, const std::function<void(std::string_view)>& on_data) {
  while (!bytes.empty() && !broken_) {
    if (after_cr_ && bytes.front() == '\n') bytes.remove_prefix(1);
    after_cr_ = false;
    const size_t end = bytes.find_first_of("\r\n");
    if (end == std::string_view::npos) {
      partial_.append(bytes);
      broken_ = partial_.size() > bytes_max_;
      break;
    }
    after_cr_ = bytes[end] == '\r';
    if (partial_.empty()) {  // the usual case: a whole line in one piece
      take_line(bytes.substr(0, end), on_data);
    } else {
      partial_.append(bytes.substr(0, end));
      const std::string line = std::move(partial_);
      partial_.clear();
      take_line(line, on_data);
    }
    bytes.remove_prefix(end + 1);
  }
  return !broken_;
}

void SseParser::take_line(std::string_view line, const std::function<void(std::string_view)>& on_data) {
  if (line.empty()) {
    if (has_data_) on_data(data_);
    data_.clear();
    has_data_ = false;
    return;
  }
  constexpr std::string_view kField = "data:";
  if (!line.starts_with(kField) && line != "data") return;
  line.remove_prefix(line == "data" ? line.size() : kField.size());
  if (line.starts_with(' ')) line.remove_prefix(1);
  if (has_data_) data_ += '\n';
  data_ += line;
  has_data_ = true;
  broken_ = data_.size() > bytes_max_;
}

}  // namespace shoal
