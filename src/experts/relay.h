// The second phase of a dispatch (policy/expert_relays.h): what a client asks over the network of several servers of this machine, asked of
// these over shared memory, this server among them, and put together again. Who of them computes which row, and what is done when one of
// them fails, is as of any client of theirs (experts/client.h).
//
// Of the serving thread; servers() and set_servers() of any.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bell.h"
#include "experts/client.h"
#include "experts/handshake.h"
#include "kernels/expert_ops.h"
#include "policy/overlap.h"
#include "slots/message.h"

namespace shoal {

class ExpertRelay {
 public:
  // For a client that said `hello`; `bell`: of the serving thread.
  static StatusOr<std::unique_ptr<ExpertRelay>> start(const std::string& server, const ExpertHello& hello, std::shared_ptr<const ExpertPlan> plan, std::shared_ptr<Bell> bell);

  void set_servers(std::vector<ExpertAddress> servers) { remote_->set_servers(std::move(servers)); }
  std::vector<std::string> servers() const;  // that are connected, by name

  // One request of a lane at a time. Its hidden rows stay where they are until it is answered.
  void ask(const RequestView& view);
  struct Answer {
    RequestHead of;
    std::span<const float> outputs;  // rows in the order of the routes, or sums if it asks for these, valid until the lane's next ask(); empty: it cannot be answered
  };
  std::optional<Answer> answered();
  Duration doze() { return remote_->doze(); }  // as of models/exchange_partner.h
  void woken() { remote_->woken(); }

 private:
  struct Lane {
    bool asked = false;
    RequestView of;
    ExpertRoutes routes;
    std::vector<uint32_t> order;       // the request's row of each routed row
    std::vector<float> computed, outputs;
  };

  ExpertRelay(std::unique_ptr<RemoteExperts> remote, std::shared_ptr<const ExpertPlan> plan) : remote_(std::move(remote)), plan_(std::move(plan)) {}

  const std::unique_ptr<RemoteExperts> remote_;
  const std::shared_ptr<const ExpertPlan> plan_;
  std::array<Lane, kLanesMax> lanes_;
  bool failed_ = false;     // all that is asked cannot be answered
};

}  // namespace shoal
