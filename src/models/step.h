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
#include "models/rope.h"
#include "models/weights.h"

namespace shoal {

// K and V of a model in a block: layer after layer, in each the K of all heads, then the V of all heads (kernels.h).
struct KvLayout {
  KvFormat format = KvFormat::kF32;
  uint32_t layers = 0, heads = 0, head_dim = 0;
  uint32_t value_dim = 0;  // 0: head_dim. Otherwise V is the first channels of K and not stored again

  size_t head_bytes() const { return kv_head_bytes(format, head_dim); }
  size_t layer_bytes() const { return size_t{value_dim == 0 ? 2u : 1u} * heads * head_bytes(); }
  size_t key_offset(uint32_t layer) const { return layer * layer_bytes(); }
  size_t value_offset(uint32_t layer) const { return key_offset(layer) + heads * head_bytes(); }  // if V is stored
  size_t block_bytes() const { return layers * layer_bytes(); }
  uint32_t values() const { return value_dim == 0 ? head_dim : value_dim; }
};

// The widths that size a step's buffers.
struct StepShape {
  uint32_t hidden = 0, q_width = 0, kv_width = 0, mlp_width = 0;  // elements of a row
  uint32_t rope_half = 0;
  uint32_t head_dim = 0, context = 0;  // what bounds the states of attention that is split by segments
  bool local_rope = false;  // a second rotary table
  bool quantized = false;   // int8 activations are needed
  uint32_t experts = 0, experts_used = 0, expert_width = 0;  // of layers with experts; 0: none
  uint32_t latent_heads = 0, latent_width = 0;  // of latent attention: the widest side of a head's projections
  bool shortcut = false;                        // experts' sums are kept for the next layer
  bool ahead = false;                           // rows see later ones of their sequence
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
  Floats shortcut; // [rows, hidden] what experts give, for the next layer
  Floats gate;   // [rows, mlp_width]
  Floats up;     // [rows, mlp_width]
  Floats cos[2]; // [rows, rope_half]; 1: of the layers with a local base
  Floats sin[2];
  Floats last;   // [logit rows, hidden]
  Floats partial; // states of attention by segments
  DevicePointer<QuantBlock> quantized;  // [rows, widest input / 32], or of rows by expert or by head
  Floats router;         // [rows, experts]
  Floats routed;         // [rows * experts used, hidden] inputs of experts
  Floats expert_gate;    // [rows * experts used, expert width]
  Floats expert_up;
  Floats expert_out;     // [rows * experts used, hidden]
  Floats latent_q;       // [rows, latent query]
  Floats latent_a;       // [rows, latent query] of compressed queries
  Floats by_head[2];     // [latent heads, rows, latent width]
};

// The experts of a layer; matrices by expert.
struct ExpertPlaces {
  RouterRule rule;
  uint32_t first = 0;                          // number of the layer's first expert among the model's
  MatrixPlace router;                          // [experts, hidden]
  std::optional<VectorPlace> selection_bias;   // [experts]
  std::vector<MatrixPlace> gate, up;           // [expert width, hidden]
  std::vector<MatrixPlace> down;               // [hidden, expert width]
  bool weigh_input = false;                    // weights are of the experts' inputs
  float gate_alpha = 0, gate_limit = 0;        // of the clamped gate, instead of the activation; 0: none
};

enum class NormKind { kRms, kLayer };  // kLayer subtracts the mean
enum class Activation { kSilu, kGelu, kGeluErf };  // kGelu: the tanh form; kGeluErf: by the error function

struct AttentionSpec {
  uint32_t layer = 0;
  uint32_t window = 0;  // 0: everything
  uint32_t chunk = 0;   // instead of a window; 0: none
  uint32_t ahead = 0;   // tokens after a row's own that it sees too; 0: causal
  float scale = 1;
  float softcap = 0;    // 0: none
  const VectorPlace* sinks = nullptr;  // [heads], or none
};

// In a workspace of at least shape.bytes(rows, logit_rows).
StepBuffers carve_buffers(const StepShape& shape, uint32_t rows, uint32_t logit_rows, DeviceSpan workspace);

// Which sequence each row of a batch is of.
class BatchRows {
 public:
  // REQUIRES: the slices cover the tokens, and their blocks the slices.
  explicit BatchRows(const ForwardInput& input);

  uint32_t size() const { return static_cast<uint32_t>(slice_.size()); }
  uint32_t slice(uint32_t row) const { return slice_[row]; }
  uint32_t begin(uint32_t slice) const { return begin_[slice]; }  // its first row
  uint32_t position(const ForwardInput& input, uint32_t row) const { return input.slices[slice_[row]].position + row - begin_[slice_[row]]; }

 private:
  std::vector<uint32_t> slice_, begin_;
};

// Multi-head latent attention with absorbed projections (arXiv 2405.04434, section 2.1); matrices by head. There is one form of it
// for prompts, decoding and recomputation: two would give two answers.
struct LatentPlaces {
  std::vector<MatrixPlace> absorb;  // [rank, key_dim]: queries into the space of the latents
  std::vector<MatrixPlace> values;  // [value_dim, rank]: and what they find out of it
  uint32_t rank = 0, key_dim = 0, rope_dims = 0, value_dim = 0;
  float scale = 1;  // of the normed latents
};

class ExpertCache;
class ExpertUse;

// What stays the same from step to step of a model.
struct StepContext {
  WeightMemory weights;
  KvLayout kv;
  StepShape shape;
  ExpertUse* expert_use = nullptr;      // is told who was chosen; null: nobody asks
  ExpertCache* expert_cache = nullptr;  // where experts are; null: all in their place
};

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

  // x[row] += the weighted sum of what the experts chosen for input[row] make of it, [rows, hidden]. Those beyond the places'
  // matrices make of it what it is.
  virtual void experts(const ExpertPlaces& places, Activation activation, Floats input, Floats x) const = 0;
  // x[row] += sigmoid(gate x input[row]) * y[row], [rows, hidden]; gate [1, hidden].
  virtual void add_gated(Floats input, const MatrixPlace& gate, Floats y, Floats x) const = 0;

  // Turns q and k in place by table `which`.
  virtual void rope(Floats q, Floats k, const RopeConfig& config, int which = 0) const = 0;
  // Stores this step's K and V, then attn = attention(q) for every row.
  virtual void attend(Floats q, Floats k, Floats v, const AttentionSpec& spec, Floats attn) const = 0;

  // latents [rows, rank + rope_dims]: the first rank are normed, the others turned, in place.
  virtual void latent_keys(const LatentPlaces& places, const VectorPlace& norm, double eps, const RopeConfig& config, Floats latents) const = 0;
  // q [rows, heads, key_dim + rope_dims] -> out [rows, heads, rank + rope_dims], absorbed and turned.
  virtual void latent_queries(const LatentPlaces& places, const RopeConfig& config, Floats q, Floats out) const = 0;
  // found [rows, heads, rank] -> out [rows, heads, value_dim].
  virtual void latent_values(const LatentPlaces& places, Floats found, Floats out) const = 0;

  virtual void normalize(const Normed& input) const = 0;             // input.out is made, maybe in place, [rows, hidden]
  virtual void add_normed(const Normed& input, Floats x) const = 0;  // x += input.out, which is made, [rows, hidden]
  virtual void scale(Floats x, float factor) const = 0;              // [rows, hidden]; by 0: zeros, whatever was there
  virtual void add_scaled(Floats y, float factor, Floats x) const = 0;  // x = fma(factor, y, x), [rows, hidden]
  // Each row of q is scaled by its position (query_growth_at, models/rope.h).
  virtual void grow_queries(Floats q, const QueryGrowth& growth) const = 0;

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
