#include "transport_grpc/grpc_network.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <map>
#include <mutex>

#include "transport/test_certificates.h"

namespace shoal {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;

NodeId id_of(const std::string& name) { return NodeId(static_cast<uint32_t>(name.back())); }

class Process {
 public:
  explicit Process(const std::string& name, uint32_t protocol = 1, const std::string& cluster = "c", PeerHandlers handlers = {}, TlsIdentity tls = {}) : name_(name) {
    GrpcNetworkConfig config{.cluster = cluster, .name = name, .instance = name + "-1", .self = id_of(name), .protocol = protocol, .tls = std::move(tls), .id_of = id_of, .silence_max = 1s};
    auto network = GrpcNetwork::start(std::move(config), [this](NodeId peer, const std::string&, bool up) {
      std::lock_guard lock(mutex_);
      log_.push_back((up ? "up " : "down ") + std::string(1, static_cast<char>(peer.value)));
      changed_.notify_all();
    }, std::move(handlers));
    EXPECT_TRUE(network.ok()) << network.status();
    network_ = *std::move(network);
    endpoint_ = network_->connect(id_of(name), [this](NodeId from, std::string bytes) {
      std::lock_guard lock(mutex_);
      log_.push_back(std::string(1, static_cast<char>(from.value)) + ":" + bytes);
      changed_.notify_all();
      return takes_;
    });
  }
  PeerAddress address() const { return {id_of(name_), name_, "127.0.0.1:" + std::to_string(network_->port()), name_ + "-1"}; }
  bool wait(const std::string& line, size_t times = 1) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, 20s, [&] { return static_cast<size_t>(std::count(log_.begin(), log_.end(), line)) >= times; });
  }
  std::vector<std::string> log() {
    std::lock_guard lock(mutex_);
    return log_;
  }
  void take_nothing() {
    std::lock_guard lock(mutex_);
    takes_ = false;
  }
  Status send(const std::string& to, std::string bytes) { return endpoint_->send(id_of(to), std::move(bytes)); }
  GrpcNetwork& network() { return *network_; }
  void end() {
    endpoint_.reset();
    network_.reset();
  }

 private:
  const std::string name_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> log_;
  bool takes_ = true;
  std::unique_ptr<GrpcNetwork> network_;
  std::unique_ptr<Transport> endpoint_;
};

void link(Process& a, Process& b) {
  a.network().set_peers({b.address()});
  b.network().set_peers({a.address()});
}

TEST(GrpcNetwork, MessagesGoBothWaysInOrder) {
  Process a("a"), b("b");
  EXPECT_EQ(a.send("b", "x").code(), StatusCode::kUnavailable);
  link(a, b);
  ASSERT_TRUE(a.wait("up b"));
  ASSERT_TRUE(b.wait("up a"));
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(a.send("b", std::to_string(i)).ok());
    ASSERT_TRUE(b.send("a", std::to_string(i)).ok());
  }
  ASSERT_TRUE(b.wait("a:999"));
  ASSERT_TRUE(a.wait("b:999"));
  std::vector<std::string> expected = {"up a"};
  for (int i = 0; i < 1000; ++i) expected.push_back("a:" + std::to_string(i));
  EXPECT_EQ(b.log(), expected);
}

TEST(GrpcNetwork, ALargeMessageArrivesWhole) {
  Process a("a"), b("b");
  link(a, b);
  ASSERT_TRUE(a.wait("up b"));
  const std::string large(20 << 20, 'x');
  ASSERT_TRUE(a.send("b", large).ok());
  EXPECT_TRUE(b.wait("a:" + large));
}

TEST(GrpcNetwork, APeerThatEndsIsLostAndOneThatComesBackIsLinkedAgain) {
  Process a("a");
  auto b = std::make_unique<Process>("b");
  link(a, *b);
  ASSERT_TRUE(a.wait("up b"));
  b->end();
  ASSERT_TRUE(a.wait("down b"));
  EXPECT_EQ(a.send("b", "x").code(), StatusCode::kUnavailable);
  Process again("b");
  link(a, again);
  ASSERT_TRUE(a.wait("up b", 2));
  ASSERT_TRUE(again.wait("up a"));
  ASSERT_TRUE(a.send("b", "hello").ok());
  EXPECT_TRUE(again.wait("a:hello"));
}

TEST(GrpcNetwork, APeerThatHasNoRoomLosesTheStreamOnBothSides) {
  Process a("a"), b("b");
  link(a, b);
  ASSERT_TRUE(a.wait("up b"));
  b.take_nothing();
  ASSERT_TRUE(a.send("b", "too much").ok());
  EXPECT_TRUE(a.wait("down b"));
  EXPECT_TRUE(b.wait("down a"));
}

TEST(GrpcNetwork, AnotherProtocolOrClusterIsRefused) {
  Process a("a"), b("b", /*protocol=*/2), c("c", 1, "other");
  a.network().set_peers({b.address(), c.address()});
  b.network().set_peers({a.address()});
  c.network().set_peers({a.address()});
  std::this_thread::sleep_for(500ms);
  EXPECT_TRUE(a.log().empty());
  EXPECT_TRUE(b.log().empty());
  EXPECT_TRUE(c.log().empty());
}

TEST(GrpcNetwork, WhatANodeOffersIsAskedForAndItsErrorsComeBack) {
  PeerHandlers handlers{.cards = [] { return std::string("[1]"); },
                        .operate = [](const std::string& verb) -> StatusOr<std::string> { return verb == "reload" ? StatusOr<std::string>("{}") : invalid_argument("no ", verb); },
                        .text = [](const std::string& model, uint64_t stamp, const PeerHandlers::Emit& emit) -> Status {
                          if (model != "m" || stamp != 7) return not_found("no such model");
                          emit("a.json", std::string(3 << 20, 'a'));
                          emit("b.txt", "");
                          return OkStatus();
                        }};
  Process a("a"), b("b", 1, "c", handlers);
  EXPECT_EQ(*a.network().cards(b.address()), "[1]");
  EXPECT_EQ(*a.network().operate(b.address(), "reload"), "{}");
  EXPECT_EQ(a.network().operate(b.address(), "dance").status().code(), StatusCode::kInvalidArgument);
  std::map<std::string, size_t> files;
  EXPECT_TRUE(a.network().text(b.address(), "m", 7, [&](const std::string& file, const std::string& bytes) { return files[file] += bytes.size(), true; }).ok());
  EXPECT_EQ(files, (std::map<std::string, size_t>{{"a.json", 3 << 20}, {"b.txt", 0}}));
  const Status none = a.network().text(b.address(), "n", 7, [](const std::string&, const std::string&) { return true; });
  EXPECT_EQ(none.code(), StatusCode::kNotFound);
  EXPECT_NE(none.message().find("'b'"), std::string::npos);
}

TEST(GrpcNetwork, CertificatesOfOneAuthorityTalkAndOthersDoNot) {
  const TestAuthority ours, theirs;
  Process a("a", 1, "c", {}, ours.issue("a")), b("b", 1, "c", {}, ours.issue("b"));
  Process stranger("s", 1, "c", {}, theirs.issue("s")), late("l", 1, "c", {}, ours.issue("l", -60)), clear("t");
  a.network().set_peers({b.address(), stranger.address(), late.address(), clear.address()});
  for (Process* other : {&b, &stranger, &late, &clear}) other->network().set_peers({a.address()});
  ASSERT_TRUE(a.wait("up b"));
  ASSERT_TRUE(a.send("b", "hello").ok());
  EXPECT_TRUE(b.wait("a:hello"));
  std::this_thread::sleep_for(500ms);
  for (Process* other : {&stranger, &late, &clear}) EXPECT_TRUE(other->log().empty());
}

TEST(GrpcNetwork, APortThatIsTakenIsNamed) {
  Process a("a");
  GrpcNetworkConfig config{.name = "z", .listen = a.address().address, .id_of = id_of};
  const auto second = GrpcNetwork::start(std::move(config), [](NodeId, const std::string&, bool) {});
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.status().message().find(a.address().address), std::string::npos);
}

}  // namespace
}  // namespace shoal
