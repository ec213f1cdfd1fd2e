#include "gateway/routes.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/nearest.h"
#include "gateway/strings.h"

namespace shoal {
namespace {

struct PathEntry {
  std::string_view path;
  Endpoint endpoint;
  bool post;
  bool open;
};

constexpr PathEntry kPaths[] = {
    {"/", Endpoint::kRoot, false, true},
    {"/v1/chat/completions", Endpoint::kChat, true, false},
    {"/chat/completions", Endpoint::kChat, true, false},
    {"/v1/completions", Endpoint::kCompletions, true, false},
    {"/completions", Endpoint::kCompletions, true, false},
    {"/tokenize", Endpoint::kTokenize, true, false},
    {"/apply-template", Endpoint::kApplyTemplate, true, false},
    {"/detokenize", Endpoint::kDetokenize, true, false},
    {"/tokenizer_info", Endpoint::kTokenizerInfo, false, false},
    {"/v1/models", Endpoint::kModels, false, false},
    {"/models", Endpoint::kModels, false, false},
    {"/health", Endpoint::kLive, false, true},
    {"/v1/health", Endpoint::kLive, false, true},
    {"/healthz", Endpoint::kLive, false, true},
    {"/ping", Endpoint::kLive, false, true},
    {"/readyz", Endpoint::kReady, false, true},
    {"/version", Endpoint::kVersion, false, false},
    {"/metrics", Endpoint::kMetrics, false, false},
    {"/openapi.json", Endpoint::kOpenApi, false, false},
    {"/v2/health/live", Endpoint::kLive, false, true},
    {"/v2/health/ready", Endpoint::kReady, false, true},
};
constexpr std::string_view kModelPrefixes[] = {"/v1/models/", "/models/"};
constexpr std::string_view kV1 = "/v1";

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = absl::ascii_tolower(static_cast<unsigned char>(c));
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

std::string percent_decode(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && hex_digit(text[i + 1]) >= 0 && hex_digit(text[i + 2]) >= 0) {
      out += static_cast<char>(hex_digit(text[i + 1]) * 16 + hex_digit(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

// The value of `key` in a query; empty if it is not there.
std::string query_value(std::string_view query, std::string_view key) {
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(pair.size() + 1, query.size()));
    if (pair.size() > key.size() && pair.starts_with(key) && pair[key.size()] == '=') return percent_decode(pair.substr(key.size() + 1));
  }
  return "";
}

// "http://host:port/path?query" -> "/path?query".
std::string_view origin_form(std::string_view target) {
  const size_t scheme = target.find("://");
  if (target.starts_with('/') || scheme == std::string_view::npos) return target;
  const size_t path = target.find('/', scheme + 3);
  return path == std::string_view::npos ? std::string_view("/") : target.substr(path);
}

const PathEntry* find_path(std::string_view path) {
  const auto found = std::find_if(std::begin(kPaths), std::end(kPaths), [&](const PathEntry& entry) { return entry.path == path; });
  return found == std::end(kPaths) ? nullptr : found;
}

// One slash between names, none at the end, one /v1.
std::string tidied(std::string_view path) {
  std::string out;
  for (const char c : path) {
    if (c != '/' || out.empty() || out.back() != '/') out += c;
  }
  while (out.size() > 1 && out.back() == '/') out.pop_back();
  while (out.starts_with("/v1/v1/")) out.erase(0, kV1.size());
  return out;
}

std::optional<std::string> meant_path(std::string_view path) {
  const std::string tidy = tidied(path);
  if (tidy == kV1) return "/v1/models";
  if (find_path(tidy) != nullptr) return tidy;
  for (const std::string_view prefix : kModelPrefixes) {
    if (tidy.starts_with(prefix) && tidy != path) return tidy;
  }
  if (find_path(std::string(kV1) + tidy) != nullptr) return std::string(kV1) + tidy;
  if (tidy.starts_with("/v1/") && find_path(tidy.substr(kV1.size())) != nullptr) return tidy.substr(kV1.size());
  std::vector<std::string_view> paths;
  for (const PathEntry& entry : kPaths) {
    if (entry.endpoint != Endpoint::kRoot) paths.push_back(entry.path);
  }
  const auto nearest = nearest_name(tidy, paths);
  return nearest ? std::optional<std::string>(*nearest) : std::nullopt;
}

HttpReply unknown_path(std::string_view method, std::string_view path) {
  ApiError error = unknown_url(method, path);
  if (const auto meant = meant_path(path); meant && *meant != path) {
    error.message.pop_back();  // the full stop
    error.message += "; did you mean " + *meant + "?";
    if (path.find("/v1/v1/") != std::string_view::npos) error.message += " The base_url of a client ends with one /v1.";
  } else {
    error.message += " GET / lists what there is.";
  }
  return error_reply(error);
}

HttpReply method_not_allowed(std::string_view method, std::string_view path, bool post) {
  const std::string allow = post ? "POST, OPTIONS" : "GET, HEAD, OPTIONS";
  if (method == "OPTIONS") return {.status = 204, .body = "", .headers = {{"Allow", allow}}};
  ApiError error = unknown_url(method, path);
  error.http_status = 405;
  error.type = "invalid_request_error";
  error.message = absl::StrCat("Not allowed to ", str(method), " on ", str(path), "; allowed: ", allow, ".");
  error.code = "method_not_allowed";
  HttpReply reply = error_reply(error);
  reply.headers.emplace_back("Allow", allow);
  return reply;
}

}  // namespace

std::string_view endpoint_name(Endpoint endpoint) {
  switch (endpoint) {
    case Endpoint::kRoot: return "root";
    case Endpoint::kChat: return "chat";
    case Endpoint::kCompletions: return "completions";
    case Endpoint::kTokenize: return "tokenize";
    case Endpoint::kTokenizerInfo: return "tokenizer_info";
    case Endpoint::kApplyTemplate: return "apply_template";
    case Endpoint::kDetokenize: return "detokenize";
    case Endpoint::kModels: return "models";
    case Endpoint::kModel: return "model";
    case Endpoint::kLive: return "health";
    case Endpoint::kReady: return "ready";
    case Endpoint::kVersion: return "version";
    case Endpoint::kMetrics: return "metrics";
    case Endpoint::kOpenApi: return "openapi";
  }
  return "other";
}

std::variant<Route, HttpReply> route_request(std::string_view method, std::string_view target) {
  target = origin_form(target);
  if (target == "*" && method == "OPTIONS") return HttpReply{.status = 204, .body = "", .headers = {{"Allow", "GET, HEAD, POST, OPTIONS"}}};
  const std::string_view path = target.substr(0, target.find_first_of("?#"));
  const bool get = method == "GET" || method == "HEAD";
  if (const PathEntry* entry = find_path(path)) {
    if (!(entry->post ? method == "POST" : get)) return method_not_allowed(method, path, entry->post);
    const std::string_view query = path.size() < target.size() ? target.substr(path.size() + 1) : std::string_view();
    return Route{entry->endpoint, query_value(query.substr(0, query.find('#')), "model"), entry->open};
  }
  for (const std::string_view prefix : kModelPrefixes) {
    if (!path.starts_with(prefix) || path.size() == prefix.size() || path.find("//") != std::string_view::npos || path.ends_with('/')) continue;
    if (!get) return method_not_allowed(method, path, false);
    return Route{Endpoint::kModel, percent_decode(path.substr(prefix.size())), false};
  }
  return unknown_path(method, path);
}

std::string root_page() {
  return "This is Shoal, a server of language models behind OpenAI's interface.\n"
         "\n"
         "Clients:          base_url = http://<this host and port>/v1\n"
         "Models:           GET  /v1/models\n"
         "Chat, text:       POST /v1/chat/completions, /v1/completions\n"
         "Tokens:           POST /tokenize, /detokenize, /apply-template; GET /tokenizer_info\n"
         "Health:           GET  /health, /readyz\n"
         "Numbers:          GET  /metrics, /version\n"
         "All of it, typed: GET  /openapi.json\n"
         "\n"
         "Where keys are asked for, send 'Authorization: Bearer KEY'. The operator's endpoints are elsewhere: shoal ps --help.\n";
}

}  // namespace shoal
