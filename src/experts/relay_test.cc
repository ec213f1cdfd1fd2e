// Dispatch in two phases: over the network each token goes once to a machine, whatever becomes of its servers, and no bit changes.
#include "experts/relay.h"

#include <map>
#include <set>

#include "base/rng.h"
#include "experts/request_rows.h"
#include "experts/test_fixture.h"
#include "kernels/expert_router.h"

namespace shoal {
namespace {

using Servers = std::vector<Fixture::Started>;

// They are of one machine.
void join(Servers& servers, size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) {
    std::vector<ExpertAddress> peers;
    for (size_t j = begin; j < end; ++j) {
      if (j != i && servers[j].server != nullptr) peers.push_back(servers[j].local);
    }
    servers[i].server->set_peers(peers);
  }
}

std::unique_ptr<RemoteExperts> client_of(const Fixture& f, const Servers& servers) {
  auto client = f.client(kStamp, std::chrono::seconds(2));  // machines may be slow, and everything is counted
  std::vector<ExpertAddress> addresses;
  for (const auto& server : servers) addresses.push_back(server.address);
  client->set_servers(addresses);
  EXPECT_TRUE(client->wait_complete(std::chrono::seconds(10)).ok());
  wait_connected(*client);
  return client;
}

struct Sent {
  uint64_t tokens = 0, requests = 0, relayed = 0, rows = 0, received = 0;
};
Sent pass(Fixture& f, RemoteExperts& client, uint32_t count) {
  const RemoteExpertsCounts before = client.all_counts();
  expect_same(f, client, count, count);
  const RemoteExpertsCounts after = client.all_counts();
  EXPECT_EQ(after.rows_resent, before.rows_resent);
  return {after.tokens_sent - before.tokens_sent, after.requests - before.requests, after.relayed - before.relayed, after.rows_asked - before.rows_asked, after.rows_received - before.rows_received};
}

// Until its servers have told it whom they reach.
void wait_relays(Fixture& f, RemoteExperts& client, uint64_t requests) {
  for (int i = 0; i < 200; ++i) {
    const Sent sent = pass(f, client, 40);
    if (sent.relayed == requests) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  FAIL() << "no relays";
}

TEST(ExpertRelay, EachTokenGoesOnceToAMachineAndNoBitChanges) {
  Fixture f;
  const uint32_t layers = f.plan->layers(), used = f.plan->used();
  Servers servers;
  for (const ExpertSet& set : parts_of(f.shape, 3)) servers.push_back(f.serve(set, true));
  const auto client = client_of(f, servers);
  const Sent direct = pass(f, *client, 40);
  EXPECT_EQ(direct.relayed, 0u);
  EXPECT_EQ(direct.rows, 40u * layers * used);
  EXPECT_GT(direct.tokens, 40u * layers);
  join(servers, 0, 3);
  wait_relays(f, *client, layers);
  const Sent relayed = pass(f, *client, 40);
  EXPECT_EQ(relayed.tokens, 40u * layers) << "k rows of a token for one machine: one copy instead of one for each server";
  EXPECT_EQ(relayed.requests, layers);
  EXPECT_EQ(relayed.rows, direct.rows);
  EXPECT_LT(relayed.received, direct.received) << "one machine has all groups whole: a sum for each group of a token";
  EXPECT_GE(relayed.received, 40u * layers * 2) << "four experts are of two groups at least";
  for (uint32_t count : {1, 3, 200}) pass(f, *client, count);
}

TEST(ExpertRelay, TwoMachinesGetAtMostTwoCopies) {
  Fixture f;
  const uint32_t layers = f.plan->layers();
  Servers servers;
  for (const ExpertSet& set : parts_of(f.shape, 4)) servers.push_back(f.serve(set, true));
  const auto client = client_of(f, servers);
  const Sent direct = pass(f, *client, 40);
  join(servers, 0, 2);
  join(servers, 2, 4);
  wait_relays(f, *client, 2 * layers);
  const Sent relayed = pass(f, *client, 40);
  EXPECT_LE(relayed.tokens, 2 * 40u * layers);
  EXPECT_LT(relayed.tokens, direct.tokens);
}

// For any choice of experts and any part of the rows: what is joined is a token's whole group, in ascending order, and nothing else is.
TEST(ExpertRelay, OnlyWholeGroupsAreSummed) {
  constexpr uint32_t kExperts = 24;
  Rng rng(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<ExpertRow> call;
    for (uint32_t token = 0; token < 6; ++token) {
      std::set<uint32_t> chosen;
      while (chosen.size() < 5) chosen.insert(static_cast<uint32_t>(rng.below(kExperts)));
      for (const uint32_t expert : chosen) call.push_back({token, expert});
    }
    std::map<std::pair<uint32_t, uint32_t>, uint32_t> all, here;
    std::vector<uint32_t> part;
    for (uint32_t row = 0; row < call.size(); ++row) {
      const std::pair group(call[row].token, expert_group(call[row].expert, kExperts));
      ++all[group];
      if (rng.chance(0.3)) continue;
      ++here[group];
      part.push_back(row);
    }
    const std::vector<uint32_t> before = part;
    std::vector<bool> joined;
    const bool any = join_groups(call, kExperts, part, joined);
    EXPECT_TRUE(std::is_permutation(part.begin(), part.end(), before.begin(), before.end()));
    uint32_t count = 0, expected = 0;
    for (size_t i = 0; i < part.size(); ++i) {
      if (!joined[i]) continue;
      ++count;
      const ExpertRow &a = call[part[i - 1]], &b = call[part[i]];
      EXPECT_EQ(a.token, b.token);
      EXPECT_EQ(expert_group(a.expert, kExperts), expert_group(b.expert, kExperts));
      EXPECT_LT(a.expert, b.expert);
    }
    for (const auto& [group, rows] : here) expected += rows == all[group] ? rows - 1 : 0;
    EXPECT_EQ(count, expected);
    EXPECT_EQ(any, expected > 0);
  }
}

// Both hold everything, so that each is asked for a part: one of them is the relay of both.
TEST(ExpertRelay, AServerThatIsLostAtAnyLayerWhetherItIsTheRelayOrBehindItChangesNothing) {
  Fixture f;
  for (int layer = 0; layer < 5; ++layer) {
    for (size_t victim : {0, 1}) {
      Servers servers;
      for (int i = 0; i < 2; ++i) servers.push_back(f.serve(f.all(), true));
      const auto client = client_of(f, servers);
      join(servers, 0, 2);
      wait_relays(f, *client, f.plan->layers());
      expect_same(f, *client, 40, 7, [&](int asked) {
        if (asked == layer) servers[victim].server.reset();
      });
      expect_same(f, *client, 40, 8);
      EXPECT_EQ(client->all_counts().deferred, 0u);
    }
  }
}

// What the relay does not reach any more is asked of its server directly.
TEST(ExpertRelay, WhatARelayCannotGiveOnIsAskedForDirectly) {
  Fixture f;
  Servers servers;
  for (const ExpertSet& set : parts_of(f.shape, 2)) servers.push_back(f.serve(set, true));
  const auto client = client_of(f, servers);
  join(servers, 0, 2);
  wait_relays(f, *client, f.plan->layers());
  for (const auto& server : servers) server.server->set_peers({});
  for (uint32_t salt = 0; salt < 20; ++salt) {
    expect_same(f, *client, 20, salt);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(client->all_counts().deferred, 0u);
}

}  // namespace
}  // namespace shoal
