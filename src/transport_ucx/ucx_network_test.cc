#include "transport_ucx/ucx_network.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <cstring>
#include <future>
#include <latch>
#include <thread>
#include <vector>

#include "base/memory_file.h"
#include "host/kv_link.h"
#include "transport/bulk_tcp.h"

namespace shoal {
namespace {

std::vector<std::byte> pattern(size_t count, uint32_t seed) {
  std::vector<std::byte> out(count);
  for (size_t i = 0; i < count; ++i) out[i] = static_cast<std::byte>((i * 2654435761u + seed) >> 11);
  return out;
}

std::shared_ptr<BulkNetwork> network() {
  static const std::shared_ptr<BulkNetwork> shared = make_bulk_ucx(make_bulk_tcp(), /*listens=*/true);
  return shared;
}

struct Pair {
  Pair() : listener(*network()->listen("127.0.0.1:0")) {
    auto accepted = std::async(std::launch::async, [this] {
      auto socket = listener->accept();
      std::byte hello;
      EXPECT_TRUE(socket->read({&hello, 1}).ok());  // a connection comes up as it is served
      return socket;
    });
    auto connected = network()->connect(address());
    EXPECT_TRUE(connected.ok()) << connected.status();
    client = *std::move(connected);
    const std::byte hello{1};
    EXPECT_TRUE(client->write({&hello, 1}).ok());
    server = accepted.get();
  }
  std::string address() const { return std::string(network()->scheme()) + "127.0.0.1:" + std::to_string(listener->port()); }

  std::unique_ptr<BulkListener> listener;
  std::unique_ptr<BulkSocket> client, server;
};

TEST(Ucx, BytesArriveInOrderHoweverTheyAreCut) {
  Pair pair;
  const size_t sizes[] = {1, 7, 4096, 65'537, kUcxPieceBytes, kUcxPieceBytes + 1, 5u << 20, 3};
  std::thread writer([&] {
    for (const size_t size : sizes) EXPECT_TRUE(pair.client->write(pattern(size, 1)).ok());
  });
  std::vector<std::byte> sent, got;
  for (const size_t size : sizes) {
    const auto bytes = pattern(size, 1);
    sent.insert(sent.end(), bytes.begin(), bytes.end());
  }
  got.resize(sent.size());
  const size_t cuts[] = {3, 100'000, 11, 1u << 20, 5};
  for (size_t at = 0, i = 0; at < got.size(); ++i) {
    const size_t count = std::min(cuts[i % std::size(cuts)], got.size() - at);
    ASSERT_TRUE(pair.server->read(std::span(got).subspan(at, count)).ok());
    at += count;
  }
  writer.join();
  EXPECT_EQ(sent, got);
}

TEST(Ucx, ManyStreamsAnswerAtOnce) {
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < 4; ++i) {
    threads.emplace_back([i] {
      Pair pair;
      std::thread echo([&] {
        std::vector<std::byte> bytes(200'000);
        for (int turn = 0; turn < 20; ++turn) {
          ASSERT_TRUE(pair.server->read(bytes).ok());
          ASSERT_TRUE(pair.server->write(bytes).ok());
        }
      });
      for (int turn = 0; turn < 20; ++turn) {
        const auto sent = pattern(200'000, i * 100 + static_cast<uint32_t>(turn));
        std::vector<std::byte> got(sent.size());
        EXPECT_TRUE(pair.client->write(sent).ok());
        EXPECT_TRUE(pair.client->read(got).ok());
        EXPECT_EQ(sent, got);
      }
      echo.join();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Ucx, WhoReadsHearsThatTheOtherSideIsGone) {
  Pair pair;
  const auto last = pattern(1000, 3);
  ASSERT_TRUE(pair.client->write(last).ok());
  pair.client.reset();
  std::vector<std::byte> got(last.size());
  EXPECT_TRUE(pair.server->read(got).ok()) << "what was sent before arrives";
  EXPECT_EQ(got, last);
  EXPECT_EQ(pair.server->read(got).code(), StatusCode::kUnavailable);
  EXPECT_EQ(pair.server->write(got).code(), StatusCode::kUnavailable);
}

TEST(Ucx, ShuttingDownEndsWhatIsReadAndTellsTheOtherSide) {
  Pair pair;
  std::latch reading(1);
  auto read = std::async(std::launch::async, [&] {
    std::byte one;
    reading.count_down();
    return pair.client->read({&one, 1});
  });
  reading.wait();
  pair.client->shut_down();
  EXPECT_EQ(read.get().code(), StatusCode::kUnavailable);
  std::byte one;
  EXPECT_EQ(pair.server->read({&one, 1}).code(), StatusCode::kUnavailable);
  EXPECT_EQ(pair.client->write({&one, 1}).code(), StatusCode::kUnavailable);
}

TEST(Ucx, AListenerThatIsShutDownEndsItsAccept) {
  const auto listener = *network()->listen("127.0.0.1:0");
  auto accepted = std::async(std::launch::async, [&] { return listener->accept(); });
  listener->shut_down();
  EXPECT_EQ(accepted.get(), nullptr);
}

TEST(Ucx, NobodyThereIsNamed) {
  const auto nobody = network()->connect("ucx:127.0.0.1:1");
  ASSERT_EQ(nobody.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(nobody.status().message().find("ucx:127.0.0.1:1"), std::string::npos) << nobody.status();
  EXPECT_FALSE(network()->connect("ucx:nonsense").ok());
  EXPECT_NE(make_bulk_tcp()->connect("ucx:127.0.0.1:1").status().message().find("has no UCX"), std::string::npos);
}

TEST(Ucx, OtherAddressesAreTheOtherNetworks) {
  const auto tcp = *make_bulk_tcp()->listen("127.0.0.1:0");
  auto accepted = std::async(std::launch::async, [&] { return tcp->accept(); });
  const auto client = network()->connect("127.0.0.1:" + std::to_string(tcp->port()));
  ASSERT_TRUE(client.ok()) << client.status();
  const auto server = accepted.get();
  const std::byte sent{42};
  std::byte got{};
  EXPECT_TRUE((*client)->write({&sent, 1}).ok());
  EXPECT_TRUE(server->read({&got, 1}).ok());
  EXPECT_EQ(got, sent);
}

TEST(Ucx, KvOfAnotherNodeComesOverIt) {
  constexpr uint64_t kBlockBytes = 96 * 1024;
  constexpr uint32_t kCount = 64;
  const auto file = *MemoryFile::make("test", kCount * kBlockBytes);
  const auto content = pattern(kCount * kBlockBytes, 9);
  ASSERT_EQ(::pwrite(file->fd(), content.data(), content.size(), 0), static_cast<ssize_t>(content.size()));
  const KvSource source{file, [](uint64_t bytes, std::span<const BlockId> blocks) {
                          std::vector<ByteRun> runs;
                          for (const BlockId block : blocks) runs.push_back({block.value * bytes, bytes});
                          return runs;
                        }};
  const auto server = *KvServer::make(*KvListeners::start({.network = network()}), source);
  const RequestId request(1);
  std::vector<BlockId> blocks;
  for (uint32_t i = 0; i < kCount; ++i) blocks.push_back(BlockId(i));
  server->set_grants({{request, NodeId(2), kBlockBytes, blocks}});
  const auto fetcher = KvFetcher::make(NodeId(2), network());
  fetcher->set_addresses({{NodeId(1), {"ucx:127.0.0.1:" + std::to_string(server->port()), ""}}});
  std::vector<std::byte> got(content.size());
  std::promise<Status> done;
  fetcher->fetch({.from = NodeId(1), .request = request, .block_bytes = kBlockBytes, .blocks = blocks,
                  .sink = [&](std::span<const KvFetch::Piece> pieces) {
                    for (const KvFetch::Piece& piece : pieces) std::memcpy(got.data() + piece.block * kBlockBytes + piece.offset, piece.bytes.data(), piece.bytes.size());
                  },
                  .done = [&](Status status) { done.set_value(std::move(status)); }});
  const Status status = done.get_future().get();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(got, content);
}

}  // namespace
}  // namespace shoal
