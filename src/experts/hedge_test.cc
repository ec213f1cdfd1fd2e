// Answers that are later than usual: another server is asked as well, and whoever answers first counts.
#include "experts/test_fixture.h"

namespace shoal {
namespace {

// What is usual is known of each server and number of rows: how many of either come to whom depends on who is quick.
void learn_what_is_usual(Fixture& f, RemoteExperts& client) {
  const auto fewest = [&] {
    uint64_t least = UINT64_MAX;
    for (const RemoteExpertServer& server : client.servers()) least = std::min(least, server.requests);
    return least;
  };
  for (uint32_t i = 0; i < 80 || (i < 5000 && fewest() < 300); ++i) expect_same(f, client, 8, i);
}

TEST(ExpertHedge, ALateAnswerIsAskedOfAnotherServerAsWellAndTheFirstOneCounts) {
  Fixture f;
  // One begins when all of its clients have come: a silent one makes it late.
  std::vector<Fixture::Started> servers;
  servers.push_back(f.serve(f.all(), false, 1 << 30, {.rule = BatchRule::kAll}));
  servers.push_back(f.serve(f.all()));
  const auto client = f.client(kStamp, std::chrono::seconds(30));
  client->set_servers({servers[0].address, servers[1].address});
  ASSERT_TRUE(client->wait_complete(std::chrono::seconds(10)).ok());
  wait_connected(*client);
  learn_what_is_usual(f, *client);
  const uint64_t before = client->all_counts().hedges_won;
  auto silent = f.client(kStamp, std::chrono::seconds(30));
  silent->set_servers({servers[0].address});
  wait_connected(*silent);
  for (uint32_t i = 0; i < 20; ++i) expect_same(f, *client, 8, i);
  RemoteExpertsCounts counts = client->all_counts();
  EXPECT_GT(counts.hedges_won, before);
  EXPECT_EQ(counts.timeouts + counts.losses + counts.rows_resent + counts.deferred, 0u);
  silent.reset();
  const uint64_t late = counts.late;
  for (uint32_t i = 0; i < 400 && counts.late == late; ++i) {
    expect_same(f, *client, 8, i);
    counts = client->all_counts();
  }
  EXPECT_GT(counts.late, late) << "the slot of the one that was late is used again";
}

TEST(ExpertHedge, WhereNobodyElseHoldsAllOfItAnAnswerIsWaitedFor) {
  Fixture f;
  std::vector<Fixture::Started> servers;
  for (const ExpertSet& set : parts_of(f.shape, 2)) servers.push_back(f.serve(set));
  const auto client = f.client(kStamp, std::chrono::seconds(30));
  client->set_servers({servers[0].address, servers[1].address});
  ASSERT_TRUE(client->wait_complete(std::chrono::seconds(10)).ok());
  for (uint32_t i = 0; i < 60; ++i) expect_same(f, *client, 8, i);
  EXPECT_EQ(client->all_counts().hedges, 0u);
}

// One of two with the same rows is lost: the other one's answer is waited for, or it is asked of a third.
TEST(ExpertHedge, EitherServerMayBeLostMeanwhile) {
  for (const size_t victim : {0, 1}) {
    Fixture f;
    std::vector<Fixture::Started> servers;
    for (int i = 0; i < 3; ++i) servers.push_back(f.serve(f.all(), false, 1 << 30, i < 2 ? BatchOptions{.rule = BatchRule::kAll} : BatchOptions{}));
    const auto client = f.client(kStamp, std::chrono::seconds(30));
    client->set_servers({servers[0].address, servers[1].address, servers[2].address});
    ASSERT_TRUE(client->wait_complete(std::chrono::seconds(10)).ok());
    wait_connected(*client);
    learn_what_is_usual(f, *client);
    const auto silent = f.client(kStamp, std::chrono::seconds(30));
    silent->set_servers({servers[0].address, servers[1].address});
    wait_connected(*silent);
    std::thread killer([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      servers[victim].server.reset();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      servers[1 - victim].server.reset();
    });
    for (uint32_t i = 0; i < 20; ++i) expect_same(f, *client, 8, i);
    killer.join();
    for (uint32_t i = 0; i < 5; ++i) expect_same(f, *client, 8, i);
    EXPECT_EQ(client->all_counts().deferred, 0u);
  }
}

}  // namespace
}  // namespace shoal
