// Is the simulator strong enough? Each mutant is a mistake in a role, made by spoiling what goes in or comes out of it; the
// checkers must find every one within some seeds. sim_mutants [NAME]. A mutant that ends the process by a CHECK is found
// as well, so each runs in a process of its own.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "sim/scenario.h"
#include "sim/world.h"

namespace shoal {
namespace {

constexpr uint64_t kSeedsMax = 200;
constexpr uint64_t kEvery = 7;  // occasions of which one is spoilt

// Spoils one of so many occasions.
class Sometimes {
 public:
  bool operator()() { return ++*seen_ % kEvery == 0; }

 private:
  std::shared_ptr<uint64_t> seen_ = std::make_shared<uint64_t>(0);
};

template <typename T>
T* message_in(Event& event) {
  auto* from = std::get_if<MessageFrom>(&event);
  return from == nullptr ? nullptr : std::get_if<T>(&from->message);
}
template <typename T>
T* message_in(Effect& effect) {
  auto* send = std::get_if<Send>(&effect);
  return send == nullptr ? nullptr : std::get_if<T>(&send->message);
}

using Spoil = std::function<void(NodeId, std::vector<Effect>&)>;
using SpoilEvent = std::function<bool(NodeId, Event&)>;

// Applies `change` to some effects of type T of any role.
template <typename T>
Spoil change_effect(std::function<void(T&)> change) {
  return [change, sometimes = Sometimes()](NodeId, std::vector<Effect>& effects) mutable {
    for (Effect& effect : effects) {
      if (T* e = std::get_if<T>(&effect); e != nullptr && sometimes()) change(*e);
    }
  };
}
template <typename T>
Spoil drop_effect() {
  return [sometimes = Sometimes()](NodeId, std::vector<Effect>& effects) mutable {
    std::erase_if(effects, [&](const Effect& e) { return std::holds_alternative<T>(e) && sometimes(); });
  };
}
template <typename T>
Spoil repeat_effect() {
  return [sometimes = Sometimes()](NodeId, std::vector<Effect>& effects) mutable {
    for (size_t i = 0; i < effects.size(); ++i) {
      if (!std::holds_alternative<T>(effects[i]) || !sometimes()) continue;
      effects.insert(effects.begin() + static_cast<ptrdiff_t>(i), Effect(effects[i]));
      ++i;
    }
  };
}
template <typename T>
SpoilEvent swallow_message() {
  return [sometimes = Sometimes()](NodeId, Event& event) mutable { return message_in<T>(event) == nullptr || !sometimes(); };
}
template <typename T>
SpoilEvent change_message(std::function<void(T&)> change) {
  return [change, sometimes = Sometimes()](NodeId, Event& event) mutable {
    if (T* message = message_in<T>(event); message != nullptr && sometimes()) change(*message);
    return true;
  };
}

struct Mutant {
  const char* name;
  const char* mistake;
  Interceptor interceptor;
  std::function<void(Scenario&)> scenario = [](Scenario&) {};
};

// Owner epochs are not compared: what an owner of before sends passes for the newest one's.
SpoilEvent no_fencing() {
  const auto newest = std::make_shared<std::map<RequestId, uint32_t>>();
  return [newest](NodeId role, Event& event) {
    if (const Submit* submit = message_in<Submit>(event)) {
      uint32_t& epoch = (*newest)[submit->request.id];
      epoch = std::max(epoch, submit->request.epoch);
    }
    Tokens* tokens = role == kRouterId ? message_in<Tokens>(event) : nullptr;
    if (tokens != nullptr) tokens->epoch = std::max(tokens->epoch, (*newest)[tokens->id]);
    return true;
  };
}

void crashes(Scenario& s) {
  s.nodes = 2;
  s.faults_per_second = 3;
  s.fault_kinds = {Fault::Kind::kCrash, Fault::Kind::kLeaseLoss};
  s.requests_per_second = 20;
}
void operated(Scenario& s) {
  crashes(s);
  s.admin_changes = 8;
}
void two_tiers(Scenario& s) {
  s.models = 6;
  s.pages = 20;
  s.weight_pages = 4;
  s.host_pages = 40;
  s.requests = 60;
  s.scheduling = Scheduling::kToken;
}

Interceptor forgotten_settings() {
  const auto joined = std::make_shared<bool>(false);
  return {[joined](NodeId role, Event& event) {
            if (role == kRouterId) *joined = std::holds_alternative<ClusterChanged>(event);
            return true;
          },
          [joined](NodeId role, std::vector<Effect>& effects) {
            if (role == kRouterId && *joined) std::erase_if(effects, [](Effect& e) { return message_in<Configure>(e) != nullptr; });
          }};
}

std::vector<Mutant> node_mutants() {
  return {
      {"lost_cancel", "a node forgets to withdraw a cancelled request", {swallow_message<Cancel>(), nullptr}},
      {"off_by_one", "the router numbers a delta one too high", {nullptr, change_effect<Deliver>([](Deliver& d) { ++d.tokens.first_index; })}},
      {"wrong_resume_text", "a sequence resumes with another token than the client has seen",
       {change_message<Submit>([](Submit& s) {
          if (!s.request.output.empty()) s.request.output.back() ^= 1;
        }), nullptr}, crashes},
      {"ignored_epoch", "a request that came back is given the epoch of before",
       {change_message<Submit>([](Submit& s) { s.request.epoch -= s.request.epoch > 0; }), nullptr}, crashes},
      {"no_drop", "weights that were dropped stay mapped", {nullptr, drop_effect<DropWeights>()}, two_tiers},
      {"lost_remap", "slabs are used before they are mapped", {nullptr, drop_effect<RemapSlabs>()}},
      {"wrong_block", "a step writes to the block of another sequence",
       {nullptr, change_effect<StartStep>([](StartStep& s) {
          if (s.input.slices.size() > 1) std::swap(s.input.slices[0].blocks, s.input.slices[1].blocks);
        })}},
      {"skipped_token", "a slice begins one token too late",
       {nullptr, change_effect<StartStep>([](StartStep& s) {
          StepSlice& slice = s.input.slices.front();
          if (slice.tokens.size() < 2) return;
          slice.tokens.erase(slice.tokens.begin());
          ++slice.begin;
        })}},
      {"wrong_counter", "the draw of a token uses the index of the one before",
       {nullptr, change_effect<StartStep>([](StartStep& s) { s.input.slices.back().output_index += 1; })}},
      {"wrong_copy", "KV on its way between the tiers is swapped",
       {nullptr, change_effect<CopyKv>([](CopyKv& c) {
          if (c.move.copies.size() > 1) std::swap(c.move.copies[0].from, c.move.copies[1].from);
        })}, two_tiers},
      {"lost_wake", "roles are not woken when they asked for it",
       {nullptr, [](NodeId, std::vector<Effect>& effects) { std::erase_if(effects, [](const Effect& e) { return std::holds_alternative<WakeAt>(e); }); }},
       [](Scenario& s) {
         s = Scenario();
         s.requests_per_second = 2;
         s.deadline_probability = 1;
         s.output_max = 200;
       }},
      {"lost_step", "a step is planned and never started", {nullptr, drop_effect<StartStep>()}},
  };
}

std::vector<Mutant> end_mutants() {
  return {
      {"no_fencing", "tokens of an owner of before are shown", {no_fencing(), nullptr}, crashes},
      {"shown_twice", "the router shows a delta twice", {nullptr, repeat_effect<Deliver>()}},
      {"gap", "the router shows one delta too few", {nullptr, drop_effect<Deliver>()}},
      {"lost_finish", "the end of an answer is not told",
       {nullptr, change_effect<Deliver>([](Deliver& d) { d.tokens.finish.reset(); })}},
      {"early_finish", "an answer ends before its time",
       {nullptr, change_effect<Deliver>([](Deliver& d) {
          if (!d.tokens.finish) d.tokens.finish = FinishReason::kLength;
        })}},
      {"changed_token", "a token changes on its way to the client",
       {nullptr, change_effect<Deliver>([](Deliver& d) {
          if (!d.tokens.tokens.empty()) d.tokens.tokens.back().token ^= 1;
        })}},
      {"swapped_results", "two sequences of a step get each other's tokens",
       {[sometimes = Sometimes()](NodeId, Event& event) mutable {
          auto* done = std::get_if<StepDone>(&event);
          if (done == nullptr || done->result.slices.size() < 2 || !sometimes()) return true;
          std::swap(done->result.slices[0].sampled, done->result.slices[1].sampled);
          return true;
        }, nullptr}},
      {"lost_copy_event", "the end of a copy is not heard of",
       {[sometimes = Sometimes()](NodeId, Event& event) mutable { return !std::holds_alternative<KvCopied>(event) || !sometimes(); }, nullptr}, two_tiers},
      {"lost_load_event", "the end of a load is not heard of",
       {[sometimes = Sometimes()](NodeId, Event& event) mutable { return !std::holds_alternative<WeightsReady>(event) || !sometimes(); }, nullptr}},
      {"blind_router", "the router does not hear that a node was lost",
       {[](NodeId role, Event& event) {
          auto* changed = role == kRouterId ? std::get_if<ClusterChanged>(&event) : nullptr;
          return changed == nullptr || changed->state.version <= 2;
        }, nullptr}, crashes},
      {"blames_others", "a request fails although nothing went wrong",
       {nullptr, change_effect<Deliver>([](Deliver& d) {
          d.tokens.finish = FinishReason::kError;
          d.tokens.error_code = StatusCode::kInternal;
          d.tokens.error = "somebody else's mistake";
        })}},
      {"miscounted", "a node sends a token that it does not count",
       {nullptr, [sometimes = Sometimes()](NodeId role, std::vector<Effect>& effects) mutable {
          for (Effect& effect : effects) {
            Tokens* tokens = role == kRouterId ? nullptr : message_in<Tokens>(effect);
            if (tokens != nullptr && tokens->finish && sometimes()) tokens->tokens.push_back({1, 0, {}});
          }
        }}},
      {"lost_settings", "new settings do not reach the nodes",
       {[](NodeId role, Event& event) { return role == kRouterId || message_in<Configure>(event) == nullptr; }, nullptr}, operated},
      {"forgotten_settings", "a node that comes back is not told what changed meanwhile",
       forgotten_settings(), operated},
      {"false_load", "a node reports models as loaded that are on disk",
       {change_message<NodeStatus>([](NodeStatus& s) {
          for (ModelStatus& model : s.models) model.state = ModelState::kLoaded;
        }), nullptr}, [](Scenario& s) { operated(s), s.models = 12, s.pages = 20, s.weight_pages = 6, s.requests = 20; }},
      {"unfair", "the newest request of a model goes before those that wait",
       {[](NodeId role, Event& event) {
          Submit* submit = role == kRouterId ? nullptr : message_in<Submit>(event);
          if (submit != nullptr) submit->request.priority = static_cast<int32_t>(submit->request.id.sequence);
          return true;
        }, nullptr},
       [](Scenario& s) { s = Scenario(), s.models = 1, s.requests = 300, s.requests_per_second = 200, s.limits = {16, 1, 1, true}; }},
  };
}

// The first seed that shows the mistake, and how; 0: none did.
uint64_t hunt(const Mutant& mutant, std::string& how) {
  for (uint64_t seed = 1; seed <= kSeedsMax; ++seed) {
    Scenario scenario = Scenario::random(seed);
    scenario.faults_per_second = scenario.load_failure_probability = 0;
    scenario.pooling.max_wait = Duration::max();
    mutant.scenario(scenario);
    scenario.seed = seed;
    WorldSetup setup = make_setup(scenario);
    setup.interceptor = std::make_shared<Interceptor>(mutant.interceptor);
    setup.no_end_after = std::chrono::minutes(2);
    setup.overtaken_max = std::chrono::seconds(5);
    std::printf("."), std::fflush(stdout);  // for whom a CHECK ends
    const Outcome outcome = World(std::move(setup)).run();
    if (outcome.violations.empty()) continue;
    how = outcome.violations.front();
    return seed;
  }
  return 0;
}

// True if the mutant was found. The child's words come through a pipe.
bool report(const Mutant& mutant) {
  int pipe_ends[2];
  if (pipe(pipe_ends) != 0) return false;
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    dup2(pipe_ends[1], STDOUT_FILENO);
    dup2(pipe_ends[1], STDERR_FILENO);
    close(pipe_ends[0]);
    std::string how;
    const uint64_t seed = hunt(mutant, how);
    std::printf("\n%s", how.c_str());
    std::fflush(stdout);
    _exit(seed == 0 ? 0 : 42);
  }
  close(pipe_ends[1]);
  std::string said;
  char buffer[4096];
  for (ssize_t n; (n = read(pipe_ends[0], buffer, sizeof buffer)) > 0;) said.append(buffer, static_cast<size_t>(n));
  close(pipe_ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  const bool checked = WIFSIGNALED(status), found = checked || WEXITSTATUS(status) == 42;
  const size_t seeds = std::min(said.find_first_not_of('.'), said.size());
  std::string how = said.substr(seeds);
  std::replace(how.begin(), how.end(), '\n', ' ');
  std::printf("%-18s %-9s %3zu seeds  %-66s %s\n", mutant.name, !found ? "NOT FOUND" : checked ? "by CHECK" : "found", seeds, mutant.mistake,
              how.substr(0, 150).c_str());
  return found;
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) {
  size_t missed = 0, all = 0;
  for (const auto& mutants : {shoal::node_mutants(), shoal::end_mutants()}) {
    for (const shoal::Mutant& mutant : mutants) {
      if (argc > 1 && std::strcmp(argv[1], mutant.name) != 0) continue;
      ++all;
      missed += !shoal::report(mutant);
    }
  }
  std::printf("%zu of %zu mutants found\n", all - missed, all);
  return missed == 0 && all > 0 ? 0 : 1;
}
