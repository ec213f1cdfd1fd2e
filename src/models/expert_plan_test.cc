// Experts computed apart from their model: the same bits as within it.
#include "models/expert_plan.h"

#include "gtest/gtest.h"
#include "models/test_experts.h"
#include "models/test_runner.h"

namespace shoal {
namespace {

// Logits of all rows of one pass over the prompt.
std::vector<float> logits_of(TestModel& model, Apart* apart, std::span<const TokenId> tokens) {
  TestSequence sequence(model, {tokens.begin(), tokens.end()});
  const auto rows = static_cast<uint32_t>(tokens.size());
  const std::vector<SequenceSlice> slices{sequence.slice(rows)};
  std::vector<LogitsQuery> queries;
  for (uint32_t row = 0; row < rows; ++row) queries.push_back({row});
  const ForwardInput input{tokens, slices, queries};
  const auto pass = *model.model().begin(input, model.workspace(rows, rows));
  for (int asked = 0;; ++asked) {
    const auto exchange = *pass->advance();
    if (!exchange) {
      EXPECT_EQ(asked > 0, apart != nullptr);
      break;
    }
    if (asked % 2 == 0) pass->meanwhile();  // or advance() does it
    apart->answer(*exchange);
  }
  std::vector<float> logits;
  for (size_t i = 0; i < queries.size(); ++i) logits.insert(logits.end(), pass->logits(i).all.begin(), pass->logits(i).all.end());
  return logits;
}

TEST(ExpertPlan, ExpertsElsewhereGiveTheBitsOfExpertsHere) {
  const std::vector<std::string> paths = models_with_experts();
  ASSERT_GE(paths.size(), 2u);
  size_t checked = 0;
  for (const std::string& path : paths) {
    for (const Quantization quantization : {Quantization::kNone, Quantization::kQ8_0}) {
      if (quantization != Quantization::kNone && path.ends_with(".gguf")) continue;
      const auto here = TestModel::open(path, {.quantization = quantization});
      if (!here.ok()) continue;  // a family that is not served
      const auto elsewhere = TestModel::open(path, {.quantization = quantization, .experts_elsewhere = true});
      ASSERT_TRUE(elsewhere.ok()) << elsewhere.status();
      if ((*elsewhere)->plan().expert_plan() == nullptr) {  // a family that does not ask for them
        EXPECT_EQ((*elsewhere)->plan().weight_bytes(), (*here)->plan().weight_bytes()) << path;
        continue;
      }
      EXPECT_LT((*elsewhere)->plan().weight_bytes(), (*here)->plan().weight_bytes());
      Apart apart((*elsewhere)->plan().expert_plan());
      std::vector<TokenId> tokens(37);
      for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>((i * 29 + 3) % (*here)->plan().vocab_size());
      EXPECT_EQ(logits_of(**here, nullptr, tokens), logits_of(**elsewhere, &apart, tokens)) << path;
      EXPECT_GT(apart.loaded(), 0u);
      ++checked;
    }
  }
  EXPECT_GE(checked, 4u);
}

// Every form that experts are stored in: tensors of their own, of all, gates and ups by turns, transposed, quantised.
TEST(ExpertPlan, ExpertsThatAreFetchedGiveTheBitsOfExpertsHere) {
  size_t checked = 0;
  for (const std::string& path : models_with_experts()) {
    SCOPED_TRACE(path);
    auto plan = plan_model(*open_checkpoint(path), {});
    if (!plan.ok()) continue;  // a family that is not served
    const uint64_t least = (*plan)->least_weight_bytes(), whole = (*plan)->weight_bytes();
    if (least == whole) continue;  // experts in one layer only
    const auto all = TestModel::open(path, {}, 1), part = TestModel::load(*std::move(plan), 3, least);
    ASSERT_TRUE(all.ok() && part.ok()) << part.status();
    std::vector<TokenId> tokens(50);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>((i * 31 + 7) % (*all)->plan().vocab_size());
    const std::vector<float> want = TestSequence(**all, tokens).prefill();
    for (const uint32_t chunk : {0, 7, 1}) EXPECT_EQ(TestSequence(**part, tokens).prefill(chunk), want) << chunk;
    EXPECT_GT((*part)->model().expert_counts().bytes_fetched, 0u);
    ++checked;
  }
  EXPECT_GE(checked, 2u);
}

}  // namespace
}  // namespace shoal
