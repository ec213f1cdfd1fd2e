// What quantised weights, int8 activations and a quantised KV cache cost: perplexity of the bundled models' answers (a few
// hundredths of a nat per token, so as a difference of nats), and loss over the questions as well, which they were not
// trained to ask (some six nats).
#include "base/json.h"
#include "formats/mapped_file.h"
#include "gtest/gtest.h"
#include "models/test_loss.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr double kBound = 0.005;  // of the perplexity of answers, and of the loss over everything

struct Losses {
  Loss answers, everything;
};

struct Bundled {
  std::shared_ptr<const Checkpoint> checkpoint;
  std::vector<ScoredText> texts;  // questions, and the answers that are predicted

  Losses loss(std::shared_ptr<const Checkpoint> weights, const LoadOptions& options) const {
    auto model = TestModel::open(std::move(weights), options);
    EXPECT_TRUE(model.ok()) << model.status();
    Losses sum;
    for (const ScoredText& text : texts) {
      sum.answers.add(loss_of(**model, text));
      sum.everything.add(loss_of(**model, {text.tokens}));
    }
    return sum;
  }
};

Bundled open_bundled(const std::string& name) {
  const std::string folder = std::string(SHOAL_SOURCE_DIR) + "/models/" + name;
  Bundled bundled{*open_checkpoint(folder), {}};
  const Json reference = *parse_json(*read_file(folder + "/reference_answers.json", 64u << 20));
  for (const Json& c : reference["greedy"]) {
    std::vector<TokenId> tokens = c["prompt_ids"].get<std::vector<TokenId>>();
    const size_t from = tokens.size();
    for (const Json& id : c["output_ids"]) tokens.push_back(id.get<TokenId>());
    bundled.texts.push_back({std::move(tokens), from});
  }
  return bundled;
}

void expect_near(const Losses& got, const Losses& want, const std::string& what) {
  ASSERT_GT(want.answers.tokens, 1000u);
  ASSERT_GT(want.answers.mean(), 0.005);
  const double perplexity = std::exp(got.answers.mean() - want.answers.mean()) - 1;
  const double loss = got.everything.mean() / want.everything.mean() - 1;
  std::printf("  %-32s answers: loss %.5f, perplexity %+.4f %%; everything: loss %.5f, %+.3f %%\n", what.c_str(), got.answers.mean(),
              100 * perplexity, got.everything.mean(), 100 * loss);
  EXPECT_LT(std::fabs(perplexity), kBound) << what;
  EXPECT_LT(std::fabs(loss), kBound) << what;
}

TEST(QualityTest, EightBitWeightsLoseLessThanHalfAPercent) {
  for (const char* name : {"tiny-llama", "tiny-qwen3"}) {
    const Bundled bundled = open_bundled(name);
    const Losses exact = bundled.loss(bundled.checkpoint, {});
    expect_near(bundled.loss(bundled.checkpoint, {.quantization = Quantization::kQ8_0}), exact, std::string(name) + " q8_0");
  }
}

TEST(QualityTest, Int8ArithmeticLosesLessThanHalfAPercentBeyondTheQuantiser) {
  for (const char* name : {"tiny-llama", "tiny-qwen3"}) {
    const Bundled bundled = open_bundled(name);
    for (const Quantization quantization : {Quantization::kQ8_0, Quantization::kQ4_0}) {
      const DequantisedCheckpoint numbers(*bundled.checkpoint, quantization);
      const LoadOptions quantized{.quantization = quantization, .kv_type = KvType::kF32};
      expect_near(bundled.loss(bundled.checkpoint, quantized), bundled.loss(numbers.get(), {}),
                  std::string(name) + (quantization == Quantization::kQ8_0 ? " q8_0" : " q4_0") + " against its numbers");
    }
  }
}

TEST(QualityTest, EveryKvTypeLosesLessThanHalfAPercent) {
  for (const char* name : {"tiny-llama", "tiny-qwen3"}) {
    const Bundled bundled = open_bundled(name);
    const Losses exact = bundled.loss(bundled.checkpoint, {.kv_type = KvType::kF32});
    for (auto [type, word] : {std::pair{KvType::kF16, " f16"}, {KvType::kBF16, " bf16"}, {KvType::kQ8_0, " q8_0"}}) {
      expect_near(bundled.loss(bundled.checkpoint, {.kv_type = type}), exact, std::string(name) + " KV" + word);
    }
  }
}

}  // namespace
}  // namespace shoal
