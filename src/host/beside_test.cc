// Steps beside those that wait for experts elsewhere, on a real node: each model's answers are those that it gives alone.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <set>

#include "formats/checkpoint.h"
#include "host/test_client.h"
#include "models/test_experts.h"

namespace shoal {
namespace {

// Computes what it is asked for at once, and says so only when it was looked for a few times.
class SlowPartner : public ExchangePartner {
 public:
  SlowPartner(std::shared_ptr<const ExpertPlan> plan, std::shared_ptr<Bell> bell) : apart_(std::move(plan)), bell_(std::move(bell)) {}

  void ask(uint32_t lane, const Exchange& exchange) override {
    EXPECT_FALSE(asked_.contains(lane));
    asked_[lane] = kLooks;
    apart_.answer(exchange);
  }
  StatusOr<std::optional<uint32_t>> answered() override {
    if (away_ > 0) {
      --away_;
      asked_.clear();
      return unavailable("a server of experts is away");
    }
    for (auto& [lane, looks] : asked_) {
      if (looks-- > 0) continue;
      const uint32_t answered = lane;
      asked_.erase(answered);
      return answered;
    }
    return std::nullopt;
  }
  Duration doze() override { return std::chrono::microseconds(100); }
  void end(bool alone) override { beside_ += alone ? 0 : 1; }

  void be_away(int steps) { away_ = steps; }
  uint32_t beside() const { return beside_; }  // steps that were not alone

 private:
  static constexpr int kLooks = 3;
  Apart apart_;
  const std::shared_ptr<Bell> bell_;
  std::map<uint32_t, int> asked_;
  std::atomic<int> away_{0};
  std::atomic<uint32_t> beside_{0};
};

std::string path(const char* name) { return std::string(SHOAL_SOURCE_DIR) + "/models/" + name; }

// Answers of four requests to each of two models at once.
std::vector<std::vector<TokenId>> answers(bool elsewhere, const std::function<void(SlowPartner&)>& meanwhile = {}) {
  LoopbackNetwork network;
  Client client(network);
  NodeHostConfig config = small_config();
  if (elsewhere) config.lanes = 2;
  const LoadOptions apart{.experts_elsewhere = elsewhere};
  const std::vector<ServedModel> models = {{ModelId(0), "a", path("tiny-qwen3-moe"), apart, 256}, {ModelId(1), "b", path("tiny-llama"), apart, 256}};
  NodePlan plan = *plan_node(config, models);
  EXPECT_EQ(plan.node.steps_max, elsewhere ? 2u : 1u);
  const std::shared_ptr<Bell> bell = *Bell::make();
  std::unique_ptr<SlowPartner> partner;
  if (elsewhere) {
    partner = std::make_unique<SlowPartner>((*plan_model(*open_checkpoint(models[0].path), apart))->expert_plan(), bell);
    plan.experts = [&](ModelId id) { return id == ModelId(0) ? partner.get() : nullptr; };
    plan.experts_bell = bell;
  }
  const auto host = *NodeHost::start(std::move(plan), network);
  std::vector<RequestId> asked;
  for (uint32_t i = 0; i < 8; ++i) asked.push_back(client.submit(greedy(ModelId(i % 2), long_prompt(i, 20 + 9 * i), 40)));
  if (meanwhile) meanwhile(*partner);
  std::vector<std::vector<TokenId>> tokens;
  for (const RequestId id : asked) tokens.push_back(client.wait(id).tokens);
  if (elsewhere && !meanwhile) {
    EXPECT_GT(partner->beside(), 0u);
  }
  return tokens;
}

TEST(Beside, AnswersOfModelsThatShareADeviceWithinTheirStepsAreThoseOfEachAlone) {
  const auto want = answers(false);
  for (const auto& tokens : want) EXPECT_EQ(tokens.size(), 40u);
  EXPECT_EQ(answers(true), want);
}

TEST(Beside, StepsThatAreDeferredMeanwhileLoseNothing) {
  EXPECT_EQ(answers(true, [](SlowPartner& partner) { partner.be_away(5); }), answers(false));
}

}  // namespace
}  // namespace shoal
