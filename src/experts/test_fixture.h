// For tests of experts: servers and a client in one process, and the logits of a model with its experts there and here.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "experts/client.h"
#include "experts/server.h"
#include "models/test_runner.h"

namespace shoal {

constexpr uint64_t kStamp = 0x1234;
inline const std::string kModel = SHOAL_SOURCE_DIR "/models/tiny-qwen3-moe";

inline std::string fresh_name() {
  static int next = 0;
  return absl::StrCat("@shoal-experts-test-", ::getpid(), "-", next++);
}

// Of the test's thread.
inline const std::shared_ptr<Bell>& bell() {
  static const std::shared_ptr<Bell> bell = *Bell::make();
  return bell;
}

struct Fixture {
  explicit Fixture(const std::string& path = kModel, uint32_t lanes = 1)
      : here(*TestModel::open(path, {})), elsewhere(*TestModel::open(path, {.experts_elsewhere = true})),
        plan(elsewhere->plan().expert_plan()), shape(shape_of(*plan)), lanes(lanes) {}

  struct Started {
    std::unique_ptr<ExpertServer> server;
    ExpertAddress address;
    ExpertAddress local;  // of others of its machine
  };
  // Over TCP it has a place for others of its machine, too.
  Started serve(const ExpertSet& holds, bool tcp = false, uint64_t memory = 1 << 30, const BatchOptions& batch = {}, const std::string& domain = "") const {
    ExpertServerConfig config{.name = absl::StrCat("server", fresh_name()), .domain = domain, .memory_bytes = memory, .batch = batch};
    if (tcp) config.network_address = "127.0.0.1:0";
    config.unix_address = fresh_name();
    auto server = ExpertServer::start(config, {{"tiny", kStamp, plan, holds}});
    CHECK(server.ok());
    const std::string address = tcp ? absl::StrCat("127.0.0.1:", (*server)->port()) : "unix:" + config.unix_address;
    return {*std::move(server), {config.name, address, ""}, {config.name, "unix:" + config.unix_address, ""}};
  }
  std::unique_ptr<RemoteExperts> client(uint64_t stamp = kStamp, Duration timeout = std::chrono::milliseconds(50)) const {
    return *RemoteExperts::start({.client = "node", .model = "tiny", .stamp = stamp, .plan = plan, .lanes = lanes, .bell = bell(), .timeout_min = timeout});
  }
  ExpertSet all() const { return *parse_experts(shape, "*:*"); }

  std::unique_ptr<TestModel> here, elsewhere;
  std::shared_ptr<const ExpertPlan> plan;
  ExpertShape shape;
  uint32_t lanes;
};

// Every server that the client knows.
inline void wait_connected(const RemoteExperts& client) {
  const auto all = [&] {
    const auto servers = client.servers();
    return std::all_of(servers.begin(), servers.end(), [](const RemoteExpertServer& server) { return server.connected; });
  };
  for (const TimePoint until = steady_now() + std::chrono::seconds(10); !all() && steady_now() < until;) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ASSERT_TRUE(all());
}

// Every expert once, in `parts` sets.
inline std::vector<ExpertSet> parts_of(const ExpertShape& shape, uint32_t parts) {
  std::vector<ExpertSet> sets(parts, ExpertSet(shape));
  for (uint32_t index = 0; index < shape.count(); ++index) sets[(index + index / shape.experts) % parts].add(index);
  return sets;
}

inline std::vector<TokenId> tokens_of(const Fixture& f, uint32_t count, uint32_t salt) {
  std::vector<TokenId> tokens(count);
  for (size_t i = 0; i < count; ++i) tokens[i] = static_cast<TokenId>((i * 29 + salt * 7 + 3) % f.here->plan().vocab_size());
  return tokens;
}

inline StatusOr<uint32_t> await(ExchangePartner& partner) {
  while (true) {
    ASSIGN_OR_RETURN(const std::optional<uint32_t> lane, partner.answered());
    if (lane) return *lane;
    if (const Duration most = partner.doze(); most > Duration(0)) bell()->wait(most);
    partner.woken();
  }
}

// Logits of all rows, so that each passes all layers; an error if the pass was deferred.
inline StatusOr<std::vector<float>> logits_of(TestModel& model, ExchangePartner* partner, const std::vector<TokenId>& tokens,
                                       const std::function<void(int)>& between = {}) {
  TestSequence sequence(model, tokens);
  const auto rows = static_cast<uint32_t>(tokens.size());
  const std::vector<SequenceSlice> slices{sequence.slice(rows)};
  std::vector<LogitsQuery> queries;
  for (uint32_t row = 0; row < rows; ++row) queries.push_back({row});
  const ForwardInput input{tokens, slices, queries};
  ASSIGN_OR_RETURN(const auto pass, model.model().begin(input, model.workspace(rows, rows)));
  for (int asked = 0;; ++asked) {
    ASSIGN_OR_RETURN(const auto exchange, pass->advance());
    if (!exchange) break;
    partner->ask(0, *exchange);
    if (between) between(asked);
    pass->meanwhile();
    RETURN_IF_ERROR(await(*partner).status());
  }
  std::vector<float> logits;
  for (uint32_t row = 0; row < rows; ++row) {
    const std::span<const float> all = pass->logits(row).all;
    logits.insert(logits.end(), all.begin(), all.end());
  }
  return logits;
}

inline void expect_same(Fixture& f, RemoteExperts& client, uint32_t count, uint32_t salt, const std::function<void(int)>& between = {}) {
  const auto tokens = tokens_of(f, count, salt);
  const auto got = logits_of(*f.elsewhere, &client, tokens, between);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(*got, *logits_of(*f.here, nullptr, tokens)) << count << " rows, salt " << salt;
}

}  // namespace shoal
