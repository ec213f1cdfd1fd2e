// How a connection begins, in six steps: the client says who it is and of which files; the server mirrors it, or refuses it by name; both
// give the other one the memory that it writes to; the client probes every lane with a request of no rows before it routes anything
// there. Only these two are concerned.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/json.h"
#include "base/status.h"
#include "experts/channel.h"
#include "experts/expert_set.h"
#include "experts/step_times.h"

namespace shoal {

constexpr int64_t kExpertProtocol = 1;
constexpr Duration kHandshakeTime = std::chrono::seconds(2);

// What a client says of itself.
struct ExpertHello {
  std::string client;       // its name, for people
  int64_t pid = 0;
  std::string model;        // likewise
  uint64_t stamp = 0;       // of its files and of what is done with them at load
  ExpertShape shape;
  uint32_t hidden = 0;
  uint32_t used = 0;        // experts of a row, at most
  uint32_t lanes = 1;
};

// And what it gets.
struct ExpertWelcome {
  std::string server;
  int64_t pid = 0;
  uint64_t client = 0;      // its number at the server
  uint16_t epoch = 0;
  uint32_t rows_max = 0, tokens_max = 0;  // of a request
  uint32_t version = 0;     // of what it holds
  ExpertSet holds;
};

// How much of a width fits a request: as many rows as go into about 4 MiB of answers, 16 at least, 1024 at most.
uint32_t rows_per_request(uint32_t hidden);

Json write_hello(const ExpertHello& hello);
StatusOr<ExpertHello> read_hello(const Json& note);
Json write_welcome(const ExpertWelcome& welcome, const ExpertShape& shape);
StatusOr<ExpertWelcome> read_welcome(const Json& note, const ExpertShape& shape);
// What a client says of itself now and then.
Json write_overlap(const ExpertOverlap& overlap);
StatusOr<ExpertOverlap> read_overlap(const Json& note);
// FailedPrecondition if the peer says another protocol.
Status check_protocol(const Json& note, const std::string& who);
std::string stamp_text(uint64_t stamp);
StatusOr<uint64_t> read_stamp(const Json& note, std::string_view key);

// "unix:PATH", "unix:@NAME" or HOST:PORT.
bool is_unix_address(const std::string& address);

struct Dialed {
  ExpertWelcome welcome;
  std::unique_ptr<SlotChannel> channel;
};
// The client's side, up to the probe. `bell` is its own. Errors name the address.
StatusOr<Dialed> dial_experts(const std::string& address, const std::shared_ptr<BulkNetwork>& network, const ExpertHello& hello,
                              const std::shared_ptr<Bell>& bell, SlotChannel::OnNote on_note, std::shared_ptr<StreamBytes> bytes = nullptr);

// A verb for the server (experts/server.h), and its answer; what it refuses is an error.
StatusOr<Json> ask_expert_server(const std::string& address, const std::shared_ptr<BulkNetwork>& network, const Json& request,
                                 Duration patience = std::chrono::seconds(5));

}  // namespace shoal
