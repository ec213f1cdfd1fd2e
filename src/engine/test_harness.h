// A body for an engine in tests: steps are done at once, and what comes of them is kept and checked for sense.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/rng.h"
#include "engine/engine.h"

namespace shoal {

constexpr uint64_t kBlockBytes = kPageBytes / 4;

// A runner whose next token is a hash of the sequence so far, kept here independently of the engine.
class Harness {
 public:
  explicit Harness(uint32_t pages, EngineConfig config = {}, uint32_t host_pages = 0)
      : pages_(pages), blocks_(pages_, kBlockBytes), host_(host_pages) {
    if (config.max_model_len == 0) config.max_model_len = 256;
    config.vocab_size = 1000;
    engine_ = std::make_unique<Engine>(blocks_, config, host_.blocks(kBlockBytes));
  }

  Status submit(uint64_t id, uint32_t prompt_length, uint32_t max_tokens, std::function<void(Request&)> change = nullptr) {
    Request request;
    request.id = RequestId(id);
    for (uint32_t i = 0; i < prompt_length; ++i) request.prompt.push_back(static_cast<TokenId>((id * 31 + i) % 1000));
    request.max_tokens = max_tokens;
    if (change) change(request);
    return engine_->submit(request);
  }

  // One step; false if there was nothing to compute.
  bool step() {
    const std::optional<StepInput> input = engine_->begin_step(TimePoint());
    engine_->check();
    if (!input) return false;
    last_ = *input;
    StepResult result{input->step, {}};
    for (const StepSlice& slice : input->slices) {
      SliceResult out;
      out.request = slice.request;
      out.finite = slice.request != poisoned_;
      if (slice.sample && out.finite) {
        SampledToken token;
        token.token = static_cast<TokenId>(mix64(slice.request.sequence ^ (uint64_t{slice.output_index} << 20)) % 900);
        out.sampled.push_back(token);
      }
      out.scored.resize(slice.score_end - slice.score_begin);
      for (uint32_t i = 0; i < out.scored.size(); ++i) out.scored[i].token = static_cast<TokenId>(slice.score_begin + i);
      result.slices.push_back(out);
    }
    between_();
    if (deferrals_ > 0) {
      --deferrals_;
      result = {result.step, {}, unavailable("who computes a part of it is away")};
    }
    for (const TokenDelta& delta : engine_->finish_step(result)) {
      EXPECT_EQ(delta.first_index, received_[delta.request].size());
      EXPECT_FALSE(ended_.contains(delta.request));
      for (const SampledToken& token : delta.tokens) received_[delta.request].push_back(token.token);
      if (!delta.prompt.empty()) scored_[delta.request] = delta.prompt;
      if (delta.finish) ended_[delta.request] = *delta.finish;
    }
    engine_->check();
    return true;
  }
  void run() {
    for (int i = 0; i < 10000 && step(); ++i) {
    }
  }

  Engine& engine() { return *engine_; }
  PagePool& pages() { return pages_; }
  HostTier& host() { return host_; }
  const StepInput& last() const { return last_; }
  size_t received(uint64_t id) { return received_[RequestId(id)].size(); }
  const std::vector<TokenId>& answer(uint64_t id) { return received_[RequestId(id)]; }
  std::optional<FinishReason> end(uint64_t id) {
    return ended_.contains(RequestId(id)) ? std::optional(ended_[RequestId(id)]) : std::nullopt;
  }
  const std::vector<SampledToken>& scored(uint64_t id) { return scored_[RequestId(id)]; }
  void between(std::function<void()> act) { between_ = std::move(act); }
  void defer(int steps) { deferrals_ = steps; }  // the next ones
  void poison(uint64_t id) { poisoned_ = RequestId(id); }

 private:
  PagePool pages_;
  BlockPool blocks_;
  HostTier host_;
  std::unique_ptr<Engine> engine_;
  StepInput last_;
  std::map<RequestId, std::vector<TokenId>> received_;
  std::map<RequestId, FinishReason> ended_;
  std::map<RequestId, std::vector<SampledToken>> scored_;
  std::function<void()> between_ = [] {};
  RequestId poisoned_;
  int deferrals_ = 0;
};

}  // namespace shoal
