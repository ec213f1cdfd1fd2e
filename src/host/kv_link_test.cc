#include "host/kv_link.h"

#include <gtest/gtest.h>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <mutex>
#include <thread>

#include "base/check.h"
#include "base/rng.h"
#include "transport/test_certificates.h"

namespace shoal {
namespace {

using std::chrono_literals::operator""s;

constexpr NodeId kServer{1}, kReader{2}, kOther{3};
constexpr uint64_t kBlockBytes = 300'000;
const RequestId kRequest{NodeId(9), 4, 77};

// Memory of a host tier with noise in it.
class Memory {
 public:
  explicit Memory(uint64_t bytes) : file_(*MemoryFile::make("test", bytes)) {
    void* const base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_->fd(), 0);
    CHECK(base != MAP_FAILED);
    bytes_ = {static_cast<std::byte*>(base), bytes};
    Rng rng(3);
    for (std::byte& b : bytes_) b = static_cast<std::byte>(rng.below(256));
  }
  ~Memory() { ::munmap(bytes_.data(), bytes_.size()); }
  Memory(const Memory&) = delete;
  const std::shared_ptr<const MemoryFile>& file() const { return file_; }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  const std::shared_ptr<const MemoryFile> file_;
  std::span<std::byte> bytes_;
};

std::string new_socket_name() {
  static int number = 0;
  return absl::StrCat("@shoal-kv-test-", ::getpid(), "-", ++number);
}

// A block lies in two pieces, the second one first.
std::vector<ByteRun> runs_of(uint64_t block_bytes, std::span<const BlockId> blocks) {
  std::vector<ByteRun> runs;
  for (const BlockId id : blocks) {
    const uint64_t begin = id.value * block_bytes, first = block_bytes / 3;
    runs.push_back({begin + block_bytes - first, first});
    runs.push_back({begin, block_bytes - first});
  }
  return runs;
}

// Fetches, and waits for it.
class Reader {
 public:
  Reader(BulkAddress address, std::shared_ptr<BulkNetwork> network) : fetcher_(KvFetcher::make(kReader, std::move(network))) { fetcher_->set_addresses({{kServer, std::move(address)}}); }

  // `during`: called whenever some came.
  Status fetch(uint32_t count, const std::function<void()>& during = nullptr, RequestId request = kRequest) {
    std::mutex mutex;
    std::condition_variable done;
    std::optional<Status> result;
    read_.assign(count * kBlockBytes, std::byte{0});
    KvFetch fetch{.from = kServer, .request = request, .block_bytes = kBlockBytes};
    for (uint32_t i = 0; i < count; ++i) fetch.blocks.push_back(BlockId(i));
    fetch.sink = [&](std::span<const KvFetch::Piece> pieces) {
      for (const KvFetch::Piece& p : pieces) std::memcpy(read_.data() + p.block * kBlockBytes + p.offset, p.bytes.data(), p.bytes.size());
      if (during) during();
    };
    fetch.done = [&](Status status) {
      std::lock_guard lock(mutex);
      result = std::move(status);
      done.notify_all();
    };
    fetcher_->fetch(std::move(fetch));
    std::unique_lock lock(mutex);
    EXPECT_TRUE(done.wait_for(lock, 30s, [&] { return result.has_value(); }));
    return result.value_or(absl::DeadlineExceededError("never ended"));
  }
  bool read_all(std::span<const std::byte> memory) const {
    std::vector<std::byte> expected;
    for (uint32_t i = 0; i < read_.size() / kBlockBytes; ++i) {
      for (const ByteRun& run : runs_of(kBlockBytes, std::vector{BlockId(i)})) expected.insert(expected.end(), memory.begin() + run.offset, memory.begin() + run.offset + run.bytes);
    }
    return read_ == expected;
  }
  KvFetcher& fetcher() { return *fetcher_; }

 private:
  std::vector<std::byte> read_;
  std::unique_ptr<KvFetcher> fetcher_;
};

// A node that has `count` blocks of KV, and another that fetches them.
class Link {
 public:
  explicit Link(bool same_machine, uint32_t count = 8, std::shared_ptr<BulkNetwork> server_network = make_bulk_tcp(), std::shared_ptr<BulkNetwork> client_network = make_bulk_tcp())
      : count_(count), memory_(count * kBlockBytes) {
    std::signal(SIGPIPE, SIG_IGN);  // as every process of Shoal does: TLS writes to a stream whose reader has gone
    const std::string local = same_machine ? new_socket_name() : "";
    auto listeners = KvListeners::start({.local = local, .network = server_network});
    EXPECT_TRUE(listeners.ok()) << listeners.status();
    server_ = *KvServer::make(*std::move(listeners), {memory_.file(), runs_of});
    reader_ = std::make_unique<Reader>(BulkAddress{"127.0.0.1:" + std::to_string(server_->port()), local}, std::move(client_network));
  }
  void grant(NodeId reader = kReader, RequestId request = kRequest) {
    std::vector<BlockId> blocks;
    for (uint32_t i = 0; i < count_; ++i) blocks.push_back(BlockId(i));
    server_->set_grants({{request, reader, kBlockBytes, blocks}});
  }
  Status fetch(const std::function<void()>& during = nullptr, RequestId request = kRequest) { return reader_->fetch(count_, during, request); }
  bool read_all() const { return reader_->read_all(memory_.bytes()); }
  KvServer& server() { return *server_; }
  KvFetcher& fetcher() { return reader_->fetcher(); }
  void end_server() { server_.reset(); }

 private:
  const uint32_t count_;
  const Memory memory_;
  std::unique_ptr<KvServer> server_;
  std::unique_ptr<Reader> reader_;
};

class KvLinkTest : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Ways, KvLinkTest, testing::Bool(), [](const auto& info) { return info.param ? "OverMemory" : "OverTcp"; });

TEST_P(KvLinkTest, WhatIsGrantedArrivesBitForBit) {
  Link link(GetParam());
  link.grant();
  ASSERT_TRUE(link.fetch().ok());
  EXPECT_TRUE(link.read_all());
  ASSERT_TRUE(link.fetch().ok()) << "over the same stream once more";
  EXPECT_TRUE(link.read_all());
}

TEST_P(KvLinkTest, WhatIsNotGrantedToThisReaderForThisRequestDoesNot) {
  Link link(GetParam());
  EXPECT_EQ(link.fetch().code(), StatusCode::kNotFound);
  link.grant(kOther);
  EXPECT_EQ(link.fetch().code(), StatusCode::kNotFound);
  link.grant(kReader, RequestId(NodeId(9), 4, 78));
  EXPECT_EQ(link.fetch().code(), StatusCode::kNotFound);
  link.grant();
  EXPECT_TRUE(link.fetch().ok()) << "what was refused spoils nothing";
}

TEST_P(KvLinkTest, AGrantThatEndsWhileItIsReadIsAFailure) {
  Link link(GetParam(), 64);
  link.grant();
  const Status status = link.fetch([&] { link.server().set_grants({}); });
  EXPECT_EQ(status.code(), StatusCode::kNotFound) << status;
}

TEST_P(KvLinkTest, AGrantThatEndedAndIsGivenAgainWhileItIsReadIsAFailureToo) {
  Link link(GetParam(), 4);  // of one chunk
  link.grant();
  const Status status = link.fetch([&] {
    link.server().set_grants({});
    link.grant();
  });
  EXPECT_EQ(status.code(), StatusCode::kNotFound) << status;
  EXPECT_TRUE(link.fetch().ok());
}

TEST_P(KvLinkTest, OtherGrantsThatComeAndGoAreNoneOfItsBusiness) {
  Link link(GetParam(), 4);
  link.grant();
  EXPECT_TRUE(link.fetch([&] { link.grant(); }).ok());
  EXPECT_TRUE(link.read_all());
}

TEST_P(KvLinkTest, WhatComesFromANodeThatIsLostFails) {
  Link link(GetParam(), 64);
  link.grant();
  EXPECT_EQ(link.fetch([&] { link.fetcher().abort(kServer); }).code(), StatusCode::kUnavailable);
  EXPECT_TRUE(link.fetch().ok()) << "it is back";
  link.end_server();
  EXPECT_EQ(link.fetch().code(), StatusCode::kUnavailable);
}

TEST_P(KvLinkTest, AProcessThatIsKilledWhileItIsReadFailsTheFetchAlone) {
  constexpr uint32_t kCount = 64;
  const std::string local = GetParam() ? new_socket_name() : "";
  int pipe_ends[2];
  ASSERT_EQ(::pipe(pipe_ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const Memory memory(kCount * kBlockBytes);
    const auto server = *KvServer::make(*KvListeners::start({.local = local}), {memory.file(), runs_of});
    std::vector<BlockId> blocks;
    for (uint32_t i = 0; i < kCount; ++i) blocks.push_back(BlockId(i));
    server->set_grants({{kRequest, kReader, kBlockBytes, blocks}});
    const uint16_t port = server->port();
    if (::write(pipe_ends[1], &port, sizeof(port)) != sizeof(port)) ::_exit(1);
    while (true) ::pause();
  }
  uint16_t port = 0;
  ASSERT_EQ(::read(pipe_ends[0], &port, sizeof(port)), static_cast<ssize_t>(sizeof(port)));
  Reader reader({"127.0.0.1:" + std::to_string(port), local}, make_bulk_tcp());
  ASSERT_TRUE(reader.fetch(kCount).ok());
  const Status status = reader.fetch(kCount, [&] {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  });
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
  if (GetParam()) {
    EXPECT_TRUE(reader.read_all(Memory(kCount * kBlockBytes).bytes())) << "its memory was there as long as it was mapped";
  }
  ::close(pipe_ends[0]);
  ::close(pipe_ends[1]);
}

TEST(KvLink, WhereThereIsNoSocketOfTheMachineItComesOverTcp) {
  Link link(false);
  link.grant();
  link.fetcher().set_addresses({{kServer, {"127.0.0.1:" + std::to_string(link.server().port()), new_socket_name()}}});
  EXPECT_TRUE(link.fetch().ok());
  EXPECT_TRUE(link.read_all());
}

// A process that says whatever it likes of where blocks are.
TEST(KvLink, PlacesThatAreNotInTheMemoryAreRefused) {
  constexpr uint64_t kMemory = 4 * kBlockBytes;
  const Memory memory(kMemory);
  const std::vector<std::vector<ByteRun>> wrong = {
      {{kMemory - kBlockBytes + 1, kBlockBytes}}, {{UINT64_MAX - 5, kBlockBytes}}, {{0, UINT64_MAX}}, {{0, kBlockBytes - 1}}, {{0, kBlockBytes + 1}},
      {{0, kBlockBytes}, {0, 1}},                 {{0, 0}, {0, kBlockBytes}},      {},                std::vector<ByteRun>(100, ByteRun{0, 3000})};
  for (const std::vector<ByteRun>& runs : wrong) {
    const std::string local = new_socket_name();
    const auto listener = *LocalListener::start(local);
    std::thread liar([&] {
      const auto socket = listener->accept();
      ASSERT_TRUE(socket->send_descriptors(std::array{memory.file()->fd()}).ok());
      std::vector<std::byte> asked(40 + sizeof(BlockId));
      ASSERT_TRUE(socket->read(asked).ok());
      const std::array<uint32_t, 2> answer{1, static_cast<uint32_t>(runs.size())};
      ASSERT_TRUE(socket->write(std::as_bytes(std::span(answer))).ok());
      (void)socket->write(std::as_bytes(std::span(runs)));
      std::byte more{};
      EXPECT_FALSE(socket->read(std::span(&more, 1)).ok()) << "the reader leaves";
    });
    Reader reader({"127.0.0.1:1", local}, make_bulk_tcp());
    EXPECT_EQ(reader.fetch(1).code(), StatusCode::kDataLoss);
    liar.join();
    listener->shut_down();
  }
}

TEST(KvLink, AnAddressThatIsNotKnownIsSaidToBe) {
  Link link(false);
  link.fetcher().set_addresses({});
  EXPECT_EQ(link.fetch().code(), StatusCode::kNotFound);
}

TEST(KvLink, BytesThatAreNoRequestEndTheStreamAlone) {
  Link link(false);
  link.grant();
  auto socket = make_bulk_tcp()->connect("127.0.0.1:" + std::to_string(link.server().port()));
  ASSERT_TRUE(socket.ok());
  const std::vector<std::byte> noise(64, std::byte{0xff});
  ASSERT_TRUE((*socket)->write(noise).ok());
  std::byte answer{};
  EXPECT_FALSE((*socket)->read(std::span(&answer, 1)).ok());
  EXPECT_TRUE(link.fetch().ok());
}

TEST(KvLink, WithCertificatesOfOneAuthorityItIsEncryptedAndOthersAreRefused) {
  const TestAuthority ours, theirs;
  const auto tls = [](const TestAuthority& authority, const std::string& name) { return *make_bulk_tcp(authority.issue(name)); };
  Link link(false, 8, tls(ours, "a"), tls(ours, "b"));
  link.grant();
  ASSERT_TRUE(link.fetch().ok());
  EXPECT_TRUE(link.read_all());
  Link strangers(false, 8, tls(ours, "a"), tls(theirs, "b"));
  strangers.grant();
  EXPECT_FALSE(strangers.fetch().ok());
  Link clear(false, 8, tls(ours, "a"), make_bulk_tcp());
  clear.grant();
  EXPECT_FALSE(clear.fetch().ok());
}

TEST(KvLink, CertificatesThatAreNoneAreNamed) {
  const TestAuthority authority;
  TlsIdentity good = authority.issue("a");
  for (const auto& [field, flag] : std::vector<std::pair<std::string TlsIdentity::*, std::string>>{{&TlsIdentity::certificate, "--tls-cert"}, {&TlsIdentity::key, "--tls-key"}, {&TlsIdentity::ca, "--tls-ca"}}) {
    TlsIdentity bad = good;
    bad.*field = "nothing";
    const auto context = make_bulk_tcp(bad);
    ASSERT_FALSE(context.ok());
    EXPECT_NE(context.status().message().find(flag), std::string::npos) << context.status();
  }
  TlsIdentity mixed = good;
  mixed.key = authority.issue("b").key;
  EXPECT_NE(make_bulk_tcp(mixed).status().message().find("not the key"), std::string::npos);
}

}  // namespace
}  // namespace shoal
