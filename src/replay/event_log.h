// What a node was told and what it answered, as lines of JSON. What a node decides is a function of these events and
// instants alone, so the same lines give the same answers anywhere: replay/replay.h.
//
//   {"node":1,"config":{...}}                                            the life of a node begins
//   {"node":1,"now":NS,"event":["step",MODEL,STEP,[...]],"effects":["step of 0: 3 rows #8c1f", ...]}
//
// Runs recorded before models came and went as events have them on lines of their own, each before the tick at which the
// node heard of it: {"node":1,"add":{...}}, {"node":1,"retire":MODEL}.
// Prompts and answers are in it, as ids of tokens: who may not read them may not read the file.
#pragma once

#include <span>
#include <string>

#include "roles/effect.h"
#include "roles/event.h"
#include "roles/node.h"

namespace shoal {

// Lines without their end. Keys are those of the head of this file.
std::string logged_config(const NodeConfig& config);
std::string logged_turn(NodeId node, const Event& event, TimePoint now, std::span<const Effect> effects);

// What a node decided, for people, and a hash of every bit of it behind '#': equal if and (but for one case in 2^64) only
// if the effects are.
std::string described(const Effect& effect);

}  // namespace shoal
