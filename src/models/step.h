// One forward step: its buffers and the operations that architectures are written in. Each operation runs on all threads
// and splits outputs only, so that no result depends on how it was split.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <vector>

#include "formats/model_config.h"
#include "kernels/kernels.h"
#include "kernels/ops.h"
#include "models/model.h"
#include "models/rope.h"
#include "models/unpacked_weights.h"
#include "models/weights.h"

namespace shoal {

// K and V of a model in a block: layer after layer, in each the K of all heads, then the V of all heads (kernels.h).
struct KvLayout {
  KvFormat format = KvFormat::kF32;
  uint32_t layers = 0, heads = 0, head_dim = 0;

  size_t head_bytes() const { return kv_head_bytes(format, head_dim); }
  size_t key_offset(uint32_t layer) const { return size_t{layer} * 2 * heads * head_bytes(); }
  size_t value_offset(uint32_t layer) const { return key_offset(layer) + heads * head_bytes(); }
  size_t block_bytes() const { return size_t{layers} * 2 * heads * head_bytes(); }
};

// The widths that size a step's buffers.
struct StepShape {
  uint32_t hidden = 0, q_width = 0, kv_width = 0, mlp_width = 0;  // elements of a row
  uint32_t rope_half = 0;
  uint32_t head_dim = 0, context = 0;  // what bounds the states of attention that is split by segments
  bool local_rope = false;  // a second rotary table
  bool quantized = false;   // int8 activations are needed

  uint64_t bytes(uint32_t rows, uint32_t logit_rows) const;
  // Room for the states of one row over the whole context, or for as much as is worth it.
  uint64_t partial_floats() const;
};

// Buffers of a step, all f32, in the caller's workspace.
struct StepBuffers {
  float* x;      // [rows, hidden] the residual stream
  float* h;      // [rows, hidden] normed input of a block
  float* y;      // [rows, hidden] output of a block
  float* q;      // [rows, q_width]
  float* k;      // [rows, kv_width]
  float* v;      // [rows, kv_width]
  float* attn;   // [rows, q_width]
  float* gate;   // [rows, mlp_width]
  float* up;     // [rows, mlp_width]
  float* cos[2]; // [rows, rope_half]; 1: of the layers with a local base
  float* sin[2];
  float* last;   // [logit rows, hidden]
  float* partial; // states of attention by segments (step_attention.cc)
  QuantBlock* quantized;  // [rows, widest input / 32]
};

enum class Activation { kSilu, kGelu };  // kGelu: the tanh form

struct AttentionSpec {
  uint32_t layer = 0;
  uint32_t window = 0;  // 0: everything
  float scale = 1;
  float softcap = 0;    // 0: none
};

// What stays the same from step to step.
struct StepContext {
  Kernels kernels;
  ThreadPool& threads;
  WeightMemory weights;
  KvLayout kv;
  StepShape shape;
};

class Step {
 public:
  // `unpacked`: where weights are that are not in their place yet; null: all are.
  // REQUIRES: slices cover the tokens, workspace is large enough.
  Step(const StepContext& context, const ForwardInput& input, std::span<std::byte> workspace, const UnpackedWeights* unpacked);

  uint32_t rows() const { return rows_; }
  const StepBuffers& at() const { return at_; }

  // x = embedding rows of the tokens.
  void embed(const EmbeddingPlace& table, float* x) const;
  // Fills cos[which] and sin[which] for every row.
  void rope_table(const RopeFrequencies& frequencies, int which) const;
  // out = rms_norm(x) * weight over `width` elements; `groups` of them in each row (heads, for norms of q and k).
  void rms_norm(const float* x, const VectorPlace& weight, double eps, float* out, uint32_t groups = 1) const;

  struct Output {
    const MatrixPlace* matrix;
    float* out;        // [rows, matrix->rows]
    bool add = false;  // to what is in `out`
  };
  // Inputs that are made on the way, each row on the thread that quantises it.
  struct Normed {  // out = rms_norm(x) * weight
    const float* x;
    const VectorPlace& weight;
    double eps;
    float* out;
  };
  struct Gated {  // out = activation(gate) * up
    Activation activation;
    const float* gate;
    const float* up;
    float* out;
  };
  // Each output = matrix x input; all matrices take the same input [rows, columns].
  void linear(const float* input, std::initializer_list<Output> outputs) const;
  void linear(const Normed& input, std::initializer_list<Output> outputs) const;
  void linear(const Gated& input, std::initializer_list<Output> outputs) const;

  // Turns q and k in place by table `which`.
  void rope(float* q, float* k, const RopeConfig& config, int which = 0) const;
  // Stores this step's K and V, then attn = attention(q) for every row.
  void attend(const float* q, const float* k, const float* v, const AttentionSpec& spec, float* attn) const;

  void add_normed(const Normed& input, float* x) const;  // x += input.out, which is made, [rows, hidden]
  void scale(float* x, float factor) const;              // [rows, hidden]

  // logits = soft_cap(head x norm(x[logit rows])). softcap 0: none.
  void logits(const float* x, const VectorPlace& norm, double eps, const MatrixPlace& head, float softcap, float* out) const;

 private:
  struct AttentionPiece {
    uint32_t slice, first_row, rows;  // first_row within the slice
    uint32_t segments;                // that its rows reach
    uint64_t partial_at;              // its states in StepBuffers::partial, if attention is split
  };
  struct AttentionArguments {
    const float* q;
    float* out;
    const AttentionSpec& spec;
  };

  void linear(const float* input, std::optional<LinearInput::MakeRow> make_row, std::initializer_list<Output> outputs) const;
  void norm_row(const Normed& input, uint32_t row) const;
  void carve(std::span<std::byte> workspace);
  void plan_attention();
  AttentionCall attention_call(const AttentionPiece& piece, uint64_t head, const AttentionArguments& arguments) const;
  void attend_by_segments(const AttentionArguments& arguments) const;
  void store_kv(const float* k, const float* v, uint32_t layer) const;

  void embed_tied(const MatrixPlace& table, float* x) const;
  LinearOutput at_place(const MatrixPlace& matrix, float* out, bool add) const;

  const StepContext& context_;
  const ForwardInput& input_;
  const UnpackedWeights* unpacked_;
  uint32_t rows_;
  StepBuffers at_{};
  std::vector<uint32_t> row_slice_;   // slice of each row
  std::vector<uint32_t> slice_begin_; // first row of each slice
  std::vector<AttentionPiece> pieces_;
  bool split_segments_ = false;  // too few pieces for the threads
};

}  // namespace shoal
