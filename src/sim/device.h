// Devices without arithmetic. What time they take is the world's matter; here is what they hold and what they answer.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/step.h"
#include "memory/page_pool.h"
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
  virtual ~SimDevice() = default;

  virtual StepResult run(ModelId model, const StepInput& input) = 0;
  virtual void remap(const RemapSlabs& effect) = 0;
  virtual void begin_load(const LoadWeights& effect) = 0;
  // `whole`: of a load that did not end well, the pages that it filled all the same.
  virtual void end_load(ModelId model, bool ok, std::span<const PageSpan> whole) = 0;
  virtual void drop(const DropWeights& effect) = 0;
  virtual void return_pages(const ReturnPages& effect) = 0;
  virtual void begin_copy(const CopyKv& effect) = 0;
  // `source`: of a remote copy, the device it reads.
  virtual void end_copy(const CopyKv& effect, const SimDevice* source) = 0;
  // The tokens of a block of the host tier.
  virtual std::vector<TokenId> host_block(uint64_t block_bytes, BlockId id) const = 0;
};

// Answers at once and remembers nothing: for clusters.
class LightDevice final : public SimDevice {
 public:
  StepResult run(ModelId model, const StepInput& input) override;
  void remap(const RemapSlabs&) override {}
  void begin_load(const LoadWeights&) override {}
  void end_load(ModelId, bool, std::span<const PageSpan>) override {}
  void drop(const DropWeights&) override {}
  void return_pages(const ReturnPages&) override {}
  void begin_copy(const CopyKv&) override {}
  void end_copy(const CopyKv&, const SimDevice*) override {}
  std::vector<TokenId> host_block(uint64_t, BlockId) const override { return {}; }
};

// Checks memory as a real device would suffer from mistakes. KV blocks remember which tokens were written to them, and the
// "model" computes its next token from what it reads there, so a block that was given away too early changes an answer.
class StrictDevice final : public SimDevice {
 public:
  explicit StrictDevice(const NodeConfig& node)
      : node_(node), owner_{std::vector<PageOwner>(device_pages(node)), std::vector<PageOwner>(node.host_pages)}, contents_(device_pages(node)) {}

  // CHECKs that the blocks hold what the engine believes, writes the new tokens and draws the next ones.
  StepResult run(ModelId model, const StepInput& input) override;
  void remap(const RemapSlabs& effect) override;
  void begin_load(const LoadWeights& effect) override;
  void end_load(ModelId model, bool ok, std::span<const PageSpan> whole) override;
  void drop(const DropWeights& effect) override;
  void return_pages(const ReturnPages& effect) override;
  // A copy reads its sources when it ends and spoils its targets when it begins: whoever gives a source away too early,
  // or looks at a target too early, sees something else than it believes.
  void begin_copy(const CopyKv& effect) override;
  void end_copy(const CopyKv& effect, const SimDevice* source) override;
  std::vector<TokenId> host_block(uint64_t block_bytes, BlockId id) const override { return block(Tier::kHost, block_bytes, id); }

 private:
  void write_tokens(const NodeModel& m, const StepSlice& slice);
  void write_state(const NodeModel& m, const std::vector<BlockId>& state, uint64_t context);
  void check_state(const NodeModel& m, const std::vector<BlockId>& state, uint64_t context);
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
  const std::vector<TokenId>& block(Tier tier, uint64_t block_bytes, BlockId id) const;
  std::vector<TokenId>& block(Tier tier, uint64_t block_bytes, BlockId id) {
    return const_cast<std::vector<TokenId>&>(std::as_const(*this).block(tier, block_bytes, id));
  }

  struct Weights {
    std::vector<PageRun> pages;
    bool loaded = false;
  };

  const NodeConfig node_;
  static uint32_t device_pages(const NodeConfig& node) { return node.pages + (node.one_memory ? node.host_pages : 0); }
  // What was written to a page of the device last: the page of a model's weights, or something else.
  struct Content {
    ModelId model;
    uint32_t at = UINT32_MAX;  // nothing that is to be adopted
    friend bool operator==(const Content&, const Content&) = default;
  };
  std::array<std::vector<PageOwner>, 2> owner_;  // [tier][pages]
  std::vector<Content> contents_;
  std::map<SlabKey, Slab> slabs_;
  std::map<ModelId, Weights> weights_;
};

}  // namespace shoal
