#include "membership/roster.h"

#include <gtest/gtest.h>

#include <chrono>
#include <deque>

#include "membership/directory_store.h"

namespace shoal {
namespace {

using std::chrono_literals::operator""h;
using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;

TimePoint wall() { return TimePoint(std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch())); }

// A directory that can be away, or lose everything.
class WeakDirectory : public Directory {
 public:
  StatusOr<LeaseId> grant(Duration ttl) override { return away() ? StatusOr<LeaseId>(gone()) : store()->grant(ttl); }
  Status keep_alive(LeaseId lease) override {
    std::this_thread::sleep_for(late_.exchange(Duration(0)));
    return away() ? gone() : store()->keep_alive(lease);
  }
  Status revoke(LeaseId lease) override { return away() ? gone() : store()->revoke(lease); }
  StatusOr<int64_t> put_if(const std::string& key, int64_t expected, const std::string& value, LeaseId lease) override {
    if (const auto record = read_record(value); record.ok() && before_record_) before_record_(*record);
    return away() ? StatusOr<int64_t>(gone()) : store()->put_if(key, expected, value, lease);
  }
  Status remove_if(const std::string& key, int64_t expected) override { return away() ? gone() : store()->remove_if(key, expected); }
  StatusOr<DirectoryListing> list(const std::string& prefix) override { return away() ? StatusOr<DirectoryListing>(gone()) : store()->list(prefix); }
  StatusOr<std::unique_ptr<Watch>> watch(const std::string& prefix, int64_t after) override {
    if (away()) return gone();
    class WeakWatch : public Watch {
     public:
      WeakWatch(WeakDirectory& owner, std::shared_ptr<MemoryDirectory> store, std::unique_ptr<Watch> inner) : owner_(owner), store_(std::move(store)), inner_(std::move(inner)) {}
      StatusOr<std::vector<DirectoryEvent>> next(Duration timeout) override {
        if (owner_.away() || owner_.store() != store_) return gone();
        return inner_->next(std::min<Duration>(timeout, 10ms));
      }

     private:
      WeakDirectory& owner_;
      const std::shared_ptr<MemoryDirectory> store_;
      const std::unique_ptr<Watch> inner_;
    };
    const auto now = store();
    auto inner = now->watch(prefix, after);
    if (!inner.ok()) return inner.status();
    return std::make_unique<WeakWatch>(*this, now, *std::move(inner));
  }

  static Status gone() { return unavailable("the directory is away"); }
  bool away() const { return away_; }
  void set_away(bool away) { away_ = away; }
  void make_late(Duration by) { late_ = by; }  // the next refresh of a lease
  void before_record(std::function<void(const MemberRecord&)> call) { before_record_ = std::move(call); }  // is written
  void wipe() {
    std::lock_guard lock(mutex_);
    store_ = std::make_shared<MemoryDirectory>(wall);
  }
  std::shared_ptr<MemoryDirectory> store() const {
    std::lock_guard lock(mutex_);
    return store_;
  }

 private:
  std::atomic<bool> away_{false};
  std::atomic<Duration> late_{Duration(0)};
  std::function<void(const MemberRecord&)> before_record_;
  mutable std::mutex mutex_;
  std::shared_ptr<MemoryDirectory> store_ = std::make_shared<MemoryDirectory>(wall);
};

// One process, as far as its roster is concerned.
class Process {
 public:
  Process(Directory& directory, const std::string& name, Role role = Role::kNode, bool campaigns = false, std::set<int64_t> dead = {}) {
    RosterConfig config{.campaigns = campaigns, .lease = 300ms, .relist = 200ms, .retry = 20ms, .now = wall, .unix_seconds = [] { return int64_t{1'790'000'000}; },
                        .process_lives = [dead](int64_t pid) { return !dead.contains(pid); }};
    config.self.name = name;
    config.self.role = role;
    config.self.machine = "m";
    config.self.pid = 7;
    config.self.address = "127.0.0.1:1";
    static std::atomic<int> instances{0};
    config.self.instance = std::to_string(++instances);
    roster_ = std::make_unique<Roster>(std::move(config), directory, Roster::Callbacks{
        [this](const std::map<std::string, MemberRecord>& members, uint64_t) {
          std::lock_guard lock(mutex_);
          members_ = members;
          history_.push_back(members);
          if (on_members_) on_members_(members);
          changed_.notify_all();
        },
        [this](bool leads) {
          leads_ = leads;
          changed_.notify_all();
        }});
  }
  Status joined() { return roster_->wait_joined([] { return false; }); }
  void on_members(std::function<void(const std::map<std::string, MemberRecord>&)> call) {
    std::lock_guard lock(mutex_);
    on_members_ = std::move(call);
  }
  bool wait(const std::function<bool(const std::map<std::string, MemberRecord>&)>& until) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, 20s, [&] { return until(members_); });
  }
  bool wait_leads() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, 20s, [&] { return leads_.load(); });
  }
  // Whether every picture since the first that had them all has these members.
  bool always_saw(const std::vector<std::string>& names) {
    std::lock_guard lock(mutex_);
    const auto has_all = [&](const auto& members) { return std::all_of(names.begin(), names.end(), [&](const std::string& n) { return members.contains(n); }); };
    const auto first = std::find_if(history_.begin(), history_.end(), has_all);
    return first != history_.end() && std::all_of(first, history_.end(), has_all);
  }
  Roster& roster() { return *roster_; }
  void end() { roster_.reset(); }
  bool leads() const { return leads_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, MemberRecord> members_;
  std::function<void(const std::map<std::string, MemberRecord>&)> on_members_;
  std::deque<std::map<std::string, MemberRecord>> history_;
  std::atomic<bool> leads_{false};
  std::unique_ptr<Roster> roster_;
};

auto has(const std::string& name) {
  return [name](const std::map<std::string, MemberRecord>& members) { return members.contains(name); };
}
auto lacks(const std::string& name) {
  return [name](const std::map<std::string, MemberRecord>& members) { return !members.contains(name); };
}

TEST(Roster, ProcessesFindEachOtherAndHearWhoLeaves) {
  WeakDirectory directory;
  Process a(directory, "a"), b(directory, "b");
  ASSERT_TRUE(a.joined().ok());
  ASSERT_TRUE(b.joined().ok());
  ASSERT_TRUE(a.wait(has("b")));
  ASSERT_TRUE(b.wait(has("a")));
  b.roster().serve({{"m", 9}});
  EXPECT_TRUE(a.wait([](const auto& members) { return members.contains("b") && members.at("b").models == std::vector<RecordedModel>{{"m", 9}}; }));
  b.end();
  EXPECT_TRUE(a.wait(lacks("b")));
}

TEST(Roster, ALifeIsGreaterThanAllBefore) {
  WeakDirectory directory;
  uint32_t last = 0;
  for (int i = 0; i < 3; ++i) {
    Process a(directory, "a");
    ASSERT_TRUE(a.joined().ok());
    EXPECT_GT(a.roster().life(), last);
    last = a.roster().life();
  }
  directory.wipe();
  Process again(directory, "a");
  ASSERT_TRUE(again.joined().ok());
  EXPECT_GE(again.roster().life(), last - 2) << "the clock stands in for what is lost";
}

TEST(Roster, ANameThatALiveProcessHasIsRefused) {
  WeakDirectory directory;
  Process a(directory, "a");
  ASSERT_TRUE(a.joined().ok());
  Process other(directory, "a");
  const Status status = other.joined();
  EXPECT_EQ(status.code(), StatusCode::kAlreadyExists) << status;
  EXPECT_NE(status.message().find("--name"), std::string::npos);
}

TEST(Roster, ANameOfAProcessThatEndedIsTakenOverAtOnce) {
  WeakDirectory directory;
  const LeaseId lease = *directory.grant(1h);  // of one that was killed
  MemberRecord record{.name = "a", .life = 5, .machine = "m", .pid = 99, .instance = "old"};
  ASSERT_TRUE(directory.put_if("/shoal/default/members/a", 0, write_record(record), lease).ok());
  Process a(directory, "a", Role::kNode, false, {99});
  EXPECT_TRUE(a.joined().ok());
}

TEST(Roster, OneThatStartsBeforeTheDirectoryJoinsWhenItComes) {
  WeakDirectory directory;
  directory.set_away(true);
  Process a(directory, "a");
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(a.roster().life(), 0u);
  directory.set_away(false);
  EXPECT_TRUE(a.joined().ok());
}

TEST(Roster, ADirectoryThatIsAwayOrLosesEverythingTakesNobodyAway) {
  WeakDirectory directory;
  Process a(directory, "a"), b(directory, "b");
  ASSERT_TRUE(a.wait(has("b")));
  ASSERT_TRUE(b.wait(has("a")));
  a.roster().connected("b", true);
  b.roster().connected("a", true);
  const uint32_t life = b.roster().life();
  directory.set_away(true);
  std::this_thread::sleep_for(700ms);  // longer than a lease
  directory.set_away(false);
  std::this_thread::sleep_for(300ms);
  directory.wipe();
  std::this_thread::sleep_for(700ms);
  for (int i = 0; i < 200 && !find_entry(*directory.store(), "/shoal/default/members/b").ok(); ++i) std::this_thread::sleep_for(50ms);
  EXPECT_TRUE(a.always_saw({"a", "b"}));
  EXPECT_TRUE(b.always_saw({"a", "b"}));
  EXPECT_EQ(b.roster().life(), life) << "it never was away itself";
  EXPECT_TRUE(find_entry(*directory.store(), "/shoal/default/members/b").ok()) << "it is there again";
}

// A directory that begins anew may give a lease of before to somebody else.
TEST(Roster, WhoIsMissingInTheDirectoryJoinsAgainWhateverItsLease) {
  WeakDirectory directory;
  Process a(directory, "a");
  ASSERT_TRUE(a.joined().ok());
  directory.set_away(true);
  directory.wipe();
  const auto store = directory.store();
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(store->grant(1h).ok());  // one of them has the number of a's
  directory.set_away(false);
  Process b(directory, "b");
  EXPECT_TRUE(b.wait(has("a")));
}

// Else what it says until it hears of it itself would be dropped by whoever has heard already.
TEST(Roster, AProcessKnowsItsNewLifeBeforeOthersCan) {
  WeakDirectory directory;
  std::atomic<uint32_t> heard{0};
  std::atomic<bool> in_time{true};
  std::atomic<int> written{0};
  directory.before_record([&](const MemberRecord& record) { in_time = in_time && (written++ == 0 || heard >= record.life); });
  Process a(directory, "a");
  ASSERT_TRUE(a.joined().ok());
  const uint32_t first = a.roster().life();
  a.on_members([&](const auto& members) { heard = members.at("a").life; });
  directory.make_late(400ms);  // as if it had been stopped: the lease has ended
  ASSERT_TRUE(a.wait([&](const auto& members) { return members.contains("a") && members.at("a").life > first; }));
  while (written < 2) std::this_thread::sleep_for(1ms);
  EXPECT_TRUE(in_time);
}

TEST(Roster, OneOfSeveralControllersLeadsAndAnotherFollowsIt) {
  WeakDirectory directory;
  Process first(directory, "c1", Role::kController, true);
  ASSERT_TRUE(first.wait_leads());
  Process second(directory, "c2", Role::kController, true);
  ASSERT_TRUE(second.joined().ok());
  ASSERT_TRUE(second.wait(has("c1")));
  EXPECT_FALSE(second.leads());
  first.end();
  EXPECT_TRUE(second.wait_leads());
}

// ---- records and views -----------------------------------------------------------------------------------------------------

TEST(MemberRecord, SurvivesTheDirectory) {
  MemberRecord record{.name = "n-1", .role = Role::kGateway, .life = 7, .address = "h:1", .bulk_address = "h:2", .machine = "m", .pid = 3, .failure_domain = "rack",
                      .instance = "i", .models = {{"org/x", 0xffffffffffffffffull}}, .draining = true};
  const auto read = read_record(write_record(record));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, record);
}

TEST(MemberRecord, WhatIsNoneIsRefusedWithTheField) {
  const std::string good = write_record({.name = "n", .life = 1});
  for (const auto& [from, to, word] : std::vector<std::array<std::string, 3>>{
           {"\"name\":\"n\"", "\"name\":\"../n\"", "name"}, {"\"role\":\"node\"", "\"role\":\"king\"", "king"}, {"\"life\":1", "\"life\":0", "life"},
           {"\"models\":[]", "\"models\":[{\"name\":\"m\"}]", "stamp"}, {"\"models\":[]", "\"models\":7", "models"}, {"\"pid\":0", "\"pid\":-1", "pid"}}) {
    std::string bad = good;
    ASSERT_NE(bad.find(from), std::string::npos) << from;
    bad.replace(bad.find(from), from.size(), to);
    const auto read = read_record(bad);
    ASSERT_FALSE(read.ok()) << bad;
    EXPECT_NE(read.status().message().find(word), std::string::npos) << read.status();
  }
  EXPECT_FALSE(read_record("[]").ok());
  EXPECT_FALSE(read_record(good.substr(0, good.size() / 2)).ok());
}

TEST(MemberView, WhoIsConnectedStaysForAWhileAfterItsLease) {
  MemberView view(30s);
  TimePoint now{};
  view.put({.name = "a", .life = 1}, now);
  view.put({.name = "b", .life = 1}, now);
  view.connected("a", true, now);
  view.list({}, now);
  EXPECT_TRUE(view.members().contains("a"));
  EXPECT_FALSE(view.members().contains("b"));
  EXPECT_EQ(view.expire(now), now + 30s);
  view.put({.name = "a", .life = 1}, now + 10s);
  view.expire(now + 60s);
  EXPECT_TRUE(view.members().contains("a")) << "it came back";
  view.remove("a", now + 60s);
  view.connected("a", false, now + 61s);
  EXPECT_FALSE(view.members().contains("a")) << "both say that it is gone";
}

TEST(MemberView, ALifeOfBeforeChangesNothing) {
  MemberView view;
  view.put({.name = "a", .life = 5}, TimePoint{});
  const uint64_t version = view.version();
  view.put({.name = "a", .life = 4, .address = "old"}, TimePoint{});
  EXPECT_EQ(view.version(), version);
  EXPECT_EQ(view.members().at("a").life, 5u);
}

}  // namespace
}  // namespace shoal
