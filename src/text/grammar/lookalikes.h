// Nodes that no token can tell apart: the hundredth and the hundred-and-first character of a string of at most a
// thousand lead to the same masks, because the bound is further away than any token reaches.
#pragma once

#include <vector>

#include "text/grammar/automaton.h"

namespace shoal::grammar {

// For each node one that accepts and refuses the same texts of at most `bytes` bytes, from there to the end of its rule
// and beyond; the same one for all of them. (Moore's refinement, cut off after `bytes` rounds.)
std::vector<NodeIndex> lookalikes(const Automaton& automaton, size_t bytes);

}  // namespace shoal::grammar
