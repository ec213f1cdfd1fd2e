// The models of a cluster as a gateway sees them: from what nodes say they serve to a catalogue with names, limits, tokenizers and chat
// templates. Equal files have one name everywhere; a node with other files under a name that is taken is told apart, and named.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cluster/cluster_link.h"
#include "gateway/catalog.h"
#include "gateway/model_card.h"
#include "gateway/router_loop.h"

namespace shoal {

class RemoteModels {
 public:
  // `names` are those of this process; both outlive it. Begins to follow the cluster with follow().
  RemoteModels(std::shared_ptr<ModelNames> names, std::string text_folder);
  ~RemoteModels();

  Catalog& catalog() { return catalog_; }
  void follow(ClusterLink& link, std::function<void()> changed);
  // Follows nobody any more. REQUIRES: before the link ends.
  void stop();
  // Any thread; only enqueues.
  void members(std::map<std::string, MemberRecord> members);
  // True when the cards of all members of now were asked for.
  bool settled() const;

 private:
  // Of one model by its name, whoever serves it.
  struct Known {
    ModelCard card;
    std::set<std::string> nodes;
  };
  void run();
  void update(const std::map<std::string, MemberRecord>& members);
  void fetch_cards(const MemberRecord& node);
  void add(const MemberRecord& node, ModelCard card);
  void forget(const std::map<std::string, MemberRecord>& members);
  StatusOr<std::shared_ptr<const ModelText>> load_text(const ModelEntry& model);
  StatusOr<std::string> text_path(const ModelEntry& model);
  void publish();

  const std::shared_ptr<ModelNames> names_;
  const std::string text_folder_;
  Catalog catalog_;
  ClusterLink* link_ = nullptr;
  std::function<void()> changed_cb_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::optional<std::map<std::string, MemberRecord>> next_;
  bool busy_ = false;
  std::map<std::string, Known> known_;              // guarded by mutex_, as is the next
  std::map<std::string, MemberRecord> seen_;        // nodes, as last updated
  std::set<std::string> said_;                      // conflicts
  uint32_t next_id_ = 0;
  std::thread thread_;
};

}  // namespace shoal
