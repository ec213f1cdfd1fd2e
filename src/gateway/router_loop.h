// The thread that owns the Router: events in through a bounded queue, effects out to the transport and to the sinks of
// the requests. Everything else in the gateway talks to the router through this.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <variant>

#include "base/queue.h"
#include "base/request.h"
#include "gateway/timeline.h"
#include "roles/router.h"
#include "transport/peer_budget.h"
#include "transport/transport.h"
#include "wire/model_names.h"

namespace shoal {

// Where the tokens of a request go. Called on the router's thread: implementations enqueue and return. Per request:
// any number of on_tokens(), then exactly one end: on_tokens() with `finish`, or on_refused(). After RouterLoop::cancel
// nothing more is owed, though a delivery already under way may still arrive.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  virtual void on_tokens(Tokens tokens) = 0;
  virtual void on_refused(RequestId id, const Status& status, Duration retry_after) = 0;
};

// What the router last heard from its nodes.
struct RouterSnapshot {
  std::map<NodeId, NodeStatus> nodes;
  bool draining = false;
  std::map<NodeId, std::string> names;  // of nodes of a cluster

  std::string name_of(NodeId node) const;  // its number where it has no name
};

class RouterLoop {
 public:
  // Makes this gateway's endpoint; the transport's handler only enqueues, and refuses what a node sends beyond its budget:
  // then the router goes on as if that node had been lost.
  using Connect = std::function<std::unique_ptr<Transport>(Transport::OnMessage)>;

  // queue_max: client requests that may wait for the router's thread; beyond it submit() refuses. `names`: the models of this process.
  RouterLoop(const RouterConfig& config, size_t queue_max, const Connect& connect,
             std::shared_ptr<const ModelNames> names = std::make_shared<ModelNames>());
  ~RouterLoop();  // ends the thread; requests still alive get on_refused(Unavailable)
  RouterLoop(const RouterLoop&) = delete;
  RouterLoop& operator=(const RouterLoop&) = delete;

  // All may be called from any thread.
  RequestId next_id() { return {gateway_, life_, next_id_.fetch_add(1)}; }
  // ResourceExhausted when the queue is full: nothing was accepted and the sink hears nothing.
  Status submit(Request request, TimePoint deadline, std::shared_ptr<TokenSink> sink);
  void cancel(RequestId id);
  void set_cluster(ClusterState state);
  void peer_link(NodeId peer, bool up);     // the stream to a node of another process came up, or broke
  void want_resident(ModelId model, bool resident);
  void configure(Configure settings);       // how a model shares its devices from now on
  void name_nodes(std::map<NodeId, std::string> names);  // for people, from now on
  void drain();                             // accepted requests go on, new ones are refused
  void abort_all(const Status& why);        // every live request ends with on_refused(why)
  bool alive() const;                       // its thread goes round
  bool wait_idle(Duration timeout) const;   // true when no request is alive
  size_t live_requests() const { return live_.load(); }
  size_t live_requests(ModelId model) const;  // of one model; a client that has its last token is no longer counted
  std::shared_ptr<const RouterSnapshot> snapshot() const;
  NodeTimeline& timeline() { return timeline_; }

 private:
  struct Incoming {
    NodeId from;
    std::string bytes;
  };
  struct Accept {
    NewRequest request;
    std::shared_ptr<TokenSink> sink;
  };
  struct AbortAll {
    Status why;
  };
  struct Live {
    std::shared_ptr<TokenSink> sink;
    ModelId model;
    bool counted = true;  // in live_of_
  };
  using Command = std::variant<Incoming, Accept, AbortAll, Event>;

  void run();
  bool receive(NodeId from, std::string bytes);
  void lose(NodeId peer);
  void unreachable(NodeId peer, const Status& why);
  void receive(const Incoming& incoming);
  void handle(Command command);
  void handle_event(const Event& event);
  void perform(Effect effect);
  void deliver(Tokens tokens);
  void refuse(RequestId id, const Status& status, Duration retry_after);
  void abort_live(const Status& why);
  void publish_snapshot();
  void last_words(Live& live);  // REQUIRES: what comes next is the last that its sink hears
  void sink_ended(RequestId id);

  const std::shared_ptr<const ModelNames> names_;
  NodeTimeline timeline_;
  BoundedQueue<Command> queue_;
  PeerBudget peers_;
  const NodeId gateway_;
  const uint32_t life_;                  // in the ids of its requests
  std::atomic<uint32_t> sends_in_;       // its life now, as the membership says
  std::atomic<uint64_t> next_id_{1};
  std::atomic<size_t> live_{0};
  std::atomic<int64_t> turned_ns_{0};       // when its thread last went round
  mutable std::mutex mutex_;
  mutable std::condition_variable idle_;
  std::shared_ptr<const RouterSnapshot> snapshot_;  // guarded by mutex_
  std::map<ModelId, size_t> live_of_;               // guarded by mutex_
  std::map<NodeId, std::string> node_names_;        // guarded by mutex_

  // Owned by the loop's thread.
  Router router_;
  std::unordered_map<RequestId, Live> sinks_;
  TimePoint wake_at_ = kForever;
  std::map<NodeId, std::string> unknown_models_;  // as last said of a node's

  std::unique_ptr<Transport> transport_;
  std::thread thread_;
};

}  // namespace shoal
