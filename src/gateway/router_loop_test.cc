#include "gateway/router_loop.h"

#include <gtest/gtest.h>

#include <latch>

#include "base/clock.h"
#include "gateway/test_support.h"

namespace shoal {
namespace {

using test::FakeNode;

// Collects what a request is told.
class Collector : public TokenSink {
 public:
  void on_tokens(Tokens tokens) override {
    std::lock_guard lock(mutex_);
    for (const SampledToken& token : tokens.tokens) ids.push_back(token.token);
    ends += tokens.finish.has_value();
    changed_.notify_all();
  }
  void on_refused(RequestId, const Status& status, Duration) override {
    std::lock_guard lock(mutex_);
    refusal = status;
    ++ends;
    changed_.notify_all();
  }
  bool wait_end() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(5), [&] { return ends > 0; });
  }
  bool wait_tokens(size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(5), [&] { return ids.size() >= count; });
  }

  std::vector<TokenId> ids;
  int ends = 0;
  Status refusal;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
};

class RouterLoopTest : public testing::Test {
 protected:
  static constexpr NodeId kGateway{1};
  static constexpr NodeId kNode{2};

  RouterLoopTest() : loop_(RouterConfig{.self = kGateway}, 64, [this](Transport::OnMessage handler) {
                       return network_.connect(kGateway, std::move(handler));
                     }) {}

  void join_node(uint32_t epoch = 1) {
    ClusterState state{.version = ++version_};
    state.members[kNode] = Member{.id = kNode, .role = Role::kNode, .epoch = epoch, .models = {ModelId(0)}};
    loop_.set_cluster(state);
  }
  std::shared_ptr<Collector> submit(uint32_t max_tokens, TimePoint deadline = kForever) {
    auto sink = std::make_shared<Collector>();
    Request request{.id = loop_.next_id(), .model = ModelId(0), .prompt = {1}, .max_tokens = max_tokens};
    last_ = request.id;
    EXPECT_TRUE(loop_.submit(std::move(request), deadline, sink).ok());
    return sink;
  }

  LoopbackNetwork network_;
  RouterLoop loop_;
  RequestId last_;
  uint64_t version_ = 0;
};

TEST_F(RouterLoopTest, TokensArriveInOrderAndEndOnce) {
  FakeNode node(network_, kNode, kGateway, [](const Request&) { return std::vector<TokenId>{7, 8, 9}; });
  join_node();
  const auto sink = submit(5);
  ASSERT_TRUE(sink->wait_end());
  EXPECT_EQ(sink->ids, (std::vector<TokenId>{7, 8, 9, 7, 8}));
  EXPECT_EQ(sink->ends, 1);
  EXPECT_TRUE(loop_.wait_idle(std::chrono::seconds(5)));
}

TEST_F(RouterLoopTest, WithoutANodeRequestsAreRefused) {
  const auto sink = submit(5);
  ASSERT_TRUE(sink->wait_end());
  EXPECT_EQ(sink->refusal.code(), StatusCode::kUnavailable);
  EXPECT_TRUE(loop_.wait_idle(std::chrono::seconds(5)));
}

TEST_F(RouterLoopTest, ADeadlineEndsTheRequestAndFreesTheNode) {
  FakeNode node(network_, kNode, kGateway, [](const Request&) { return std::vector<TokenId>{7}; });
  node.set_pause(std::chrono::milliseconds(10));
  join_node();
  const auto sink = submit(100'000, steady_now() + std::chrono::milliseconds(60));
  ASSERT_TRUE(sink->wait_end());
  EXPECT_EQ(sink->refusal.code(), StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(node.wait_cancelled(1));
}

TEST_F(RouterLoopTest, CancelledRequestsLeaveNothingBehind) {
  FakeNode node(network_, kNode, kGateway, [](const Request&) { return std::vector<TokenId>{7}; });
  node.set_pause(std::chrono::milliseconds(5));
  join_node();
  const auto sink = submit(100'000);
  ASSERT_TRUE(sink->wait_tokens(2));
  loop_.cancel(last_);
  EXPECT_TRUE(node.wait_cancelled(1));
  EXPECT_TRUE(loop_.wait_idle(std::chrono::seconds(5)));
}

TEST_F(RouterLoopTest, DrainRefusesNewRequestsOnly) {
  FakeNode node(network_, kNode, kGateway, [](const Request&) { return std::vector<TokenId>{7}; });
  node.set_pause(std::chrono::milliseconds(5));
  join_node();
  const auto running = submit(20);
  ASSERT_TRUE(running->wait_tokens(1));
  loop_.drain();
  const auto late = submit(20);
  ASSERT_TRUE(late->wait_end());
  EXPECT_EQ(late->refusal.code(), StatusCode::kUnavailable);
  ASSERT_TRUE(running->wait_end());
  EXPECT_EQ(running->ids.size(), 20u);
}

TEST_F(RouterLoopTest, ARequestWhoseNodeIsReplacedGoesOnWhereItWas) {
  std::atomic<int> next{0};
  FakeNode node(network_, kNode, kGateway, [&](const Request& request) {
    std::vector<TokenId> ids;  // as a real engine: a function of the position alone
    for (size_t i = request.output.size(); i < 100; ++i) ids.push_back(static_cast<TokenId>(i));
    ++next;
    return ids;
  });
  node.set_pause(std::chrono::milliseconds(5));
  join_node(1);
  const auto sink = submit(30);
  ASSERT_TRUE(sink->wait_tokens(3));
  join_node(2);
  ASSERT_TRUE(sink->wait_end());
  EXPECT_EQ(next.load(), 2);
  ASSERT_EQ(sink->ids.size(), 30u);
  for (TokenId i = 0; i < 30; ++i) EXPECT_EQ(sink->ids[static_cast<size_t>(i)], i);
}

TEST_F(RouterLoopTest, GarbageFromAPeerIsDropped) {
  FakeNode node(network_, kNode, kGateway, [](const Request&) { return std::vector<TokenId>{7}; });
  join_node();
  auto peer = network_.connect(NodeId(9), [](NodeId, std::string) { return true; });
  for (const char* bytes : {"", "garbage", "\xff\xff\xff\xff"}) EXPECT_TRUE(peer->send(kGateway, bytes).ok());
  const auto sink = submit(3);
  ASSERT_TRUE(sink->wait_end());
  EXPECT_EQ(sink->ids.size(), 3u);
}

// Stands still at its first token until it is let go.
class Stuck : public Collector {
 public:
  void on_tokens(Tokens tokens) override {
    entered.count_down();
    go_on.wait();
    Collector::on_tokens(std::move(tokens));
  }
  std::latch entered{1}, go_on{1};
};

TEST_F(RouterLoopTest, ANodeCannotGrowTheQueueWithoutEndAndWhatGotLostIsPlacedAnew) {
  BoundedQueue<Request> submits(16);
  const auto node = network_.connect(kNode, [&](NodeId, std::string bytes) {
    const StatusOr<Message> message = decode(bytes);
    const auto* submit = message.ok() ? std::get_if<Submit>(&*message) : nullptr;
    return submit == nullptr || submits.push(submit->request);
  });
  join_node();
  const auto sink = std::make_shared<Stuck>();
  ASSERT_TRUE(loop_.submit(Request{.id = loop_.next_id(), .model = ModelId(0), .prompt = {1}, .max_tokens = 9}, kForever, sink).ok());
  const auto first = submits.pop(std::chrono::seconds(5));
  ASSERT_TRUE(first.has_value());
  Tokens tokens;
  tokens.id = first->id;
  tokens.tokens = {{7, 0, {}}};
  ASSERT_TRUE(node->send(kGateway, encode(tokens)).ok());
  sink->entered.wait();
  const std::string flood = encode(Cancel{first->id, 0});
  size_t taken = 0;
  Status status;
  while (taken < 1'000'000 && (status = node->send(kGateway, flood)).ok()) ++taken;
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  sink->go_on.count_down();
  const auto again = submits.pop(std::chrono::seconds(20));  // the node says nothing: it is tried again after a while
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->epoch, first->epoch + 1);
  EXPECT_EQ(again->output, (std::vector<TokenId>{7}));
  tokens.epoch = again->epoch;
  tokens.first_index = 1;
  tokens.finish = FinishReason::kStop;
  ASSERT_TRUE(node->send(kGateway, encode(tokens)).ok());
  EXPECT_TRUE(sink->wait_end());
  EXPECT_EQ(sink->ids, (std::vector<TokenId>{7, 7}));
}

TEST_F(RouterLoopTest, WhoHasTheLastTokenIsNotCountedAnyMore) {
  FakeNode node(network_, kNode, kGateway, [](const Request&) { return std::vector<TokenId>{7}; });
  join_node();
  const auto endless = submit(100'000);
  ASSERT_TRUE(endless->wait_tokens(1));
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(submit(1)->wait_end());
    EXPECT_EQ(loop_.live_requests(ModelId(0)), 1u);
    EXPECT_EQ(loop_.live_requests(ModelId(1)), 0u);
  }
  loop_.abort_all(unavailable("enough"));
  ASSERT_TRUE(endless->wait_end());
  EXPECT_EQ(loop_.live_requests(ModelId(0)), 0u);
}

TEST_F(RouterLoopTest, AbortAllEndsEveryRequestWithTheReason) {
  FakeNode node(network_, kNode, kGateway, [](const Request&) { return std::vector<TokenId>{7}; });
  node.set_pause(std::chrono::milliseconds(5));
  join_node();
  const auto a = submit(100'000), b = submit(100'000);
  ASSERT_TRUE(b->wait_tokens(1));
  loop_.abort_all(unavailable("enough"));
  ASSERT_TRUE(a->wait_end() && b->wait_end());
  EXPECT_EQ(a->refusal.message(), "enough");
  EXPECT_TRUE(node.wait_cancelled(2));
}

}  // namespace
}  // namespace shoal
