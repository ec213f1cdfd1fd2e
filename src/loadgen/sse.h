// Server-sent events, as they come off the wire in pieces.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace shoal {

// Takes bytes in any pieces, gives the data of each complete event. Comments, `event:`, `id:` and `retry:` are ignored;
// several data lines of one event are joined with a newline (WHATWG HTML, 9.2.6). LF, CRLF and CR end lines.
class SseParser {
 public:
  // `on_data` gets a view that is valid during the call only. False: a line or event is longer than bytes_max, and the
  // parser takes nothing more.
  bool feed(std::string_view bytes, const std::function<void(std::string_view)>& on_data);

  explicit SseParser(size_t bytes_max = 1u << 20) : bytes_max_(bytes_max) {}

 private:
  void take_line(std::string_view line, const std::function<void(std::string_view)>& on_data);

  size_t bytes_max_;
  std::string partial_;   // a line whose end has not come
  std::string data_;      // of the event so far
  bool has_data_ = false;
  bool after_cr_ = false;
  bool broken_ = false;
};

}  // namespace shoal
