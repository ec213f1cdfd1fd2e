// One stream of frames, whichever side dialled it.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/ids.h"
#include "transport_grpc/peer.grpc.pb.h"

namespace shoal {

class Link;

// What hears of streams. Called on threads of gRPC, for one stream never twice at once, while no lock of the link is held.
class LinkOwner {
 public:
  virtual ~LinkOwner() = default;
  // The other side said who it is. Not OK ends the stream with that.
  virtual grpc::Status greeted(const std::shared_ptr<Link>& link, const peer::Hello& hello) = 0;
  // False: there is no room for it, and the stream is lost.
  virtual bool message(Link& link, std::string bytes) = 0;
  virtual void ended(const std::shared_ptr<Link>& link, const grpc::Status& status) = 0;
  virtual void gone() = 0;  // a link that has ended is destroyed
};

class Link {
 public:
  virtual ~Link() = default;

  // Thread-safe. False: it has ended, or more waits than is allowed (then it ends).
  bool send(peer::Frame frame, uint64_t waiting_max);
  virtual void close() = 0;
  TimePoint heard() const { return TimePoint(Duration(heard_ns_.load())); }
  TimePoint sent() const { return TimePoint(Duration(sent_ns_.load())); }

  // The owner's, under its own lock.
  NodeId peer;
  std::string peer_name, peer_instance;
  std::atomic<bool> up{false};  // greeted, and not lost yet

 protected:
  Link() { note(heard_ns_), note(sent_ns_); }
  virtual void write(const peer::Frame& frame) = 0;  // begins to write it; REQUIRES: mutex_ held, nothing is being written
  static void note(std::atomic<int64_t>& at) { at.store(steady_now().time_since_epoch().count()); }
  void written(bool ok);
  void stop_writing();  // no write() after it

  std::mutex mutex_;
  bool ended_ = false;          // guarded by mutex_, as are the next four
  bool writing_ = false;
  std::deque<peer::Frame> waiting_;
  uint64_t waiting_bytes_ = 0;
  peer::Frame being_written_;
  std::atomic<int64_t> heard_ns_{0}, sent_ns_{0};
};

// What is alike on both sides: frames in order, the first of them a greeting.
bool take_frame(const std::shared_ptr<Link>& link, LinkOwner& owner, peer::Frame& frame, bool& greeted, grpc::Status& refusal);

// Dials. The owner outlives it.
std::shared_ptr<Link> dial(const std::shared_ptr<grpc::Channel>& channel, const peer::Hello& hello, LinkOwner& owner, uint64_t waiting_max);

// The server's side of a stream that has just come.
grpc::ServerBidiReactor<peer::Frame, peer::Frame>* answer(LinkOwner& owner, grpc::CallbackServerContext* context);

}  // namespace shoal
