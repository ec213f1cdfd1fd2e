// The threads that parse, render and tokenise what clients send.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "boost/asio/thread_pool.hpp"

namespace shoal {

// Bodies of like size share a lane, so that requests of 30 MB, which take a second each, delay none of a kilobyte: the operating
// system gives the lanes turns, and those of larger bodies give way where processors are few. A lane of large bodies has one
// thread: what such a request needs besides its body (several times that) is needed once at a time.
class WorkLanes {
 public:
  explicit WorkLanes(uint32_t threads);  // of each lane but those of large bodies

  boost::asio::thread_pool& lane(uint64_t body_bytes);
  // Waits for what runs.
  void join();

 private:
  static constexpr std::array<uint64_t, 3> kBodyBytesMax = {128u << 10, 1u << 20, 8u << 20};  // of all lanes but the last
  static constexpr size_t kLargeFrom = 2;                                                     // lanes of one thread
  std::array<std::unique_ptr<boost::asio::thread_pool>, kBodyBytesMax.size() + 1> lanes_;
};

}  // namespace shoal
