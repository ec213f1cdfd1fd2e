// cluster_size [--models N] [--per-node N] [--etcd HOST:PORT [--seconds S]] [--json]
//
// What one gateway, one controller and one directory carry as a cluster grows, by the production roles, codec and membership; nodes
// are simulated: their reports are those of nodes with work, and every figure of the first table is of one thread of this process.
//
//   place      seconds of the router for one request, from its arrival to its end
//   report     seconds of decoding and handling one node's report, and its bytes
//   view       seconds of a picture of the cluster in which one node changed
//   controller seconds of one report there, its comparisons of all nodes among them
//   gateway    share of a core for reports at the interval that nodes keep in a cluster of that size, and requests per second in the rest
//
// With --etcd: conditional writes and refreshes of leases per second of a real etcd by 1, 4 and 16 clients; then a cluster's traffic:
// so many members with leases (refreshed each third of 5 s), a new one now and then, and how long the others take to hear of it.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/json.h"
#include "membership/member_record.h"
#include "membership_etcd/etcd_directory.h"
#include "nlohmann/json.hpp"
#include "roles/controller.h"
#include "roles/node_reporter.h"
#include "roles/router.h"
#include "wire/model_names.h"

namespace shoal {
namespace {

constexpr NodeId kGateway{1};
constexpr uint32_t kFirstNode = 10;
constexpr uint32_t kSizes[] = {10, 100, 1000};

struct Flags {
  uint32_t models = 200, per_node = 20;
  std::string etcd;
  double seconds = 5;
  bool json = false;
};

double since(TimePoint begin) { return to_seconds(steady_now() - begin); }

// ---- gateway and controller ----------------------------------------------------------------------------------------------------

// `count` nodes, each with some of the models.
class Nodes {
 public:
  Nodes(const Flags& flags, uint32_t count) : flags_(flags), count_(count) {
    for (uint32_t i = 0; i < flags.models; ++i) names_.add(ModelId(i), {absl::StrCat("model-", i), i + 1});
  }
  ClusterState picture(uint64_t version, uint32_t changed) const {
    ClusterState state{.version = version};
    state.members[kGateway] = {.id = kGateway, .role = Role::kGateway, .epoch = 1};
    for (uint32_t i = 0; i < count_; ++i) {
      Member member{.id = id(i), .role = Role::kNode, .epoch = i == changed ? static_cast<uint32_t>(version) : 1};
      for (uint32_t k = 0; k < flags_.per_node; ++k) member.models.push_back(model(i, k));
      state.members[member.id] = std::move(member);
    }
    return state;
  }
  // As a node with requests of a few models says it.
  NodeStatus report(uint32_t i, uint64_t version) const {
    NodeStatus status{.version = version, .device_bytes = 80ull << 30, .device_bytes_free = 9ull << 30, .decode_pressure = 0.3 + 0.001 * (i % 100)};
    for (uint32_t k = 0; k < flags_.per_node; ++k) {
      ModelStatus m{.model = model(i, k), .state = k < 3 ? ModelState::kLoaded : ModelState::kUnloaded};
      m.running = k < 3 ? 20 : 0;
      m.weight_bytes = k < 3 ? 14ull << 30 : 0;
      m.prompt_tokens = 1'234'567 * version, m.generated_tokens = 7'654'321 * version, m.steps = 31'337 * version;
      m.steps_by_tokens.fill(1000 * version);
      m.wait_seconds = 0.01 * ((i + version) % 17), m.switch_seconds = k < 3 ? 0 : 0.9, m.prompt_token_seconds = 1e-4;
      status.models.push_back(std::move(m));
    }
    return status;
  }
  NodeId id(uint32_t i) const { return NodeId(kFirstNode + i); }
  uint32_t count() const { return count_; }
  const ModelNames& names() const { return names_; }

 private:
  ModelId model(uint32_t i, uint32_t k) const { return ModelId((i * 7 + k) % flags_.models); }

  const Flags& flags_;
  const uint32_t count_;
  ModelNames names_;
};

struct Row {
  uint32_t nodes = 0;
  double place = 0, report = 0, view = 0, controller = 0, interval = 0;
  uint64_t report_bytes = 0;
  double reports_per_second() const { return nodes / interval; }
  double share() const { return report * reports_per_second(); }
};

// Reports of all nodes, round by round, at a router and at a controller that leads.
void measure_reports(const Nodes& nodes, Router& router, TimePoint now, Row& row) {
  Controller controller({.self = kGateway});
  controller.handle(ClusterChanged{nodes.picture(1, 0)}, now);
  controller.handle(LeadershipChanged{true}, now);
  const uint64_t rounds = std::max<uint64_t>(3, 6000 / row.nodes);
  const Duration apart = from_seconds(row.interval / row.nodes);
  for (uint64_t round = 1; round <= rounds; ++round) {
    std::vector<std::string> coded;
    for (uint32_t i = 0; i < row.nodes; ++i) coded.push_back(encode(nodes.report(i, round), 1, nodes.names()));
    row.report_bytes = coded[0].size();
    TimePoint begin = steady_now();
    for (uint32_t i = 0; i < row.nodes; ++i) router.handle(MessageFrom{nodes.id(i), decode(coded[i], nodes.names())->message, 1}, now);
    row.report += since(begin);
    begin = steady_now();
    for (uint32_t i = 0; i < row.nodes; ++i) controller.handle(MessageFrom{nodes.id(i), decode(coded[i], nodes.names())->message, 1}, now += apart);
    row.controller += since(begin);
  }
  row.report /= static_cast<double>(rounds * row.nodes), row.controller /= static_cast<double>(rounds * row.nodes);
}

void measure_requests(const Flags& flags, Router& router, TimePoint now, Row& row) {
  constexpr uint64_t kRequests = 2000;
  const TimePoint begin = steady_now();
  for (uint64_t i = 1; i <= kRequests; ++i) {
    Request request;
    request.id = RequestId(i);
    request.model = ModelId(static_cast<uint32_t>(i % flags.models));
    request.prompt.assign(256, TokenId(5));
    NodeId node;
    for (const Effect& effect : router.handle(NewRequest{request}, now)) {
      if (const auto* send = std::get_if<Send>(&effect)) node = send->to;
    }
    router.handle(MessageFrom{node, Tokens{.id = request.id, .finish = FinishReason::kStop}, 1}, now);
  }
  row.place = since(begin) / kRequests;
}

Row measure(const Flags& flags, uint32_t count) {
  constexpr uint64_t kViews = 20;
  const Nodes nodes(flags, count);
  Row row{.nodes = count, .interval = to_seconds(NodeReporter::interval(count, std::chrono::milliseconds(100)))};
  Router router({.self = kGateway, .requests_max = 1u << 20, .balance_interval = Duration::max(), .life = 1});
  const TimePoint now = steady_now();
  router.handle(ClusterChanged{nodes.picture(1, 0)}, now);
  measure_reports(nodes, router, now, row);
  measure_requests(flags, router, now, row);
  std::vector<ClusterState> pictures;
  for (uint64_t i = 0; i < kViews; ++i) pictures.push_back(nodes.picture(2 + i, static_cast<uint32_t>(i % count)));
  const TimePoint begin = steady_now();
  for (ClusterState& picture : pictures) router.handle(ClusterChanged{std::move(picture)}, now);
  row.view = since(begin) / kViews;
  return row;
}

void print(const std::vector<Row>& rows, const Flags& flags) {
  if (flags.json) {
    Json out = Json::array();
    for (const Row& r : rows) {
      out.push_back({{"nodes", r.nodes}, {"place_us", r.place * 1e6}, {"report_us", r.report * 1e6}, {"report_bytes", r.report_bytes}, {"view_us", r.view * 1e6}, {"controller_us", r.controller * 1e6},
                     {"report_interval_s", r.interval}, {"reports_per_s", r.reports_per_second()}, {"reports_share", r.share()}, {"requests_per_s", (1 - r.share()) / r.place}});
    }
    std::printf("%s\n", dump_json(out).c_str());
    return;
  }
  std::printf("%u models, %u at each node\n%8s %10s %11s %9s %9s %12s %12s %12s %14s\n", flags.models, flags.per_node, "nodes", "place us", "report us", "bytes", "view us", "controller", "reports/s", "of a core",
              "requests/s");
  for (const Row& r : rows) {
    std::printf("%8u %10.1f %11.1f %9llu %9.0f %12.1f %12.0f %12.3f %14.0f\n", r.nodes, r.place * 1e6, r.report * 1e6, static_cast<unsigned long long>(r.report_bytes), r.view * 1e6, r.controller * 1e6,
                r.reports_per_second(), r.share(), (1 - r.share()) / r.place);
  }
}

// ---- etcd ------------------------------------------------------------------------------------------------------------------------

template <typename T>
T value(StatusOr<T> result) {
  if (result.ok()) return *std::move(result);
  std::fprintf(stderr, "%s\n", std::string(result.status().message()).c_str());
  std::exit(1);
}

std::string record_of(const Flags& flags, uint32_t i) {
  MemberRecord record{.name = absl::StrCat("node-", i), .life = 1, .address = "10.0.0.1:7000", .bulk_address = "10.0.0.1:7001", .machine = absl::StrCat("machine-", i), .pid = 77, .instance = std::string(32, 'a')};
  for (uint32_t k = 0; k < flags.per_node; ++k) record.models.push_back({absl::StrCat("model-", (i * 7 + k) % flags.models), k + 1});
  return write_record(record);
}

// Calls per second of so many clients, each with a connection of its own.
template <typename Call>
double calls_per_second(const DirectoryAddress& address, uint32_t clients, double seconds, const Call& call) {
  std::atomic<uint64_t> calls{0};
  std::vector<std::thread> threads;
  for (uint32_t c = 0; c < clients; ++c) {
    threads.emplace_back([&, c] {
      const auto directory = open_directory(address, {});
      const TimePoint until = steady_now() + from_seconds(seconds);
      for (uint64_t n = 0; steady_now() < until; ++n) {
        call(*directory, c, n);
        ++calls;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return static_cast<double>(calls) / seconds;
}

// Members with leases, refreshed by a few threads as their processes would.
class Members {
 public:
  Members(const Flags& flags, const DirectoryAddress& address, std::string prefix, uint32_t count) : address_(address), prefix_(std::move(prefix)), leases_(count) {
    const TimePoint begin = steady_now();
    each([&](Directory& directory, uint32_t i) {
      leases_[i] = value(directory.grant(kLease));
      value(directory.put_if(prefix_ + absl::StrCat("node-", i), 0, record_of(flags, i), leases_[i]));
    });
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    join_seconds_ = since(begin);
    each([&](Directory& directory, uint32_t i) {
      if (!directory.keep_alive(leases_[i]).ok()) leases_[i] = value(directory.grant(kLease));
      ++refreshed_;
    }, kLease / 3);
  }
  ~Members() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
    const auto directory = open_directory(address_, {});
    for (const LeaseId lease : leases_) directory->revoke(lease).IgnoreError();
  }
  double join_seconds() const { return join_seconds_; }
  uint64_t refreshed() const { return refreshed_; }
  uint64_t late() const { return late_; }  // rounds of refreshes that took longer than their time

 private:
  static constexpr uint32_t kThreads = 4;
  static constexpr Duration kLease = std::chrono::seconds(5);

  // `period`: again and again; 0: once.
  template <typename Call>
  void each(Call call, Duration period = Duration(0)) {
    for (uint32_t t = 0; t < kThreads; ++t) {
      threads_.emplace_back([this, call, period, t] {
        const auto directory = open_directory(address_, {});
        do {
          const TimePoint begin = steady_now();
          for (uint32_t i = t; i < leases_.size() && !stop_; i += kThreads) call(*directory, i);
          if (period > Duration(0) && steady_now() - begin > period) ++late_;
          while (!stop_ && steady_now() - begin < period) std::this_thread::sleep_for(std::chrono::milliseconds(5));
        } while (period > Duration(0) && !stop_);
      });
    }
  }

  const DirectoryAddress& address_;
  const std::string prefix_;
  std::vector<LeaseId> leases_;
  std::vector<std::thread> threads_;
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> refreshed_{0}, late_{0};
  double join_seconds_ = 0;
};

// What one of so many members sees of the others, and of a new one.
Json live_cluster(const Flags& flags, const DirectoryAddress& address, uint32_t count) {
  const std::string prefix = absl::StrCat("/shoal-bench/", steady_now().time_since_epoch().count(), "/members/");
  const Members members(flags, address, prefix, count);
  const auto reader = open_directory(address, {}), writer = open_directory(address, {});
  TimePoint begin = steady_now();
  const DirectoryListing listing = value(reader->list(prefix));
  const double list_seconds = since(begin);
  uint64_t bytes = 0;
  begin = steady_now();
  for (const DirectoryEntry& entry : listing.entries) {
    bytes += entry.value.size();
    value(read_record(entry.value));
  }
  const double read_seconds = since(begin);
  const auto watch = value(reader->watch(prefix, listing.revision));
  std::vector<double> heard;
  const uint64_t before = members.refreshed();
  const TimePoint live = steady_now();
  for (uint32_t i = 0; since(live) < flags.seconds; ++i) {
    begin = steady_now();
    value(writer->put_if(prefix + absl::StrCat("new-", i), 0, record_of(flags, count + i), LeaseId()));
    while (value(watch->next(std::chrono::seconds(1))).empty()) {}
    heard.push_back(since(begin));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  const double refreshes = static_cast<double>(members.refreshed() - before) / since(live);
  std::sort(heard.begin(), heard.end());
  return {{"members", count}, {"join_s", members.join_seconds()}, {"list_ms", list_seconds * 1e3}, {"list_bytes", bytes}, {"read_ms", read_seconds * 1e3}, {"refreshes_per_s", refreshes},
          {"rounds_late", members.late()}, {"heard_p50_ms", heard[heard.size() / 2] * 1e3}, {"heard_p99_ms", heard[heard.size() * 99 / 100] * 1e3}};
}

void ask_etcd(const Flags& flags) {
  const DirectoryAddress address = value(parse_directory_address("etcd://" + flags.etcd));
  const std::string key = absl::StrCat("/shoal-bench/", steady_now().time_since_epoch().count(), "/");
  Json out = {{"calls", Json::array()}, {"clusters", Json::array()}};
  for (const uint32_t clients : {1u, 4u, 16u}) {
    std::vector<int64_t> revisions(clients, 0);
    std::vector<LeaseId> leases(clients);
    const double writes = calls_per_second(address, clients, flags.seconds, [&](Directory& d, uint32_t c, uint64_t n) {
      revisions[c] = value(d.put_if(absl::StrCat(key, clients, "/", c), revisions[c], record_of(flags, static_cast<uint32_t>(n)), LeaseId()));
    });
    const double refreshes = calls_per_second(address, clients, flags.seconds, [&](Directory& d, uint32_t c, uint64_t) {
      if (leases[c] == LeaseId()) leases[c] = value(d.grant(std::chrono::seconds(60)));
      if (!d.keep_alive(leases[c]).ok()) std::exit(1);
    });
    out["calls"].push_back({{"clients", clients}, {"writes_per_s", writes}, {"refreshes_per_s", refreshes}});
  }
  for (const uint32_t members : kSizes) out["clusters"].push_back(live_cluster(flags, address, members));
  if (flags.json) {
    std::printf("%s\n", dump_json(out).c_str());
    return;
  }
  for (const Json& c : out["calls"]) {
    std::printf("etcd, %2d clients: %8.0f writes/s, %8.0f refreshes/s\n", c["clients"].get<int>(), c["writes_per_s"].get<double>(), c["refreshes_per_s"].get<double>());
  }
  for (const Json& c : out["clusters"]) {
    std::printf("etcd, %4d members: joined in %.2f s; %.0f refreshes/s, %d rounds late; list %.1f ms (%.0f KiB), read %.1f ms; a new one is heard after %.1f ms, p99 %.1f ms\n", c["members"].get<int>(),
                c["join_s"].get<double>(), c["refreshes_per_s"].get<double>(), c["rounds_late"].get<int>(), c["list_ms"].get<double>(), c["list_bytes"].get<double>() / 1024, c["read_ms"].get<double>(),
                c["heard_p50_ms"].get<double>(), c["heard_p99_ms"].get<double>());
  }
}

Flags parse(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i], next = i + 1 < argc ? argv[i + 1] : "";
    if (word == "--json") {
      flags.json = true;
      continue;
    }
    ++i;
    if (word == "--models") flags.models = static_cast<uint32_t>(std::clamp<uint64_t>(std::strtoull(next.c_str(), nullptr, 10), 1, 100'000));
    else if (word == "--per-node") flags.per_node = static_cast<uint32_t>(std::clamp<uint64_t>(std::strtoull(next.c_str(), nullptr, 10), 1, 10'000));
    else if (word == "--etcd") flags.etcd = next;
    else if (word == "--seconds") flags.seconds = std::clamp(std::strtod(next.c_str(), nullptr), 0.1, 600.0);
    else std::fprintf(stderr, "cluster_size [--models N] [--per-node N] [--etcd HOST:PORT [--seconds S]] [--json]\n"), std::exit(2);
  }
  flags.per_node = std::min(flags.per_node, flags.models);
  return flags;
}

int run(const Flags& flags) {
  if (!flags.etcd.empty()) {
    ask_etcd(flags);
    return 0;
  }
  std::vector<Row> rows;
  for (const uint32_t count : kSizes) rows.push_back(measure(flags, count));
  print(rows, flags);
  return 0;
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) { return shoal::run(shoal::parse(argc, argv)); }
