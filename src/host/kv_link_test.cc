#include "host/kv_link.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <csignal>
#include <cstring>
#include <mutex>

#include "base/rng.h"
#include "transport/test_certificates.h"

namespace shoal {
namespace {

using std::chrono_literals::operator""s;

constexpr NodeId kServer{1}, kReader{2}, kOther{3};
constexpr uint64_t kBlockBytes = 300'000;
const RequestId kRequest{NodeId(9), 4, 77};

// A node that has `count` blocks of KV, and another that fetches them.
class Link {
 public:
  explicit Link(bool same_machine, uint32_t count = 8, std::shared_ptr<BulkTlsContext> server_tls = nullptr, std::shared_ptr<BulkTlsContext> client_tls = nullptr)
      : memory_(count * kBlockBytes) {
    std::signal(SIGPIPE, SIG_IGN);  // as every process of Shoal does: TLS writes to a stream whose reader has gone
    Rng rng(3);
    for (std::byte& b : memory_) b = static_cast<std::byte>(rng.below(256));
    auto listener = BulkListener::start("127.0.0.1:0", server_tls);
    EXPECT_TRUE(listener.ok()) << listener.status();
    server_ = KvServer::make(*std::move(listener), [this](uint64_t block_bytes, BlockId id) { return host_address(memory_.data() + id.value * block_bytes); });
    fetcher_ = KvFetcher::make(kReader, std::move(client_tls));
    fetcher_->set_addresses({{kServer, {"127.0.0.1:" + std::to_string(server_->port()), same_machine}}});
    for (uint32_t i = 0; i < count; ++i) blocks_.push_back(BlockId(i));
  }
  void grant(NodeId reader = kReader, RequestId request = kRequest) { server_->set_grants({{request, reader, kBlockBytes, blocks_}}); }

  // `during`: called with each block.
  Status fetch(const std::function<void(size_t)>& during = nullptr, RequestId request = kRequest) {
    std::mutex mutex;
    std::condition_variable done;
    std::optional<Status> result;
    read_.assign(memory_.size(), std::byte{0});
    fetcher_->fetch({.from = kServer, .request = request, .block_bytes = kBlockBytes, .blocks = blocks_,
                     .sink = [&](size_t i, std::span<const std::byte> bytes) {
                       std::memcpy(read_.data() + i * kBlockBytes, bytes.data(), bytes.size());
                       if (during) during(i);
                     },
                     .done = [&](Status status) {
                       std::lock_guard lock(mutex);
                       result = std::move(status);
                       done.notify_all();
                     }});
    std::unique_lock lock(mutex);
    EXPECT_TRUE(done.wait_for(lock, 30s, [&] { return result.has_value(); }));
    return result.value_or(absl::DeadlineExceededError("never ended"));
  }
  bool read_all() const { return read_ == memory_; }
  KvServer& server() { return *server_; }
  KvFetcher& fetcher() { return *fetcher_; }
  void end_server() { server_.reset(); }

 private:
  std::vector<std::byte> memory_, read_;
  std::vector<BlockId> blocks_;
  std::unique_ptr<KvServer> server_;
  std::unique_ptr<KvFetcher> fetcher_;
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
  const Status status = link.fetch([&](size_t i) {
    if (i == 0) link.server().set_grants({});
  });
  EXPECT_EQ(status.code(), StatusCode::kNotFound) << status;
}

TEST_P(KvLinkTest, ANodeThatEndsOrIsLostFailsWhatIsUnderWayAndNothingElse) {
  Link link(GetParam(), 64);
  link.grant();
  const Status aborted = link.fetch([&](size_t i) {
    if (i == 0) link.fetcher().abort(kServer);
  });
  // The fetcher tries a stream that broke once more; both ends are right.
  EXPECT_TRUE(aborted.ok() ? link.read_all() : aborted.code() == StatusCode::kUnavailable) << aborted;
  link.end_server();
  EXPECT_EQ(link.fetch().code(), StatusCode::kUnavailable);
}

TEST(KvLink, AnAddressThatIsNotKnownIsSaidToBe) {
  Link link(false);
  link.fetcher().set_addresses({});
  EXPECT_EQ(link.fetch().code(), StatusCode::kNotFound);
}

TEST(KvLink, BytesThatAreNoRequestEndTheStreamAlone) {
  Link link(false);
  link.grant();
  auto socket = bulk_connect("127.0.0.1:" + std::to_string(link.server().port()), nullptr);
  ASSERT_TRUE(socket.ok());
  const std::vector<std::byte> noise(64, std::byte{0xff});
  ASSERT_TRUE((*socket)->write(noise).ok());
  std::byte answer{};
  EXPECT_FALSE((*socket)->read(std::span(&answer, 1)).ok());
  EXPECT_TRUE(link.fetch().ok());
}

TEST(KvLink, WithCertificatesOfOneAuthorityItIsEncryptedAndOthersAreRefused) {
  const TestAuthority ours, theirs;
  const auto tls = [](const TestAuthority& authority, const std::string& name) { return *make_bulk_tls(authority.issue(name)); };
  Link link(false, 8, tls(ours, "a"), tls(ours, "b"));
  link.grant();
  ASSERT_TRUE(link.fetch().ok());
  EXPECT_TRUE(link.read_all());
  Link strangers(false, 8, tls(ours, "a"), tls(theirs, "b"));
  strangers.grant();
  EXPECT_FALSE(strangers.fetch().ok());
  Link clear(false, 8, tls(ours, "a"), nullptr);
  clear.grant();
  EXPECT_FALSE(clear.fetch().ok());
}

TEST(KvLink, CertificatesThatAreNoneAreNamed) {
  const TestAuthority authority;
  TlsIdentity good = authority.issue("a");
  for (const auto& [field, flag] : std::vector<std::pair<std::string TlsIdentity::*, std::string>>{{&TlsIdentity::certificate, "--tls-cert"}, {&TlsIdentity::key, "--tls-key"}, {&TlsIdentity::ca, "--tls-ca"}}) {
    TlsIdentity bad = good;
    bad.*field = "nothing";
    const auto context = make_bulk_tls(bad);
    ASSERT_FALSE(context.ok());
    EXPECT_NE(context.status().message().find(flag), std::string::npos) << context.status();
  }
  TlsIdentity mixed = good;
  mixed.key = authority.issue("b").key;
  EXPECT_NE(make_bulk_tls(mixed).status().message().find("not the key"), std::string::npos);
}

}  // namespace
}  // namespace shoal
