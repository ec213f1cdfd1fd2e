// The client beside the directory that a controller serves, and beside etcd itself where that is installed.
#include "membership_etcd/etcd_directory.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "membership_etcd/directory_server.h"
#include "transport/bulk_tcp.h"

namespace shoal {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;
namespace fs = std::filesystem;

TimePoint wall() { return TimePoint(std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch())); }

std::string temporary(const std::string& name) { return (fs::temp_directory_path() / (name + std::to_string(::getpid()))).string(); }

// What must hold whoever serves.
void expect_a_directory(Directory& directory) {
  EXPECT_EQ(find_entry(directory, "/t/none").status().code(), StatusCode::kNotFound);
  const auto lease = directory.grant(2s);
  ASSERT_TRUE(lease.ok()) << lease.status();
  const int64_t before = directory.list("/t/")->revision;
  const auto watch = directory.watch("/t/", before);
  ASSERT_TRUE(watch.ok());
  const auto put = directory.put_if("/t/a", 0, "one", *lease);
  ASSERT_TRUE(put.ok()) << put.status();
  EXPECT_EQ(directory.put_if("/t/a", 0, "two", *lease).status().code(), StatusCode::kAborted);
  ASSERT_TRUE(directory.put_if("/t/a", *put, "two", *lease).ok());
  ASSERT_TRUE(directory.put_if("/u/a", 0, "not watched", LeaseId()).ok());
  const auto entry = find_entry(directory, "/t/a");
  ASSERT_TRUE(entry.ok());
  EXPECT_EQ(entry->value, "two");
  EXPECT_EQ(entry->lease, *lease);
  EXPECT_TRUE(directory.keep_alive(*lease).ok());
  EXPECT_EQ(directory.remove_if("/t/a", *put).code(), StatusCode::kAborted);
  EXPECT_TRUE(directory.revoke(*lease).ok());
  EXPECT_TRUE(directory.revoke(*lease).ok()) << "an unknown lease is no error";
  EXPECT_EQ(directory.keep_alive(*lease).code(), StatusCode::kNotFound);
  std::vector<DirectoryEvent> events;
  for (const TimePoint until = wall() + 10s; events.size() < 3 && wall() < until;) {
    const auto more = (*watch)->next(200ms);
    ASSERT_TRUE(more.ok()) << more.status();
    events.insert(events.end(), more->begin(), more->end());
  }
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].entry.value, "one");
  EXPECT_EQ(events[1].entry.value, "two");
  EXPECT_TRUE(events[2].removed);
  const auto short_lease = *directory.grant(1s);
  ASSERT_TRUE(directory.put_if("/t/short", 0, "x", short_lease).ok());
  for (const TimePoint until = wall() + 20s; find_entry(directory, "/t/short").ok() && wall() < until;) std::this_thread::sleep_for(100ms);
  EXPECT_FALSE(find_entry(directory, "/t/short").ok()) << "its lease ran out";
  EXPECT_TRUE(directory.remove_if("/u/a", find_entry(directory, "/u/a")->revision).ok());
}

TEST(DirectoryServer, ServesTheClientOverASocketOfItsUser) {
  MemoryDirectory memory(wall);
  const std::string path = temporary("dir");
  auto server = DirectoryServer::start("unix:" + path, memory);
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ(fs::status(path).permissions() & (fs::perms::group_all | fs::perms::others_all), fs::perms::none);
  expect_a_directory(*open_directory(*parse_directory_address("unix:" + path), {}));
  const auto second = DirectoryServer::start("unix:" + path, memory);
  EXPECT_EQ(second.status().code(), StatusCode::kAlreadyExists);
  server->reset();
  EXPECT_FALSE(fs::exists(path));
}

TEST(DirectoryServer, AWatchAfterItsEndIsUnavailableAndTheClientFindsTheNextServer) {
  MemoryDirectory memory(wall);
  const std::string path = temporary("dirb");
  auto server = *DirectoryServer::start("unix:" + path, memory);
  const auto directory = open_directory(*parse_directory_address("unix:" + path), {});
  const auto watch = *directory->watch("/", directory->list("/")->revision);
  server.reset();
  EXPECT_FALSE(directory->list("/").ok());
  StatusOr<std::vector<DirectoryEvent>> ended = std::vector<DirectoryEvent>();
  for (int i = 0; i < 100 && ended.ok(); ++i) ended = watch->next(100ms);
  EXPECT_FALSE(ended.ok());
  server = *DirectoryServer::start("unix:" + path, memory);
  bool answers = false;
  for (int i = 0; i < 100 && !answers; ++i) answers = directory->list("/").ok();
  EXPECT_TRUE(answers);
}

TEST(DirectoryAddress, IsReadOrRefusedWithWhatIsWrong) {
  const auto both = parse_directory_address("etcd://u:p@a:1,[::1]:2379/");
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ(both->endpoints, (std::vector<std::string>{"a:1", "[::1]:2379"}));
  EXPECT_EQ(both->user, "u");
  EXPECT_TRUE(parse_directory_address("etcds://a:1")->tls);
  EXPECT_EQ(parse_directory_address("unix:/x")->endpoints, std::vector<std::string>{"unix:/x"});
  for (const char* bad : {"", "etcd://", "etcd://a", "etcd://a:0", "etcd://a:70000", "etcd://a:1,,b:2", "http://a:1", "unix:", "etcd://u@a:1"}) {
    EXPECT_EQ(parse_directory_address(bad).status().code(), StatusCode::kInvalidArgument) << bad;
  }
  EXPECT_EQ(parse_directory_address("etcd://user@a:1").status().message().find("user"), std::string::npos) << "no part of a login is printed";
}

// ---- etcd itself ----------------------------------------------------------------------------------------------------------

class RealEtcd {
 public:
  RealEtcd() {
    // A port that was free a moment ago.
    for (uint16_t* port : {&client_, &peer_}) *port = (*make_bulk_tcp()->listen("127.0.0.1:0"))->port();
    fs::remove_all(data_);
    start();
  }
  ~RealEtcd() {
    stop();
    fs::remove_all(data_);
  }
  void start() {
    const std::string url = "http://127.0.0.1:" + std::to_string(client_), peer = "http://127.0.0.1:" + std::to_string(peer_);
    const std::vector<std::string> words = {"etcd", "--data-dir", data_, "--listen-client-urls", url, "--advertise-client-urls", url, "--listen-peer-urls", peer,
                                            "--initial-advertise-peer-urls", peer, "--initial-cluster", "default=" + peer, "--log-level", "fatal", "--unsafe-no-fsync"};
    pid_ = ::fork();
    if (pid_ != 0) return;
    std::vector<char*> argv;
    for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    ::execvp("etcd", argv.data());
    ::_exit(127);
  }
  void stop() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  std::string address() const { return "etcd://127.0.0.1:9,127.0.0.1:" + std::to_string(client_); }  // the first answers nobody

 private:
  const std::string data_ = temporary("etcd");
  uint16_t client_ = 0, peer_ = 0;
  pid_t pid_ = 0;
};

TEST(Etcd, IsADirectoryAndIsFoundAgainWhenItWasAway) {
  if (std::system("command -v etcd > /dev/null") != 0) GTEST_SKIP() << "etcd is not installed";
  RealEtcd etcd;
  const auto directory = open_directory(*parse_directory_address(etcd.address()), {});
  bool answers = false;
  for (int i = 0; i < 200 && !answers; ++i) {
    answers = directory->list("/").ok();
    if (!answers) std::this_thread::sleep_for(100ms);
  }
  ASSERT_TRUE(answers);
  expect_a_directory(*directory);
  etcd.stop();
  EXPECT_FALSE(directory->list("/").ok());
  etcd.start();
  answers = false;
  for (int i = 0; i < 200 && !answers; ++i) {
    answers = directory->list("/").ok();
    if (!answers) std::this_thread::sleep_for(100ms);
  }
  EXPECT_TRUE(answers);
}

}  // namespace
}  // namespace shoal
