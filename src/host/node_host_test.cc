#include "host/node_host.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <map>
#include <mutex>
#include <thread>

#include "base/bytes.h"
#include "base/json.h"
#include "host/test_client.h"
#include "models/test_runner.h"
#include "nlohmann/json.hpp"
#include "text/tokenizer/tokenizer.h"
#include "transport/loopback.h"
#include "wire/message.h"
#include "wire/records.pb.h"

namespace shoal {
namespace {

std::string model_path(const std::string& name) { return std::string(SHOAL_SOURCE_DIR) + "/models/" + name; }

// The bundled models, each twice.
std::vector<ServedModel> four_models(uint32_t max_model_len) {
  std::vector<ServedModel> models;
  for (uint32_t i = 0; i < 4; ++i) {
    models.push_back({ModelId(i), "m" + std::to_string(i), model_path(i % 2 ? "tiny-qwen3" : "tiny-llama"), {}, max_model_len});
  }
  return models;
}

// A bundled model that can follow grammars.
ServedModel with_vocabulary(const std::string& name, uint32_t max_model_len) {
  return {ModelId(0), name, model_path(name), {}, max_model_len, [name]() -> StatusOr<std::shared_ptr<const TokenVocabulary>> {
            ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, load_hf_tokenizer(model_path(name)));
            return TokenVocabulary::of(*tokenizer);
          }};
}

TEST(NodeHost, TheBundledModelsAnswerAsTheReferenceDoes) {
  LoopbackNetwork network;
  Client client(network);
  const std::vector<std::string> names = {"tiny-llama", "tiny-qwen3"};
  std::vector<ServedModel> models;
  for (uint32_t i = 0; i < names.size(); ++i) models.push_back({ModelId(i), names[i], model_path(names[i]), {}, 0});
  const auto host = start(small_config(), models, network);
  ASSERT_TRUE(host.ok()) << host.status();
  for (uint32_t i = 0; i < names.size(); ++i) {
    const auto text = read_file(model_path(names[i]) + "/reference_answers.json", 16 << 20);
    ASSERT_TRUE(text.ok()) << text.status();
    const Json reference = *parse_json(*text);
    std::vector<std::pair<RequestId, std::vector<TokenId>>> asked;
    for (const Json& row : reference.at("greedy")) {
      Request request = greedy(ModelId(i), row.at("prompt_ids").get<std::vector<TokenId>>(), 160);
      request.stop_ids = {2};
      asked.emplace_back(client.submit(request), row.at("output_ids").get<std::vector<TokenId>>());
    }
    size_t same = 0;
    for (const auto& [id, expected] : asked) {
      Client::Answer answer = client.wait(id);
      if (!answer.tokens.empty() && answer.tokens.back() == 2) answer.tokens.pop_back();
      same += answer.tokens == expected;
    }
    EXPECT_GE(same, asked.size() * 99 / 100) << names[i];
  }
}

TEST(NodeHost, AnAnswerIsTheSameAloneInACrowdAndUnderMemoryPressure) {
  std::vector<std::vector<TokenId>> answers[3];
  std::vector<std::vector<float>> logprobs[3];
  for (int round = 0; round < 3; ++round) {
    LoopbackNetwork network;
    Client client(network);
    NodeHostConfig config = small_config();
    if (round == 2) {  // room for few blocks: preemption and recomputation
      config.device_memory_bytes = 14 * kMiB;
      config.tokens_per_step = 48;
      config.prefix_cache = false;
    }
    const auto host = start(config, {with_vocabulary("tiny-llama", 512)}, network);
    ASSERT_TRUE(host.ok()) << host.status();
    std::vector<RequestId> ids;
    for (uint32_t i = 0; i < 24; ++i) {
      Request request = greedy(ModelId(0), long_prompt(i, 20 + i * 11), 60);
      request.sampling.temperature = i % 2 == 0 ? 0.0f : 0.9f;
      request.sampling.top_p = 0.95f;
      request.sampling.seed = i;
      request.sampling.logprobs = 0;
      if (i % 3 == 0) request.sampling.grammar = Grammar{"root ::= \"[\" (item \", \"){300} \"]\"\nitem ::= [a-z]{1,9} | \"(\" item \")\"", {}};
      if (i % 6 == 1) request.sampling.grammar = Grammar{"root ::= [0-9]+", {"e", "the"}};
      ids.push_back(client.submit(request));
      if (round == 0) client.wait(ids.back());  // one after the other
    }
    for (const RequestId id : ids) {
      const Client::Answer answer = client.wait(id);
      ASSERT_TRUE(answer.finish == FinishReason::kLength || answer.finish == FinishReason::kStop) << answer.error;
      answers[round].push_back(answer.tokens);
      logprobs[round].push_back(answer.logprobs);
    }
    if (round == 2) {
      const NodeStatus status = client.wait_status([](const NodeStatus& s) { return !s.models.empty() && s.models[0].running == 0; });
      EXPECT_GT(status.models[0].preemptions, 0u) << "the budget of this test is too large to preempt";
    }
  }
  EXPECT_EQ(answers[0], answers[1]);
  EXPECT_EQ(answers[0], answers[2]);
  EXPECT_EQ(logprobs[0], logprobs[1]);  // bit for bit
  EXPECT_EQ(logprobs[0], logprobs[2]);
}

TEST(NodeHost, APrefixHitChangesNothingButTheWork) {
  LoopbackNetwork network;
  Client client(network);
  const auto host = start(small_config(), {{ModelId(0), "tiny-llama", model_path("tiny-llama"), {}, 0}}, network);
  ASSERT_TRUE(host.ok()) << host.status();
  Request request = greedy(ModelId(0), long_prompt(5, 200));
  request.sampling.logprobs = 3;
  const Client::Answer first = client.wait(client.submit(request));
  const Client::Answer second = client.wait(client.submit(request));
  EXPECT_EQ(first.cached, 0u);
  EXPECT_EQ(second.cached, 192u);
  EXPECT_EQ(first.tokens, second.tokens);
  EXPECT_EQ(first.logprobs, second.logprobs);
}

void expect_replays_continue(const GrammarRef& grammar) {
  LoopbackNetwork network;
  Client client(network);
  const auto host = start(small_config(), {with_vocabulary("tiny-llama", 0)}, network);
  ASSERT_TRUE(host.ok()) << host.status();
  Request request = greedy(ModelId(0), long_prompt(9, 40), 40);
  request.sampling.grammar = grammar;
  request.sampling.temperature = 1.0f;
  request.sampling.seed = 77;
  request.sampling.frequency_penalty = 0.4f;
  const Client::Answer whole = client.wait(client.submit(request));
  ASSERT_EQ(whole.tokens.size(), 40u);
  std::vector<uint32_t> cuts = {1, 13, 39};
  for (const uint32_t cut : cuts) {
    // The journal's replay, as a router sends it; this client would count from 0, so it asks the node directly.
    Request replay = request;
    replay.output.assign(whole.tokens.begin(), whole.tokens.begin() + cut);
    LoopbackNetwork other;
    std::vector<TokenId> rest;
    std::mutex mutex;
    std::condition_variable done;
    bool ended = false;
    const auto transport = other.connect(kClient, [&](NodeId, std::string bytes) {
      const Message message = *decode(bytes);
      const auto* tokens = std::get_if<Tokens>(&message);
      if (tokens == nullptr) return true;
      std::lock_guard lock(mutex);
      EXPECT_EQ(tokens->first_index, cut + rest.size());
      for (const SampledToken& token : tokens->tokens) rest.push_back(token.token);
      ended = tokens->finish.has_value();
      done.notify_all();
      return true;
    });
    const auto second = start(small_config(), {with_vocabulary("tiny-llama", 0)}, other);
    ASSERT_TRUE(second.ok());
    replay.id = RequestId(1);
    ASSERT_TRUE(transport->send(kNode, encode(Submit{replay})).ok());
    std::unique_lock lock(mutex);
    ASSERT_TRUE(done.wait_for(lock, std::chrono::seconds(60), [&] { return ended; }));
    EXPECT_EQ(rest, std::vector<TokenId>(whole.tokens.begin() + cut, whole.tokens.end()));
  }
}

TEST(NodeHost, AReplayedRequestContinuesWithTheSameTokens) {
  expect_replays_continue({});
  expect_replays_continue(Grammar{"root ::= ([a-z]{1,8} [ \\n]){200}", {}});
  expect_replays_continue(Grammar{"root ::= ([a-z]{1,8} [ \\n]){200}", {" "}});
}

TEST(NodeHost, ScoringAPromptGivesALogprobOfEveryTokenButTheFirst) {
  LoopbackNetwork network;
  Client client(network);
  NodeHostConfig config = small_config();
  config.tokens_per_step = 32;
  const auto host = start(config, {{ModelId(0), "tiny-llama", model_path("tiny-llama"), {}, 0}}, network);
  ASSERT_TRUE(host.ok()) << host.status();
  Request request = greedy(ModelId(0), long_prompt(3, 100), 1);
  request.prompt_logprobs = 2;
  const Client::Answer answer = client.wait(client.submit(request));
  ASSERT_EQ(answer.prompt.size(), 99u);
  for (size_t i = 0; i < answer.prompt.size(); ++i) {
    EXPECT_EQ(answer.prompt[i].token, request.prompt[i + 1]);
    EXPECT_LE(answer.prompt[i].logprob, 0.0f);
    ASSERT_EQ(answer.prompt[i].top.size(), 2u);
    EXPECT_GE(answer.prompt[i].top[0].logprob, answer.prompt[i].top[1].logprob);
  }
}

TEST(NodeHost, ModelsThatDoNotFitTogetherTakeTurnsAndAllAnswer) {
  LoopbackNetwork network;
  Client client(network);
  NodeHostConfig config = small_config(12 * kMiB);
  config.tokens_per_step = 64;
  const auto host = start(config, four_models(256), network);
  ASSERT_TRUE(host.ok()) << host.status();
  std::map<uint32_t, std::vector<std::vector<TokenId>>> answers;
  for (uint32_t round = 0; round < 3; ++round) {
    std::vector<RequestId> asked;
    for (uint32_t i = 0; i < 4; ++i) asked.push_back(client.submit(greedy(ModelId(i), long_prompt(1, 30), 20)));
    for (uint32_t i = 0; i < 4; ++i) {
      const Client::Answer answer = client.wait(asked[i]);
      ASSERT_EQ(answer.finish, FinishReason::kLength) << answer.error;
      answers[i].push_back(answer.tokens);
    }
  }
  for (uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(answers[i][0], answers[i][1]);
    EXPECT_EQ(answers[i][0], answers[i][2]);
    EXPECT_EQ(answers[i][0], answers[i % 2][0]);
  }
  const NodeStatus status = client.wait_status([](const NodeStatus& s) {
    return std::all_of(s.models.begin(), s.models.end(), [](const ModelStatus& m) { return m.running == 0; });
  });
  uint64_t loads = 0;
  for (const ModelStatus& m : status.models) loads += m.loads;
  EXPECT_GT(loads, 4u) << "the budget of this test holds all models at once";
}

TEST(NodeHost, AnAnswerThatBeginsBeforeItsWeightsArePackedIsTheSame) {
  if (test_guard() == DeviceGuard::kGuarded) GTEST_SKIP() << "its memory is there: nothing is to be gained";
  for (const std::string name : {"tiny-llama", "tiny-qwen3"}) {
    NodeHostConfig config = small_config();
    config.prefix_cache = false;
    for (const auto& file : std::filesystem::directory_iterator(model_path(name))) {  // only files in the system's cache are computed from
      ASSERT_TRUE(read_file(file.path().string(), uint64_t{1} << 30).ok());
    }
    NodePlan plan = *plan_node(config, {{ModelId(0), name, model_path(name), {}, 0}});
    plan.fill_ahead = false;
    std::vector<std::string> records;
    plan.record = [&](std::string_view record) { records.emplace_back(record); };
    LoopbackNetwork network;
    Client client(network);
    auto host = *NodeHost::start(std::move(plan), network);
    const auto ask = [&] { return client.wait(client.submit(greedy(ModelId(0), long_prompt(3, 200)))); };
    const Client::Answer first = ask(), second = ask();
    ASSERT_EQ(first.finish, FinishReason::kLength) << first.error;
    EXPECT_EQ(first.tokens, second.tokens);
    EXPECT_EQ(first.logprobs, second.logprobs);
    host.reset();  // the last record is written
    const auto packed = [](const std::string& bytes) {
      pb::Record record;
      return record.ParseFromString(bytes) && record.event().has_packed();
    };
    EXPECT_EQ(std::count_if(records.begin(), records.end(), packed), 1) << name;
  }
}

TEST(NodeHost, AnAnswerGoesOnWithTheSameTokensAfterTheTurnsOfOthers) {
  constexpr uint32_t kEach = 5;
  std::map<uint32_t, std::vector<TokenId>> answers[3];  // by prompt
  for (int round = 0; round < 3; ++round) {  // alone; in turns with a host tier for KV; in turns with none
    LoopbackNetwork network;
    Client client(network);
    NodeHostConfig config = small_config(round == 0 ? 256 * kMiB : 12 * kMiB);
    config.tokens_per_step = 64;
    config.sequences_max = 1;  // a model's answers together take longer than a turn
    config.host_memory_bytes = round == 1 ? 64 * kMiB : 0;
    const auto host = start(config, four_models(512), network);
    ASSERT_TRUE(host.ok()) << host.status();
    std::map<uint32_t, RequestId> ids;
    for (uint32_t i = 0; i < 4 * kEach; ++i) {
      const uint32_t prompt = round == 0 ? i : i % 4 * kEach + i / 4;
      ids[prompt] = client.submit(greedy(ModelId(prompt / kEach), long_prompt(prompt, 40), 400));
      if (round == 0) client.wait(ids[prompt]);
    }
    for (const auto& [prompt, id] : ids) {
      const Client::Answer answer = client.wait(id);
      ASSERT_TRUE(answer.finish.has_value()) << answer.error;
      EXPECT_NE(answer.finish, FinishReason::kError) << answer.error;
      answers[round][prompt] = answer.tokens;
    }
    const NodeStatus status = client.wait_status([](const NodeStatus& s) {
      return std::all_of(s.models.begin(), s.models.end(), [](const ModelStatus& m) { return m.running == 0; });
    });
    uint64_t loads = 0;
    for (const ModelStatus& m : status.models) loads += m.loads;
    EXPECT_TRUE(round == 0 ? loads == 4 : loads > 4) << loads << ": the budget of this test holds all models at once";
  }
  EXPECT_EQ(answers[0], answers[1]);
  EXPECT_EQ(answers[0], answers[2]);
}

TEST(NodeHost, WeightsInTheCacheServeTheSameAnswersAndOutliveTheirFiles) {
  const std::string copy = ::testing::TempDir() + "/shoal-cached";
  std::filesystem::remove_all(copy);
  std::filesystem::copy(model_path("tiny-llama"), copy);
  LoopbackNetwork network;
  Client client(network);
  NodeHostConfig config = small_config();
  config.weight_cache_bytes = 32 * kMiB;
  const auto host = start(config, {{ModelId(0), "cached", copy, {.io = ModelIo::kDirect}, 0}}, network);
  ASSERT_TRUE(host.ok()) << host.status();
  const auto unloaded = [](const NodeStatus& s) { return s.models[0].state == ModelState::kUnloaded && s.models[0].loads > 0; };
  std::vector<std::vector<TokenId>> answers;
  for (int round = 0; round < 3; ++round) {
    const Client::Answer answer = client.wait(client.submit(greedy(ModelId(0), long_prompt(1, 20))));
    ASSERT_EQ(answer.finish, FinishReason::kLength) << answer.error;
    answers.push_back(answer.tokens);
    client.send(SetResident{ModelId(0), false});
    client.wait_status(unloaded);
  }
  EXPECT_EQ(answers[0], answers[1]);
  EXPECT_EQ(answers[0], answers[2]);
  const std::string weights = copy + "/model.safetensors";
  std::filesystem::resize_file(weights, std::filesystem::file_size(weights) - 64);
  const Client::Answer damaged = client.wait(client.submit(greedy(ModelId(0), long_prompt(1, 20))));
  EXPECT_EQ(damaged.finish, FinishReason::kError) << "what is in the cache is of another file now";
  std::filesystem::remove_all(copy);
}

TEST(NodeHost, ALoadIsCalledOffAtAnyMomentAndTheNextOneIsWhole) {
  LoopbackNetwork network;
  Client client(network);
  NodeHostConfig config = small_config(12 * kMiB);
  config.tokens_per_step = 64;
  const auto host = start(config, four_models(256), network);
  ASSERT_TRUE(host.ok()) << host.status();
  std::vector<std::vector<TokenId>> alone;
  for (uint32_t i = 0; i < 2; ++i) alone.push_back(client.wait(client.submit(greedy(ModelId(i), long_prompt(1, 30), 8))).tokens);
  for (uint32_t round = 0; round < 60; ++round) {
    const uint32_t a = round % 4, b = (round + 1) % 4;
    const RequestId gone = client.submit(greedy(ModelId(a), long_prompt(1, 30), 8));
    const RequestId stays = client.submit(greedy(ModelId(b), long_prompt(1, 30), 8));
    std::this_thread::sleep_for(std::chrono::microseconds(round * 100));  // somewhere in the load, or in what comes after
    client.send(Cancel{gone, 0});
    const Client::Answer answer = client.wait(stays);
    ASSERT_EQ(answer.finish, FinishReason::kLength) << answer.error;
    EXPECT_EQ(answer.tokens, alone[b % 2]);
  }
  client.wait_status([](const NodeStatus& s) {
    return std::all_of(s.models.begin(), s.models.end(), [](const ModelStatus& m) { return m.running + m.waiting == 0 && m.kv_bytes_active == 0; });
  });
}

TEST(NodeHost, AModelThatVanishedFailsItsOwnRequestsWithTheReason) {
  const std::string copy = ::testing::TempDir() + "/shoal-vanishing";
  std::filesystem::remove_all(copy);
  std::filesystem::copy(model_path("tiny-llama"), copy);
  LoopbackNetwork network;
  Client client(network);
  const auto host = start(
      small_config(), {{ModelId(0), "gone", copy, {}, 0}, {ModelId(1), "stays", model_path("tiny-llama"), {}, 0}}, network);
  ASSERT_TRUE(host.ok()) << host.status();
  std::filesystem::remove_all(copy);
  const RequestId lost = client.submit(greedy(ModelId(0), long_prompt(1, 20)));
  const RequestId kept = client.submit(greedy(ModelId(1), long_prompt(1, 20)));
  const Client::Answer failed = client.wait(lost);
  EXPECT_EQ(failed.finish, FinishReason::kError);
  EXPECT_NE(failed.error.find("gone"), std::string::npos) << failed.error;
  EXPECT_EQ(client.wait(kept).finish, FinishReason::kLength);
}

TEST(NodeHost, ACancelledRequestFreesItsMemory) {
  LoopbackNetwork network;
  Client client(network);
  const auto host = start(small_config(), {{ModelId(0), "tiny-llama", model_path("tiny-llama"), {}, 0}}, network);
  ASSERT_TRUE(host.ok()) << host.status();
  const RequestId id = client.submit(greedy(ModelId(0), long_prompt(1, 50), 1900));
  while (client.received(id) < 5) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  client.send(Cancel{id, 0});
  const NodeStatus status = client.wait_status([](const NodeStatus& s) {
    return !s.models.empty() && s.models[0].steps > 0 && s.models[0].running == 0 && s.models[0].kv_bytes_active == 0;
  });
  EXPECT_LT(client.received(id), 1900u);
  EXPECT_EQ(status.models[0].waiting, 0u);
}

TEST(NodeHost, WhatCannotFitIsRefusedAtStart) {
  LoopbackNetwork network;
  const auto host = start(small_config(1 * kMiB), {{ModelId(0), "tiny-llama", model_path("tiny-llama"), {}, 0}}, network);
  ASSERT_FALSE(host.ok());
  EXPECT_NE(host.status().message().find("--device-memory"), std::string_view::npos);
}

TEST(NodePlan, AContextThatDoesNotFitIsCappedAndAModelThatDoesNotFitIsRefused) {
  NodeHostConfig config = small_config(12 * kMiB);
  config.sequences_max = 8;
  config.tokens_per_step = 64;
  const auto plan = plan_node(config, {{ModelId(0), "fits", model_path("tiny-qwen3"), {}, 256}, {ModelId(1), "none", "/nonexistent", {}, 0}});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->node.models.at(0).max_model_len, 256u);
  EXPECT_TRUE(plan->refused.contains(ModelId(1)));
  config.device_memory_bytes = plan->workspace_bytes + 3 * kPageBytes;  // weights take two pages, KV gets one
  const auto capped = plan_node(config, {{ModelId(0), "capped", model_path("tiny-qwen3"), {}, 0}});
  ASSERT_TRUE(capped.ok());
  ASSERT_EQ(capped->node.models.size(), 1u);
  EXPECT_LT(capped->node.models[0].max_model_len, 2048u);
  config.device_memory_bytes = plan->workspace_bytes + 2 * kPageBytes;
  const auto refused = plan_node(config, {{ModelId(0), "large", model_path("tiny-qwen3"), {}, 0}});
  ASSERT_TRUE(refused.ok());
  EXPECT_NE(refused->refused.at(ModelId(0)).message().find("--device-memory"), std::string_view::npos);
}

TEST(NodeHost, APeerCannotGrowItsInboxWithoutEndAndMayBeginAnew) {
  std::atomic<bool> stuck{false};
  auto plan = plan_node(small_config(), {with_vocabulary("tiny-llama", 0)});
  ASSERT_TRUE(plan.ok());
  plan->record = [&](std::string_view) { stuck.wait(true); };  // on the node's loop thread
  LoopbackNetwork network;
  std::mutex mutex;
  std::condition_variable changed;
  bool ended = false;
  const auto peer = network.connect(kClient, [&](NodeId, std::string bytes) {
    const StatusOr<Message> message = decode(bytes);
    const auto* tokens = message.ok() ? std::get_if<Tokens>(&*message) : nullptr;
    std::lock_guard lock(mutex);
    ended |= tokens != nullptr && tokens->finish.has_value();
    changed.notify_all();
    return true;
  });
  const auto host = NodeHost::start(*std::move(plan), network);
  ASSERT_TRUE(host.ok());
  stuck = true;
  const std::string flood = encode(Cancel{RequestId(99), 0});
  Status status;
  for (size_t i = 0; i < 1'000'000 && status.ok(); ++i) status = peer->send(kNode, flood);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  stuck = false;
  stuck.notify_all();
  Request request = greedy(ModelId(0), {1, 2, 3}, 4);
  request.id = RequestId(1);
  while (!peer->send(kNode, encode(Submit{request})).ok()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  std::unique_lock lock(mutex);
  EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(60), [&] { return ended; }));
}

}  // namespace
}  // namespace shoal
