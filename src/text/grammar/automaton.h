// A grammar as a push-down automaton over bytes and tokens. One finite automaton per rule, in which the use of another
// rule is an edge too: a call that goes on at its target when the other rule has ended.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "text/grammar/gbnf_parser.h"

namespace shoal::grammar {

using NodeIndex = uint32_t;

// Every node lies on a way to the end of its rule, every rule can end, and no rule calls itself before it has taken a
// byte or a token, so whoever follows the edges always gets somewhere.
struct Automaton {
  struct ByteEdge {
    uint8_t first, last;  // both included; the ranges of a node may overlap where determinising would not pay
    NodeIndex target;
  };
  struct Call {
    NodeIndex start, target;
  };
  struct TokenEdge {
    TokenId token;
    NodeIndex target;
  };
  struct Node {
    uint32_t bytes_begin = 0, bytes_end = 0;
    uint32_t calls_begin = 0, calls_end = 0;
    uint32_t tokens_begin = 0, tokens_end = 0;
    bool final = false;   // the rule may end here

    bool takes_terminals() const { return bytes_begin < bytes_end || tokens_begin < tokens_end; }
    bool only_ends() const { return final && !takes_terminals() && calls_begin == calls_end; }
  };

  std::vector<Node> nodes;
  std::vector<ByteEdge> byte_edges;
  std::vector<Call> call_edges;
  std::vector<TokenEdge> token_edges;
  NodeIndex start = 0;
  // Bytes that no edge tells apart are of one class.
  std::array<uint8_t, 256> byte_class{};
  std::vector<uint8_t> class_byte;  // one byte of each class

  std::span<const ByteEdge> bytes(const Node& n) const { return {byte_edges.data() + n.bytes_begin, byte_edges.data() + n.bytes_end}; }
  std::span<const Call> calls(const Node& n) const { return {call_edges.data() + n.calls_begin, call_edges.data() + n.calls_end}; }
  std::span<const TokenEdge> tokens(const Node& n) const { return {token_edges.data() + n.tokens_begin, token_edges.data() + n.tokens_end}; }
};

// The token that is spelled so; nullopt if there is none.
using TokenLookup = std::function<std::optional<TokenId>(std::string_view spelling)>;

// InvalidArgument: a rule that calls itself first, a grammar that can never end or only be empty, a token that the
// vocabulary does not have, too many nodes.
StatusOr<Automaton> compile(const ParsedGrammar& grammar, const TokenLookup& token_id, uint32_t vocab_size, const GrammarLimits& limits = {});

}  // namespace shoal::grammar
