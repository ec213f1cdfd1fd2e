// Models whose layers keep a state, on a real node: the answers are the same however their states were kept, moved or computed
// again. Uses the shared models, where there are any.
#include <gtest/gtest.h>

#include <filesystem>

#include "host/test_client.h"

namespace shoal {
namespace {

constexpr const char* kModels[] = {"qwen3.5", "qwen3-next", "nemotron-h-moe", "granite4-h", "falcon-h1", "lfm2-moe", "kimi-linear"};
constexpr uint32_t kVocabulary = 320;

std::string folder(const std::string& name) { return std::string(SHOAL_SHARED_DIR) + "/models/reference/" + name; }
bool there() { return std::filesystem::exists(folder(kModels[0])); }

std::vector<TokenId> prompt_of(uint32_t seed, uint32_t length) {
  std::vector<TokenId> prompt = long_prompt(seed, length);
  for (TokenId& token : prompt) token = token % (kVocabulary - 10) + 5;
  return prompt;
}

Request asked(uint32_t model, std::vector<TokenId> prompt, uint32_t tokens) {
  Request request = greedy(ModelId(model), std::move(prompt), tokens);
  request.min_tokens = tokens;
  request.sampling.logprobs = 0;
  return request;
}

TEST(StateOnANode, TheSecondTurnComputesOnlyWhatIsNewToTheBitsOfAColdRun) {
  if (!there()) GTEST_SKIP() << "no shared models at " << SHOAL_SHARED_DIR;
  for (const char* name : kModels) {
    SCOPED_TRACE(name);
    LoopbackNetwork network, other;
    Client client(network), cold(other);
    NodeHostConfig none = small_config();
    none.prefix_cache = false;
    const std::vector<ServedModel> models = {{ModelId(0), name, folder(name), {}, 0}};
    const auto host = start(small_config(), models, network), without = start(none, models, other);
    ASSERT_TRUE(host.ok() && without.ok()) << host.status() << without.status();
    const std::vector<TokenId> first = prompt_of(3, 200);
    const Bits answer = bits_of(client.wait(client.submit(asked(0, first, 40))));
    std::vector<TokenId> second = first;
    second.insert(second.end(), answer.tokens.begin(), answer.tokens.end());
    for (const TokenId token : prompt_of(4, 30)) second.push_back(token);
    const Client::Answer warm = client.wait(client.submit(asked(0, second, 20)));
    EXPECT_EQ(warm.cached, 239u) << "all that was computed: all but the token drawn last";
    EXPECT_EQ(bits_of(warm), bits_of(cold.wait(cold.submit(asked(0, second, 20)))));
    std::vector<TokenId> without_answer(first.begin(), first.end() - 4);
    for (const TokenId token : prompt_of(5, 30)) without_answer.push_back(token);
    const Client::Answer other_turn = client.wait(client.submit(asked(0, without_answer, 20)));
    EXPECT_EQ(other_turn.cached, 194u) << "but for the last tokens of a prompt, which ask for an answer";
    EXPECT_EQ(bits_of(other_turn), bits_of(cold.wait(cold.submit(asked(0, without_answer, 20)))));
  }
}

TEST(StateOnANode, AnAnswerIsTheSameAloneInACrowdAndUnderMemoryPressure) {
  if (!there()) GTEST_SKIP() << "no shared models at " << SHOAL_SHARED_DIR;
  for (const char* name : kModels) {
    SCOPED_TRACE(name);
    std::vector<Bits> answers[3];
    for (int round = 0; round < 3; ++round) {
      LoopbackNetwork network;
      Client client(network);
      NodeHostConfig config = small_config();
      if (round == 2) {
        config.device_memory_bytes = 10 * kMiB;
        config.tokens_per_step = 48;
      }
      const auto host = start(config, {{ModelId(0), name, folder(name), {}, 400}}, network);
      ASSERT_TRUE(host.ok()) << host.status();
      std::vector<RequestId> ids;
      for (uint32_t i = 0; i < 12; ++i) {
        ids.push_back(client.submit(asked(0, prompt_of(i, 10 + i * 23), 30)));
        if (round == 0) client.wait(ids.back());  // one after the other
      }
      for (const RequestId id : ids) answers[round].push_back(bits_of(client.wait(id)));
    }
    EXPECT_EQ(answers[0], answers[1]);
    EXPECT_EQ(answers[0], answers[2]);
  }
}

TEST(StateOnANode, AnswersGoOnAfterTheTurnsOfOthers) {
  if (!there()) GTEST_SKIP() << "no shared models at " << SHOAL_SHARED_DIR;
  std::vector<ServedModel> models;
  for (uint32_t i = 0; i < std::size(kModels); ++i) models.push_back({ModelId(i), kModels[i], folder(kModels[i]), {}, 256});
  std::vector<Bits> answers[2];
  for (int round = 0; round < 2; ++round) {
    LoopbackNetwork network;
    Client client(network);
    NodeHostConfig config = small_config(round == 0 ? 256 * kMiB : 14 * kMiB);
    config.host_memory_bytes = 16 * kMiB;
    config.tokens_per_step = 64;
    const auto host = start(config, models, network);
    ASSERT_TRUE(host.ok()) << host.status();
    std::vector<RequestId> ids;
    for (uint32_t i = 0; i < 2 * std::size(kModels); ++i) {
      ids.push_back(client.submit(asked(i % std::size(kModels), prompt_of(i, 40 + i), 60)));
      if (round == 0) client.wait(ids.back());
    }
    for (const RequestId id : ids) answers[round].push_back(bits_of(client.wait(id)));
  }
  EXPECT_EQ(answers[0], answers[1]);
}

}  // namespace
}  // namespace shoal
