// Which endpoint a request is for. Pure: a method and a target in, an endpoint or the answer to give instead out.
#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "gateway/http_reply.h"

namespace shoal {

enum class Endpoint {
  kRoot, kChat, kCompletions, kTokenize, kDetokenize, kTokenizerInfo, kApplyTemplate, kModels, kModel, kLive, kReady, kVersion, kMetrics, kOpenApi,
  kResponses, kResponse, kResponseItems, kDeleteResponse,
  kEmbeddings, kRerank, kScore,
  // Anthropic's.
  kMessages, kCountTokens,
  // Ollama's.
  kOllamaChat, kOllamaGenerate, kOllamaTags, kOllamaShow, kOllamaPs, kOllamaVersion, kOllamaPull, kOllamaEmbed, kOllamaEmbeddings, kOllamaManage,
  // llama.cpp's own.
  kLlamaCompletion, kLlamaInfill, kLlamaProps, kLlamaSlots,
};

std::string_view endpoint_name(Endpoint endpoint);  // for metrics
bool generates(Endpoint endpoint);                  // its answer is the work of a model, as a whole or as a stream
// Ollama's and llama.cpp's endpoints can be switched off each.
Surface surface_of(Endpoint endpoint);
// Whose interface a target belongs to, also one that does not exist: its errors are told in that shape.
Surface surface_of(std::string_view target);

struct Route {
  Endpoint endpoint;
  std::string argument;  // what a path is about: the id in /v1/models/{id} and /v1/responses/{id}, or that of ?model=; percent-decoded
  bool open = false;     // answered without a key
};

// The endpoint, or what to say instead: 404 with the path that was probably meant, 405, or the methods of an OPTIONS. HEAD is
// routed as GET. `target` may be in absolute form, as proxies send it (RFC 9112, section 3.2.2).
std::variant<Route, HttpReply> route_request(std::string_view method, std::string_view target);

// What GET / answers: what this is, and where to go on.
std::string root_page();

}  // namespace shoal
