#include "base/log.h"

#include <algorithm>
#include <charconv>
#include <memory>
#include <set>

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

std::string quoted(std::string_view text) {
  return nlohmann::json(std::string(text)).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Of the field name that `text` begins with ("status=..."); 0 if it begins with none.
size_t key_length(std::string_view text) {
  const size_t equals = text.find('=');
  const auto is_key = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
  return equals != std::string_view::npos && std::all_of(text.begin(), text.begin() + static_cast<ptrdiff_t>(equals), is_key) ? equals : 0;
}

// Digits that a JSON reader takes as the same number stay digits.
std::string value_of(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  const std::string_view digits = text.starts_with('-') ? text.substr(1) : text;
  const bool leading_zero = digits.size() > 1 && digits[0] == '0' && digits[1] != '.';
  const bool plain = !digits.empty() && digits.front() >= '0' && digits.front() <= '9' && digits.back() != '.' && !leading_zero && text.size() <= 15;
  return error == std::errc() && end == text.data() + text.size() && plain ? std::string(text) : quoted(text);
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
  logger().log(to_spdlog(level), "{}", log_fields(text));
}

std::string log_fields(std::string_view text) {
  const size_t word = text.find(' ');
  std::string out = "\"msg\":" + quoted(text);
  if (word == std::string_view::npos || key_length(text.substr(word + 1)) == 0) return out;
  out = "\"msg\":" + quoted(text.substr(0, word));
  std::set<std::string_view> keys = {"ts", "level", "msg"};
  for (text.remove_prefix(word + 1); !text.empty();) {
    const std::string_view key = text.substr(0, key_length(text));
    text.remove_prefix(key.size() + 1);
    size_t end = text.find(' ');
    while (end != std::string_view::npos && key_length(text.substr(end + 1)) == 0) end = text.find(' ', end + 1);
    end = std::min(end, text.size());
    if (keys.insert(key).second) out += "," + quoted(key) + ":" + value_of(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
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
