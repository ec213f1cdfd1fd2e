// A server of experts: loads some of a model's experts and computes what clients' slots ask for, any number of clients and lanes at once.
// It keeps no state of a request: what it answers is a function of the slot alone, so anybody else who holds the expert may answer as well.
//
//   collect ready slots -> group rows by (model, layer, expert) -> gather -> grouped products -> scatter -> responses, control words
//
// What is asked by a note (ask_expert_server):
//   {"verb": "status"}                  all that it is, holds and does, which every other verb answers too; with {"rows": true} also the
//                                       rows of every expert since it began
//   {"verb": "hold" | "drop", "model", "experts", "pin"}    the experts as {"LAYER": "IDS"}; pin: an operator says so, and it stays
//   {"verb": "unpin"}                   whoever keeps the fleet decides again about all of them
//   {"verb": "close"}                   it takes nothing until it resumes, and keeps what it has
//   {"verb": "drain" | "resume"}        it drops everything as well
//   {"verb": "keep", "keeper", "for_ms"}    who decides what its fleet holds (experts/keeper.h), for so long; refused while another does
// A hold reads experts from the files and only then publishes them; a drop publishes first, and an expert that somebody still asks for is
// refused there by name, so that the client goes elsewhere.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "experts/client.h"
#include "experts/expert_set.h"
#include "models/expert_plan.h"
#include "slots/batch.h"
#include "transport/bulk_tcp.h"

namespace shoal {

// A model whose experts are served.
struct ExpertModel {
  std::string name;
  uint64_t stamp = 0;  // of its files and of what is done with them at load
  std::shared_ptr<const ExpertPlan> plan;
  ExpertSet holds;     // to begin with, by an operator's word
};

struct ExpertServerConfig {
  std::string name;
  std::string domain;                  // what fails together with it; empty: the machine
  std::function<void()> on_drain;      // it drains; on a thread of the server
  std::string unix_address;            // "PATH" or "@NAME"; empty: none
  std::string network_address;         // HOST:PORT, of `network`; empty: none
  std::vector<ExpertAddress> peers;    // other servers of this machine, which get rows that clients ask of this one over the network
  std::shared_ptr<BulkNetwork> network = make_bulk_tcp();
  uint64_t memory_bytes = 0;           // for weights
  int threads = 1;
  std::vector<int> cpus;               // empty: wherever the system likes
  BatchOptions batch;
  bool regroup = true;                 // rows of several requests share a batch; false: each alone, for comparison
  bool shrink = true;                  // only experts that have rows are visited; false: for comparison
  Duration spin = std::chrono::microseconds(20);  // before it sleeps
};

class ExpertServer {
 public:
  // Loads what the models hold to begin with, checks one of each by computing it, and listens then. ResourceExhausted if memory is not
  // enough.
  static StatusOr<std::unique_ptr<ExpertServer>> start(ExpertServerConfig config, std::vector<ExpertModel> models);
  virtual ~ExpertServer() = default;
  virtual uint16_t port() const = 0;  // of its network address; 0: none

  // What it is, holds and does. Any thread, as the others.
  virtual Json status(bool rows) const = 0;
  // The other servers of this machine, from now on. Any thread.
  virtual void set_peers(std::vector<ExpertAddress> peers) = 0;
  // Reads those that it does not hold; all, or none. ResourceExhausted, DataLoss, NotFound.
  virtual Status hold(uint64_t stamp, const Json& experts) = 0;
  virtual Status drop(uint64_t stamp, const Json& experts) = 0;
};

}  // namespace shoal
