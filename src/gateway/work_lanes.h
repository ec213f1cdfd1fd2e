// The threads that parse, render and tokenise what clients send.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "boost/asio/thread_pool.hpp"

namespace shoal {

// Bodies of like size share a lane, so that one request of 30 MB, which takes a second, delays no request of a kilobyte: the
// operating system gives the lanes turns, and those of large bodies wait for the others where processors are few. A lane of
// large bodies has one thread: what such a request needs besides its body (several times that) is needed once at a time.
class WorkLanes {
 public:
  explicit WorkLanes(uint32_t threads);  // of the lane of small bodies

  boost::asio::thread_pool& lane(uint64_t body_bytes);
  // Waits for what runs.
  void join();

 private:
  static constexpr std::array<uint64_t, 2> kBodyBytesMax = {128u << 10, 2u << 20};  // of all lanes but the last
  std::array<std::unique_ptr<boost::asio::thread_pool>, kBodyBytesMax.size() + 1> lanes_;
};

}  // namespace shoal
