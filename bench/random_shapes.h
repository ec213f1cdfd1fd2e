// The shapes that random_model writes: of each its tensors, as GGUF names them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace shoal {

struct RandomShape {
  const char* architecture;
  uint32_t hidden, layers, heads, kv_heads, head_dim, mlp, vocab;
  bool tied, qkv_bias;
  float rope_base;
  struct Experts {
    uint32_t count = 0, used = 0, width = 0, shared = 0, dense_layers = 0;
  } experts = {};
  struct Latent {  // multi-head latent attention; head_dim is the part of a key without positions
    uint32_t rank = 0, rope = 0, value = 0, query = 0;
  } latent = {};
  struct Recurrent {               // layers that keep a state; of a short convolution only the taps
    const char* pattern = "";      // a letter per layer, from the start again: see RandomLayer
    uint32_t taps = 0, inner = 0, heads = 0, groups = 0, state = 0;
  } recurrent = {};
};

// What a layer of a model with a state is, by the letter of its pattern.
enum class RandomLayer : char { kState = 'r', kAttention = 'a', kBoth = 'b', kMlp = 'm' };
RandomLayer random_layer(const RandomShape& shape, uint32_t layer);
// A layer is a state, attention or an MLP, not two of them.
bool single_blocks(const RandomShape& shape);
// Qwen3-Next and Qwen3.5.
bool delta_nets(const RandomShape& shape);

const std::map<std::string, RandomShape>& random_shapes();

// Type numbers of the GGUF specification, with block size in elements and bytes.
struct RandomType {
  uint32_t number, elements, bytes;
};
const std::map<std::string, RandomType>& random_types();

struct RandomTensor {
  std::string name;
  std::string type;
  std::vector<uint64_t> dims;  // columns first
  std::optional<float> fill;   // of every number; none: random

  uint64_t columns() const { return dims[0]; }
  uint64_t rows() const;
  uint64_t row_bytes() const { return columns() / random_types().at(type).elements * random_types().at(type).bytes; }
};

std::vector<RandomTensor> random_tensors(const RandomShape& shape, const std::string& type);

}  // namespace shoal
