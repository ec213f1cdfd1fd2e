// One forward step on a device: its buffers and the operations that architectures are written in. They are the interface of
// a backend; every backend computes the same bits (kernels/kernels.h has the order of each sum).
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <vector>

#include "device/device_span.h"
#include "formats/model_config.h"
#include "kernels/expert_router.h"
#include "kernels/kernels.h"
#include "models/pass.h"
#include "models/recurrent.h"
#include "models/rope.h"
#include "models/weights.h"

namespace shoal {

// Attention of one layer: its heads, and where its K and V are in a block.
struct KvLayer {
  uint32_t queries = 0, heads = 0;  // heads that ask, and those of K and V, which divide them; 0: no attention
  uint32_t key_dim = 0, value_dim = 0;
  bool compressed = false;          // V is the first channels of K and not stored again
  uint32_t index_dim = 0;           // of the keys of an index, f32 [index_dim][16 tokens]; 0: the layer has none of its own
  size_t index_offset = 0;          // of those in a block
  size_t offset = 0;                // of its K in a block; then V

  uint32_t group() const { return queries / heads; }
  uint32_t query_width() const { return queries * key_dim; }
  uint32_t key_width() const { return heads * key_dim; }
  uint32_t value_width() const { return heads * value_dim; }
  uint32_t out_width() const { return queries * value_dim; }
  bool operator==(const KvLayer&) const = default;
};

// K and V of a model in a block: layer after layer, in each the K of all heads, then the V of all heads (kernels.h). Layers may
// differ in their heads, and may read what an earlier one stores.
struct KvLayout {
  KvFormat format = KvFormat::kF32;
  std::vector<KvLayer> layers;
  size_t block_bytes = 0;

  size_t key_bytes(const KvLayer& layer) const { return kv_head_bytes(format, layer.key_dim); }
  size_t value_bytes(const KvLayer& layer) const { return layer.compressed ? 0 : kv_head_bytes(format, layer.value_dim); }
  size_t value_offset(const KvLayer& layer) const { return layer.offset + layer.heads * key_bytes(layer); }
  // Adds a layer with room of its own in a block.
  void add(KvLayer layer);
};

struct LayerInputShape {
  uint32_t layers = 0, width = 0;
};

// The widths that size a step's buffers.
struct StepShape {
  uint32_t hidden = 0, q_width = 0, kv_width = 0, mlp_width = 0;  // elements of a row, the most of all layers
  uint32_t rope_half = 0;
  uint32_t state_floats = 0, context = 0;  // what bounds the states of attention that is split by segments
  bool local_rope = false;  // a second rotary table
  bool quantized = false;   // int8 activations are needed
  uint32_t experts = 0, experts_used = 0, expert_width = 0;  // of layers with experts; 0: none
  uint32_t latent_heads = 0, latent_width = 0;  // of latent attention: the widest input of a head's projections
  bool ahead = false;                           // rows see later ones of their sequence
  uint32_t raw = 0, mixed = 0, mixer_values = 0, mixer_times = 0, mixer_heads = 0;  // of layers with a state, and of gated queries
  uint32_t spare = 0;                           // further [rows, hidden]
  LayerInputShape embedded;                          // of inputs by layer
  uint32_t index_heads = 0, index_width = 0;    // of an index; 0: none. The latter: of its queries
  uint32_t latent_query = 0;                    // [rows] of queries before they are absorbed, or compressed

  uint64_t bytes(uint32_t rows, uint32_t logit_rows) const;
  // Room for the states of one row over the whole context, or for as much as is worth it.
  uint64_t partial_floats() const;
};

// Buffers of a step in the caller's workspace.
struct StepBuffers {
  using Floats = DevicePointer<float>;

  Floats x;      // [rows, hidden] the residual stream
  Floats h;      // [rows, hidden] normed input of a block
  Floats y;      // [rows, hidden] output of a block
  Floats q;      // [rows, q_width]
  Floats k;      // [rows, kv_width]
  Floats v;      // [rows, kv_width]
  Floats attn;   // [rows, q_width]
  Floats spare[2]; // [rows, hidden]
  Floats raw;      // [rows, raw] of products that are split
  Floats query_gate;   // [rows, q_width]
  Floats mixed, convolved;  // [rows, mixed] before and after the convolution
  Floats mixer_gate, scanned, timed;  // [rows, mixer_values]
  Floats times, decays;  // [rows, mixer_times]
  Floats betas;          // [rows, mixer_heads]
  Floats embedded; // [layers, rows, embedded width] inputs by layer
  Floats projected; // [rows, layers, embedded width] what of them comes from the embedded tokens
  Floats gate;   // [rows, mlp_width]
  Floats up;     // [rows, mlp_width]
  Floats cos[2]; // [rows, rope_half]; 1: of the layers with a local base
  Floats sin[2];
  Floats last;   // [logit rows, hidden]
  Floats partial; // states of attention by segments
  DevicePointer<QuantBlock> quantized;  // [rows][quant_row_stride(widest input)], or of rows by expert or by head
  Floats router;         // [rows, experts]
  Floats routed;         // [rows * experts used, hidden] inputs of experts
  Floats expert_gate;    // [rows * experts used, expert width]
  Floats expert_up;
  Floats expert_out;     // [rows * experts used, hidden]
  Floats latent_q;       // [rows, latent query]
  Floats latent_a;       // [rows, latent query] of compressed queries
  Floats index_queries;  // [rows, index width]
  Floats index_keys;     // [rows, index width / index heads]
  Floats index_weights;  // [rows, index heads]
  DevicePointer<uint16_t> selected;  // [rows, selected_words(context)]
};

// The experts of a layer; matrices by expert.
struct ExpertPlaces {
  RouterRule rule;
  uint32_t first = 0;                          // number of the layer's first expert among the model's
  MatrixPlace router;                          // [experts, hidden]
  std::optional<VectorPlace> selection_bias;   // [experts]
  std::vector<MatrixPlace> gate, up;           // [expert width, hidden]
  std::vector<MatrixPlace> down;               // [hidden, expert width]
  std::optional<VectorPlace> weight_scale;     // [experts] of weights, once they are normed
  bool weigh_input = false;                    // weights are of the experts' inputs
  float gate_alpha = 0, gate_limit = 0;        // of the clamped gate, instead of the activation; 0: none
};

enum class NormKind { kRms, kLayer };  // kLayer subtracts the mean
enum class Activation { kSilu, kGelu, kGeluErf, kSigmoid, kProduct, kSquaredRelu };  // kGelu: the tanh form;
                                                                                  // kGeluErf: by the error function; kProduct: the
                                                                                  // gate itself; the last: max(gate, 0)^2, no `up`

// Words of 16 tokens each that say which of a context are selected.
constexpr uint64_t selected_words(uint64_t context) { return (context + 15) / 16; }

// An index that chooses tokens (kernels/token_index.h).
struct IndexPlaces {
  uint32_t layer = 0, heads = 0, dim = 0, top = 0;
  bool interleaved = false;
  float scale = 1;
  VectorPlace key_norm, key_bias;  // [dim]
  float key_eps = 1e-6f;
};

struct KeptRows {  // [rows, width]
  DevicePointer<float> base;
  uint32_t width;
};

struct AttentionSpec {
  uint32_t layer = 0;
  uint32_t window = 0;  // 0: everything
  uint32_t chunk = 0;   // instead of a window; 0: none
  uint32_t ahead = 0;   // tokens after a row's own that it sees too; 0: causal
  float scale = 1;
  float softcap = 0;    // 0: none
  const VectorPlace* sinks = nullptr;  // [heads], or none
  bool selected = false;  // only tokens that were chosen last
  const std::vector<KeptRows>* keep = nullptr;  // Step::keep_asked() of these and of q, once K and V are stored; null: all rows go on
};

// In a workspace of at least shape.bytes(rows, logit_rows).
StepBuffers carve_buffers(const StepShape& shape, uint32_t rows, uint32_t logit_rows, DeviceSpan workspace);

// Which sequence each row of a step is of: all rows of its input, until some of them are kept.
class BatchRows {
 public:
  // REQUIRES: the slices cover the tokens, and their blocks the slices.
  explicit BatchRows(const ForwardInput& input);

  uint32_t size() const { return static_cast<uint32_t>(rows_.size()); }
  uint32_t slice(uint32_t row) const { return rows_[row].slice; }
  uint32_t position(uint32_t row) const { return rows_[row].position; }
  uint32_t begin(uint32_t slice) const { return begin_[slice]; }  // its first row of the input
  uint32_t find(uint32_t input_row) const;  // REQUIRES: it was kept

  // Only these rows of the input stay. REQUIRES: ascending, each once.
  void keep(std::span<const uint32_t> input_rows);

  // Rows [at, at + rows) of neighbouring positions in a slice, from row `first` of that.
  struct Run {
    uint32_t slice, first, rows, at;
  };
  std::vector<Run> runs(const ForwardInput& input) const;

 private:
  struct Row {
    uint32_t slice, position, input;
  };
  std::vector<Row> rows_;
  std::vector<uint32_t> begin_;
};

// Multi-head latent attention with absorbed projections (arXiv 2405.04434, section 2.1); matrices by head. There is one form of it
// for prompts, decoding and recomputation: two would give two answers.
struct LatentPlaces {
  std::vector<MatrixPlace> absorb;  // [rank, key_dim]: queries into the space of the latents
  std::vector<MatrixPlace> values;  // [value_dim, rank]: and what they find out of it
  uint32_t rank = 0, key_dim = 0, rope_dims = 0, value_dim = 0;
  float scale = 1;    // of the normed latents
  bool turns = true;  // else nothing is turned to its position
};

// What Gemma calls per-layer embeddings: layer l is given (norm(projection x)[l] + embedding of the token for l) / sqrt(2).
struct LayerInputPlaces {
  EmbeddingPlace table;     // [vocab, layers * width]
  MatrixPlace projection;   // [layers * width, hidden]
  VectorPlace norm;         // [width]
  double eps = 0;
  float table_scale = 1, projection_scale = 1;
  uint32_t layers = 0, width = 0;
};

class ExpertCache;
class ExpertUse;

// What stays the same from step to step of a model.
struct StepContext {
  WeightMemory weights;
  KvLayout kv;
  StepShape shape;
  StateLayout state;
  ExpertUse* expert_use = nullptr;      // is told who was chosen; null: nobody asks
  ExpertCache* expert_cache = nullptr;  // where experts are; null: all in their place
  bool experts_elsewhere = false;       // none is here
};

// The operations of a step compute for all of its rows; for none where none are left.
class Step {
 public:
  using Floats = DevicePointer<float>;

  virtual ~Step() = default;

  virtual uint32_t rows() const = 0;
  virtual const StepBuffers& at() const = 0;

  // x = embedding rows of the tokens.
  virtual void embed(const EmbeddingPlace& table, Floats x) const = 0;
  // x += row index[i] of the table, for every row i.
  virtual void add_rows(const EmbeddingPlace& table, std::span<const uint32_t> index, Floats x) const = 0;
  // Fills cos[which] and sin[which] for every row.
  virtual void rope_table(const RopeFrequencies& frequencies, int which) const = 0;
  // out = rms_norm(x) * weight over its width; `groups` of them in each row (heads, for norms of q and k).
  virtual void rms_norm(Floats x, const VectorPlace& weight, double eps, Floats out, uint32_t groups = 1) const = 0;

  // out = rms_norm(x) of `groups` stretches of `width` in each row, without a weight.
  virtual void unit_norm(Floats x, uint32_t width, double eps, Floats out, uint32_t groups) const = 0;

  struct Output {
    const MatrixPlace* matrix;
    Floats out;        // [rows, matrix->rows]
    bool add = false;  // to what is in `out`
  };
  // Inputs that are made on the way.
  struct Normed {  // out = norm(x) * weight
    Floats x;
    const VectorPlace& weight;
    double eps;
    Floats out;
    NormKind kind = NormKind::kRms;
    const VectorPlace* bias = nullptr;  // added at the end; null: none
  };
  struct Gated {  // out = activation(gate) * up; kGeluErf: up may be null, for 1
    Activation activation;
    Floats gate, up;
    Floats out;
  };
  using Outputs = std::initializer_list<Output>;
  // Each output = matrix x input; all matrices take the same input [rows, columns].
  virtual void linear(Floats input, Outputs outputs) const = 0;
  virtual void linear(const Normed& input, Outputs outputs) const = 0;
  virtual void linear(const Gated& input, Outputs outputs) const = 0;

  // x[row] += the weighted sum of what the experts chosen for asked[row] make of input[row], [rows, hidden]. Those beyond the
  // places' matrices make of it what it is. Where experts are elsewhere, only the choice is made: what is to be asked for (pass.h), and
  // nothing else is computed of experts until at().expert_out has what they gave and combine() makes the sum.
  virtual std::optional<Exchange> experts(const ExpertPlaces& places, Activation activation, Floats asked, Floats input, Floats x) const = 0;
  virtual void combine(const ExpertPlaces& places, Floats input, Floats x) const = 0;
  // x[row] += sigmoid(gate x input[row]) * y[row], [rows, hidden]; gate [1, hidden].
  virtual void add_gated(Floats input, const MatrixPlace& gate, Floats y, Floats x) const = 0;

  // Turns q and k of the layer, if there is a k, in place by table `which`.
  virtual void rope(uint32_t layer, Floats q, Floats k, const RopeConfig& config, int which = 0) const = 0;
  // Stores this step's K and V, if there is a k, then attn = attention(q) for every row.
  virtual void attend(Floats q, Floats k, Floats v, const AttentionSpec& spec, Floats attn) const = 0;

  // Of all rows only those stay whose logits are asked for, maybe none: of the buffers named, of what goes by positions and of inputs by
  // layer. Once, when all that other steps read of this one is stored.
  virtual void keep_asked(std::vector<KeptRows> buffers) const = 0;

  // latents [rows, rank + rope_dims]: the first rank are normed, the others turned, in place.
  virtual void latent_keys(const LatentPlaces& places, const VectorPlace& norm, double eps, const RopeConfig& config, Floats latents) const = 0;
  // q [rows, heads, key_dim + rope_dims] -> out [rows, heads, rank + rope_dims], absorbed and turned.
  virtual void latent_queries(const LatentPlaces& places, const RopeConfig& config, Floats q, Floats out) const = 0;
  // found [rows, heads, rank] -> out [rows, heads, value_dim].
  virtual void latent_values(const LatentPlaces& places, Floats found, Floats out) const = 0;

  virtual void normalize(const Normed& input) const = 0;             // input.out is made, maybe in place, [rows, hidden]
  struct IndexInput {
    Floats queries, keys, weights;  // [rows, heads, dim], [rows, dim], [rows, heads]; used up
  };
  // Stores the index keys of this step, then selects the tokens that each row attends to.
  virtual void choose_tokens(const IndexPlaces& places, const RopeConfig& config, const IndexInput& input) const = 0;

  // Columns [first, ..) of rows that are `stride` apart.
  struct Columns {
    Floats base;
    uint32_t stride = 0, first = 0;
  };
  // out = the convolution of `in`, and the state of its inputs goes on.
  virtual void convolve(const ConvolutionPlaces& places, const Columns& in, const Columns& out) const = 0;
  struct RecurrenceInput {
    Floats row;  // [rows, stride]
    uint32_t stride = 0, q = 0, k = 0, v = 0;  // the columns at which queries, keys and values of all heads begin
  };
  // out [rows, heads, value_dim] = what the recurrence gives for the input and the step's times and betas, which it uses up; the state
  // goes on.
  virtual void recur(const RecurrencePlaces& places, const RecurrenceInput& input, Floats out) const = 0;
  // Rows of `groups` groups, each of all parts one after the other: a part of all groups goes to columns [first, ..) of `out`.
  struct SplitPart {
    uint32_t width;
    Floats out;
    uint32_t stride, first;
  };
  virtual void split(Floats in, uint32_t groups, std::initializer_list<SplitPart> parts) const = 0;
  virtual void activate(Activation activation, Floats gate, Floats up, uint32_t width, Floats out) const = 0;  // [rows, width] each
  // As rms_norm, with weights of their own for each group.
  virtual void group_norm(Floats x, const VectorPlace& weight, double eps, Floats out, uint32_t groups) const = 0;

  virtual void add_normed(const Normed& input, Floats x) const = 0;  // x += input.out, which is made, [rows, hidden]
  virtual void scale(Floats x, float factor, uint32_t width = 0) const = 0;  // [rows, width or hidden]; by 0: zeros, whatever was there
  virtual void scale(Floats x, const VectorPlace& factor) const = 0;         // [rows, hidden], by the one number there
  // embedded = the inputs of all layers, x being the embedded tokens.
  virtual void embed_layers(const LayerInputPlaces& places, Floats x) const = 0;
  virtual void add_scaled(Floats y, float factor, Floats x) const = 0;  // x = fma(factor, y, x), [rows, hidden]
  // Each row of q of the layer is scaled by its position (query_growth_at, models/rope.h).
  virtual void grow_queries(uint32_t layer, Floats q, const QueryGrowth& growth) const = 0;

  struct Head {
    const VectorPlace& norm;
    double eps;
    NormKind kind;
    const MatrixPlace& matrix;  // [vocab, hidden]
    float scale;
    float softcap;              // 0: none
  };
  // Makes of each sequence that the input asks for one vector of its rows of x, each normed first if there is a `norm`: that of
  // LogitsWanted::kPooled. A mean is summed in double precision, rows in order.
  virtual void pool(Floats x, Pooling pooling, const Normed* norm) = 0;
  // Each such vector becomes activation(matrix x vector + bias), matrix [n, width] as one vector of numbers. Sums are in double
  // precision, in order.
  enum class HeadActivation { kNone, kTanh, kGeluErf };
  virtual void pooled_dense(const VectorPlace& matrix, const VectorPlace* bias, HeadActivation activation) = 0;
  virtual void pooled_norm(const VectorPlace& weight, const VectorPlace* bias, double eps) = 0;  // kLayer
  // Computes the logits that the input asks for: soft_cap(scale * (matrix x norm(x[row]))).
  virtual void logits(Floats x, const Head& head) = 0;
  // Of the i-th query. REQUIRES: they are computed.
  virtual RowLogits logits_of(size_t i) = 0;
};

}  // namespace shoal
