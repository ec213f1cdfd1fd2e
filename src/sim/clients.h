// The clients' side: sends what the workload says, judges what comes back, and forgets a request when it ended.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "policy/slo.h"
#include "roles/effect.h"
#include "roles/node.h"
#include "sim/outcome.h"
#include "sim/setup.h"

namespace shoal {

// One request after its end.
struct RequestOutcome {
  RequestId id;
  ModelId model;
  uint32_t prompt_tokens = 0, tokens = 0, tokens_on_time = 0;
  double arrival = 0, first_token = -1, end = 0;  // seconds of virtual time; -1: none came
  const char* how = "";                           // stop, length, error, refused, cancelled
};

class Clients {
 public:
  using Violate = std::function<void(std::string)>;
  using OnEnd = std::function<void(const RequestOutcome&, const Status& why)>;

  // `models` by id. `strict`: every token is compared with the undisturbed answer.
  Clients(const std::vector<NodeModel>& models, bool strict, Outcome& outcome, Violate violate);

  void on_end(OnEnd on_end) { on_end_ = std::move(on_end); }

  void start(const Arrival& arrival, TimePoint now);
  // True if it still ran.
  bool cancel(RequestId id, TimePoint now);
  void cancel_of(NodeId gateway, TimePoint now);  // that gateway is gone, and with it the streams of its clients
  void deliver(const Tokens& tokens, TimePoint now);   // I1, I2, I4
  void refuse(const Refuse& refuse, TimePoint now);

  uint32_t unfinished() const { return static_cast<uint32_t>(clients_.size()); }
  uint32_t unstarted() const { return unstarted_; }
  TimePoint last_heard() const { return last_heard_; }  // tokens or an end of any request
  bool knows(RequestId id) const { return clients_.contains(id); }
  // Every request that never ended is a violation.
  void check_end();

 private:
  struct Client {
    ModelId model;
    uint32_t payer = 0;
    uint32_t prompt_tokens = 0, max_tokens = 0, min_tokens = 0, answer_tokens = 0;
    std::vector<TokenId> stop_ids;
    uint64_t seed = 0;
    uint32_t received = 0;
    TokenScore score;
    TimePoint arrival, last_token;
    double first_token = -1;
    uint64_t context = kNoContext;  // of the prompt and what came; strict only
    TokenId last = 0;
  };
  // Of a model: its requests under way, and when a token came for one of them, or the first of them.
  struct Heard {
    uint32_t requests = 0;
    TimePoint at{};
  };
  static constexpr uint64_t kNoContext = 0;
  using Entry = std::unordered_map<RequestId, Client>::iterator;

  void add_token(RequestId id, Client& client, TokenId token, TimePoint now);
  void note_silence(ModelId model, TimePoint now);
  void check_token(RequestId id, Client& client, TokenId token);
  void end(Entry client, const char* how, const Status& why, TimePoint now);

  const std::vector<NodeModel>& models_;
  const bool strict_;
  Outcome& outcome_;
  const Violate violate_;
  OnEnd on_end_;
  std::unordered_map<RequestId, Client> clients_;
  std::vector<Heard> heard_;  // by model
  uint32_t unstarted_ = 0;
  TimePoint last_heard_{};
};

}  // namespace shoal
