// For tests: a loaded model with its memory, and sequences with KV blocks of their own.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/status.h"
#include "formats/checkpoint.h"
#include "device/cpu_device.h"
#include "device/thread_pool.h"
#include "models/backend.h"
#include "models/model.h"

namespace shoal {

// What the tests of models run on: SHOAL_TEST_DEVICE=guarded for memory that only the backend can touch.
inline DeviceGuard test_guard() {
  const char* const device = std::getenv("SHOAL_TEST_DEVICE");
  return device != nullptr && std::string_view(device) == "guarded" ? DeviceGuard::kGuarded : DeviceGuard::kNone;
}

// A device with a backend on `threads` threads.
struct TestDevice {
  explicit TestDevice(int threads = 2, DeviceGuard guard = test_guard())
      : threads(threads), device(*CpuDevice::make(1, guard)), backend(make_cpu_backend(*device, this->threads)) {}

  DeviceSpan allocate(uint64_t bytes) { return *device->allocate(bytes); }
  // With every byte set, so that whatever was there must not matter.
  DeviceSpan garbage(uint64_t bytes) {
    const DeviceSpan memory = allocate(bytes);
    std::memset(CpuDevice::at(memory.begin), 0xff, bytes);
    return memory;
  }

  ThreadPool threads;
  const std::unique_ptr<CpuDevice> device;
  const std::unique_ptr<Backend> backend;
};

class TestModel {
 public:
  static StatusOr<std::unique_ptr<TestModel>> open(const std::string& path, const LoadOptions& options, int threads = 2) {
    ASSIGN_OR_RETURN(std::shared_ptr<const Checkpoint> checkpoint, open_checkpoint(path));
    return open(std::move(checkpoint), options, threads);
  }
  static StatusOr<std::unique_ptr<TestModel>> open(std::shared_ptr<const Checkpoint> checkpoint, const LoadOptions& options,
                                                   int threads = 2) {
    ASSIGN_OR_RETURN(std::unique_ptr<ModelPlan> plan, plan_model(std::move(checkpoint), options));
    return load(std::move(plan), threads);
  }
  // In `memory` bytes of weights; 0: all of them.
  static StatusOr<std::unique_ptr<TestModel>> load(std::unique_ptr<ModelPlan> plan, int threads = 2, uint64_t memory = 0) {
    auto result = std::make_unique<TestModel>(std::move(plan), threads);
    LoadControl control;
    const DeviceSpan place = memory == 0 ? result->memory_ : result->memory_.part(0, memory);
    ASSIGN_OR_RETURN(result->model_, result->plan_->load(place, *result->on_.backend, result->on_.threads, control));
    return result;
  }

  // Once more into the same memory, of which only what is `present` is as the model left it. Bytes that were written.
  StatusOr<uint64_t> load_again(std::vector<ByteRange> present, uint64_t memory = 0) {
    const DeviceSpan place = memory == 0 ? memory_ : memory_.part(0, memory);
    LoadControl control;
    if (model_ != nullptr) control.slots = model_->expert_slots();
    model_.reset();
    uint64_t at = 0;
    for (const ByteRange& range : present) {
      std::memset(CpuDevice::at(place.begin) + at, 0xff, range.begin - at);
      at = std::min(range.end, place.bytes);
    }
    std::memset(CpuDevice::at(place.begin) + at, 0xff, place.bytes - at);
    control.present = std::move(present);
    ASSIGN_OR_RETURN(model_, plan_->load(place, *on_.backend, on_.threads, control));
    return control.bytes_written.load();
  }

  // A load into the same memory, nothing of which is worth anything, that is called off before its piece number `pieces`: what
  // of it is as the whole load leaves it. Its end if it was over by then. By one thread they come in the order of the file.
  StatusOr<std::vector<ByteRange>> load_called_off(int pieces, int threads) {
    model_.reset();
    std::memset(CpuDevice::at(memory_.begin), 0xff, memory_.bytes);
    LoadControl control;
    std::atomic<int> begun{0};
    control.give_way = [&] {
      if (begun++ == pieces) control.cancelled = true;
    };
    ThreadPool by(threads);
    const Status status = plan_->load(memory_, *on_.backend, by, control).status();
    if (status.code() != StatusCode::kCancelled) return status.ok() ? absl::OutOfRangeError("it was over") : status;
    std::sort(control.left.begin(), control.left.end(), [](const ByteRange& a, const ByteRange& b) { return a.begin < b.begin; });
    std::vector<ByteRange> whole;
    uint64_t at = 0;
    for (const ByteRange& left : control.left) {
      if (left.begin > at) whole.push_back({at, left.begin});
      at = left.end;
    }
    if (at < memory_.bytes) whole.push_back({at, memory_.bytes});
    return whole;
  }

  // The same, computing before its weights are packed: `meanwhile` is called when nothing is packed yet and before each piece.
  static StatusOr<std::unique_ptr<TestModel>> open_early(std::shared_ptr<const Checkpoint> checkpoint, const LoadOptions& options,
                                                         const std::function<void(TestModel&)>& meanwhile) {
    ASSIGN_OR_RETURN(std::unique_ptr<ModelPlan> plan, plan_model(std::move(checkpoint), options));
    auto result = std::make_unique<TestModel>(std::move(plan), 2, DeviceGuard::kNone);
    ThreadPool caller(1);
    LoadControl control;
    control.early = [&](std::unique_ptr<Model> model) {
      result->model_ = std::move(model);
      meanwhile(*result);
    };
    control.give_way = [&] { meanwhile(*result); };
    ASSIGN_OR_RETURN(const std::unique_ptr<Model> other, result->plan_->load(result->memory_, *result->on_.backend, caller, control));
    CHECK(other == nullptr && result->model_ != nullptr);
    return result;
  }

  TestModel(std::unique_ptr<ModelPlan> plan, int threads, DeviceGuard guard = test_guard())
      : on_(threads, guard), plan_(std::move(plan)), memory_(on_.allocate(plan_->weight_bytes())) {}

  const ModelPlan& plan() const { return *plan_; }
  Model& model() { return *model_; }
  TestDevice& on() { return on_; }

  DeviceSpan workspace(uint32_t rows, uint32_t logit_rows) {
    const uint64_t bytes = plan_->workspace_bytes(rows, logit_rows);
    if (workspace_.bytes < bytes) workspace_ = on_.allocate(bytes);
    std::memset(CpuDevice::at(workspace_.begin), 0xff, workspace_.bytes);  // whatever was there must not matter
    return workspace_;
  }

  // Runs a step; returns the logits of the rows asked for, one after the other.
  std::vector<float> forward(std::span<const TokenId> tokens, std::span<const SequenceSlice> slices, std::span<const uint32_t> logit_rows) {
    std::vector<LogitsQuery> queries;
    for (const uint32_t row : logit_rows) queries.push_back({row});
    const ForwardInput input{tokens, slices, queries};
    const auto pass = *model_->begin(input, workspace(static_cast<uint32_t>(tokens.size()), static_cast<uint32_t>(queries.size())));
    const auto exchange = pass->advance();
    CHECK(exchange.ok() && !exchange->has_value());
    std::vector<float> logits;
    for (size_t i = 0; i < queries.size(); ++i) {
      const std::span<const float> row = pass->logits(i).all;
      logits.insert(logits.end(), row.begin(), row.end());
    }
    return logits;
  }

 private:
  TestDevice on_;
  const std::unique_ptr<ModelPlan> plan_;
  const DeviceSpan memory_;
  std::unique_ptr<Model> model_;
  DeviceSpan workspace_;
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
    while (blocks_.size() * kTokensPerBlock < done_ + rows) {
      blocks_.push_back(model_.on().garbage(model_.plan().kv_block_bytes()).begin);  // NaN until written
    }
    return {rows, done_, rope_length_, blocks_, state(0), tail_};
  }
  // Keeps the state of the first `kept` of the next slice's rows, too.
  SequenceSlice slice_keeping(uint32_t rows, uint32_t kept) {
    SequenceSlice s = slice(rows);
    s.state = state(kept);
    return s;
  }
  // Goes on from there: rows after it are computed again, in blocks that hold nothing else.
  void go_back_to(uint32_t tokens) {
    done_ = tokens;
    if (tokens % kTokensPerBlock > 0) tail_ = {blocks_[tokens / kTokensPerBlock]};
    blocks_.resize(tokens / kTokensPerBlock);
    std::swap(states_[0], states_[2]);
  }
  std::span<const TokenId> next(uint32_t rows) const { return std::span(tokens_).subspan(done_, rows); }
  void advance(uint32_t rows) {
    done_ += rows;
    tail_.clear();
    std::swap(states_[0], states_[1]);
  }

 private:
  std::vector<float> run(uint32_t rows) {
    const SequenceSlice s = slice(rows);
    const uint32_t last = rows - 1;
    const std::vector<float> logits = model_.forward(next(rows), {&s, 1}, {&last, 1});
    advance(rows);
    return logits;
  }

  // Of three states, NaN until written: the one so far, the next, and one that is kept.
  SliceState state(uint32_t kept) {
    for (auto& blocks : states_) {
      while (blocks.size() < model_.plan().state_blocks()) blocks.push_back(model_.on().garbage(model_.plan().kv_block_bytes()).begin);
    }
    return {done_ == 0 ? std::span<const DeviceAddress>() : states_[0], states_[1], states_[2], kept};
  }

  TestModel& model_;
  std::vector<TokenId> tokens_;
  uint32_t rope_length_;
  uint32_t done_ = 0;
  std::vector<DeviceAddress> blocks_;
  std::vector<DeviceAddress> tail_;  // the block that holds the first tokens of the next one
  std::vector<DeviceAddress> states_[3];
};

}  // namespace shoal
