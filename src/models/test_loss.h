// For tests and bench/quality: how well a model predicts a text, and the checkpoint that a quantised model stands for.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kernels/pack.h"
#include "kernels/quant_codes.h"
#include "models/test_runner.h"

namespace shoal {

struct Loss {
  double nats = 0;  // sum of -log p(token | tokens before it)
  uint64_t tokens = 0;

  double mean() const { return nats / static_cast<double>(std::max<uint64_t>(tokens, 1)); }
  void add(const Loss& other) {
    nats += other.nats;
    tokens += other.tokens;
  }
};

// -log softmax(logits)[token], in double precision.
inline double nats_of(std::span<const float> logits, TokenId token) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - top);
  return std::log(sum) + top - logits[static_cast<size_t>(token)];
}

// A text of which tokens [from, end) are to be predicted; from >= 1.
struct ScoredText {
  std::vector<TokenId> tokens;
  size_t from = 1;
};

// REQUIRES: the text fits the model's context.
inline Loss loss_of(TestModel& model, const ScoredText& text) {
  constexpr uint32_t kRows = 128;
  const std::vector<TokenId>& tokens = text.tokens;
  TestSequence sequence(model, tokens);
  const size_t vocab = model.plan().vocab_size();
  Loss loss;
  for (uint32_t done = 0; done + 1 < tokens.size();) {
    const uint32_t rows = std::min<uint32_t>(kRows, static_cast<uint32_t>(tokens.size()) - 1 - done);
    std::vector<uint32_t> all(rows);
    for (uint32_t i = 0; i < rows; ++i) all[i] = i;
    const SequenceSlice slice = sequence.slice(rows);
    const std::vector<float> logits = model.forward(sequence.next(rows), {&slice, 1}, all);
    sequence.advance(rows);
    for (uint32_t i = 0; i < rows; ++i) {
      if (done + i + 1 < text.from) continue;
      loss.nats += nats_of(std::span(logits).subspan(i * vocab, vocab), tokens[done + i + 1]);
      ++loss.tokens;
    }
    done += rows;
  }
  return loss;
}

// A float checkpoint as quantisation at load sees it: every matrix in the numbers that its quantised form has, as F32. What a
// model loaded from it loses, the quantiser lost; what the quantised model loses beyond, its arithmetic lost.
class DequantisedCheckpoint {
 public:
  // REQUIRES: `source` holds F32, F16 or BF16 and no output matrix beside tied embeddings.
  DequantisedCheckpoint(const Checkpoint& source, Quantization quantization) : checkpoint_(std::make_shared<Checkpoint>()) {
    checkpoint_->path = source.path;
    checkpoint_->format = source.format;
    checkpoint_->config = source.config;
    const WeightFormat format = quantization == Quantization::kQ4_0 ? WeightFormat::kQ4_0 : WeightFormat::kQ8_0;
    for (const auto& [name, view] : source.weights.all()) {
      const bool projection = name.ends_with("_proj.weight");
      add(name, projection ? dequantised(view, format) : view);
    }
    if (source.config.tied_embeddings) {  // embeddings stay as stored, the output matrix has eight bits
      add("lm_head.weight", dequantised(*source.weights.find("model.embed_tokens.weight"), WeightFormat::kQ8_0));
      checkpoint_->config.tied_embeddings = false;
    }
  }

  std::shared_ptr<const Checkpoint> get() const { return checkpoint_; }

 private:
  void add(const std::string& name, const TensorView& view) { CHECK(checkpoint_->weights.add(name, view)); }

  TensorView dequantised(const TensorView& view, WeightFormat format) {
    const uint64_t rows = view.shape[0], columns = view.shape[1], row_bytes = view.row_bytes();
    Tensor& tensor = tensors_.emplace_back(*Tensor::allocate(DType::kF32, view.shape));
    std::vector<std::byte> panel(panel_bytes(format, columns));
    for (uint64_t first = 0; first < rows; first += kPanelRows) {
      const uint32_t count = static_cast<uint32_t>(std::min<uint64_t>(kPanelRows, rows - first));
      std::vector<const std::byte*> sources;
      for (uint32_t i = 0; i < count; ++i) sources.push_back(view.data + (first + i) * row_bytes);
      pack_panel({view.dtype, sources, columns, {}, 0}, format, panel.data());
      const PackedMatrix matrix{format, count, static_cast<uint32_t>(columns), panel.data(), nullptr, 0};
      for (uint32_t i = 0; i < count; ++i) unpack_row(matrix, i, reinterpret_cast<float*>(tensor.data()) + (first + i) * columns);
    }
    return tensor.view();
  }

  std::shared_ptr<Checkpoint> checkpoint_;
  std::vector<Tensor> tensors_;
};

}  // namespace shoal
