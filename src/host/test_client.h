// For tests of a node: a client that submits to it and keeps what it answers.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "host/node_host.h"
#include "models/test_runner.h"
#include "transport/loopback.h"
#include "wire/message.h"

namespace shoal {

constexpr NodeId kNode{1};
constexpr NodeId kClient{2};

// A gateway reduced to its journal: submits and collects.
class Client {
 public:
  explicit Client(LoopbackNetwork& network)
      : transport_(network.connect(kClient, [this](NodeId, std::string bytes) {
          receive(bytes);
          return true;
        })) {}

  RequestId submit(Request request) {
    request.id = RequestId(++next_id_);
    send(Submit{request});
    return request.id;
  }
  void send(const Message& message) { ASSERT_TRUE(transport_->send(kNode, encode(message)).ok()); }

  struct Answer {
    std::vector<TokenId> tokens;
    std::vector<float> logprobs;
    std::vector<SampledToken> prompt;
    std::optional<FinishReason> finish;
    std::string error;
    uint32_t cached = 0;
  };
  Answer wait(RequestId id) {
    std::unique_lock lock(mutex_);
    const bool done = changed_.wait_for(lock, std::chrono::seconds(120), [&] { return answers_[id].finish.has_value(); });
    EXPECT_TRUE(done) << "request " << id << " did not end";
    return answers_[id];
  }
  size_t received(RequestId id) {
    std::lock_guard lock(mutex_);
    return answers_[id].tokens.size();
  }
  NodeStatus wait_status(const std::function<bool(const NodeStatus&)>& wanted) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(60), [&] { return wanted(status_); }));
    return status_;
  }

 private:
  void receive(const std::string& bytes) {
    const StatusOr<Message> message = decode(bytes);
    ASSERT_TRUE(message.ok());
    std::lock_guard lock(mutex_);
    if (const auto* tokens = std::get_if<Tokens>(&*message)) {
      Answer& answer = answers_[tokens->id];
      EXPECT_EQ(tokens->first_index, answer.tokens.size());
      for (const SampledToken& token : tokens->tokens) {
        answer.tokens.push_back(token.token);
        answer.logprobs.push_back(token.logprob);
      }
      if (!tokens->prompt.empty()) answer.prompt = tokens->prompt;
      answer.finish = tokens->finish;
      answer.error = tokens->error;
      answer.cached = tokens->cached_prompt_tokens;
    }
    if (const auto* status = std::get_if<NodeStatus>(&*message)) status_ = *status;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<RequestId, Answer> answers_;
  NodeStatus status_;
  uint64_t next_id_ = 0;
  std::unique_ptr<Transport> transport_;
};

inline StatusOr<std::unique_ptr<NodeHost>> start(const NodeHostConfig& config, const std::vector<ServedModel>& models,
                                          LoopbackNetwork& network) {
  ASSIGN_OR_RETURN(NodePlan plan, plan_node(config, models));
  for (const auto& [id, why] : plan.refused) return why;
  return NodeHost::start(std::move(plan), network);
}

inline NodeHostConfig small_config(uint64_t memory = 256 * kMiB) {
  NodeHostConfig config;
  config.self = kNode;
  config.gateways = {kClient};
  config.device_memory_bytes = memory;
  config.threads = 2;
  config.guarded = test_guard() == DeviceGuard::kGuarded;
  return config;
}

inline Request greedy(ModelId model, std::vector<TokenId> prompt, uint32_t max_tokens = 32) {
  Request request;
  request.model = model;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.sampling.temperature = 0;
  return request;
}

// What must not depend on where or when it was computed.
struct Bits {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;
  bool operator==(const Bits&) const = default;
};
inline Bits bits_of(const Client::Answer& answer) {
  EXPECT_EQ(answer.finish, FinishReason::kLength) << answer.error;
  return {answer.tokens, answer.logprobs};
}

inline std::vector<TokenId> long_prompt(uint32_t seed, uint32_t length) {
  std::vector<TokenId> prompt;
  for (uint32_t i = 0; i < length; ++i) prompt.push_back(static_cast<TokenId>((i * 7919 + seed * 104729) % 700 + 10));
  return prompt;
}

}  // namespace shoal
