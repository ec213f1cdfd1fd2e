// Vectors by way of steps, on a model of the shared folder: engines cut prompts, and the vector is that of the whole.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <vector>

#include "models/test_runner.h"
#include "runner/step_runner.h"

namespace shoal {
namespace {

class PooledSteps : public testing::Test {
 protected:
  void SetUp() override {
    const std::string folder = std::string(SHOAL_SHARED_DIR) + "/models/embeddings/bert-mean";
    if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no shared models at " << SHOAL_SHARED_DIR;
    model_ = *TestModel::open(folder, {});
    workspace_ = model_->on().garbage(StepRunner::workspace_bytes(model_->plan(), 16, 4));
  }

  static std::shared_ptr<const Request> request(uint64_t id, size_t tokens, uint32_t max_tokens = 0) {
    auto request = std::make_shared<Request>();
    request->id = RequestId(id);
    for (size_t i = 0; i < tokens; ++i) request->prompt.push_back(static_cast<TokenId>(10 + (id * 31 + i * 7) % 700));
    request->max_tokens = max_tokens;
    return request;
  }

  // Tokens [begin, end) of each request as one step.
  struct Piece {
    std::shared_ptr<const Request> request;
    uint32_t begin, end;
  };
  StepResult step(const std::vector<Piece>& pieces) {
    ResolvedStep next;
    next.input.step = ++steps_;
    for (const Piece& piece : pieces) {
      auto& blocks = blocks_[piece.request->id];
      while (blocks.size() * kTokensPerBlock < piece.end) blocks.push_back(model_->on().garbage(model_->plan().kv_block_bytes()).begin);
      StepSlice slice{piece.request->id, piece.begin, {piece.request->prompt.begin() + piece.begin, piece.request->prompt.begin() + piece.end}, {}};
      slice.blocks.resize(blocks.size());
      slice.prompt_length = static_cast<uint32_t>(piece.request->prompt.size());
      slice.sample = piece.end == piece.request->prompt.size();
      slice.params = piece.request;
      next.blocks.insert(next.blocks.end(), blocks.begin(), blocks.end());
      next.input.slices.push_back(std::move(slice));
    }
    return StepRunner(workspace_).run({&model_->model(), 800, &next});
  }

  static std::vector<float> vector_of(const SliceResult& slice) {
    std::vector<float> out;
    if (slice.sampled.size() != 1) return out;
    for (const TokenLogprob& entry : slice.sampled[0].top) out.push_back(entry.logprob);
    return out;
  }

  std::unique_ptr<TestModel> model_;
  DeviceSpan workspace_;
  std::map<RequestId, std::vector<DeviceAddress>> blocks_;
  uint64_t steps_ = 0;
};

TEST_F(PooledSteps, AVectorIsTheSameHoweverItsPromptWasCutAndInAnyBatch) {
  const auto a = request(1, 100), b = request(2, 37), c = request(3, 120);
  const std::vector<float> alone = vector_of(step({{a, 0, 100}}).slices[0]);
  ASSERT_EQ(alone.size(), 64u);
  EXPECT_TRUE(step({{a, 0, 16}}).slices[0].sampled.empty());
  EXPECT_EQ(vector_of(step({{a, 16, 100}}).slices[0]), alone);
  const StepResult together = step({{b, 0, 37}, {a, 90, 100}, {c, 0, 120}, {b, 0, 8}});  // more rows than the workspace takes at once
  ASSERT_EQ(together.slices.size(), 4u);
  EXPECT_EQ(vector_of(together.slices[1]), alone);
  EXPECT_EQ(vector_of(together.slices[0]), vector_of(step({{b, 0, 37}}).slices[0]));
  EXPECT_TRUE(together.slices[3].sampled.empty());
}

TEST_F(PooledSteps, WhoWantsTokensOfAModelOfVectorsIsTold) {
  const StepResult result = step({{request(1, 5, 10), 0, 5}, {request(2, 5), 0, 5}});
  EXPECT_EQ(result.slices[0].error.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(vector_of(result.slices[1]).size(), 64u);
}

}  // namespace
}  // namespace shoal
