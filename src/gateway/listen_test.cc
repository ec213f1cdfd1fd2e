#include "gateway/listen.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"

namespace shoal {
namespace {

using testing::HasSubstr;

class UnixListenerTest : public testing::Test {
 protected:
  UnixListenerTest() { std::filesystem::create_directories(folder_); }
  ~UnixListenerTest() override { std::filesystem::remove_all(folder_); }

  auto open() const { return UnixListener::open(path_, /*owner_only=*/true, kAdminListenFlags); }
  // As a process that was killed leaves it.
  void leave_stale() const {
    auto listener = open();
    ASSERT_TRUE(listener.ok()) << listener.status();
    std::filesystem::rename(path_, path_ + ".kept");
    listener->reset();
    std::filesystem::rename(path_ + ".kept", path_);
  }
  bool answers() const {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path_.copy(address.sun_path, sizeof(address.sun_path) - 1);
    const int caller = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool connected = connect(caller, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
    close(caller);
    return connected;
  }

  const std::string folder_ = absl::StrCat("/tmp/shoal-listen-", getpid());
  const std::string path_ = folder_ + "/s.sock";
};

TEST_F(UnixListenerTest, ALiveServerKeepsItsPathAndIsNamed) {
  auto first = open();
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = open();
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(absl::StrCat(path_, ": process ", getpid(), " listens there; choose another --admin-socket, or stop it")));
  EXPECT_TRUE(answers());
  first->reset();
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(UnixListenerTest, WhatAProcessThatIsGoneLeftIsTakenOver) {
  leave_stale();
  ASSERT_TRUE(std::filesystem::is_socket(path_));
  ASSERT_FALSE(answers());
  const auto listener = open();
  EXPECT_TRUE(listener.ok()) << listener.status();
  EXPECT_TRUE(answers());
}

TEST_F(UnixListenerTest, AFileThatHasBecomeAnothersStaysAtTheEnd) {
  auto first = open();
  ASSERT_TRUE(first.ok());
  unlink(path_.c_str());
  const auto second = open();
  ASSERT_TRUE(second.ok()) << second.status();
  first->reset();
  EXPECT_TRUE(answers());
}

TEST_F(UnixListenerTest, OfManyThatStartAtOnceOneGetsThePath) {
  for (int round = 0; round < 20; ++round) {
    leave_stale();
    std::atomic<int> got = 0, ready = 0;
    std::vector<std::unique_ptr<UnixListener>> kept(8);
    std::vector<std::thread> starting;
    for (auto& mine : kept) {
      starting.emplace_back([&] {
        ++ready;
        while (ready < static_cast<int>(kept.size())) std::this_thread::yield();
        auto listener = open();
        if (!listener.ok()) return;
        mine = *std::move(listener);
        ++got;
      });
    }
    for (std::thread& one : starting) one.join();
    EXPECT_EQ(got, 1);
    EXPECT_TRUE(answers());
  }
}

TEST_F(UnixListenerTest, AFileThatIsNoSocketIsLeftAlone) {
  std::ofstream(path_) << "mine";
  EXPECT_THAT(std::string(open().status().message()), HasSubstr("is no socket"));
  EXPECT_EQ(std::filesystem::file_size(path_), 4u);
}

TEST_F(UnixListenerTest, TheSocketOfAnOperatorIsForItsOwnerAlone) {
  const auto listener = open();
  struct stat info {};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0077, 0u);
}

TEST_F(UnixListenerTest, APathThatIsTooLongSaysHowLongItMayBe) {
  const auto listener = UnixListener::open("/tmp/" + std::string(200, 'x'), false, {});
  EXPECT_THAT(std::string(listener.status().message()), HasSubstr("at most 107; choose a shorter one"));
}

TEST(CannotListen, EachCauseHasItsOwnAdvice) {
  for (const auto& [error, advice] : {std::pair(EADDRINUSE, "choose another --admin-port or stop"), {EADDRNOTAVAIL, "no address of this machine: choose another --admin-host"},
                                      {EACCES, "choose a --admin-port from 1024 on"}}) {
    EXPECT_THAT(std::string(cannot_listen("10.0.0.1", 80, error, kAdminListenFlags).message()), HasSubstr(advice));
  }
  EXPECT_THAT(std::string(cannot_listen("10.0.0.1", 80, ENOBUFS, {}).message()), testing::Not(HasSubstr("--port")));
}

}  // namespace
}  // namespace shoal
