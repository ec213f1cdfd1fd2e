// Processes of a cluster as far as one process can play them all: directory, streams, and the picture that roles get.
#include <gtest/gtest.h>
#include <unistd.h>

#include <condition_variable>
#include <filesystem>
#include <mutex>

#include "base/clock.h"
#include "cluster/cluster_link.h"
#include "cluster/controller_loop.h"
#include "membership_etcd/directory_server.h"

namespace shoal {
namespace {

using std::chrono_literals::operator""s;

class Meeting {
 public:
  Meeting() : directory_([] { return steady_now(); }), address_("unix:" + (std::filesystem::temp_directory_path() / ("shoal-meeting" + std::to_string(::getpid()))).string()) {
    auto server = DirectoryServer::start(address_, directory_);
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  DirectoryAddress address() const { return *parse_directory_address(address_); }

 private:
  MemoryDirectory directory_;
  const std::string address_;
  std::unique_ptr<DirectoryServer> server_;
};

// A process with the models that it numbers in this order.
class Process {
 public:
  Process(const Meeting& meeting, const std::string& name, Role role, std::vector<RecordedModel> models) {
    for (const RecordedModel& model : models) names_->add(ModelId(next_++), {model.name, model.stamp});
    auto link = ClusterLink::start({.directory = meeting.address(), .name = name, .role = role, .lease = 1s}, names_);
    EXPECT_TRUE(link.ok()) << link.status();
    link_ = *std::move(link);
    endpoint_ = link_->network().connect(link_->self(), [this](NodeId from, std::string bytes) {
      auto arrival = decode(bytes, *names_);
      EXPECT_TRUE(arrival.ok());
      std::lock_guard lock(mutex_);
      arrived_.emplace_back(from, *std::move(arrival));
      changed_.notify_all();
      return true;
    });
    const ClusterLink::Hooks hooks{.cluster = [this](ClusterState state) {
                                     std::lock_guard lock(mutex_);
                                     EXPECT_GT(state.version, state_.version);
                                     state_ = std::move(state);
                                     changed_.notify_all();
                                   },
                                   .link = [this](NodeId peer, bool up) {
                                     std::lock_guard lock(mutex_);
                                     if (up) up_.insert(peer);
                                     else up_.erase(peer);
                                     changed_.notify_all();
                                   }};
    const std::vector<RecordedModel> serves = role == Role::kNode ? models : std::vector<RecordedModel>();
    EXPECT_TRUE(link_->join(hooks, 0, serves, [] { return false; }).ok());
  }
  ~Process() { end(); }
  void end() {
    endpoint_.reset();
    link_.reset();
  }
  template <typename Until>
  bool wait(Until until) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, 20s, [&] { return until(*this); });
  }
  bool linked(const Process& other) {
    return wait([id = other.id()](const Process& p) { return p.up_.contains(id); });
  }
  NodeId id() const { return link_->self(); }
  Status send(NodeId to, const Message& message) { return endpoint_->send(to, encode(message, link_->life(), *names_)); }

  std::mutex mutex_;
  std::condition_variable changed_;
  ClusterState state_;
  std::set<NodeId> up_;
  std::vector<std::pair<NodeId, Arrival>> arrived_;
  const std::shared_ptr<ModelNames> names_ = std::make_shared<ModelNames>();
  uint32_t next_ = 0;
  std::unique_ptr<ClusterLink> link_;
  std::unique_ptr<Transport> endpoint_;
};

TEST(Cluster, APictureHasEachProcessesOwnNumbersOfModels) {
  const Meeting meeting;
  Process gateway(meeting, "g", Role::kGateway, {{"a", 1}, {"b", 2}, {"c", 3}});
  Process node(meeting, "n", Role::kNode, {{"c", 3}, {"x", 9}, {"a", 1}, {"b", 77}});
  ASSERT_TRUE(gateway.wait([&](const Process& p) { return p.state_.members.contains(node.id()); }));
  const Member& member = gateway.state_.members.at(node.id());
  EXPECT_EQ(member.role, Role::kNode);
  EXPECT_GT(member.epoch, 0u);
  EXPECT_EQ(member.models, (std::vector<ModelId>{ModelId(2), ModelId(0)})) << "x is not known here, and b has other files";
  ASSERT_TRUE(gateway.linked(node));
  ASSERT_TRUE(node.linked(gateway));
  Submit submit;
  submit.request.id = RequestId(gateway.id(), gateway.link_->life(), 1);
  submit.request.model = ModelId(2);
  submit.request.prompt = {1};
  submit.request.max_tokens = 1;
  ASSERT_TRUE(gateway.send(node.id(), submit).ok());
  ASSERT_TRUE(node.wait([](const Process& p) { return !p.arrived_.empty(); }));
  EXPECT_EQ(std::get<Submit>(node.arrived_[0].second.message).request.model, ModelId(0)) << "c is the node's first";
  EXPECT_EQ(node.arrived_[0].second.life, gateway.link_->life());
}

TEST(Cluster, WhoLeavesIsGoneFromThePictureAndTheStreamIsLost) {
  const Meeting meeting;
  Process gateway(meeting, "g", Role::kGateway, {});
  Process node(meeting, "n", Role::kNode, {});
  const NodeId id = node.id();
  ASSERT_TRUE(gateway.linked(node));
  node.end();
  EXPECT_TRUE(gateway.wait([&](const Process& p) { return !p.up_.contains(id) && !p.state_.members.contains(id); }));
}

TEST(Cluster, GatewaysAreLinkedWithNodesAndNotWithEachOther) {
  const Meeting meeting;
  Process first(meeting, "g1", Role::kGateway, {}), second(meeting, "g2", Role::kGateway, {}), node(meeting, "n", Role::kNode, {});
  ASSERT_TRUE(first.linked(node));
  ASSERT_TRUE(second.linked(node));
  ASSERT_TRUE(first.wait([&](const Process& p) { return p.state_.members.contains(second.id()); }));
  std::lock_guard lock(first.mutex_);
  EXPECT_FALSE(first.up_.contains(second.id()));
}

TEST(Cluster, AModelThatIsRetiredIsNotInTheNextPicture) {
  const Meeting meeting;
  Process gateway(meeting, "g", Role::kGateway, {{"a", 1}, {"b", 2}});
  Process node(meeting, "n", Role::kNode, {{"a", 1}, {"b", 2}});
  const auto serves = [&](size_t count) {
    return gateway.wait([&](const Process& p) { return p.state_.members.contains(node.id()) && p.state_.members.at(node.id()).models.size() == count; });
  };
  ASSERT_TRUE(serves(2));
  node.link_->serve({{"b", 2}});
  EXPECT_TRUE(serves(1));
  node.link_->drain();
  EXPECT_TRUE(gateway.wait([&](const Process& p) { return p.state_.members.at(node.id()).draining; }));
}

TEST(Cluster, AddressesOfEveryInterfaceNeedAName) {
  const Meeting meeting;
  const auto link = ClusterLink::start({.directory = meeting.address(), .name = "n", .listen = "0.0.0.0:0", .advertise = "node.example"}, std::make_shared<ModelNames>());
  ASSERT_TRUE(link.ok()) << link.status();
  EXPECT_EQ((*link)->address().rfind("node.example:", 0), 0u);
  EXPECT_FALSE(ClusterLink::start({.directory = meeting.address(), .name = "no spaces"}, std::make_shared<ModelNames>()).ok());
}

}  // namespace
}  // namespace shoal
