// For the gateway's tests: a node that answers at once with canned tokens, a tokenizer of bytes, and a client that
// speaks raw HTTP.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/queue.h"
#include "gateway/catalog.h"
#include "gateway/http_server.h"
#include "gateway/router_loop.h"
#include "gateway/service.h"
#include "nlohmann/json.hpp"
#include "transport/loopback.h"

namespace shoal::test {

constexpr TokenId kBos = 256;
constexpr TokenId kEos = 257;
constexpr uint32_t kVocab = 258;

// Token = byte; 256 and 257 are special.
class ByteTokenizer : public Tokenizer {
 public:
  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options) const override {
    std::vector<TokenId> ids;
    if (options.add_special) ids.push_back(kBos);
    for (size_t i = 0; i < text.size() && ids.size() <= options.tokens_max; ++i) ids.push_back(static_cast<unsigned char>(text[i]));
    return ids;
  }
  std::vector<TokenId> encode(std::span<const TextPart> parts, const EncodeOptions& options) const override {
    std::string text;
    for (const TextPart& part : parts) text += part.text;
    return encode(text, options);
  }
  std::string decode(std::span<const TokenId> ids, bool skip_special) const override {
    std::string text;
    for (const TokenId id : ids) text += token_bytes(id, false, skip_special);
    return text;
  }
  std::string token_bytes(TokenId id, bool, bool skip_special) const override {
    if (id >= 0 && id < 256) return std::string(1, static_cast<char>(id));
    return skip_special || id >= static_cast<TokenId>(kVocab) ? "" : token_text(id);
  }
  std::string token_text(TokenId id) const override {
    if (id == kBos) return "<s>";
    if (id == kEos) return "</s>";
    return id >= 0 && id < 256 ? std::string(1, static_cast<char>(id)) : "";
  }
  std::optional<TokenId> token_id(std::string_view) const override { return std::nullopt; }
  bool is_special(TokenId id) const override { return id >= 256; }
  uint32_t vocab_size() const override { return kVocab; }
};

// "role: content\n" per message, then "assistant:". Refuses a message that says "refuse me".
class LineTemplate : public ChatTemplate {
 public:
  StatusOr<std::vector<TextPart>> render(const Json& variables, const RenderOptions&) const override {
    std::vector<TextPart> parts;
    for (const Json& message : variables["messages"]) {
      const auto content = message["content"].get<std::string>();
      if (content == "refuse me") return invalid_argument("this template refuses");
      parts.push_back({message["role"].get<std::string>() + ": ", true});
      parts.push_back({content, false});
      parts.push_back({"\n", true});
    }
    if (variables["add_generation_prompt"].get<bool>()) parts.push_back({"assistant:", true});
    return parts;
  }
};

inline std::vector<TokenId> bytes_of(std::string_view text) {
  std::vector<TokenId> ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

// The instant engine: answers each Submit with the tokens of `script`, one message per token.
class FakeNode {
 public:
  // What to answer: tokens, then a stop (if the last is a stop id) or the length limit.
  using Script = std::function<std::vector<TokenId>(const Request&)>;

  FakeNode(LoopbackNetwork& network, NodeId self, NodeId gateway, Script script)
      : gateway_(gateway), script_(std::move(script)), queue_(1 << 20) {
    transport_ = network.connect(self, [this](NodeId, std::string bytes) { return queue_.push(std::move(bytes)); });
    thread_ = std::thread([this] { run(); });
  }
  ~FakeNode() {
    queue_.close();
    thread_.join();
    transport_.reset();
  }

  void report(NodeStatus status) { (void)transport_->send(gateway_, encode(Message(std::move(status)))); }
  void set_pause(Duration pause) { pause_ns_ = pause.count(); }      // between tokens
  void fail_with(StatusCode code, std::string why, uint32_t after) { // tokens before the failure
    failure_ = code;
    failure_text_ = std::move(why);
    fail_after_ = after;
  }
  std::vector<Request> submitted() {
    std::lock_guard lock(mutex_);
    return submitted_;
  }
  bool wait_cancelled(size_t count, Duration timeout = std::chrono::seconds(5)) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, timeout, [&] { return cancelled_.size() >= count; });
  }

 private:
  void run() {
    while (true) {
      auto bytes = queue_.pop(active_.empty() ? Duration(std::chrono::seconds(1)) : Duration(pause_ns_.load()));
      if (bytes) {
        take(*std::move(bytes));
      } else if (queue_.closed()) {
        return;
      }
      step();
    }
  }
  void take(std::string bytes) {
    auto message = decode(bytes);
    if (auto* submit = std::get_if<Submit>(&*message)) {
      std::vector<TokenId> answer = script_(submit->request);
      std::lock_guard lock(mutex_);
      submitted_.push_back(submit->request);
      active_[submit->request.id] = {std::move(submit->request), std::move(answer), 0};
    } else if (const auto* cancel = std::get_if<Cancel>(&*message)) {
      std::lock_guard lock(mutex_);
      active_.erase(cancel->id);
      cancelled_.push_back(cancel->id);
      changed_.notify_all();
    }
  }
  // One token for every active request.
  void step() {
    std::vector<Tokens> out;
    {
      std::lock_guard lock(mutex_);
      for (auto it = active_.begin(); it != active_.end();) {
        out.push_back(next_tokens(it->second));
        it = out.back().finish ? active_.erase(it) : std::next(it);
      }
    }
    for (Tokens& tokens : out) (void)transport_->send(gateway_, encode(Message(std::move(tokens))));
  }
  struct Active {
    Request request;
    std::vector<TokenId> answer;
    uint32_t next = 0;
  };
  Tokens next_tokens(Active& active) {
    const Request& request = active.request;
    Tokens tokens{.id = request.id, .epoch = request.epoch, .first_index = static_cast<uint32_t>(request.output.size()) + active.next};
    if (active.next == 0 && request.prompt_logprobs) {
      for (size_t i = 1; i < request.prompt.size(); ++i) tokens.prompt.push_back(scored(request.prompt[i], request));
    }
    if (failure_ != StatusCode::kOk && active.next >= fail_after_) {
      tokens.finish = FinishReason::kError;
      tokens.error = failure_text_;
      tokens.error_code = failure_;
      return tokens;
    }
    const TokenId token = active.answer[active.next++ % active.answer.size()];
    tokens.tokens.push_back(scored(token, request));
    const auto& stops = request.stop_ids;
    if (std::find(stops.begin(), stops.end(), token) != stops.end()) tokens.finish = FinishReason::kStop;
    if (!tokens.finish && request.output.size() + active.next >= request.max_tokens) tokens.finish = FinishReason::kLength;
    return tokens;
  }
  static SampledToken scored(TokenId token, const Request& request) {
    SampledToken out{.token = token};
    if (!request.sampling.logprobs) return out;
    out.logprob = -0.5f;
    for (uint32_t i = 0; i < *request.sampling.logprobs; ++i) out.top.push_back({static_cast<TokenId>('a' + i), -0.1f - i});
    return out;
  }

  const NodeId gateway_;
  const Script script_;
  BoundedQueue<std::string> queue_;
  std::unique_ptr<Transport> transport_;
  std::atomic<int64_t> pause_ns_{0};
  std::atomic<StatusCode> failure_{StatusCode::kOk};
  std::string failure_text_;
  uint32_t fail_after_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<RequestId, Active> active_;
  std::vector<Request> submitted_;
  std::vector<RequestId> cancelled_;
  std::thread thread_;
};

inline std::vector<ApiKey> keys(const std::vector<std::string>& lines) {
  std::vector<ApiKey> out;
  for (const std::string& line : lines) out.push_back(*parse_api_key(line, {}));
  return out;
}

// Everything between a client and the fake node.
struct World {
  static constexpr NodeId kGateway{1};
  static constexpr NodeId kNode{2};

  explicit World(FakeNode::Script script, ServiceConfig service_config = {}, HttpServerConfig http = {},
                 size_t queue_max = 1024)
      : node(network, kNode, kGateway, std::move(script)),
        loop(RouterConfig{.self = kGateway}, queue_max,
             [this](Transport::OnMessage on_message) { return network.connect(kGateway, std::move(on_message)); }),
        catalog({entry(0, "tiny"), entry(1, "org/other")}, load_text, 4),
        service(std::move(service_config), catalog, loop) {
    ClusterState cluster{.version = 1};
    cluster.members[kNode] = Member{.id = kNode, .role = Role::kNode, .epoch = 1, .models = {ModelId(0), ModelId(1)}};
    loop.set_cluster(cluster);
    NodeStatus status{.version = 1, .device_bytes = 1000, .device_bytes_free = 400};
    status.models.push_back({.model = ModelId(0), .state = ModelState::kLoaded, .running = 3, .weight_bytes = 500,
                             .kv_bytes_used = 100, .kv_bytes_active = 50, .steps_by_tokens = {1, 3, 1}, .step_tokens = 40});
    node.report(status);
    while (loop.snapshot()->nodes.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    http.port = 0;
    auto started = HttpServer::start(http, service);
    if (started.ok()) server = *std::move(started);
  }
  ~World() {
    loop.abort_all(unavailable("the test is over"));
    server.reset();
  }

  static ModelEntry entry(uint32_t id, std::string name) {
    return {.id = ModelId(id), .name = std::move(name), .aliases = {"alias-" + std::to_string(id)}, .architecture = "fake",
            .max_model_len = 200, .vocab_size = kVocab, .eos_ids = {kEos}};
  }
  // "org/other" reasons between <think> and </think>. Both write calls as Hermes does.
  static StatusOr<std::shared_ptr<const ModelText>> load_text(const ModelEntry& model) {
    auto text = std::make_shared<ModelText>();
    text->tokenizer = std::make_unique<ByteTokenizer>();
    text->chat_template = std::make_unique<LineTemplate>();
    text->traits = {.tools = true, .tool_calls = true, .tool_role = true};
    text->format = *choose_format("", "hermes", model.name == "tiny" ? "none" : "qwen3");
    return std::shared_ptr<const ModelText>(text);
  }

  LoopbackNetwork network;
  FakeNode node;
  RouterLoop loop;
  Catalog catalog;
  Service service;
  std::unique_ptr<HttpServer> server;
};

struct Reply {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // chunks joined
  bool complete = false;
  Json json() const { return Json::parse(body, nullptr, false); }
  // The data of the events of a stream, "[DONE]" included as a string.
  std::vector<Json> events() const {
    std::vector<Json> out;
    for (size_t at = 0; at < body.size();) {
      const size_t end = body.find("\n\n", at);
      const std::string event = body.substr(at, end - at);
      at = end == std::string::npos ? body.size() : end + 2;
      if (event.rfind("data: ", 0) != 0) continue;
      const std::string data = event.substr(6);
      out.push_back(data == "[DONE]" ? Json(data) : Json::parse(data, nullptr, false));
    }
    return out;
  }
};

// A blocking client that writes exactly the bytes it is given.
class RawClient {
 public:
  explicit RawClient(const HttpServer& server, int receive_buffer = 0) {
    fd_ = socket(AF_INET, SOCK_STREAM, 0);
    if (receive_buffer > 0) setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(server.port());
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    const timeval timeout{10, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
  }
  ~RawClient() { hang_up(); }

  bool connected() const { return connected_; }
  void hang_up() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  void close_sending() { shutdown(fd_, SHUT_WR); }
  bool send_text(std::string_view text) {
    while (!text.empty()) {
      const ssize_t sent = send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      text.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  // Reads until `buffered` holds `text`; false at the end of the connection.
  bool read_until(std::string_view text) {
    while (buffered_.find(text) == std::string::npos) {
      if (!read_some()) return false;
    }
    return true;
  }
  // What has come, or else comes next; nothing at the end of the connection.
  std::string read_bytes() {
    if (buffered_.empty()) read_some();
    return std::exchange(buffered_, "");
  }
  bool closed_by_server() {
    while (read_some()) {
    }
    return buffered_.empty();
  }

  Reply read_reply(bool head_only = false) {
    Reply reply;
    if (!read_until("\r\n\r\n")) return reply;
    const size_t head_end = buffered_.find("\r\n\r\n");
    std::istringstream head(buffered_.substr(0, head_end));
    buffered_.erase(0, head_end + 4);
    std::string line;
    std::getline(head, line);
    reply.status = std::stoi(line.substr(9, 3));
    while (std::getline(head, line)) {
      if (!line.empty() && line.back() == '\r') line.pop_back();
      const size_t colon = line.find(':');
      std::string name = line.substr(0, colon);
      for (char& c : name) c = static_cast<char>(tolower(c));
      reply.headers[name] = line.substr(std::min(line.size(), colon + 2));
    }
    if (head_only || reply.status == 204) {
      reply.complete = true;
    } else if (reply.headers.contains("content-length")) {
      const size_t length = std::stoul(reply.headers["content-length"]);
      while (buffered_.size() < length && read_some()) {
      }
      reply.complete = buffered_.size() >= length;
      reply.body = buffered_.substr(0, length);
      buffered_.erase(0, length);
    } else if (reply.headers.contains("transfer-encoding")) {
      read_chunks(reply);
    } else {
      while (read_some()) {
      }
      reply.body = std::exchange(buffered_, "");
      reply.complete = true;
    }
    return reply;
  }

 private:
  bool read_some() {
    char bytes[65536];
    const ssize_t count = recv(fd_, bytes, sizeof bytes, 0);
    if (count <= 0) return false;
    buffered_.append(bytes, static_cast<size_t>(count));
    return true;
  }
  void read_chunks(Reply& reply) {
    while (read_until("\r\n")) {
      const size_t line_end = buffered_.find("\r\n");
      const size_t size = std::stoul(buffered_.substr(0, line_end), nullptr, 16);
      while (buffered_.size() < line_end + 2 + size + 2) {
        if (!read_some()) return;
      }
      reply.body += buffered_.substr(line_end + 2, size);
      buffered_.erase(0, line_end + 2 + size + 2);
      if (size == 0) {
        reply.complete = true;
        return;
      }
    }
  }

  int fd_ = -1;
  bool connected_ = false;
  std::string buffered_;
};

// A chat of one message, with `more` on top.
inline Json chat_body(Json more = Json::object()) {
  Json body = {{"model", "tiny"}, {"messages", Json::array({{{"role", "user"}, {"content", "hi"}}})}};
  body.update(more);
  return body;
}

inline std::string http_post(std::string_view path, const std::string& body, std::string_view more_headers = "") {
  return absl::StrCat("POST ", std::string(path), " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n",
                      std::string(more_headers), "Content-Length: ", body.size(), "\r\n\r\n", body);
}
inline std::string http_get(std::string_view path, std::string_view more_headers = "") {
  return absl::StrCat("GET ", std::string(path), " HTTP/1.1\r\nHost: x\r\n", std::string(more_headers), "\r\n");
}

inline Reply ask(const World& world, const std::string& raw) {
  RawClient client(*world.server);
  client.send_text(raw);
  return client.read_reply();
}
inline Reply post(const World& world, std::string_view path, const Json& body) {
  return ask(world, http_post(path, body.dump()));
}

// A script that says `text` and then ends the sequence.
inline FakeNode::Script says(std::string text) {
  return [text](const Request&) {
    std::vector<TokenId> ids = bytes_of(text);
    ids.push_back(kEos);
    return ids;
  };
}

}  // namespace shoal::test
