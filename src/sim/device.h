// A device without arithmetic: steps and loads take the cost model's time, and memory is checked as a real one would
// suffer from mistakes. KV blocks remember which tokens were written to them, and the "model" computes its next token
// from what it reads there, so a block that was given away too early changes an answer.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "engine/step.h"
#include "memory/page_pool.h"
#include "policy/cost_model.h"
#include "roles/effect.h"
#include "roles/node.h"

namespace shoal {

// The token that follows `context` for a sequence with this seed: a pure function, so that any place computes the same.
TokenId simulated_token(ModelId model, uint64_t context_hash, uint64_t seed, uint32_t output_index, uint32_t vocab_size);
// Hash of a sequence of tokens, extended one by one.
uint64_t extend_context(uint64_t hash, TokenId token);
constexpr uint64_t kEmptyContext = 0x5348'4f41'4cull;

class SimDevice {
 public:
  SimDevice(const NodeConfig& node, const CostModel& cost) : node_(node), cost_(cost), owner_{std::vector<PageOwner>(node.pages), std::vector<PageOwner>(node.host_pages)} {}

  Duration step_time(const StepInput& input) const;
  Duration load_time(ModelId model) const;
  Duration copy_time(const CopyKv& effect) const;

  // CHECKs that the blocks hold what the engine believes, writes the new tokens and draws the next ones.
  StepResult run(ModelId model, const StepInput& input);

  void remap(const RemapSlabs& effect);
  void load(const LoadWeights& effect);
  void drop(const DropWeights& effect);
  // A copy reads its sources when it ends and spoils its targets when it begins: whoever gives a source away too early,
  // or looks at a target too early, sees something else than it believes.
  void begin_copy(const CopyKv& effect);
  void end_copy(const CopyKv& effect);

  uint64_t steps() const { return steps_; }

 private:
  struct PageOwner {  // of a page of the pool: nobody, a model's weights or a slab
    enum class Kind : uint8_t { kNobody, kWeights, kSlab } kind = Kind::kNobody;
    uint64_t id = 0;
    friend bool operator==(const PageOwner&, const PageOwner&) = default;
  };
  using SlabKey = std::tuple<Tier, uint64_t, uint32_t>;  // bytes per block, slab
  struct Slab {
    std::vector<PageRun> pages;
    std::vector<std::vector<TokenId>> blocks;  // [blocks per slab][up to 16 tokens]
  };

  const NodeModel& facts(ModelId model) const;
  void own(Tier tier, std::span<const PageRun> pages, PageOwner from, PageOwner to);
  std::vector<TokenId>& block(Tier tier, uint64_t block_bytes, BlockId id);

  const NodeConfig node_;
  const CostModel cost_;
  std::array<std::vector<PageOwner>, 2> owner_;  // [tier][pages]
  std::map<SlabKey, Slab> slabs_;
  std::map<ModelId, std::vector<PageRun>> weights_;
  uint64_t steps_ = 0;
};

}  // namespace shoal
