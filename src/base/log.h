// One log for the process: spdlog behind four functions, so that no header pays for it.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace shoal {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// level: debug | info | warning | error. Writes to stderr. json: one JSON object per line, with ts, level, msg and what
// log_fields() finds.
Status configure_log(std::string_view level, bool json);

void log(LogLevel level, std::string_view text);

// What a message says, for a machine: "request id=r1 status=200 error=no such model" is the word `msg` and a list of fields,
// whose values go on to the next " key="; numbers are numbers. Any other message is all msg. Returns the inside of a JSON
// object: "msg":"request","id":"r1","status":200,...
std::string log_fields(std::string_view text);

// The text on one line, control characters written as \xNN: names from files may hold anything, and a terminal or a log
// must not be steered by them.
std::string one_line(std::string_view text);

template <typename... Args>
void log_debug(const Args&... args) { log(LogLevel::kDebug, absl::StrCat(args...)); }
template <typename... Args>
void log_info(const Args&... args) { log(LogLevel::kInfo, absl::StrCat(args...)); }
template <typename... Args>
void log_warning(const Args&... args) { log(LogLevel::kWarning, absl::StrCat(args...)); }
template <typename... Args>
void log_error(const Args&... args) { log(LogLevel::kError, absl::StrCat(args...)); }

}  // namespace shoal
