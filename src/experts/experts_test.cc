// Servers and clients of experts, in one process, over shared memory and over TCP: the logits of a model whose experts are elsewhere are
// those of the model, bit for bit, whatever becomes of the servers meanwhile.
#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "experts/client.h"
#include "experts/fleet_plan.h"
#include "experts/handshake.h"
#include "experts/keeper.h"
#include "experts/region.h"
#include "experts/server.h"
#include "experts/test_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/test_runner.h"
#include "nlohmann/json.hpp"
#include "slots/message.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;

TEST(Experts, RowsOverSharedMemoryAndOverTcpGiveTheBitsOfExpertsHere) {
  for (const bool tcp : {false, true}) {
    Fixture f;
    const auto sets = parts_of(f.shape, 3);
    std::vector<Fixture::Started> servers;
    for (const ExpertSet& set : sets) servers.push_back(f.serve(set, tcp));
    const auto client = f.client();
    client->set_servers({servers[0].address, servers[1].address, servers[2].address});
    ASSERT_TRUE(client->wait_complete(std::chrono::seconds(10)).ok());
    for (uint32_t count : {1, 3, 40, 200}) expect_same(f, *client, count, count);
    EXPECT_GT(client->all_counts().requests, 12u);
    EXPECT_EQ(client->all_counts().rows_resent, 0u);
    EXPECT_EQ(client->servers()[0].over, tcp ? "TCP" : "shared memory");
  }
}

TEST(Experts, AStreamOnWhichNothingIsAskedStays) {
  const Fixture f;
  const auto server = f.serve(f.all(), /*tcp=*/true);
  const auto client = f.client();
  client->set_servers({server.address});
  wait_connected(*client);
  const auto tokens = tokens_of(f, 5, 1);
  ASSERT_TRUE(logits_of(*f.elsewhere, client.get(), tokens).ok());
  const uint64_t asked = client->servers().front().requests;
  ASSERT_GT(asked, 0u);
  std::this_thread::sleep_for(kBulkTimeout + std::chrono::seconds(1));
  EXPECT_TRUE(client->servers().front().connected);
  EXPECT_EQ(client->servers().front().requests, asked) << "another connection counts anew";
}

TEST(Experts, EveryFamilyWithExpertsIsServedBitForBit) {
  for (const char* folder : {SHOAL_SOURCE_DIR "/models", SHOAL_SHARED_DIR "/models/reference"}) {
    if (!std::filesystem::exists(folder)) continue;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      const auto checkpoint = entry.is_directory() ? open_checkpoint(entry.path()) : StatusOr<std::shared_ptr<Checkpoint>>(not_found(""));
      if (!checkpoint.ok() || !(*checkpoint)->config.experts || !plan_model(*checkpoint, {}).ok()) continue;
      if ((*plan_model(*checkpoint, {}))->expert_plan() == nullptr) continue;  // a family that computes them itself
      Fixture f(entry.path());
      for (const bool tcp : {false, true}) {  // rows, and sums of groups
        const auto server = f.serve(f.all(), tcp);
        const auto client = f.client();
        client->set_servers({server.address});
        ASSERT_TRUE(client->wait_complete(std::chrono::seconds(10)).ok()) << entry.path();
        expect_same(f, *client, 21, 1);
      }
    }
  }
}

TEST(Experts, AServerThatIsLostAtAnyLayerChangesNothingWhereAnotherHoldsTheSame) {
  Fixture f;
  for (int when = 0; when < static_cast<int>(f.shape.layers()); ++when) {
    auto first = f.serve(f.all()), second = f.serve(f.all());
    const auto client = f.client();
    client->set_servers({first.address, second.address});
    wait_connected(*client);
    expect_same(f, *client, 5, 1);
    expect_same(f, *client, 30, 2, [&](int asked) {
      if (asked == when) first.server.reset();
    });
    EXPECT_EQ(client->all_counts().deferred, 0u);
    expect_same(f, *client, 7, 3);
  }
}

TEST(Experts, WithoutAnotherCopyThePassIsDeferredTheExpertsAreLoadedElsewhereAndItGoesOn) {
  Fixture f;
  const auto sets = parts_of(f.shape, 2);
  auto first = f.serve(sets[0]), second = f.serve(sets[1]);
  const auto client = f.client();
  client->set_servers({first.address, second.address});
  ASSERT_TRUE(client->wait_complete(std::chrono::seconds(10)).ok());
  first.server.reset();
  const auto tokens = tokens_of(f, 20, 1);
  StatusOr<std::vector<float>> got = unavailable("not tried");
  int deferred = 0;
  const TimePoint until = steady_now() + std::chrono::seconds(20);
  while (!got.ok() && steady_now() < until) {
    got = logits_of(*f.elsewhere, client.get(), tokens);
    if (got.ok()) break;
    EXPECT_EQ(got.status().code(), StatusCode::kUnavailable) << got.status();
    ++deferred;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_GT(deferred, 0);
  EXPECT_EQ(*got, *logits_of(*f.here, nullptr, tokens));
  EXPECT_GT(client->all_counts().wishes, 0u);
}

TEST(Experts, WhatAServerDroppedIsAskedOfAnother) {
  Fixture f;
  auto first = f.serve(f.all()), second = f.serve(f.all());
  const auto client = f.client();
  client->set_servers({first.address, second.address});
  wait_connected(*client);
  expect_same(f, *client, 20, 1, [&](int asked) {
    const Status dropped = asked == 0 ? first.server->drop(kStamp, write_set(f.shape, f.all())) : OkStatus();
    ASSERT_TRUE(dropped.ok()) << dropped;
  });
  EXPECT_EQ(first.server->status(false)["models"][0]["experts"], 0);
  ASSERT_TRUE(first.server->hold(kStamp, write_set(f.shape, f.all())).ok());
  expect_same(f, *client, 20, 2);
}

TEST(Experts, ClientsComeAndGoWhileOthersAreServed) {
  Fixture f;
  const auto server = f.serve(f.all());
  const auto client = f.client();
  client->set_servers({server.address});
  ASSERT_TRUE(client->wait_complete(std::chrono::seconds(10)).ok());
  for (uint32_t i = 0; i < 5; ++i) {
    const auto other = f.client();
    other->set_servers({server.address});
    ASSERT_TRUE(other->wait_complete(std::chrono::seconds(10)).ok());
    expect_same(f, *client, 3, i, [&](int asked) {
      if (asked == 1) other->set_servers({});
    });
  }
}

TEST(Experts, AServerOfOtherFilesIsRefusedByName) {
  Fixture f;
  const auto server = f.serve(f.all());
  const auto client = f.client(/*stamp=*/0x9999);
  client->set_servers({server.address});
  const Status status = client->wait_complete(std::chrono::milliseconds(500));
  EXPECT_THAT(std::string(status.message()), HasSubstr("other files"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("0000000000009999"));
}

TEST(Experts, AClientOfAnotherVersionIsRefusedByName) {
  Fixture f;
  const auto server = f.serve(f.all());
  const auto socket = *unix_connect(server.address.address.substr(5));
  ASSERT_TRUE(write_note(*socket, {{"shoal", "experts"}, {"protocol", kExpertProtocol + 1}, {"kind", "client"}}).ok());
  const auto note = read_note(*socket);
  ASSERT_TRUE(note.ok());
  EXPECT_THAT(std::string(status_of(*note).message()), HasSubstr("speaks protocol 2 of experts"));
}

// Else it would wait for experts that are there.
TEST(Experts, WhatIsLoadedWhileAClientConnectsIsToldToIt) {
  Fixture f;
  const auto server = f.serve(ExpertSet(f.shape));
  auto socket = *unix_connect(server.address.address.substr(5));
  ASSERT_TRUE(write_note(*socket, write_hello({.client = "node", .model = "tiny", .stamp = kStamp, .shape = f.shape, .hidden = f.plan->hidden(), .used = f.plan->used()})).ok());
  const auto welcome = read_welcome(*read_note(*socket), f.shape);
  ASSERT_TRUE(welcome.ok()) << welcome.status();
  EXPECT_EQ(welcome->holds.count(), 0u);
  ASSERT_TRUE(server.server->hold(kStamp, write_set(f.shape, f.all())).ok());  // nobody is connected yet
  const auto inbox = *Region::make_shared({1, response_bytes(welcome->rows_max, f.plan->hidden())});
  const int own[] = {inbox->fd(), bell()->fd()};
  ASSERT_TRUE(socket->send_descriptors(own).ok());
  const std::vector<int> theirs = *socket->receive_descriptors(2);
  for (const int descriptor : theirs) ::close(descriptor);
  socket->set_timeout(std::chrono::seconds(5));
  const auto note = read_note(*socket);
  ASSERT_TRUE(note.ok()) << note.status();
  EXPECT_EQ(*read_set(f.shape, (*note)["holds"]), f.all());
}

TEST(Experts, WhatCannotBeHeldOrDroppedIsRefusedByName) {
  Fixture f;
  const auto server = f.serve(ExpertSet(f.shape), false, f.plan->bytes_max(0) * 2);
  const auto ask = [&](const Json& request) {
    const auto answer = ask_expert_server(server.address.address, nullptr, request);
    return answer.ok() ? std::string() : std::string(answer.status().message());
  };
  const std::string stamp = stamp_text(kStamp);
  EXPECT_EQ(ask({{"verb", "hold"}, {"model", stamp}, {"experts", {{"0", "0-1"}}}}), "");
  EXPECT_THAT(ask({{"verb", "hold"}, {"model", stamp}, {"experts", {{"0", "0-2"}}}}), HasSubstr("raise --memory"));
  EXPECT_THAT(ask({{"verb", "drop"}, {"model", stamp}, {"experts", {{"1", "3"}}}}), HasSubstr("does not hold layer 1, expert 3"));
  EXPECT_THAT(ask({{"verb", "hold"}, {"model", stamp}, {"experts", {{"0", "99"}}}}), HasSubstr("names no expert"));
  EXPECT_THAT(ask({{"verb", "hold"}, {"model", stamp}, {"experts", {{"77", "0"}}}}), HasSubstr("layer 77 has no experts"));
  EXPECT_THAT(ask({{"verb", "hold"}, {"model", "0001"}, {"experts", Json::object()}}), HasSubstr("no model of the stamp"));
  EXPECT_THAT(ask({{"verb", "dance"}}), HasSubstr("takes no 'dance'"));
}

TEST(Experts, SetsAreWrittenAsRangesAndReadBack) {
  const ExpertShape shape{{1, 2, 5}, 16};
  const auto set = parse_experts(shape, "1-2:0-3,7;5:*");
  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_EQ(set->count(), 26u);
  EXPECT_EQ(write_set(shape, *set).dump(), R"({"1":"0-3,7","2":"0-3,7","5":"0-15"})");
  EXPECT_EQ(*read_set(shape, write_set(shape, *set)), *set);
  EXPECT_FALSE(parse_experts(shape, "3:0").ok());
  EXPECT_FALSE(parse_experts(shape, "1:16").ok());
  EXPECT_FALSE(parse_experts(shape, "1").ok());
}

// Copies of every expert over the servers that are there.
std::vector<int> copies_of(const Fixture& f, const std::vector<ExpertAddress>& addresses) {
  std::vector<int> copies(f.shape.count());
  for (const auto& report : ask_reports(addresses, nullptr)) {
    if (!report.ok()) continue;
    for (const uint32_t index : report->models[0].holds.list()) ++copies[index];
  }
  return copies;
}

// A fleet whose servers may come and go while keepers look after it.
struct Kept {
  Fixture f;
  std::mutex mutex;
  std::vector<ExpertAddress> addresses;  // guarded by mutex

  std::vector<ExpertAddress> now() {
    std::lock_guard lock(mutex);
    return addresses;
  }
  Fixture::Started add(uint64_t memory = 1 << 30) {
    auto started = f.serve(ExpertSet(f.shape), false, memory);
    std::lock_guard lock(mutex);
    addresses.push_back(started.address);
    return started;
  }
  std::unique_ptr<ExpertKeeper> keeper(const std::string& name) {
    return std::make_unique<ExpertKeeper>(ExpertKeeper::Options{.name = name, .servers = [this] { return now(); }, .look = std::chrono::milliseconds(20),
                                                                .window = std::chrono::milliseconds(100), .grace = std::chrono::milliseconds(100)});
  }
  // Whether it comes about that every expert has `least` copies at least, and at most `most`.
  bool come_to(int least, int most) {
    for (const TimePoint until = steady_now() + std::chrono::seconds(20); steady_now() < until;) {
      const auto copies = copies_of(f, now());
      const auto [low, high] = std::minmax_element(copies.begin(), copies.end());
      if (*low >= least && *high <= most) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }
};

TEST(ExpertKeeper, ServersThatComeAndGoAndDrainHoldTwoCopiesOfEverything) {
  Kept kept;
  auto first = kept.add(), second = kept.add();
  const auto keeper = kept.keeper("one");
  EXPECT_TRUE(kept.come_to(2, 2));
  const auto client = kept.f.client();
  client->set_servers(kept.now());
  ASSERT_TRUE(client->wait_complete(std::chrono::seconds(10)).ok());
  auto third = kept.add();
  client->set_servers(kept.now());
  first.server.reset();  // its copies are made again, on the third
  keeper->look();
  EXPECT_TRUE(kept.come_to(2, 2));
  expect_same(kept.f, *client, 20, 1);
  auto fourth = kept.add();
  ASSERT_TRUE(ask_expert_server(second.address, nullptr, {{"verb", "drain"}}, std::chrono::seconds(5)).ok());
  EXPECT_TRUE(kept.come_to(2, 2));
  EXPECT_EQ(second.server->status(false)["models"][0]["experts"], 0);
  EXPECT_THAT(second.server->hold(kStamp, write_set(kept.f.shape, kept.f.all())).message(), HasSubstr("drains and takes nothing"));
  client->set_servers(kept.now());
  expect_same(kept.f, *client, 20, 2);
  EXPECT_EQ(keeper->status()["why"], "");
}

TEST(ExpertKeeper, OneDecidesAndAnotherTakesOver) {
  Kept kept;
  const auto server = kept.add();
  auto one = kept.keeper("one");
  EXPECT_TRUE(kept.come_to(1, 1));
  const auto two = kept.keeper("two");
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(two->status()["keeps"], false);
  EXPECT_THAT(two->status()["why"].get<std::string>(), HasSubstr("'one' decides"));
  one.reset();
  ASSERT_TRUE(server.server->drop(kStamp, write_set(kept.f.shape, kept.f.all())).ok());
  EXPECT_TRUE(kept.come_to(1, 1));
  EXPECT_EQ(two->status()["keeps"], true);
}

TEST(ExpertKeeper, WhatAnOperatorPlacedStaysAndOnlyWhatNobodyHoldsIsCopied) {
  Kept kept;
  const auto sets = parts_of(kept.f.shape, 2);
  auto first = kept.f.serve(sets[0]), second = kept.f.serve(sets[1]);
  {
    std::lock_guard lock(kept.mutex);
    kept.addresses = {first.address, second.address};
  }
  const auto keeper = kept.keeper("one");
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_TRUE(kept.come_to(1, 1));
  second.server.reset();
  EXPECT_TRUE(kept.come_to(1, 1));
  ASSERT_TRUE(ask_expert_server(first.address, nullptr, {{"verb", "unpin"}}, std::chrono::seconds(5)).ok());
  const auto third = kept.add();
  EXPECT_TRUE(kept.come_to(2, 2));
}

TEST(ExpertKeeper, ItSaysWhatHasNoRoom) {
  Kept kept;
  const auto server = kept.add(1 << 20);
  const auto keeper = kept.keeper("one");
  for (const TimePoint until = steady_now() + std::chrono::seconds(20); keeper->status()["why"] == "" && steady_now() < until;) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_THAT(keeper->status()["why"].get<std::string>(), HasSubstr("add a server or memory"));
}

// Two of one domain and one of another; the first is about to leave.
TEST(ExpertFleet, WhatALeavingServerAloneHoldsIsCopiedAsThePlannerPlacesIt) {
  Fixture f;
  const ExpertSet all = f.all();
  std::vector<Fixture::Started> servers;
  for (const char* domain : {"left", "left", "right"}) servers.push_back(f.serve(servers.empty() ? all : ExpertSet(f.shape), false, 1 << 30, {}, domain));
  const auto ask = [&] {
    std::vector<ServerReport> reports;
    for (const auto& server : servers) reports.push_back(*ask_report(server.address, nullptr));
    return reports;
  };
  const auto held = [&](size_t server) { return ask()[server].models.front().holds.count(); };
  for (const auto& server : servers) ASSERT_TRUE(ask_expert_server(server.address, nullptr, {{"verb", "unpin"}}, std::chrono::seconds(5)).ok());
  const auto copied = copy_for_leaving(ask, ask()[0].name, nullptr);
  ASSERT_TRUE(copied.ok()) << copied.status();
  EXPECT_EQ(*copied, 2 * all.count()) << "two copies are left of everything";
  EXPECT_EQ(held(1), all.count());
  EXPECT_EQ(held(2), all.count());
  EXPECT_EQ(held(0), all.count()) << "it drops them itself, when it drains";
  EXPECT_EQ(*copy_for_leaving(ask, ask()[0].name, nullptr), 0u);
  EXPECT_THAT(std::string(copy_for_leaving(ask, "nobody", nullptr).status().message()), HasSubstr("does not answer"));
}

TEST(ExpertFleet, AServerDoesNotLeaveWithALastCopyForWhichThereIsNoRoom) {
  Fixture f;
  const auto first = f.serve(f.all()), second = f.serve(ExpertSet(f.shape), false, 1 << 20);
  const auto ask = [&] { return std::vector<ServerReport>{*ask_report(first.address, nullptr), *ask_report(second.address, nullptr)}; };
  const auto copied = copy_for_leaving(ask, ask()[0].name, nullptr);
  EXPECT_EQ(copied.status().code(), StatusCode::kFailedPrecondition) << copied.status();
  EXPECT_THAT(std::string(copied.status().message()), HasSubstr("holds the last copy"));
  EXPECT_EQ(ask()[1].models.front().holds.count(), 0u) << "nothing was changed";
  EXPECT_EQ(*copy_for_leaving(ask, ask()[1].name, nullptr), 0u) << "who holds nothing may go";
}

TEST(Experts, APeersMemoryOfAnotherSizeOrUnsealedIsRefused) {
  const SlotSizes sizes{2, 5000};
  const auto region = *Region::make_shared(sizes);
  EXPECT_FALSE(Region::map(::dup(region->fd()), {2, 50'000}).ok());
  EXPECT_TRUE(Region::map(::dup(region->fd()), sizes).ok());
}

}  // namespace
}  // namespace shoal
