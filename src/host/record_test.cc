// A real node, recorded, and decided once more: real threads, files and arithmetic on one side, none of them on the other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <map>
#include <mutex>

#include "base/bytes.h"
#include "host/node_host.h"
#include "models/test_runner.h"
#include "replay/replay.h"
#include "transport/loopback.h"
#include "wire/message.h"
#include "wire/records.pb.h"

namespace shoal {
namespace {

constexpr NodeId kNode{1}, kGateway{2};
constexpr uint32_t kModels = 4;

// Sends requests and waits for their ends.
class Gateway {
 public:
  explicit Gateway(LoopbackNetwork& network)
      : transport_(network.connect(kGateway, [this](NodeId, std::string bytes) {
          const StatusOr<Message> message = decode(bytes);
          const Tokens* tokens = message.ok() ? std::get_if<Tokens>(&*message) : nullptr;
          std::lock_guard lock(mutex_);
          if (tokens != nullptr) ++tokens_;
          if (tokens != nullptr && tokens->finish) ++ended_;
          changed_.notify_all();
          return true;
        })) {}

  void send(const Message& message) { ASSERT_TRUE(transport_->send(kNode, encode(message)).ok()); }
  bool wait_tokens(size_t count) { return wait(tokens_, count); }
  bool wait_ended(size_t count) { return wait(ended_, count); }

 private:
  bool wait(const size_t& what, size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(120), [&] { return what >= count; });
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  size_t tokens_ = 0, ended_ = 0;
  std::unique_ptr<Transport> transport_;
};

Request request(uint64_t id, uint32_t model, uint32_t prompt, uint32_t max_tokens) {
  Request r;
  r.id = RequestId(id);
  r.model = ModelId(model);
  for (uint32_t i = 0; i < prompt; ++i) r.prompt.push_back(static_cast<TokenId>((i * 7919 + (id % 3) * 104729) % 700 + 10));
  r.max_tokens = max_tokens;
  r.sampling.seed = id;
  r.sampling.logprobs = 2;
  if (id % 4 == 0) r.prompt_logprobs = 1;
  return r;
}

ServedModel served(uint32_t id) {
  const std::string name = id % 2 == 1 ? "tiny-qwen3" : "tiny-llama";
  return {ModelId(id), name, std::string(SHOAL_SOURCE_DIR) + "/models/" + name, {}, 512};
}

// What a node that holds one or two of its four models at a time was told and answered, while requests come, some are
// cancelled, a model is added and another one goes.
std::vector<std::string> recorded_run() {
  NodeHostConfig config;
  config.self = kNode;
  config.gateways = {kGateway};
  config.device_memory_bytes = 12 * kMiB;
  config.host_memory_bytes = 64 * kMiB;
  config.threads = 2;
  config.guarded = test_guard() == DeviceGuard::kGuarded;
  config.tokens_per_step = 64;
  std::vector<ServedModel> models;
  for (uint32_t i = 0; i < kModels; ++i) models.push_back(served(i));
  auto plan = plan_node(config, models);
  EXPECT_TRUE(plan.ok() && plan->refused.empty());
  std::vector<std::string> records;
  plan->record = [&records](std::string_view record) { records.emplace_back(record); };
  LoopbackNetwork network;
  Gateway gateway(network);
  auto host = NodeHost::start(*std::move(plan), network);
  EXPECT_TRUE(host.ok());
  uint64_t id = 0;
  for (uint32_t i = 0; i < kModels; ++i) gateway.send(Submit{request(++id, i, 40, 300)});
  EXPECT_TRUE(gateway.wait_tokens(20));
  gateway.send(Cancel{RequestId(2), 0});
  EXPECT_TRUE((*host)->add_model(served(kModels)).ok());
  (*host)->retire_model(ModelId(3));
  for (uint32_t i = 0; i < 2 * kModels; ++i) gateway.send(Submit{request(++id, i % kModels == 3 ? kModels : i % kModels, 20 + 30 * i, 60)});
  EXPECT_TRUE(gateway.wait_ended(id - 1));
  host->reset();  // the loop thread has written its last record
  return records;
}

Status replayed(const std::vector<std::string>& records, Replay& replay) {
  for (const std::string& record : records) RETURN_IF_ERROR(replay.record(record));
  return OkStatus();
}

TEST(RecordedNode, DecidesTheSameAgainBitForBitAndInOrder) {
  const std::vector<std::string> records = recorded_run();
  Replay replay;
  EXPECT_EQ(replayed(records, replay), OkStatus());
  const ReplayCounts& n = replay.counts();
  EXPECT_EQ(n.lives, 1u);
  EXPECT_GT(n.steps, 300u);
  EXPECT_GT(n.loads, kModels);  // in turns
  EXPECT_GT(n.drops, 0u);
  EXPECT_GT(n.messages, n.steps);

  // Twenty milliseconds more for one step, and the turns come out differently somewhere after it.
  std::vector<std::string> changed = records;
  bool later = false;
  for (size_t i = changed.size() / 2; i < changed.size(); ++i) {
    pb::Record record;
    ASSERT_TRUE(record.ParseFromString(changed[i]));
    later |= record.event().has_step();
    if (later) record.set_now_ns(record.now_ns() + 20'000'000);
    changed[i] = record.SerializeAsString();
  }
  Replay other;
  const Status status = replayed(changed, other);
  EXPECT_EQ(status.code(), StatusCode::kAborted) << status;
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("this build answers"));
}

}  // namespace
}  // namespace shoal
