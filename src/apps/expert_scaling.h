// --experts auto:MIN-MAX: as many expert servers as their load needs. Looks at what the serving process lists every few seconds, asks
// policy/expert_scale.h, and starts a server and has it asked, or has one drained and ends it.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "apps/serve_flags.h"
#include "apps/supervisor.h"
#include "base/json.h"
#include "base/status.h"
#include "base/time.h"
#include "policy/expert_scale.h"

namespace shoal {

class AdminClient;

std::string expert_name(uint32_t number);
// What --experts, --expert-busy and --expert-cooldown say; InvalidArgument for what makes no sense.
StatusOr<ExpertScaleOptions> expert_scale_options(const ServeFlags& flags);

class ExpertScaling {
 public:
  struct Options {
    ExpertScaleOptions scale;            // its servers_min are there from the beginning
    std::string socket;                  // of the operator's endpoints of the process that serves
    std::vector<ProcessSpec> more;       // servers_min, servers_min + 1, ...
    std::vector<std::string> addresses;  // of all servers; empty: they join a cluster by themselves
  };
  // `supervisor` outlives it, and the thread that it starts.
  ExpertScaling(Options options, Supervisor& supervisor);
  ~ExpertScaling();

 private:
  // A server that is to be there.
  struct Server {
    TimePoint since{};            // it was started, or missed
    bool listed = false;          // it was, once
  };

  void run();
  void look(TimePoint now);
  std::map<uint32_t, const Json*> listed_servers(const Json& list) const;
  StatusOr<Json> call(const char* method, const std::string& path, const std::string& body, Duration timeout);
  StatusOr<Json> post(const char* verb, const Json& body, Duration timeout);
  bool settled(const std::map<uint32_t, const Json*>& listed, TimePoint now);
  void grow(TimePoint now);
  void shrink(const std::map<uint32_t, const Json*>& listed);
  void forget(uint32_t number);
  void tell_addresses();
  void publish(const ExpertScaleView& view, const std::string& why);

  const Options options_;
  Supervisor& supervisor_;
  ExpertScale scale_;
  std::map<uint32_t, Server> servers_;   // by number; of the thread
  std::string why_;                      // of the last change that was refused
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::unique_ptr<AdminClient> client_;  // set by the thread, with the mutex; null: the next call makes one
  std::thread thread_;
};

}  // namespace shoal
