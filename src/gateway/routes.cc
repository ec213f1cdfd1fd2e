#include "gateway/routes.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/nearest.h"
#include "gateway/strings.h"

namespace shoal {
namespace {

constexpr std::string_view kGet = "GET", kPost = "POST", kDelete = "DELETE";

struct PathEntry {
  std::string_view path;
  Endpoint endpoint;
  std::string_view method;  // GET: HEAD as well
  bool open = false;
};

constexpr PathEntry kPaths[] = {
    {"/", Endpoint::kRoot, kGet, true},
    {"/v1/chat/completions", Endpoint::kChat, kPost},
    {"/chat/completions", Endpoint::kChat, kPost},
    {"/v1/completions", Endpoint::kCompletions, kPost},
    {"/completions", Endpoint::kCompletions, kPost},
    {"/v1/messages", Endpoint::kMessages, kPost},
    {"/v1/messages/count_tokens", Endpoint::kCountTokens, kPost},
    {"/v1/embeddings", Endpoint::kEmbeddings, kPost},
    {"/embeddings", Endpoint::kEmbeddings, kPost},
    {"/v1/rerank", Endpoint::kRerank, kPost},
    {"/v2/rerank", Endpoint::kRerank, kPost},
    {"/rerank", Endpoint::kRerank, kPost},
    {"/v1/score", Endpoint::kScore, kPost},
    {"/score", Endpoint::kScore, kPost},
    {"/v1/responses", Endpoint::kResponses, kPost},
    {"/responses", Endpoint::kResponses, kPost},
    {"/api/chat", Endpoint::kOllamaChat, kPost},
    {"/api/generate", Endpoint::kOllamaGenerate, kPost},
    {"/api/tags", Endpoint::kOllamaTags, kGet},
    {"/api/show", Endpoint::kOllamaShow, kPost},
    {"/api/ps", Endpoint::kOllamaPs, kGet},
    {"/api/version", Endpoint::kOllamaVersion, kGet},
    {"/api/pull", Endpoint::kOllamaPull, kPost},
    {"/api/embed", Endpoint::kOllamaEmbed, kPost},
    {"/api/embeddings", Endpoint::kOllamaEmbeddings, kPost},
    {"/api/push", Endpoint::kOllamaManage, kPost},
    {"/api/create", Endpoint::kOllamaManage, kPost},
    {"/api/copy", Endpoint::kOllamaManage, kPost},
    {"/api/delete", Endpoint::kOllamaManage, kDelete},
    {"/completion", Endpoint::kLlamaCompletion, kPost},
    {"/infill", Endpoint::kLlamaInfill, kPost},
    {"/props", Endpoint::kLlamaProps, kGet},
    {"/slots", Endpoint::kLlamaSlots, kGet},
    {"/tokenize", Endpoint::kTokenize, kPost},
    {"/apply-template", Endpoint::kApplyTemplate, kPost},
    {"/detokenize", Endpoint::kDetokenize, kPost},
    {"/tokenizer_info", Endpoint::kTokenizerInfo, kGet},
    {"/v1/models", Endpoint::kModels, kGet},
    {"/models", Endpoint::kModels, kGet},
    {"/health", Endpoint::kLive, kGet, true},
    {"/v1/health", Endpoint::kLive, kGet, true},
    {"/healthz", Endpoint::kLive, kGet, true},
    {"/ping", Endpoint::kLive, kGet, true},
    {"/readyz", Endpoint::kReady, kGet, true},
    {"/version", Endpoint::kVersion, kGet},
    {"/metrics", Endpoint::kMetrics, kGet},
    {"/openapi.json", Endpoint::kOpenApi, kGet},
    {"/v2/health/live", Endpoint::kLive, kGet, true},
    {"/v2/health/ready", Endpoint::kReady, kGet, true},
};

// Paths that go on with an id, and with what after it.
struct IdEntry {
  std::string_view prefix, suffix;
  Endpoint endpoint;
  std::string_view method;
};

constexpr IdEntry kIdPaths[] = {
    {"/v1/responses/", "/input_items", Endpoint::kResponseItems, kGet},
    {"/v1/responses/", "", Endpoint::kResponse, kGet},
    {"/v1/responses/", "", Endpoint::kDeleteResponse, kDelete},
    {"/v1/models/", "", Endpoint::kModel, kGet},
    {"/models/", "", Endpoint::kModel, kGet},
};
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
  for (const IdEntry& entry : kIdPaths) {
    if (tidy.starts_with(entry.prefix) && tidy != path) return tidy;
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
  return error_reply(error, surface_of(path));
}

HttpReply method_not_allowed(std::string_view method, std::string_view path, const std::vector<std::string_view>& methods) {
  std::string allow;
  for (const std::string_view name : methods) absl::StrAppend(&allow, name == kGet ? "GET, HEAD" : str(name), ", ");
  allow += "OPTIONS";
  if (method == "OPTIONS") return {.status = 204, .body = "", .headers = {{"Allow", allow}}};
  ApiError error = unknown_url(method, path);
  error.http_status = 405;
  error.type = "invalid_request_error";
  error.message = absl::StrCat("Not allowed to ", str(method), " on ", str(path), "; allowed: ", allow, ".");
  error.code = "method_not_allowed";
  HttpReply reply = error_reply(error, surface_of(path));
  reply.headers.emplace_back("Allow", allow);
  return reply;
}

}  // namespace

std::string_view endpoint_name(Endpoint endpoint) {
  switch (endpoint) {
    case Endpoint::kRoot: return "root";
    case Endpoint::kChat: return "chat";
    case Endpoint::kCompletions: return "completions";
    case Endpoint::kOllamaChat: return "ollama_chat";
    case Endpoint::kOllamaGenerate: return "ollama_generate";
    case Endpoint::kOllamaTags:
    case Endpoint::kOllamaShow:
    case Endpoint::kOllamaPs:
    case Endpoint::kOllamaVersion:
    case Endpoint::kOllamaPull:
    case Endpoint::kOllamaManage: return "ollama_models";
    case Endpoint::kLlamaCompletion: return "llama_completion";
    case Endpoint::kLlamaInfill: return "llama_infill";
    case Endpoint::kLlamaProps:
    case Endpoint::kLlamaSlots: return "llama_server";
    case Endpoint::kEmbeddings: return "embeddings";
    case Endpoint::kRerank: return "rerank";
    case Endpoint::kScore: return "score";
    case Endpoint::kOllamaEmbed:
    case Endpoint::kOllamaEmbeddings: return "ollama_embed";
    case Endpoint::kMessages: return "messages";
    case Endpoint::kCountTokens: return "count_tokens";
    case Endpoint::kResponses: return "responses";
    case Endpoint::kResponse:
    case Endpoint::kResponseItems:
    case Endpoint::kDeleteResponse: return "response";
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

bool generates(Endpoint endpoint) {
  switch (endpoint) {
    case Endpoint::kChat:
    case Endpoint::kCompletions:
    case Endpoint::kMessages:
    case Endpoint::kEmbeddings:
    case Endpoint::kRerank:
    case Endpoint::kScore:
    case Endpoint::kOllamaEmbed:
    case Endpoint::kOllamaEmbeddings:
    case Endpoint::kOllamaChat:
    case Endpoint::kOllamaGenerate:
    case Endpoint::kLlamaCompletion:
    case Endpoint::kLlamaInfill:
    case Endpoint::kResponses: return true;
    default: return false;
  }
}

Surface surface_of(Endpoint endpoint) {
  if (endpoint == Endpoint::kMessages || endpoint == Endpoint::kCountTokens) return Surface::kAnthropic;
  if (endpoint >= Endpoint::kOllamaChat && endpoint <= Endpoint::kOllamaManage) return Surface::kOllama;
  if (endpoint >= Endpoint::kLlamaCompletion && endpoint <= Endpoint::kLlamaSlots) return Surface::kLlamaCpp;
  return Surface::kOpenAi;
}

Surface surface_of(std::string_view target) {
  std::string_view path = origin_form(target);
  path = path.substr(0, path.find_first_of("?#"));
  if (path.starts_with("/v1/messages")) return Surface::kAnthropic;
  if (path.starts_with("/api/")) return Surface::kOllama;
  const PathEntry* entry = find_path(path);
  return entry == nullptr ? Surface::kOpenAi : surface_of(entry->endpoint);
}

std::variant<Route, HttpReply> route_request(std::string_view method, std::string_view target) {
  target = origin_form(target);
  if (target == "*" && method == "OPTIONS") return HttpReply{.status = 204, .body = "", .headers = {{"Allow", "GET, HEAD, POST, DELETE, OPTIONS"}}};
  const std::string_view path = target.substr(0, target.find_first_of("?#"));
  const std::string_view verb = method == "HEAD" ? kGet : method;
  std::vector<std::string_view> methods;  // of the path
  for (const PathEntry& entry : kPaths) {
    if (entry.path != path) continue;
    methods.push_back(entry.method);
    if (entry.method != verb) continue;
    const std::string_view query = path.size() < target.size() ? target.substr(path.size() + 1) : std::string_view();
    return Route{entry.endpoint, query_value(query.substr(0, query.find('#')), "model"), entry.open};
  }
  for (const IdEntry& entry : kIdPaths) {
    const bool whole = path.starts_with(entry.prefix) && path.ends_with(entry.suffix) && path.size() > entry.prefix.size() + entry.suffix.size();
    if (!whole || path.find("//") != std::string_view::npos || path.ends_with('/')) continue;
    methods.push_back(entry.method);
    if (entry.method != verb) continue;
    const std::string_view id = path.substr(entry.prefix.size(), path.size() - entry.prefix.size() - entry.suffix.size());
    return Route{entry.endpoint, percent_decode(id), false};
  }
  return methods.empty() ? unknown_path(method, path) : method_not_allowed(method, path, methods);
}

std::string root_page() {
  return "This is Shoal, a server of language models behind OpenAI's interface.\n"
         "\n"
         "Clients:          base_url = http://<this host and port>/v1\n"
         "Models:           GET  /v1/models\n"
         "Chat, text:       POST /v1/chat/completions, /v1/completions, /v1/responses\n"
         "Vectors, scores:  POST /v1/embeddings, /v1/rerank, /v1/score\n"
         "Anthropic's:      POST /v1/messages, /v1/messages/count_tokens\n"
         "Ollama's:         POST /api/chat, /api/generate, /api/embed, /api/show; GET /api/tags, /api/ps, /api/version\n"
         "llama.cpp's:      POST /completion, /infill; GET /props, /slots\n"
         "Tokens:           POST /tokenize, /detokenize, /apply-template; GET /tokenizer_info\n"
         "Health:           GET  /health, /readyz\n"
         "Numbers:          GET  /metrics, /version\n"
         "All of it, typed: GET  /openapi.json\n"
         "\n"
         "Where keys are asked for, send 'Authorization: Bearer KEY'. The operator's endpoints are elsewhere: shoal ps --help.\n";
}

}  // namespace shoal
