#include "experts/handshake.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"
#include "slots/message.h"

namespace shoal {
namespace {

constexpr uint64_t kAnswerBytes = 4 << 20;
constexpr uint32_t kRowsMin = 16, kRowsMost = 1024;
constexpr uint32_t kHiddenMax = 1 << 17, kUsedMax = 1024;

Json opening(const char* kind) { return {{"shoal", "experts"}, {"protocol", kExpertProtocol}, {"kind", kind}}; }

SlotSizes sizes_of(uint32_t lanes, uint64_t half_bytes) { return {lanes, half_bytes}; }

Status dial_shared(LocalSocket& socket, const ExpertHello& hello, const ExpertWelcome& welcome, const std::shared_ptr<Bell>& bell, SlotChannel::Parts& parts) {
  ASSIGN_OR_RETURN(parts.inbox, Region::make_shared(sizes_of(hello.lanes, response_bytes(welcome.rows_max, hello.hidden))));
  const int own[] = {parts.inbox->fd(), bell->fd()};
  RETURN_IF_ERROR(socket.send_descriptors(own));
  ASSIGN_OR_RETURN(const std::vector<int> theirs, socket.receive_descriptors(2));
  parts.peer_bell = Bell::of(theirs[1]);
  ASSIGN_OR_RETURN(parts.outbox, Region::map(theirs[0], sizes_of(hello.lanes, request_bytes(welcome.tokens_max, welcome.rows_max, hello.hidden))));
  return OkStatus();
}

Status dial_streamed(const std::string& address, const std::shared_ptr<BulkNetwork>& network, const ExpertHello& hello, const ExpertWelcome& welcome,
                     const Json& note, SlotChannel::Parts& parts) {
  ASSIGN_OR_RETURN(parts.inbox, Region::make_private(sizes_of(hello.lanes, response_bytes(welcome.rows_max, hello.hidden))));
  ASSIGN_OR_RETURN(parts.outbox, Region::make_private(sizes_of(hello.lanes, request_bytes(welcome.tokens_max, welcome.rows_max, hello.hidden))));
  ASSIGN_OR_RETURN(const std::string token, json_string(note, "token", ""));
  parts.out = std::move(parts.in);  // this one is for requests, the next for answers
  ASSIGN_OR_RETURN(parts.in, network->connect(address));
  Json answers = opening("answers");
  answers["token"] = token;
  RETURN_IF_ERROR(write_note(*parts.in, answers));
  ASSIGN_OR_RETURN(const Json ready, read_note(*parts.in));
  return status_of(ready);
}

StatusOr<std::unique_ptr<BulkSocket>> connect_to(const std::string& address, const std::shared_ptr<BulkNetwork>& network) {
  if (!is_unix_address(address)) return network->connect(address);
  ASSIGN_OR_RETURN(std::unique_ptr<LocalSocket> socket, unix_connect(address.substr(5)));
  return std::unique_ptr<BulkSocket>(std::move(socket));
}

}  // namespace

uint32_t rows_per_request(uint32_t hidden) { return static_cast<uint32_t>(std::clamp<uint64_t>(kAnswerBytes / (uint64_t{hidden} * sizeof(float)), kRowsMin, kRowsMost)); }

std::string stamp_text(uint64_t stamp) { return absl::StrFormat("%016x", stamp); }

StatusOr<uint64_t> read_stamp(const Json& note, std::string_view key) {
  ASSIGN_OR_RETURN(const std::string text, json_string(note, key, ""));
  uint64_t stamp = 0;
  if (!absl::SimpleHexAtoi(text, &stamp)) return invalid_argument("'", std::string(key), "' is no stamp of a model");
  return stamp;
}

bool is_unix_address(const std::string& address) { return address.starts_with("unix:"); }

Status check_protocol(const Json& note, const std::string& who) {
  ASSIGN_OR_RETURN(const std::string what, json_string(note, "shoal", ""));
  ASSIGN_OR_RETURN(const int64_t protocol, json_int(note, "protocol", 0, 0, INT32_MAX));
  if (what != "experts") return invalid_argument(who, " is no process of Shoal's experts");
  if (protocol == kExpertProtocol) return OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(who, " speaks protocol ", protocol, " of experts, and this process ", kExpertProtocol, "; run the same version of shoal on both"));
}

Json write_hello(const ExpertHello& hello) {
  Json note = opening("client");
  note["client"] = hello.client;
  note["pid"] = hello.pid;
  note["model"] = hello.model;
  note["stamp"] = stamp_text(hello.stamp);
  note["shape"] = write_shape(hello.shape);
  note["hidden"] = hello.hidden;
  note["used"] = hello.used;
  note["lanes"] = hello.lanes;
  return note;
}

StatusOr<ExpertHello> read_hello(const Json& note) {
  ExpertHello hello;
  ASSIGN_OR_RETURN(hello.client, json_string(note, "client", "?"));
  ASSIGN_OR_RETURN(hello.pid, json_int(note, "pid", 0, 0, INT32_MAX));
  ASSIGN_OR_RETURN(hello.model, json_string(note, "model", "?"));
  ASSIGN_OR_RETURN(hello.stamp, read_stamp(note, "stamp"));
  ASSIGN_OR_RETURN(hello.shape, read_shape(note.value("shape", Json::object())));
  ASSIGN_OR_RETURN(const int64_t hidden, json_int(note, "hidden", 0, 1, kHiddenMax));
  ASSIGN_OR_RETURN(const int64_t used, json_int(note, "used", 0, 1, kUsedMax));
  ASSIGN_OR_RETURN(const int64_t lanes, json_int(note, "lanes", 1, 1, 16));
  hello.hidden = static_cast<uint32_t>(hidden), hello.used = static_cast<uint32_t>(used), hello.lanes = static_cast<uint32_t>(lanes);
  return hello;
}

Json write_welcome(const ExpertWelcome& welcome, const ExpertShape& shape) {
  Json note = opening("welcome");
  note["server"] = welcome.server;
  note["pid"] = welcome.pid;
  note["client"] = welcome.client;
  note["epoch"] = welcome.epoch;
  note["rows_max"] = welcome.rows_max;
  note["tokens_max"] = welcome.tokens_max;
  note["version"] = welcome.version;
  note["holds"] = write_set(shape, welcome.holds);
  return note;
}

StatusOr<ExpertWelcome> read_welcome(const Json& note, const ExpertShape& shape) {
  ExpertWelcome welcome;
  RETURN_IF_ERROR(status_of(note));
  RETURN_IF_ERROR(check_protocol(note, "the server"));
  ASSIGN_OR_RETURN(welcome.server, json_string(note, "server", "?"));
  ASSIGN_OR_RETURN(welcome.pid, json_int(note, "pid", 0, 0, INT32_MAX));
  ASSIGN_OR_RETURN(const int64_t client, json_int(note, "client", 0, 0, INT64_MAX));
  ASSIGN_OR_RETURN(const int64_t epoch, json_int(note, "epoch", 0, 1, UINT16_MAX));
  ASSIGN_OR_RETURN(const int64_t rows, json_int(note, "rows_max", 0, 1, kSlotRowsMax));
  ASSIGN_OR_RETURN(const int64_t tokens, json_int(note, "tokens_max", 0, 1, kSlotTokensMax));
  ASSIGN_OR_RETURN(const int64_t version, json_int(note, "version", 0, 0, UINT32_MAX));
  ASSIGN_OR_RETURN(welcome.holds, read_set(shape, note.value("holds", Json::object())));
  welcome.client = static_cast<uint64_t>(client), welcome.epoch = static_cast<uint16_t>(epoch);
  welcome.rows_max = static_cast<uint32_t>(rows), welcome.tokens_max = static_cast<uint32_t>(tokens);
  welcome.version = static_cast<uint32_t>(version);
  return welcome;
}

Json write_overlap(const ExpertOverlap& overlap) {
  return {{"overlap", {{"lanes", overlap.lanes}, {"attention_us", overlap.attention_s * 1e6}, {"response_p95_us", overlap.response_s * 1e6}}}};
}

StatusOr<ExpertOverlap> read_overlap(const Json& note) {
  const Json json = note.is_object() ? note.value("overlap", Json::object()) : Json::object();
  ASSIGN_OR_RETURN(const int64_t lanes, json_int(json, "lanes", 0, 0, 16));
  ASSIGN_OR_RETURN(const double attention, json_double(json, "attention_us", 0));
  ASSIGN_OR_RETURN(const double response, json_double(json, "response_p95_us", 0));
  if (!(attention >= 0) || !(response >= 0)) return invalid_argument("'overlap': times are not below zero");
  return ExpertOverlap{.lanes = static_cast<uint32_t>(lanes), .attention_s = attention * 1e-6, .response_s = response * 1e-6};
}

StatusOr<Dialed> dial_experts(const std::string& address, const std::shared_ptr<BulkNetwork>& network, const ExpertHello& hello,
                              const std::shared_ptr<Bell>& bell, SlotChannel::OnNote on_note, std::shared_ptr<StreamBytes> bytes) {
  const auto dial = [&]() -> StatusOr<Dialed> {
    SlotChannel::Parts parts{.bell = bell, .bytes = bytes};
    std::unique_ptr<LocalSocket> shared;
    if (is_unix_address(address)) {
      ASSIGN_OR_RETURN(shared, unix_connect(address.substr(5)));
      shared->set_timeout(kHandshakeTime);
    } else {
      ASSIGN_OR_RETURN(parts.in, network->connect(address));
    }
    BulkSocket& socket = shared != nullptr ? static_cast<BulkSocket&>(*shared) : *parts.in;
    RETURN_IF_ERROR(write_note(socket, write_hello(hello)));
    ASSIGN_OR_RETURN(const Json note, read_note(socket));
    ASSIGN_OR_RETURN(ExpertWelcome welcome, read_welcome(note, hello.shape));
    if (shared != nullptr) {
      RETURN_IF_ERROR(dial_shared(*shared, hello, welcome, bell, parts));
      shared->set_timeout(Duration(0));
      parts.in = std::move(shared);
    } else {
      RETURN_IF_ERROR(dial_streamed(address, network, hello, welcome, note, parts));
    }
    return Dialed{std::move(welcome), std::make_unique<SlotChannel>(std::move(parts), hello.lanes, std::move(on_note))};
  };
  auto dialed = dial();
  if (!dialed.ok()) return annotate(dialed.status(), address);
  return dialed;
}

StatusOr<Json> ask_expert_server(const std::string& address, const std::shared_ptr<BulkNetwork>& network, const Json& request, Duration patience) {
  const auto ask = [&]() -> StatusOr<Json> {
    ASSIGN_OR_RETURN(const std::unique_ptr<BulkSocket> socket, connect_to(address, network));
    if (is_unix_address(address)) static_cast<LocalSocket&>(*socket).set_timeout(patience);
    RETURN_IF_ERROR(write_note(*socket, opening("control")));
    RETURN_IF_ERROR(write_note(*socket, request));
    ASSIGN_OR_RETURN(Json answer, read_note(*socket));
    RETURN_IF_ERROR(status_of(answer));
    return answer;
  };
  auto answer = ask();
  if (!answer.ok()) return annotate(answer.status(), address);
  return answer;
}

}  // namespace shoal
