// The client's side of expert servers, without bytes and without time: which server is asked for which rows of a layer, what is
// asked anew when one of them is given up, and how long an answer may take. A client decides all of this alone, from its own
// picture of who is suspected: nobody agrees with anybody. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/time.h"
#include "policy/expert_placement.h"

namespace shoal {

// A token's row for one of the experts that it is routed to.
struct ExpertRow {
  uint32_t token = 0;
  uint32_t expert = 0;
};

struct ExpertAsk {
  NodeId server;
  std::vector<uint32_t> rows;  // indices of the call's rows, ascending
  friend bool operator==(const ExpertAsk&, const ExpertAsk&) = default;
};

// What a server was asked for by other calls of the same client and has not answered, in rows' worth (expert_work).
struct ExpertServerWork {
  NodeId server;
  double work = 0;
};
// Rows' worth of so many rows for so many distinct experts: an expert more costs a server about as much as four rows, as its weights
// are read once whatever rows come.
constexpr double expert_work(size_t rows, size_t experts) { return static_cast<double>(rows + 4 * experts); }

// Who may be asked.
struct ExpertServers {
  const ExpertPlacement& placement;
  std::span<const NodeId> suspected = {};  // are not asked
  // Where the client knows what its servers still have to do: all of them. The rows of an expert then go together to the copy with
  // least to do, those of an expert with most rows first, and are split over its copies only if they are more than a server's part of
  // the call. Empty: each row goes to a copy drawn by the placement's shares.
  std::span<const ExpertServerWork> work = {};
};

// The rows of one layer of one pass, from being routed until each has its one answer. Several asks to one server may be under
// way: the rows of a server that was given up may go to one that was asked before.
class ExpertCall {
 public:
  // What is to be asked of whom, one ask per server. Rows of experts that nobody (unsuspected) holds are `missing()`.
  // `salt`: spreads rows over copies, the same for the same salt.
  std::vector<ExpertAsk> begin(const ExpertServers& servers, uint32_t layer, std::span<const ExpertRow> rows, uint64_t salt);

  // The answer of `server` to these rows. False if one of them is not awaited from it: the answer of a server that was given up
  // meanwhile, or one that came before. Nothing of such an answer may be used.
  bool answered(NodeId server, std::span<const uint32_t> rows);

  // `server` is given up, or says that it does not hold (some of) the experts: its unanswered rows are asked of others. Answers
  // of other servers are kept.
  std::vector<ExpertAsk> give_up(NodeId server, const ExpertServers& servers);
  // Only those rows of it.
  std::vector<ExpertAsk> give_up(NodeId server, std::span<const uint32_t> rows, const ExpertServers& servers);
  // Rows that were missing are asked for again: an expert is back, or a placement names another server.
  std::vector<ExpertAsk> retry(const ExpertServers& servers);

  bool done() const { return waiting_ == 0 && missing_ == 0; }
  // Nobody holds what some rows need, and no other answer is awaited: the pass is deferred.
  bool deferred() const { return waiting_ == 0 && missing_ > 0; }
  bool any_missing() const { return missing_ > 0; }
  std::vector<uint32_t> missing() const;
  bool awaits(NodeId server) const;
  const std::vector<ExpertRow>& rows() const { return rows_; }

 private:
  enum class State : uint8_t { kMissing, kAsked, kAnswered };
  std::vector<ExpertAsk> ask(std::span<const uint32_t> rows, const ExpertServers& servers);
  void ask_by_share(uint32_t row, const ExpertServers& servers, std::vector<ExpertAsk>& asks);
  void ask_by_work(std::span<const uint32_t> rows, const ExpertServers& servers, std::vector<ExpertAsk>& asks);
  void give(uint32_t row, NodeId server, std::vector<ExpertAsk>& asks);

  uint32_t layer_ = 0;
  uint64_t salt_ = 0;
  std::vector<ExpertRow> rows_;
  std::vector<State> states_;
  std::vector<NodeId> asked_;  // of rows in kAsked: whom
  uint32_t waiting_ = 0, missing_ = 0;
};

// How long answers took, and so how long one may take before its server is given up: max(5 x p99, 2 ms) as designed, and less
// sure while little was seen.
class ExpertAnswerTimes {
 public:
  static constexpr Duration kLeast = std::chrono::milliseconds(2), kUnknown = std::chrono::seconds(1);

  void add(Duration took);
  Duration percentile(double q) const;  // of about the last thousand, within a quarter; 0 while nothing was seen
  // After so long another server may be asked as well: the 99th percentile; never, while little was seen.
  Duration hedge(Duration least = kLeast) const;
  // `unknown` while little was seen, and never longer than that.
  Duration timeout(Duration least = kLeast, Duration unknown = kUnknown) const;

 private:
  static constexpr size_t kBuckets = 128;  // a fourth root of two wide, from a microsecond
  static constexpr uint32_t kSeenMin = 32, kHalveAt = 1024;
  std::array<uint32_t, kBuckets> counts_{};
  uint32_t seen_ = 0;
};

}  // namespace shoal
