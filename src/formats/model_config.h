// What a model is, independent of the file format it came in. Filled from an HF folder (hf_config.cc) or from GGUF metadata
// (gguf_config.cc); every number in it has been checked against the bounds below.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"

namespace shoal {

enum class Architecture : uint8_t {
  kLlama, kMistral, kQwen2, kQwen3, kGemma2, kGemma3, kPhi3,
  kMixtral, kQwen2Moe, kQwen3Moe, kGlm4Moe, kOlmoe, kErnie45Moe, kHunyuanMoe, kMiniMaxM2, kGptOss, kLlama4, kMiMoV2,
  kDeepseekV2, kDeepseekV3, kGlm4MoeLite, kMistral4, kLongcatFlash, kDeepseekV32, kGlmMoeDsa,                    // with latent attention
  kSeedOss, kSmolLm3, kErnie45, kGranite, kGraniteHybrid, kHunyuanDense, kMinistral3,  // normed before each block
  kGlm4, kGemma4,                                                                      // before and after
  kOlmo2, kOlmo3, kExaone4,                                                            // after
  kCohere2,                                                                            // both blocks from one norm
  kBert, kRoberta, kModernBert,                                                        // encoders
  kQwen3Next, kQwen35, kQwen35Moe, kNemotronH, kNemotronHMoe, kFalconH1, kLfm2, kLfm2Moe, kKimiLinear,  // with a state, as kGraniteHybrid may be
};
const char* architecture_name(Architecture architecture);

enum class RopeScaling : uint8_t { kNone, kLinear, kDynamic, kAlpha, kLlama3, kYarn, kLongRope, kProportional };

// Rotary position embedding; the meaning of each scaling's fields is in models/rope.h.
struct RopeConfig {
  double theta = 10000.0;
  uint32_t dims = 0;         // leading dimensions of a head that turn; even
  bool interleaved = false;  // pairs (2i, 2i + 1) instead of (i, i + dims / 2)
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1.0;                                  // alpha: of the base
  uint32_t original_context = 0;                        // trained length before scaling
  double low_freq_factor = 1.0, high_freq_factor = 4.0;  // llama3
  double beta_fast = 32.0, beta_slow = 1.0;              // yarn
  bool truncate = true;                                  // yarn: round the correction range to whole dimensions
  std::optional<double> attention_factor;                // yarn, longrope: scale of cos and sin
  double mscale = 0.0, mscale_all_dim = 0.0;             // yarn
  std::vector<float> short_factor, long_factor;          // longrope: [dims / 2]
  uint32_t turning_pairs = 0;                            // proportional: the first of the pairs; the others stand
  bool frequency_factors = false;  // GGUF: tensor "rope_freqs" divides the frequencies ([dims / 2])
};

// Layers whose MLP is a choice of experts. What the numbers do is in kernels/expert_router.h.
struct ExpertConfig {
  uint32_t count = 0, used = 0;          // of a layer; chosen for a token
  uint32_t zero = 0;                     // further ones that may be chosen and give back what they are given
  uint32_t intermediate_size = 0;
  uint32_t shared_intermediate_size = 0; // of the expert that every token goes to; 0: none
  bool shared_gate = false;              // ... weighted by a sigmoid of its own
  bool sigmoid_scores = false;           // else softmax
  bool softmax_of_chosen = false;        // ... of the logits of those chosen alone
  bool weigh_input = false;              // weights are of what experts are given, not of what they give
  bool router_bias = false;              // added to the router's logits
  bool biases = false;                   // of the experts' products
  double gate_alpha = 0, gate_limit = 0; // of the clamped gate (clamped_mul, kernels/kernels.h); 0: the plain one
  bool selection_bias = false;
  bool weight_scales = false;            // every expert's weights have a factor of its own
  bool normalize = false;
  double sum_min = 1e-20;
  double weight_scale = 1.0;
  uint32_t groups = 1, groups_used = 1;
  bool group_by_best_two = false;
  std::vector<bool> layers;              // [layers]; the others are dense
};

// Which queries and keys of a layer are normed: every head before it turns, or after; or all heads as one vector; or the heads of
// layers that turn, after that and without a weight.
enum class QkNorm : uint8_t { kNone, kHeads, kTurnedHeads, kWidth, kTurnedUnit };

// Queries at position t are scaled by 1 + factor * ln(1 + floor((t + ahead) / tokens)).
struct QueryGrowth {
  double factor = 0.0;
  uint32_t tokens = 1;
  uint32_t ahead = 0;
  bool unturned_only = false;  // in layers without positions
};

// How queries meet keys.
struct QueryConfig {
  double scale = 0.0;    // factor of the scores
  double softcap = 0.0;  // of the scores; 0: none
  QkNorm norm = QkNorm::kNone;
  std::optional<QueryGrowth> growth;
  uint32_t chunk = 0;    // of sliding layers, instead of a window: a row sees its chunk of so many tokens; 0: none
  bool sinks = false;    // every head has a score that takes a part of the softmax and has no value
  bool sliding_sinks_only = false;  // ... in layers with windows
  double value_scale = 1.0;
  bool gated = false;    // what attention gives is gated by the second half of a head's projection of queries
  struct {
    double in = 1.0, keys = 1.0, out = 1.0;
  } factors;             // of Falcon-H1: of what goes in, of keys, and of what comes out
};

// DeepSeek sparse attention: an index of keys of its own chooses the tokens that a row attends to.
struct IndexConfig {
  uint32_t heads = 0, dim = 0, top = 0;  // of its queries; of queries and keys; tokens that are chosen
  bool interleaved = false;              // as RopeConfig's, of its own queries and keys
  std::vector<bool> layers;              // [layers]; the others use what the one before chose
};

// Multi-head latent attention (arXiv 2405.04434, section 2.1): keys and values of a token are one vector that all heads share.
struct LatentConfig {
  uint32_t query_rank = 0;  // of the compressed query; 0: queries are not compressed
  uint32_t rank = 0;        // of the compressed keys and values
  uint32_t key_dim = 0;     // of a head, the part without positions; the part with positions is rope.dims
  uint32_t value_dim = 0;   // of a head
  double scale = 1.0;       // of the compressed keys and values once they are normed
  bool turns = true;        // else the part with positions has none either
  std::optional<IndexConfig> index;
};

// Heads of a layer.
struct HeadShape {
  uint32_t heads = 0, kv_heads = 0;  // kv_heads divides heads
  uint32_t head_dim = 0, value_dim = 0;
};

// Where layers are not alike. Each list: [layers], or empty.
struct LayerShapes {
  std::vector<bool> rope_layers;     // the others know no positions; empty: all turn
  std::vector<HeadShape> heads;
  std::vector<uint32_t> kv_source;   // the layer whose keys and values are read; its own number: it has some
  std::vector<uint32_t> mlp_width;
  bool values_from_keys = false;     // full layers may have no projection of values: they are the keys' before norm and turn
  uint32_t input_width = 0;          // of inputs by layer (LayerInputPlaces, models/step.h); 0: none
};

// Factors of embeddings, of what a block adds to the residual stream, and of logits before their soft cap, which is here too; of the
// gate of an MLP, and of what an MLP gives.
struct Scales {
  double embedding = 1.0, residual = 1.0, logits = 1.0;
  double softcap = 0.0;  // of logits; 0: none
  double mlp_gate = 1.0, mlp_out = 1.0;
};

// What keeps a state in place of keys and values (models/mixers.h).
enum class RecurrentKind : uint8_t { kDeltaNet, kKimiDelta, kMamba, kShortConvolution };

// Factors of Falcon-H1: of what goes in, in whole and by part, and of what comes out.
struct RecurrentScales {
  double in = 1.0, gate = 1.0, values = 1.0, keys = 1.0, queries = 1.0, times = 1.0, out = 1.0;
  bool plain() const { return in == 1 && gate == 1 && values == 1 && keys == 1 && queries == 1 && times == 1; }
};

struct RecurrentConfig {
  enum class Layer : uint8_t { kAttention, kState, kBoth, kNeither };

  RecurrentKind kind = RecurrentKind::kMamba;
  std::vector<Layer> layers;            // [layers]
  uint32_t taps = 0;                    // of the convolution
  uint32_t heads = 0, key_heads = 0;    // of the recurrence; Mamba calls the latter groups
  uint32_t key_dim = 0, value_dim = 0;  // of a head; Mamba calls the former the state's size
  bool tiled_keys = false;              // head h has key head h mod key_heads
  bool convolution_bias = false;
  bool normed = true;                   // what comes out, before it is projected
  bool rates_stored = false;            // as they are; else their logarithm is
  bool single_blocks = false;           // a layer is one block: attention, a recurrence or an MLP
  bool squared_relu = false;            // MLPs are max(up, 0)^2, without a gate
  double time_min = 0.0, time_max = 1e30;
  RecurrentScales scales;

  bool attends(uint32_t layer) const { return layers[layer] == Layer::kAttention || layers[layer] == Layer::kBoth; }
  bool recurs(uint32_t layer) const { return layers[layer] == Layer::kState || layers[layer] == Layer::kBoth; }
};

// Which products have a bias.
struct Biases {
  bool qkv = false, output = false, mlp = false;
};

// Which rows of the last layer one vector is made of.
enum class Pooling : uint8_t { kFirst, kMean, kLast };
const char* pooling_name(Pooling pooling);

// A model of which one vector of each text is wanted, or scores, and no next token.
struct PooledConfig {
  Pooling pooling = Pooling::kMean;
  bool normalize = true;   // vectors have the length 1
  uint32_t labels = 0;     // scores of a head on the vector; 0: none, the vector is what is wanted
};

// Attention in both directions, and learned positions where nothing turns.
struct EncoderConfig {
  uint32_t positions = 0;        // rows of the table; 0: heads turn
  uint32_t first_position = 0;   // of the table, of a text's first token
  uint32_t token_types = 0;      // rows of the table of segments; 0: none
  std::optional<TokenId> separator;  // tokens after the first one are of the second segment
  bool norm_biases = true;
  std::string prefix;            // of the names of tensors: "", "bert." ...
};

struct ModelConfig {
  Architecture architecture = Architecture::kLlama;
  uint32_t vocab_size = 0;
  uint32_t hidden_size = 0;
  uint32_t layers = 0;
  uint32_t heads = 0;
  uint32_t kv_heads = 0;  // divides heads
  uint32_t head_dim = 0;
  uint32_t intermediate_size = 0;
  uint32_t context_length = 0;  // longest sequence, scaling included
  double norm_eps = 1e-6;
  bool tied_embeddings = false;
  Biases biases;
  bool norm_weight_plus_one = false;  // Gemma in HF form stores w - 1
  uint32_t sliding_window = 0;        // 0: none; a row sees this many tokens, itself included
  std::vector<bool> sliding_layers;   // [layers]
  bool layer_norm = false;            // norms of the residual stream subtract the mean
  QueryConfig queries;
  Scales scales;
  RopeConfig rope;
  std::optional<RopeConfig> local_rope;  // of sliding layers, where it differs
  std::optional<ExpertConfig> experts;
  std::optional<PooledConfig> pooled;    // none: a generative model
  std::optional<EncoderConfig> encoder;  // then it is pooled
  std::optional<LatentConfig> latent;  // then head_dim is key_dim and rope.dims together
  std::array<uint32_t, 2> fp8_block = {0, 0};  // rows and columns that share a scale in FP8 checkpoints; 0: none

  LayerShapes shapes;
  std::optional<RecurrentConfig> recurrent;

  bool turns(uint32_t layer) const { return shapes.rope_layers.empty() || shapes.rope_layers[layer]; }
  HeadShape heads_of(uint32_t layer) const {
    return shapes.heads.empty() ? HeadShape{heads, kv_heads, head_dim, head_dim} : shapes.heads[layer];
  }
  uint32_t kv_source_of(uint32_t layer) const { return shapes.kv_source.empty() ? layer : shapes.kv_source[layer]; }
  // Whether it stores keys and values or a state, which other steps read.
  bool stores(uint32_t layer) const { return recurrent ? recurrent->attends(layer) || recurrent->recurs(layer) : kv_source_of(layer) == layer; }
  uint32_t mlp_width_of(uint32_t layer) const { return shapes.mlp_width.empty() ? intermediate_size : shapes.mlp_width[layer]; }
};

// Sets what the architecture alone decides, whatever file it came in: norms, and the layers that turn where those are the ones
// with windows. REQUIRES: architecture, layers and windows are set.
void set_family_facts(ModelConfig& config);

// How to talk to the model; from generation_config.json, config.json or GGUF metadata.
struct GenerationConfig {
  std::optional<TokenId> bos;
  std::vector<TokenId> eos;  // any of them ends a text
  std::optional<TokenId> pad;
  // Defaults for sampling, where the model publishes them.
  std::optional<bool> do_sample;
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int64_t> top_k, max_new_tokens;
};

// Bounds on what a file may claim; far above anything published.
constexpr uint32_t kVocabMax = 1u << 24;
constexpr uint32_t kHiddenMax = 1u << 18;
constexpr uint32_t kLayersMax = 4096;
constexpr uint32_t kHeadsMax = 4096;
constexpr uint32_t kExpertsMax = 4096;
constexpr uint32_t kConfigHeadDimMax = 512;
constexpr uint32_t kLatentMax = 640;  // rank and dimensions with positions together
constexpr uint32_t kContextMax = 1u << 28;

}  // namespace shoal
