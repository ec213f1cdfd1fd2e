// One log for the process: spdlog behind four functions, so that no header pays for it.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace shoal {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// level: debug | info | warning | error. json: one JSON object per line instead of text. Writes to stderr.
Status configure_log(std::string_view level, bool json);

void log(LogLevel level, std::string_view text);

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
