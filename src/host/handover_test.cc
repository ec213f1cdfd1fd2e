// Two real nodes of one process, one for prompts and one for decodes, under the production router.
#include <gtest/gtest.h>

#include <condition_variable>
#include <filesystem>
#include <map>
#include <mutex>

#include "base/bytes.h"
#include "base/clock.h"
#include "host/node_host.h"
#include "models/test_runner.h"
#include "roles/router.h"
#include "transport/loopback.h"
#include "wire/message.h"

namespace shoal {
namespace {

constexpr NodeId kGateway{1}, kFirst{2}, kSecond{3};

// The router behind a lock: whoever brings an event performs its effects.
class Gateway {
 public:
  Gateway(LoopbackNetwork& network, const RouterConfig& config)
      : router_(config), transport_(network.connect(kGateway, [this](NodeId from, std::string bytes) {
          StatusOr<Message> message = decode(bytes);
          EXPECT_TRUE(message.ok());
          handle(MessageFrom{from, *std::move(message)});
          return true;
        })) {}

  void handle(const Event& event) {
    std::lock_guard lock(mutex_);
    if (const auto* message = std::get_if<MessageFrom>(&event)) handovers_ += std::holds_alternative<Handover>(message->message);
    for (Effect& effect : router_.handle(event, steady_now())) {
      if (auto* send = std::get_if<Send>(&effect)) {
        if (const auto* submit = std::get_if<Submit>(&send->message)) with_kv_ += submit->kv.has_value();
        (void)transport_->send(send->to, encode(send->message));
      } else if (auto* deliver = std::get_if<Deliver>(&effect)) {
        Answer& answer = answers_[deliver->tokens.id];
        for (const SampledToken& token : deliver->tokens.tokens) answer.tokens.push_back(token.token);
        answer.ended |= deliver->tokens.finish.has_value();
      } else if (auto* refuse = std::get_if<Refuse>(&effect)) {
        ADD_FAILURE() << refuse->status;
      }
    }
    changed_.notify_all();
  }

  std::vector<TokenId> wait(RequestId id, size_t tokens = SIZE_MAX) {
    std::unique_lock lock(mutex_);
    const auto done = [&] { return answers_[id].ended || answers_[id].tokens.size() >= tokens; };
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(120), done)) << "request " << id << " did not end";
    return answers_[id].tokens;
  }
  bool wait_for(const std::function<bool(const Router&)>& wanted) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60), [&] { return wanted(router_); });
  }
  size_t handovers() const {
    std::lock_guard lock(mutex_);
    return handovers_;
  }
  size_t with_kv() const {
    std::lock_guard lock(mutex_);
    return with_kv_;
  }

 private:
  struct Answer {
    std::vector<TokenId> tokens;
    bool ended = false;
  };
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Router router_;
  std::map<RequestId, Answer> answers_;
  size_t handovers_ = 0, with_kv_ = 0;
  std::unique_ptr<Transport> transport_;
};

struct Cluster {
  // Two devices with these roles; `memory` and `host_memory` of each. The bundled models, or two others.
  Cluster(InstanceRole first, InstanceRole second, uint64_t memory, uint64_t host_memory,
          const std::vector<std::string>& folders = {SHOAL_SOURCE_DIR "/models/tiny-llama", SHOAL_SOURCE_DIR "/models/tiny-qwen3"})
      : gateway(network, RouterConfig{kGateway}) {
    std::vector<ServedModel> models;
    for (const std::string& folder : folders) {
      const auto id = static_cast<uint32_t>(models.size());
      models.push_back({ModelId(id), folder.substr(folder.rfind('/') + 1), folder, {}, 256});
    }
    const auto peers = std::make_shared<KvPeers>();
    ClusterState state;
    for (const auto& [id, instance_role] : {std::pair(kFirst, first), std::pair(kSecond, second)}) {
      NodeHostConfig config{.self = id, .instance_role = instance_role, .gateways = {kGateway}, .device_memory_bytes = memory, .host_memory_bytes = host_memory, .threads = 1};
      config.guarded = test_guard() == DeviceGuard::kGuarded;
      auto plan = plan_node(config, models);
      EXPECT_TRUE(plan.ok() && plan->refused.empty());
      auto host = NodeHost::start(*std::move(plan), network, peers);
      EXPECT_TRUE(host.ok()) << host.status();
      hosts.push_back(*std::move(host));
      state = reduce(std::move(state), MemberJoined{{.id = id, .role = Role::kNode, .models = {ModelId(0), ModelId(1)}}});
    }
    for (const auto& host : hosts) host->set_cluster(state);
    gateway.handle(ClusterChanged{state});
    EXPECT_TRUE(gateway.wait_for([](const Router& router) { return router.node_status().size() == 2; }));
  }

  RequestId submit(uint32_t model, uint32_t length, uint32_t max_tokens) {
    Request request;
    request.id = RequestId(++requests);
    request.model = ModelId(model);
    for (uint32_t i = 0; i < length; ++i) request.prompt.push_back(static_cast<TokenId>((i * 7919 + length * 104729) % 300 + 10));
    request.max_tokens = request.min_tokens = max_tokens;
    request.sampling.seed = length;
    gateway.handle(NewRequest{request});
    return request.id;
  }

  std::vector<std::vector<TokenId>> answers() {
    std::vector<RequestId> ids;
    for (uint32_t i = 0; i < 12; ++i) ids.push_back(submit(i % 2, 20 + 7 * i, 24 + i));
    std::vector<std::vector<TokenId>> out;
    for (const RequestId id : ids) out.push_back(gateway.wait(id));
    return out;
  }

  // Nothing is left of any request on either node.
  bool settles() {
    return gateway.wait_for([](const Router& router) {
      uint64_t left = router.live_requests();
      for (const auto& [id, status] : router.node_status()) {
        for (const ModelStatus& model : status.models) left += model.waiting + model.running + model.kv_bytes_active + model.kv_bytes_host;
      }
      return left == 0;
    });
  }

  LoopbackNetwork network;
  Gateway gateway;
  std::vector<std::unique_ptr<NodeHost>> hosts;
  uint64_t requests = 0;
};

TEST(Handover, PromptAndDecodeOnTwoDevicesGiveTheAnswersOfOne) {
  Cluster one(InstanceRole::kBoth, InstanceRole::kBoth, 64 * kMiB, 16 * kMiB), two(InstanceRole::kPrefill, InstanceRole::kDecode, 64 * kMiB, 16 * kMiB);
  const auto expected = one.answers();
  EXPECT_EQ(two.answers(), expected);
  EXPECT_EQ(two.gateway.handovers(), 12u);
  EXPECT_EQ(two.gateway.with_kv(), 12u);
  EXPECT_TRUE(two.settles());
  EXPECT_EQ(one.gateway.handovers(), 0u);
}

TEST(Handover, AStateGoesAlong) {
  const std::string shared = SHOAL_SHARED_DIR "/models/reference/";
  if (!std::filesystem::exists(shared + "qwen3.5")) GTEST_SKIP() << "no shared models at " << SHOAL_SHARED_DIR;
  const std::vector<std::string> folders = {shared + "qwen3.5", shared + "nemotron-h-moe"};
  Cluster one(InstanceRole::kBoth, InstanceRole::kBoth, 64 * kMiB, 16 * kMiB, folders), two(InstanceRole::kPrefill, InstanceRole::kDecode, 64 * kMiB, 16 * kMiB, folders);
  EXPECT_EQ(two.answers(), one.answers());
  EXPECT_EQ(two.gateway.with_kv(), 12u);
  EXPECT_TRUE(two.settles());
}

TEST(Handover, WithoutAHostTierTheDeviceForPromptsDecodesToo) {
  Cluster one(InstanceRole::kBoth, InstanceRole::kBoth, 64 * kMiB, 16 * kMiB), two(InstanceRole::kPrefill, InstanceRole::kDecode, 64 * kMiB, 0);
  EXPECT_EQ(two.answers(), one.answers());
  EXPECT_EQ(two.gateway.handovers(), 0u);
}

TEST(Handover, AClientThatGoesAwayAtAnyMomentLeavesNothingBehind) {
  Cluster cluster(InstanceRole::kPrefill, InstanceRole::kDecode, 64 * kMiB, 16 * kMiB);
  for (uint32_t i = 0; i < 30; ++i) {
    const RequestId id = cluster.submit(i % 2, 40 + i, 64);
    if (i % 3 > 0) cluster.gateway.wait(id, i % 5);
    cluster.gateway.handle(ClientGone{id});
  }
  EXPECT_TRUE(cluster.settles());
}

}  // namespace
}  // namespace shoal
