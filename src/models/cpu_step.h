// The operations of a step on the host's processor. Each runs on all threads and splits outputs only, so that no result
// depends on how it was split.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "device/cpu_device.h"
#include "kernels/expert_ops.h"
#include "kernels/kernels.h"
#include "kernels/ops.h"
#include "models/step.h"
#include "models/unpacked_weights.h"

namespace shoal {

// What the steps of a backend share.
struct CpuCompute {
  Kernels kernels;
  ThreadPool& threads;
  std::vector<std::vector<float>> spare;  // memory for logits, of steps that have ended
};

// A model's weights as the kernels take them.
struct CpuWeights {
  const StepContext& context;
  const UnpackedWeights* unpacked;  // where those are that are not in their place yet; null: all are

  const float* vector(const VectorPlace& place) const { return CpuDevice::at((context.weights.vectors + place.offset).as<float>()); }
  LinearOutput output(const MatrixPlace& matrix, float* out, bool add) const;
  const std::byte* row(const EmbeddingPlace& table, TokenId token) const;
};

// out = the activation of a row.
void norm_row(const Kernels& kernels, const CpuWeights& weights, const Step::Normed& input, uint32_t row);
void activate_row(const Kernels& kernels, Activation activation, const float* gate, const float* up, size_t width, float* out);

// A task's share of a step's attention.
struct AttentionPiece {
  BatchRows::Run run;
  uint32_t segments;                // that its rows reach
  uint64_t partial_at;              // its states in StepBuffers::partial, if attention is split
};
// How layers of equal heads are split.
struct AttentionSplit {
  KvLayer of;
  std::vector<AttentionPiece> pieces;
  bool segments = false;  // too few pieces for the threads
  uint32_t parts = 1;     // of a KV head's queries, where there are no segments to split either; divides the group
};
// One for each kind of layer.
std::vector<AttentionSplit> split_attention(const StepContext& context, const ForwardInput& input, const BatchRows& rows, int threads);

class CpuStep : public Step {
 public:
  // `unpacked`: where weights are that are not in their place yet; null: all are.
  CpuStep(CpuCompute& compute, const StepContext& context, const ForwardInput& input, DeviceSpan workspace, const UnpackedWeights* unpacked);
  ~CpuStep() override;

  uint32_t rows() const override { return batch_.size(); }
  const StepBuffers& at() const override { return at_; }

  void embed(const EmbeddingPlace& table, Floats x) const override;
  void add_rows(const EmbeddingPlace& table, std::span<const uint32_t> index, Floats x) const override;
  void rope_table(const RopeFrequencies& frequencies, int which) const override;
  void rms_norm(Floats x, const VectorPlace& weight, double eps, Floats out, uint32_t groups) const override;
  void unit_norm(Floats x, uint32_t width, double eps, Floats out, uint32_t groups) const override;
  void linear(Floats input, Outputs outputs) const override;
  void linear(const Normed& input, Outputs outputs) const override;  // each row is made by the thread that quantises it
  void linear(const Gated& input, Outputs outputs) const override;
  std::optional<Exchange> experts(const ExpertPlaces& places, Activation activation, Floats asked, Floats input, Floats x) const override;
  void combine(const ExpertPlaces& places, Floats input, Floats x) const override;
  void add_gated(Floats input, const MatrixPlace& gate, Floats y, Floats x) const override;
  void rope(uint32_t layer, Floats q, Floats k, const RopeConfig& config, int which) const override;
  void attend(Floats q, Floats k, Floats v, const AttentionSpec& spec, Floats attn) const override;
  void keep_asked(std::vector<KeptRows> buffers) const override;
  void latent_keys(const LatentPlaces& places, const VectorPlace& norm, double eps, const RopeConfig& config, Floats latents) const override;
  void latent_queries(const LatentPlaces& places, const RopeConfig& config, Floats q, Floats out) const override;
  void latent_values(const LatentPlaces& places, Floats found, Floats out) const override;
  void normalize(const Normed& input) const override;
  void choose_tokens(const IndexPlaces& places, const RopeConfig& config, const IndexInput& input) const override;
  void convolve(const ConvolutionPlaces& places, const Columns& in, const Columns& out) const override;
  void recur(const RecurrencePlaces& places, const RecurrenceInput& input, Floats out) const override;
  void split(Floats in, uint32_t groups, std::initializer_list<SplitPart> parts) const override;
  void activate(Activation activation, Floats gate, Floats up, uint32_t width, Floats out) const override;
  void group_norm(Floats x, const VectorPlace& weight, double eps, Floats out, uint32_t groups) const override;
  void add_normed(const Normed& input, Floats x) const override;
  void scale(Floats x, float factor, uint32_t width) const override;
  void scale(Floats x, const VectorPlace& factor) const override;
  void embed_layers(const LayerInputPlaces& places, Floats x) const override;
  void add_scaled(Floats y, float factor, Floats x) const override;
  void grow_queries(uint32_t layer, Floats q, const QueryGrowth& growth) const override;
  void pool(Floats x, Pooling pooling, const Normed* norm) override;
  void pooled_dense(const VectorPlace& matrix, const VectorPlace* bias, HeadActivation activation) override;
  void pooled_norm(const VectorPlace& weight, const VectorPlace* bias, double eps) override;
  void logits(Floats x, const Head& head) override;
  RowLogits logits_of(size_t i) override;

 private:
  struct AttentionArguments {
    const float* q;
    float* out;
    const AttentionSpec& spec;
    const KvLayer& layer;
  };

  void multiply(const float* input, std::optional<LinearInput::MakeRow> make_row, Outputs outputs) const;
  struct HeadRows {  // head h of row r lies at base + r * row + h * head
    float* base;
    uint64_t row, head;
  };
  using AfterHead = absl::FunctionRef<void(uint32_t row, uint64_t head)>;
  void multiply_by_head(const std::vector<MatrixPlace>& places, const HeadRows& input, const HeadRows& out, std::optional<AfterHead> after) const;
  ExpertRoutes route(const ExpertPlaces& places, const float* input) const;
  AttentionCall attention_call(const AttentionPiece& piece, uint64_t head, const AttentionArguments& arguments) const;
  void attend_by_segments(const AttentionSplit& split, const AttentionArguments& arguments) const;
  void store_kv(const float* k, const float* v, const KvLayer& layer) const;

  CpuCompute& compute_;
  const StepContext& context_;
  const ForwardInput& input_;
  const CpuWeights weights_;
  mutable BatchRows batch_;  // keep_asked() leaves a part
  const StepBuffers at_;
  std::vector<std::byte*> blocks_;    // of all slices
  std::vector<size_t> first_block_;   // of each slice
  mutable std::vector<AttentionSplit> splits_;  // of those rows, by kind of layer
  std::vector<float> logits_;         // [queries, vocab], or [queries, width] of pooled vectors
  mutable ExpertRoutes dispatched_;   // between dispatch() and combine()
  std::vector<std::vector<TokenLogit>> top_;  // of each query, once it was asked for
};

}  // namespace shoal
