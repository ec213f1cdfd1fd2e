#include "roles/node_config.h"

#include <algorithm>

#include "base/bytes.h"
#include "memory/block_pool.h"

namespace shoal {
namespace {

uint32_t blocks_per_slab(uint64_t block_bytes) {
  return static_cast<uint32_t>(slab_pages_for(block_bytes) * kPageBytes / block_bytes);
}

// Blocks of the state that a sequence has, of the one that a step writes, and of one that the prefix index may hold.
uint64_t states_of_one(const NodeModel& model) { return 3 * uint64_t{model.state_blocks}; }

}  // namespace

uint32_t weight_pages(const NodeModel& model) { return static_cast<uint32_t>(div_up(model.weight_bytes, kPageBytes)); }

uint32_t kv_pages_min(const NodeModel& model) {
  const uint64_t blocks = div_up(model.max_model_len, kTokensPerBlock) + states_of_one(model);
  return static_cast<uint32_t>(div_up(blocks, blocks_per_slab(model.kv_block_bytes)) * slab_pages_for(model.kv_block_bytes));
}

uint32_t fitting_model_len(const NodeModel& model, uint32_t pages, uint32_t wanted) {
  if (weight_pages(model) >= pages) return 0;
  const uint64_t slabs = (pages - weight_pages(model)) / slab_pages_for(model.kv_block_bytes);
  const uint64_t blocks = slabs * blocks_per_slab(model.kv_block_bytes);
  const uint64_t tokens = (blocks - std::min(blocks, states_of_one(model))) * kTokensPerBlock;
  return static_cast<uint32_t>(std::min<uint64_t>(tokens, wanted));
}

}  // namespace shoal
