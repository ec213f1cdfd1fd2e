// What a way of sharing the device would bring: a rehearsal of the next while, from what a node knows, by its own estimates.
// Requests are a fluid in it, in cohorts, unless models and requests are few, and time goes from switch to switch; so it costs microseconds. Pure.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "policy/cohorts.h"

namespace shoal {

// Of a token of a model with this priority.
double priority_weight(int32_t priority);

struct RehearsedModel {
  ModelId model;
  bool resident = false;
  bool stays = false;          // on the device, whatever comes
  bool here = false;           // one of those that a Course that is `here` keeps: on the device, or away for a guest's sake
  bool first = false;          // comes before all others
  double switch_seconds = 0;
  double return_seconds = 0;   // of one to it when it has been here: a first load may copy more than any later one
  double step_base = 0, step_each = 0;  // a decode step of n sequences takes step_base + n * step_each
  double ttft = 10, tbt = 0.1;
  double weight = 1;           // of one of its tokens
  double arrivals = 0;         // a second, expected
  double prompt_seconds = 0;   // of one that comes
  double answer_tokens = 128;  // of one that comes
  double sequences_max = 256;  // at once
  double quota_seconds = 0;    // of its turn
  double spent_seconds = 0;    // of the turn under way
  double pace_seconds = 0;     // between two of its steps, of late, with what was between them
  double passed_over = 0;      // of those that decode: hopeless, and in no step
  double weight_pages = 0;
  double kv_pages_min = 0;     // that must be free when it comes
  double kv_pages = 0;         // of one sequence, in the mean,
  double again_seconds = 0;    // and of computing that anew
  Cohorts cohorts;

  double step_seconds(double sequences) const { return step_base + step_each * sequences; }
};

struct RehearsedDevice {
  uint32_t rooms = 1;          // the first so many have place at once. Others, and those that come later, as there are
  double pages = std::numeric_limits<double>::infinity();  // for their weights, and KV; where these are no limit, `rooms` is;
  double host_pages = 0;       // KV of those that are away may go there. What has no place is computed anew
  uint32_t models = std::numeric_limits<uint32_t>::max();  // that may ever come to it: of few, rare requests come one by one
};

// How the device is shared: turns among the first `served` models, each `stretch` quotas long. The others wait.
struct Course {
  uint32_t served = 0;
  double stretch = 1;
  bool ends = false;  // when others wait after that, a model begins what has come until then and no more, and goes when that has ended
  bool here = false;  // the first of those that are on the device, also if others would come before them
  static constexpr double kUntilDone = std::numeric_limits<double>::infinity();  // until nothing promising is left of it
  friend bool operator==(const Course&, const Course&) = default;
};

// Weighted tokens that are due within `horizon` seconds: on time, and late or not given; together what is wanted then. And those that are
// due afterwards and were given already.
struct Rehearsed {
  double on_time = 0;
  double lost = 0;
  double ahead = 0;
  double idle = 0;             // share of the time without switches in which there was nothing to do that could be on time
  double switches = 0;         // how often somebody who was away came
  // What it is worth, if a token that is given ahead counts as so much of one that is on time.
  double worth(double ahead_counts) const { return on_time + ahead_counts * ahead; }
};
Rehearsed rehearse(std::span<const RehearsedModel> models, const RehearsedDevice& device, const Course& course, double horizon);

// Whether a switch to it, begun now, would bring it anything that is on time if it took as long as those that follow. A first one is for
// those who come later: if none of them could be in time for it, nobody would ever be.
bool worth_a_switch(const RehearsedModel& model);

// Weighted tokens that are likely to be late because it is back on the device only after so many seconds: those of requests that come
// until then, as far as they cannot wait as long, and of those that come before these are computed.
double late_when_away(const RehearsedModel& model, double seconds);

// Whether one that is away and has so many requests that are late already is to come while nobody on the device has work: if less is likely
// to be late for it, of the one that `leaves` until it could be back and of those of `models` that are away and would come meanwhile, than is
// on time of those who come for it, and of one that comes the next time if a first load is longer. All of its requests, or as few as pay; a token of
// one that is late counts as a fiftieth of one on time.
bool pays_while_idle(const RehearsedModel& late, double requests, const RehearsedModel& leaves, std::span<const RehearsedModel> models);

// The share of the device's time that it takes to compute what comes, and what is here and promising within the horizon, at the pace of
// those who read it.
double load(const RehearsedModel& model, double horizon);

// On-time tokens for a second of the device, if it is served from now on: what a set that narrows is ordered by.
double yield(const RehearsedModel& model, double horizon);

}  // namespace shoal
