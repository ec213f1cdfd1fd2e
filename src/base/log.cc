#include "base/log.h"

#include <memory>

#include "nlohmann/json.hpp"
#include "spdlog/sinks/stdout_sinks.h"
#include "spdlog/spdlog.h"

namespace shoal {
namespace {

bool json_lines = false;

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return spdlog::level::debug;
    case LogLevel::kInfo: return spdlog::level::info;
    case LogLevel::kWarning: return spdlog::level::warn;
    case LogLevel::kError: return spdlog::level::err;
  }
  return spdlog::level::info;
}

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto made = std::make_shared<spdlog::logger>("shoal", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");
    return made;
  }();
  return *instance;
}

}  // namespace

Status configure_log(std::string_view level, bool json) {
  if (level == "debug") {
    logger().set_level(spdlog::level::debug);
  } else if (level == "info") {
    logger().set_level(spdlog::level::info);
  } else if (level == "warning") {
    logger().set_level(spdlog::level::warn);
  } else if (level == "error") {
    logger().set_level(spdlog::level::err);
  } else {
    return invalid_argument("log level '", std::string(level), "' is none of debug, info, warning, error");
  }
  json_lines = json;
  if (json) logger().set_pattern(R"({"ts":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l",%v})");
  return OkStatus();
}

void log(LogLevel level, std::string_view text) {
  if (!logger().should_log(to_spdlog(level))) return;
  if (!json_lines) {
    logger().log(to_spdlog(level), "{}", one_line(text));
    return;
  }
  const nlohmann::json quoted = std::string(text);
  logger().log(to_spdlog(level), "\"msg\":{}", quoted.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

std::string one_line(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7f) {
      out.push_back(c);
    } else {
      absl::StrAppend(&out, "\\x", absl::Hex(byte, absl::kZeroPad2));
    }
  }
  return out;
}

}  // namespace shoal
