// For tests: a loaded model with its memory, and sequences with KV blocks of their own.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/status.h"
#include "formats/checkpoint.h"
#include "kernels/ops.h"
#include "models/model.h"
#include "tensor/tensor.h"

namespace shoal {

class TestModel {
 public:
  static StatusOr<std::unique_ptr<TestModel>> open(const std::string& path, const LoadOptions& options, int threads = 2) {
    ASSIGN_OR_RETURN(std::shared_ptr<const Checkpoint> checkpoint, open_checkpoint(path));
    return open(std::move(checkpoint), options, threads);
  }
  static StatusOr<std::unique_ptr<TestModel>> open(std::shared_ptr<const Checkpoint> checkpoint, const LoadOptions& options,
                                                   int threads = 2) {
    auto result = std::make_unique<TestModel>(threads);
    ASSIGN_OR_RETURN(result->plan_, plan_model(std::move(checkpoint), options));
    ASSIGN_OR_RETURN(result->memory_, Buffer::allocate(result->plan_->weight_bytes()));
    LoadControl control;
    ASSIGN_OR_RETURN(result->model_, result->plan_->load(result->memory_.span(), result->threads_, result->threads_, control));
    return result;
  }

  // The same, computing before its weights are packed: `meanwhile` is called when nothing is packed yet and before each piece.
  static StatusOr<std::unique_ptr<TestModel>> open_early(std::shared_ptr<const Checkpoint> checkpoint, const LoadOptions& options,
                                                         const std::function<void(TestModel&)>& meanwhile) {
    auto result = std::make_unique<TestModel>(2);
    ASSIGN_OR_RETURN(result->plan_, plan_model(std::move(checkpoint), options));
    ASSIGN_OR_RETURN(result->memory_, Buffer::allocate(result->plan_->weight_bytes()));
    ThreadPool caller(1);
    LoadControl control;
    control.early = [&](std::unique_ptr<Model> model) {
      result->model_ = std::move(model);
      meanwhile(*result);
    };
    control.give_way = [&] { meanwhile(*result); };
    ASSIGN_OR_RETURN(const std::unique_ptr<Model> other, result->plan_->load(result->memory_.span(), caller, result->threads_, control));
    CHECK(other == nullptr && result->model_ != nullptr);
    return result;
  }

  explicit TestModel(int threads) : threads_(threads) {}
  const ModelPlan& plan() const { return *plan_; }

  // Runs a step; returns the logits of the rows asked for, one after the other.
  std::vector<float> forward(const ForwardInput& input) {
    const uint64_t bytes = plan_->workspace_bytes(static_cast<uint32_t>(input.tokens.size()),
                                                  static_cast<uint32_t>(input.logit_rows.size()));
    workspace_.assign(bytes, std::byte{0xff});  // whatever was there must not matter
    std::vector<float> logits(input.logit_rows.size() * plan_->vocab_size());
    CHECK(model_->forward(input, workspace_, logits).ok());
    return logits;
  }

 private:
  ThreadPool threads_;
  std::unique_ptr<ModelPlan> plan_;
  Buffer memory_;
  std::unique_ptr<Model> model_;
  std::vector<std::byte> workspace_;
};

inline TokenId argmax(std::span<const float> logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

class TestSequence {
 public:
  TestSequence(TestModel& model, std::vector<TokenId> prompt)
      : model_(model), tokens_(std::move(prompt)), rope_length_(static_cast<uint32_t>(tokens_.size())) {}

  // Runs the prompt in chunks of `chunk` tokens (0: at once); the logits of its last token.
  std::vector<float> prefill(uint32_t chunk = 0) {
    std::vector<float> logits;
    while (done_ < tokens_.size()) {
      const uint32_t left = static_cast<uint32_t>(tokens_.size()) - done_;
      logits = run(chunk == 0 ? left : std::min(chunk, left));
    }
    return logits;
  }

  std::vector<float> step(TokenId token) {
    tokens_.push_back(token);
    return run(1);
  }

  // The next `rows` tokens as a slice of a larger step; the caller runs it and calls advance.
  SequenceSlice slice(uint32_t rows) {
    while (storage_.size() * kTokensPerBlock < done_ + rows) {
      storage_.emplace_back(model_.plan().kv_block_bytes(), std::byte{0xff});  // NaN until written
      blocks_.clear();
      for (auto& block : storage_) blocks_.push_back(block.data());
    }
    return {rows, done_, rope_length_, blocks_};
  }
  std::span<const TokenId> next(uint32_t rows) const { return std::span(tokens_).subspan(done_, rows); }
  void advance(uint32_t rows) { done_ += rows; }

 private:
  std::vector<float> run(uint32_t rows) {
    const SequenceSlice s = slice(rows);
    const uint32_t last = rows - 1;
    const std::vector<float> logits = model_.forward({next(rows), {&s, 1}, {&last, 1}});
    advance(rows);
    return logits;
  }

  TestModel& model_;
  std::vector<TokenId> tokens_;
  uint32_t rope_length_;
  uint32_t done_ = 0;
  std::vector<std::vector<std::byte>> storage_;
  std::vector<std::byte*> blocks_;
};

}  // namespace shoal
