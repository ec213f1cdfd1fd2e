// What a node was told and what it answered, as records: bytes of wire/records.proto, the messages in them as they cross. What a
// node decides is a function of these events and instants alone, so the same records give the same answers anywhere:
// replay/replay.h. Of decisions there is a text for people and a hash of every bit, for a step in full is a hundred times as long.
// Prompts and answers are in it, as ids of tokens: who may not read them may not read the file.
#pragma once

#include <span>
#include <string>

#include "roles/effect.h"
#include "roles/event.h"
#include "roles/node.h"

namespace shoal {

// Without their length (record_reader.h).
std::string logged_config(const NodeConfig& config);  // the life of a node begins
std::string logged_turn(NodeId node, const Event& event, TimePoint now, std::span<const Effect> effects);

// What a node decided, for people, and a hash of every bit of it behind '#': equal if and (but for one case in 2^64) only
// if the effects are.
std::string described(const Effect& effect);

}  // namespace shoal
