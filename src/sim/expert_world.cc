#include "sim/expert_world.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace shoal {
namespace {

constexpr double kTickSeconds = 10e-3;       // of the monitor
constexpr double kHeardSeconds = 100e-6;     // until a peer's end is seen (a closed socket, a process that is gone)
constexpr double kSecondsMax = 600;          // of a world: beyond, something is lost

}  // namespace

ExpertWorld::ExpertWorld(const ExpertWorldSetup& setup)
    : setup_(setup), servers_all_(setup.servers + static_cast<uint32_t>(setup.joins.size())), state_(setup_) {
  for (uint32_t c = 0; c < setup_.clients; ++c) {
    for (uint32_t s = 0; s < servers_all_; ++s) links_.push_back(std::make_unique<SimExpertLink>(state_, c, s));
  }
  for (uint32_t s = 0; s < servers_all_; ++s) {
    std::vector<SimExpertLink*> of;
    for (uint32_t c = 0; c < setup_.clients; ++c) of.push_back(&link(c, s));
    servers_.push_back(std::make_unique<SimExpertServer>(state_, s, of, [this](uint32_t c, uint32_t server, uint32_t lane) { clients_[c]->hear(server, lane); }));
  }
  for (uint32_t c = 0; c < setup_.clients; ++c) {
    std::vector<SimExpertLink*> of;
    for (uint32_t s = 0; s < servers_all_; ++s) of.push_back(&link(c, s));
    clients_.push_back(std::make_unique<SimExpertClient>(state_, c, of, [this](uint32_t client, uint32_t s, uint32_t lane) { servers_[s]->look(client, lane); },
                                                         [this](uint32_t client, uint32_t s) { lose(link(client, s)); }));
  }
  monitor_ = std::make_unique<SimExpertMonitor>(state_, servers_, clients_);
}

ExpertWorldOutcome ExpertWorld::run() {
  for (uint32_t s = 0; s < setup_.servers; ++s) servers_[s]->start();
  const Status placed = monitor_->begin();
  if (!placed.ok()) {
    state_.violate(std::string(placed.message()));
    return std::move(state_.outcome);
  }
  for (auto& client : clients_) client->start();
  for (auto& l : links_) connect(*l);
  for (size_t i = 0; i < setup_.joins.size(); ++i) {
    state_.after(setup_.joins[i], [this, i] { start_server(setup_.servers + static_cast<uint32_t>(i)); });
  }
  for (const ExpertFault& fault : setup_.faults) {
    if (fault.after_event == 0) state_.heap.at(fault.at, [this, fault] { begin_fault(fault); });
  }
  tick();
  while (!state_.heap.empty() && !finished() && state_.outcome.violations.empty()) {
    state_.now = state_.heap.next_time();
    state_.heap.pop()();
    ++state_.outcome.events;
    for (const ExpertFault& fault : setup_.faults) {
      if (fault.after_event == state_.outcome.events) begin_fault(fault);
    }
    if (state_.seconds() > kSecondsMax) state_.violate("a pass is lost: nothing brings it further");
  }
  if (!finished() && state_.outcome.violations.empty()) state_.violate("a pass is lost: nobody has anything to do");
  state_.outcome.virtual_seconds = state_.seconds();
  return std::move(state_.outcome);
}

bool ExpertWorld::finished() const {
  return std::all_of(clients_.begin(), clients_.end(), [](const auto& c) { return c->done(); });
}

void ExpertWorld::tick() {
  monitor_->watch();
  state_.after(kTickSeconds, [this] { tick(); }, /*work=*/false);
}

// ---- connections ----------------------------------------------------------------------------------------------------------

void ExpertWorld::connect(SimExpertLink& l) {
  SimExpertServer& server = *servers_[l.server()];
  SimExpertClient& client = *clients_[l.client()];
  if (!client.alive()) return;
  if (!server.alive() || server.stopped() || l.cut() || l.lossy()) return reconnect_later(l);
  l.connect(client.number());
  server.detach(l.client());
  server.attach(l.client());
  client.connected(l.server());
}

// Nothing to connect to yet: again a little later, while both may still come.
void ExpertWorld::reconnect_later(SimExpertLink& l) {
  state_.heap.at(state_.now + setup_.reconnect, [this, &l, life = l.life(), client = clients_[l.client()]->life()] {
    if (l.life() == life && clients_[l.client()]->life() == client) connect(l);
  }, /*work=*/false);
}

void ExpertWorld::lose(SimExpertLink& l) {
  if (!l.up()) return;
  l.disconnect();
  if (servers_[l.server()]->alive()) servers_[l.server()]->detach(l.client());
  clients_[l.client()]->lost(l.server());
  if (clients_[l.client()]->alive()) reconnect_later(l);
}

// ---- faults ----------------------------------------------------------------------------------------------------------------

void ExpertWorld::begin_fault(const ExpertFault& fault) {
  const uint32_t server = fault.server % setup_.servers, client = fault.client % setup_.clients;
  state_.note(4, static_cast<uint64_t>(fault.kind), (uint64_t{server} << 32) | client);
  switch (fault.kind) {
    case ExpertFault::Kind::kKillServer: return kill_server(server, fault.lasts);
    case ExpertFault::Kind::kStopServer:
      if (servers_[server]->alive()) servers_[server]->stop_until(state_.now + fault.lasts);
      return;
    case ExpertFault::Kind::kCutLink: return cut(link(client, server), fault.lasts);
    case ExpertFault::Kind::kLoseWrites: link(client, server).lose_until(state_.now + fault.lasts); return;
    case ExpertFault::Kind::kKillMonitor: monitor_->pause_until(state_.now + fault.lasts); return;
    case ExpertFault::Kind::kKillClient: return kill_client(client, fault.lasts);
  }
}

void ExpertWorld::kill_server(uint32_t server, Duration lasts) {
  if (!servers_[server]->alive()) return;
  servers_[server]->kill();
  for (uint32_t c = 0; c < setup_.clients; ++c) {
    link(c, server).cut_short(false);
    state_.after(kHeardSeconds, [this, &l = link(c, server), life = link(c, server).life()] {
      if (l.life() == life) lose(l);
    });
  }
  if (lasts < Duration::max()) state_.heap.at(state_.now + lasts, [this, server] { start_server(server); });
}

void ExpertWorld::start_server(uint32_t server) {
  if (servers_[server]->alive()) return;
  servers_[server]->start();
}

void ExpertWorld::cut(SimExpertLink& l, Duration lasts) {
  l.cut_until(state_.now + lasts);
  state_.after(kHeardSeconds, [this, &l, life = l.life()] {
    if (l.life() == life) lose(l);
  });
}

void ExpertWorld::kill_client(uint32_t client, Duration lasts) {
  if (!clients_[client]->alive()) return;
  clients_[client]->kill();
  for (uint32_t s = 0; s < servers_all_; ++s) {
    state_.after(kHeardSeconds, [this, &l = link(client, s), life = link(client, s).life()] {
      if (l.life() != life || !l.up()) return;
      l.disconnect();
      if (servers_[l.server()]->alive()) servers_[l.server()]->detach(l.client());
    });
  }
  state_.heap.at(state_.now + lasts, [this, client] {
    monitor_->tell(client);
    clients_[client]->start();
    for (uint32_t s = 0; s < servers_all_; ++s) {
      if (link(client, s).up()) link(client, s).disconnect();
      connect(link(client, s));
    }
  });
}

ExpertWorldOutcome run_experts(const ExpertWorldSetup& setup) { return ExpertWorld(setup).run(); }

ExpertWorldSetup random_expert_world(uint64_t seed) {
  Rng rng(seed);
  ExpertWorldSetup s;
  s.seed = seed;
  s.clients = 1 + static_cast<uint32_t>(rng.below(4));
  s.servers = 2 + static_cast<uint32_t>(rng.below(4));
  s.lanes = 1 + static_cast<uint32_t>(rng.below(4));
  s.layers = 1 + static_cast<uint32_t>(rng.below(4));
  s.experts = 4 + static_cast<uint32_t>(rng.below(13));
  s.experts_per_token = 1 + static_cast<uint32_t>(rng.below(4));
  s.tokens = 1 + static_cast<uint32_t>(rng.below(6));
  s.passes = 120;
  s.skew = rng.uniform();
  s.copies_room = 1.2 + 2 * rng.uniform();
  s.batch.rule = static_cast<BatchRule>(rng.below(3));  // not the barrier, which a dead client holds until it is detached
  s.torn = rng.chance(0.7);
  s.any_order = s.torn && rng.chance(0.5);
  if (rng.chance(0.3)) s.joins.push_back(0.05 * rng.uniform());
  const uint64_t faults = rng.below(5);
  double at = 0;
  for (uint64_t i = 0; i < faults; ++i) {
    ExpertFault fault;
    fault.kind = static_cast<ExpertFault::Kind>(rng.below(6));
    at = rng.chance(0.3) ? at : 0.06 * rng.uniform();  // sometimes two at once
    fault.at = TimePoint(from_seconds(at));
    fault.server = static_cast<uint32_t>(rng.below(s.servers));
    fault.client = static_cast<uint32_t>(rng.below(s.clients));
    fault.lasts = from_seconds((rng.chance(0.6) ? 0.02 : 0.4) * rng.uniform());
    s.faults.push_back(fault);
  }
  return s;
}

}  // namespace shoal
