// The promise of Model::begin: a sequence's logits are the same bits alone or in company, however its tokens are cut into
// steps, with any number of threads and on any vector width.
#include "kernels/cpu/targets.h"

#include <bit>
#include <numeric>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hwy/highway.h"
#include "kernels/kernels.h"
#include "models/random_checkpoint.h"
#include "models/test_runner.h"

namespace shoal {
namespace {

constexpr Architecture kArchitectures[] = {Architecture::kLlama,  Architecture::kMistral, Architecture::kQwen2, Architecture::kQwen3,
                                         Architecture::kGemma2, Architecture::kGemma3,  Architecture::kPhi3,
                                         Architecture::kQwen2Moe, Architecture::kGlm4Moe, Architecture::kDeepseekV3, Architecture::kErnie45Moe, Architecture::kMiniMaxM2, Architecture::kGptOss, Architecture::kLlama4, Architecture::kLongcatFlash,
                                         Architecture::kSmolLm3, Architecture::kErnie45, Architecture::kGraniteHybrid, Architecture::kHunyuanDense,
                                         Architecture::kMinistral3, Architecture::kGlm4, Architecture::kOlmo3, Architecture::kExaone4,
                                         Architecture::kCohere2, Architecture::kGemma4, Architecture::kMiMoV2, Architecture::kQwen3Next, Architecture::kQwen35,
                                         Architecture::kNemotronH, Architecture::kFalconH1, Architecture::kLfm2Moe, Architecture::kKimiLinear, Architecture::kDeepseekV32};

struct Variant {
  DType dtype;
  Quantization quantization;
};
constexpr Variant kVariants[] = {
    {DType::kF32, Quantization::kNone}, {DType::kBF16, Quantization::kNone}, {DType::kBF16, Quantization::kQ8_0}, {DType::kF32, Quantization::kQ4_0}};

std::vector<TokenId> random_prompt(uint64_t seed, size_t length, uint32_t vocab) {
  Rng rng(seed);
  std::vector<TokenId> tokens(length);
  for (TokenId& token : tokens) token = static_cast<TokenId>(rng.below(vocab));
  return tokens;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](float x, float y) {
           return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y);
         });
}

// Calls test(name, checkpoint, options) for every architecture and precision.
template <typename Test>
void for_each_model(const Test& test) {
  for (Architecture architecture : kArchitectures) {
    for (const Variant& variant : kVariants) {
      const ModelConfig config = small_config(architecture);
      const RandomCheckpoint checkpoint(config, variant.dtype, 7);
      SCOPED_TRACE(absl::StrCat(architecture_name(architecture), " ", dtype_name(variant.dtype), " quantisation ",
                                static_cast<int>(variant.quantization)));
      test(checkpoint.get(), LoadOptions{.quantization = variant.quantization}, config.vocab_size);
    }
  }
}

std::unique_ptr<TestModel> open(const std::shared_ptr<const Checkpoint>& checkpoint, const LoadOptions& options, int threads) {
  auto model = TestModel::open(checkpoint, options, threads);
  EXPECT_TRUE(model.ok()) << model.status();
  return *std::move(model);
}

constexpr size_t kPromptTokens = 90;

// Per architecture, per variant.
constexpr const char* kGoldens[] = {
    "6e22e9c7d6b46b69", "5997e4cf1f59cca5", "d782c1a86de8169d", "8ab7472313e219b5",  // llama
    "ecb96bf4d54f7d8d", "b6a34cd8cf424225", "dfd140f84f2b2336", "bd10ceab2da98aec",  // mistral
    "ca5fae4d6f917527", "3a3aa89d28be9b3d", "ef0259b7ff8bd000", "4be30782b725af87",  // qwen2
    "771f332a60807a00", "f5bf519488441cbd", "cef61ab47027c3fa", "a76f649861c33a0",  // qwen3
    "d3c3ac7a6ebcb1c8", "267b5fd502ba7c06", "f69e265dfba3e70", "379c41df1c69d35e",  // gemma2
    "77713cc0c61290a8", "86fc18ae3e3d9d51", "cc2673814cbbe741", "c55dff1b9fbef29f",  // gemma3
    "6e22e9c7d6b46b69", "5997e4cf1f59cca5", "d782c1a86de8169d", "8ab7472313e219b5",  // phi3
    "f199e6944ae45d05", "dd4d7baaf2b52f40", "e004eec080dc77e0", "69b3124dc1b689d",   // qwen2moe
    "bdcc109d3763ae75", "5e7ec9110edf7b34", "7baf2225dc2ab7fc", "523ce7d491897032",  // glm4moe
    "7007599058c29134", "3ead5a52cf5b2480", "219f19c8d00539b", "d455f297c84345b2",   // deepseek3
    "f1e8eea63c0dea0c", "de04c98739f34b59", "7ff8336cc59df946", "6979bac275a88241",  // ernie4_5-moe
    "6eb44302f0608835", "bd73da1fb0aa9282", "2aede984e3e1a7c5", "7123823cebfb3459",  // minimax-m2
    "ae9d376d66fab645", "e692fe05d1e67856", "b0f2d0c6fac26cf2", "f0cd9939688c20cf",  // gpt-oss
    "c1746828556f033b", "847a86346fc91c8b", "fb7e7b7bc8dc6ab2", "99d23629e222e2da",  // llama4
    "c1c11a41a4eb4f2", "76d4ee26f66db2b0", "9d3c577703d076eb", "71754961b0bc67a0",  // longcat-flash
    "a0e318b9110c8751", "406f9a8253cb17b", "8c58c56ee56bb848", "3e8a061ab7122706",  // smollm3
    "239cba5cc7684161", "aa630ffb780b76e", "be685e65f3456a2d", "10f0f568ff3bd202",  // ernie4_5
    "3a7d0be2a39ebf6", "57dd05d6509b9432", "25b4292aceaedac2", "14ac174422d12f4e",  // granitehybrid
    "7d595b585a528f18", "e225f825fb160750", "a7a0822b486ef150", "ce782cd67de55e7b",  // hunyuan-dense
    "422564d66786b981", "81ba388e6af249d0", "b78d8774d5f1da17", "154055babc0baa89",  // mistral3
    "5843e4958217ecc", "7b1366bb3559bc41", "de963a7bc4936621", "a8e6aa1f1da86bf1",  // glm4
    "4cbb7ddf71e4c8bb", "13a1aa38d8bc48d8", "f67a3fd4061352a6", "7196e1de6ef224c4",  // olmo3
    "88b22528a417dca4", "f697849fbd134cc4", "c610c3ddf9e81f65", "d72e06c97e01285",  // exaone4
    "fe7704beb97dfcdd", "d2d2e56cb00925cc", "87fc35b805f1a611", "3a70970247c359ae",  // cohere2
    "7885c8fdba1c61c0", "dcd28b0e8d61d8cf", "96402e41b6d640e5", "7bfe41d487dcc73f",  // gemma4
    "a3b3390407c432da", "33e87a1f887ad58d", "680eba0eb5bdae8", "cdcd62e7c57667bf",   // mimo2
    "d4c2b79b7358a9", "4c7a933ddd935f03", "18e366cb68bee01c", "484717c03d4cc643",    // qwen3next
    "f2a78a911490eca0", "95cab227b09783f6", "a8373a5bb73932a1", "f55a3261878fdbc5",  // qwen35
    "9b1657a70a004956", "2ec34ca5e163031a", "a16587dba020a699", "5e7cdf90738fbb59",  // nemotron_h
    "24ef5ed2fda561e6", "36f2c3e1d97718b7", "2b2d36c5739da800", "bce1331db7381e9c",  // falcon-h1
    "7de6c190c2e1b0d7", "33ea204470c3bec6", "46291e484a01d33c", "da3e5a977735f3d9",  // lfm2moe
    "b4c20204b3bdd61f", "306289fb0d53dc52", "595930123066856e", "9be66f16a7cb0935",  // kimi-linear
    "20ccc8b20f111c5c", "bd47c0ccf09637f2", "66e1eb31f94aad0c", "205c7346f8afe46a",  // deepseek32
};

// Logits after the prompt and after three more tokens.
std::vector<float> run_alone(TestModel& model, const std::vector<TokenId>& prompt, uint32_t chunk) {
  TestSequence sequence(model, prompt);
  std::vector<float> all = sequence.prefill(chunk);
  for (TokenId token : {5, 77, 190}) {
    const auto logits = sequence.step(token);
    all.insert(all.end(), logits.begin(), logits.end());
  }
  return all;
}

// The bits themselves, as a hash: what one machine computed is what every machine computes. They change only with the
// order of a sum, and then sequences cannot move between versions: say so in the commit.
TEST(DeterminismTest, BitsAreThoseOfEveryMachine) {
  size_t index = 0;
  for_each_model([&](const auto& checkpoint, const LoadOptions& options, uint32_t vocab) {
    uint64_t hash = 1469598103934665603ull;
    for (float v : run_alone(*open(checkpoint, options, 1), random_prompt(9, kPromptTokens, vocab), 0)) {
      hash = (hash ^ std::bit_cast<uint32_t>(v)) * 1099511628211ull;
    }
    ASSERT_LT(index, std::size(kGoldens));
    EXPECT_EQ(absl::StrCat(absl::Hex(hash)), kGoldens[index++]);
  });
  EXPECT_EQ(index, std::size(kGoldens));
}

TEST(DeterminismTest, BitsDoNotDependOnHowThePromptIsCut) {
  for_each_model([](const auto& checkpoint, const LoadOptions& options, uint32_t vocab) {
    const auto model = open(checkpoint, options, 2);
    const auto prompt = random_prompt(1, kPromptTokens, vocab);
    const auto want = run_alone(*model, prompt, 0);
    for (float v : want) ASSERT_TRUE(std::isfinite(v));
    for (uint32_t chunk : {1, 5, 16, 33}) EXPECT_TRUE(same_bits(run_alone(*model, prompt, chunk), want)) << chunk;
  });
}

TEST(DeterminismTest, BitsDoNotDependOnWhichRowsAreAskedFor) {
  for_each_model([](const auto& checkpoint, const LoadOptions& options, uint32_t vocab) {
    const auto model = open(checkpoint, options, 2);
    constexpr uint32_t kRows[] = {kPromptTokens, 33};
    std::vector<uint32_t> all(kRows[0] + kRows[1]);
    std::iota(all.begin(), all.end(), 0);
    std::vector<float> want;
    for (const std::vector<uint32_t>& asked : {all, {122, 3, 4, 5, 89, 4, 90, 121}, {17}, {}}) {
      TestSequence first(*model, random_prompt(5, kPromptTokens, vocab)), second(*model, random_prompt(6, kRows[1] + 1, vocab));
      const SequenceSlice slices[] = {first.slice(kRows[0]), second.slice(kRows[1])};
      std::vector<TokenId> tokens(first.next(kRows[0]).begin(), first.next(kRows[0]).end());
      tokens.insert(tokens.end(), second.next(kRows[1]).begin(), second.next(kRows[1]).end());
      const auto logits = model->forward(tokens, slices, asked);
      second.advance(kRows[1]);
      const auto after = second.prefill();
      if (want.empty()) want = logits, want.insert(want.end(), after.begin(), after.end());
      const auto row = [&](uint32_t at) { return std::vector<float>(want.begin() + at * vocab, want.begin() + (at + 1) * vocab); };
      for (size_t i = 0; i < asked.size(); ++i) {
        EXPECT_TRUE(same_bits({logits.begin() + i * vocab, logits.begin() + (i + 1) * vocab}, row(asked[i]))) << asked.size() << ": " << asked[i];
      }
      EXPECT_TRUE(same_bits(after, row(static_cast<uint32_t>(all.size())))) << "what was stored, " << asked.size() << " asked for";
    }
  });
}

TEST(DeterminismTest, BitsAreThoseOfAStateThatWasKeptOnTheWay) {
  for_each_model([](const auto& checkpoint, const LoadOptions& options, uint32_t vocab) {
    const auto model = open(checkpoint, options, 2);
    if (model->plan().state_blocks() == 0) return;
    const auto prompt = random_prompt(4, kPromptTokens, vocab);
    const uint32_t last = kPromptTokens - 1;
    for (const uint32_t kept : {16u, 37u, 48u, 63u, 80u}) {
      TestSequence sequence(*model, prompt);
      const SequenceSlice whole = sequence.slice_keeping(kPromptTokens, kept);
      const auto want = model->forward(sequence.next(kPromptTokens), {&whole, 1}, {&last, 1});
      EXPECT_TRUE(same_bits(want, TestSequence(*model, prompt).prefill())) << "to keep one changes nothing";
      sequence.go_back_to(kept);
      EXPECT_TRUE(same_bits(sequence.prefill(7), want)) << kept;
    }
  });
}

TEST(DeterminismTest, BitsDoNotDependOnTheNumberOfThreads) {
  for_each_model([](const auto& checkpoint, const LoadOptions& options, uint32_t vocab) {
    const auto prompt = random_prompt(2, kPromptTokens, vocab);
    const auto want = run_alone(*open(checkpoint, options, 1), prompt, 0);
    for (int threads : {2, 3}) EXPECT_TRUE(same_bits(run_alone(*open(checkpoint, options, threads), prompt, 0), want)) << threads;
  });
}

TEST(DeterminismTest, BitsDoNotDependOnHowMuchOfTheWeightsIsPacked) {
  for_each_model([](const auto& checkpoint, const LoadOptions& options, uint32_t vocab) {
    const auto prompt = random_prompt(2, kPromptTokens, vocab);
    const auto want = run_alone(*open(checkpoint, options, 1), prompt, 0);
    int calls = 0;
    const auto model = TestModel::open_early(checkpoint, options, [&](TestModel& early) {
      if (calls++ % 7 != 0) return;
      EXPECT_TRUE(same_bits(run_alone(early, prompt, 0), want)) << "before piece " << calls - 1;
    });
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_GE(calls, 10);
    EXPECT_TRUE(same_bits(run_alone(**model, prompt, 0), want)) << "when all is packed";
  });
}

// Of weights that are there already from an earlier load, as a pool leaves them of a model that was dropped.
TEST(DeterminismTest, BitsDoNotDependOnWhatALoadFindsInItsPlace) {
  for_each_model([](const auto& checkpoint, const LoadOptions& options, uint32_t vocab) {
    const auto prompt = random_prompt(2, kPromptTokens, vocab);
    const auto model = open(checkpoint, options, 2);
    const auto want = run_alone(*model, prompt, 0);
    const uint64_t bytes = (*plan_model(checkpoint, options))->weight_bytes();
    const std::vector<std::vector<ByteRange>> cases = {
        {{0, bytes}}, {{0, bytes / 2}}, {{bytes / 3, bytes}}, {{bytes / 7, bytes / 3}, {bytes / 2, bytes * 3 / 4}}, {}};
    for (const auto& present : cases) {
      const auto written = model->load_again(present);
      ASSERT_TRUE(written.ok()) << written.status();
      if (present.size() == 1 && present[0].begin == 0 && present[0].end == bytes) EXPECT_EQ(*written, 0u);
      else EXPECT_GT(*written, 0u);
      EXPECT_TRUE(same_bits(run_alone(*model, prompt, 0), want)) << *written << " of " << bytes << " bytes written";
    }
  });
}

// And of what a load has brought that was called off on its way.
TEST(DeterminismTest, BitsDoNotDependOnWhereALoadWasCalledOff) {
  for_each_model([](const auto& checkpoint, const LoadOptions& options, uint32_t vocab) {
    const auto prompt = random_prompt(2, kPromptTokens, vocab);
    const auto model = open(checkpoint, options, 2);
    const auto want = run_alone(*model, prompt, 0);
    const uint64_t all = *model->load_again({});
    for (const int threads : {1, 2}) {
      uint64_t before = all + 1;
      int stages = 0;
      for (int pieces = 0;; pieces = 2 * pieces + 1) {
        const auto whole = model->load_called_off(pieces, threads);
        if (whole.status().code() == StatusCode::kOutOfRange) break;
        ASSERT_TRUE(whole.ok()) << whole.status();
        const auto written = model->load_again(*whole);
        ASSERT_TRUE(written.ok()) << written.status();
        EXPECT_LE(*written, all);
        if (threads == 1 && pieces > 4) EXPECT_LT(*written, before) << "the later it was called off, the less is missing";
        before = *written;
        ++stages;
        EXPECT_TRUE(same_bits(run_alone(*model, prompt, 0), want)) << "called off before piece " << pieces << " by " << threads << " threads";
      }
      if (threads == 1) EXPECT_GE(stages, 3);
    }
  });
}

// What run_alone() says, of a sequence that is given up on the way and computed once more, in chunks beside two others.
std::vector<float> run_in_company(TestModel& model, std::vector<TokenId> tokens, uint32_t vocab) {
  const uint32_t prompt = kPromptTokens, given_up = 48;
  tokens.insert(tokens.end(), {5, 77, 190});
  std::vector<TestSequence> sequences;
  for (const auto& all : {tokens, random_prompt(31, 100, vocab), random_prompt(32, 100, vocab)}) sequences.emplace_back(model, all);
  std::vector<float> logits;
  bool again = false;
  for (uint32_t done = 0; done < tokens.size();) {
    const uint32_t rows[] = {done < prompt ? std::min(16u, prompt - done) : 1, 3, 1};
    std::vector<TokenId> step;
    std::vector<SequenceSlice> slices;
    for (size_t s = 0; s < std::size(rows); ++s) {
      const auto next = sequences[s].next(rows[s]);
      step.insert(step.end(), next.begin(), next.end());
      slices.push_back(sequences[s].slice(rows[s]));
    }
    const uint32_t last = rows[0] - 1;
    const auto row = model.forward(step, slices, {&last, 1});
    for (size_t s = 0; s < std::size(rows); ++s) sequences[s].advance(rows[s]);
    done += rows[0];
    if (done >= prompt) logits.insert(logits.end(), row.begin(), row.end());
    if (done != given_up || std::exchange(again, true)) continue;
    std::destroy_at(&sequences[0]);
    std::construct_at(&sequences[0], model, tokens);
    done = 0;
  }
  return logits;
}

// Memory that is less than the whole ends within that of the whole: nothing beyond is written.
void expect_same_bits_in(uint64_t memory, const RandomCheckpoint& checkpoint, const LoadOptions& options, const std::vector<TokenId>& prompt,
                         const std::vector<float>& want) {
  const ModelConfig& config = checkpoint.get()->config;
  const auto model = TestModel::load(*plan_model(checkpoint.get(), options), 3, memory);
  ASSERT_TRUE(model.ok()) << model.status();
  for (const uint32_t chunk : {0, 5}) EXPECT_TRUE(same_bits(run_alone(**model, prompt, chunk), want)) << chunk;
  EXPECT_TRUE(same_bits(run_in_company(**model, prompt, config.vocab_size), want));
  const ExpertCounts counts = (*model)->model().expert_counts();
  EXPECT_LT(counts.hits, counts.lookups);
  EXPECT_GT(counts.hits, 0u);
  EXPECT_GT(counts.bytes_fetched, 0u);
  for (const float skew : counts.skew) EXPECT_GT(skew, 1.0f);
  const uint64_t least = (*model)->plan().least_weight_bytes();
  for (const uint64_t there : {memory, memory - (memory - least) / 2 - 1, least / 2}) {
    ASSERT_TRUE((*model)->load_again({{0, there}}, memory).ok());
    EXPECT_TRUE(same_bits(run_alone(**model, prompt, 0), want)) << there << " were there";
    if (there == memory) EXPECT_LT((*model)->model().expert_counts().bytes_fetched, counts.bytes_fetched) << "none is found in its slot";
  }
}

TEST(DeterminismTest, BitsDoNotDependOnHowManyExpertsAreInMemory) {
  for (const Architecture architecture : kArchitectures) {
    const ModelConfig config = repeated(small_config(architecture), 3);
    if (!config.experts) continue;
    for (const Variant& variant : {kVariants[1], kVariants[3]}) {
      const RandomCheckpoint checkpoint(config, variant.dtype, 77);
      const LoadOptions options{.quantization = variant.quantization};
      const auto prompt = random_prompt(2, kPromptTokens, config.vocab_size);
      const auto want = run_alone(*open(checkpoint.get(), options, 1), prompt, 0);
      const auto plan = *plan_model(checkpoint.get(), options);
      const uint64_t least = plan->least_weight_bytes(), whole = plan->weight_bytes();
      ASSERT_LT(least, whole);
      for (const uint64_t memory : {least, least + (whole - least) / 3, whole - 1}) {
        SCOPED_TRACE(absl::StrCat(architecture_name(architecture), " in ", memory, " of ", whole));
        expect_same_bits_in(memory, checkpoint, options, prompt, want);
      }
    }
  }
}

TEST(DeterminismTest, BitsDoNotDependOnTheVectorWidth) {
  for_each_model([](const auto& checkpoint, const LoadOptions& options, uint32_t vocab) {
    const auto prompt = random_prompt(3, kPromptTokens, vocab);
    const auto want = run_alone(*open(checkpoint, options, 2), prompt, 0);
    for (int64_t target : simd_targets()) {
      hwy::SetSupportedTargetsForTest(target);
      const auto model = open(checkpoint, options, 2);
      hwy::SetSupportedTargetsForTest(0);
      EXPECT_TRUE(same_bits(run_alone(*model, prompt, 7), want)) << hwy::TargetName(target & -target);
    }
  });
}

// Longer than two segments of attention, so that threads split the context where they have nothing else to split.
TEST(DeterminismTest, EveryKvTypeHasTheSameBitsInAnyChunksOnAnyThreadsAndVectorWidth) {
  for (Architecture architecture : {Architecture::kLlama, Architecture::kGemma2, Architecture::kDeepseekV3}) {
    const RandomCheckpoint checkpoint(small_config(architecture), DType::kBF16, 7);
    const auto prompt = random_prompt(6, 1100, 211);
    for (KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kQ8_0}) {
      SCOPED_TRACE(absl::StrCat(architecture_name(architecture), " KV ", static_cast<int>(type)));
      const LoadOptions options{.quantization = Quantization::kQ8_0, .kv_type = type};
      const auto want = run_alone(*open(checkpoint.get(), options, 1), prompt, 0);
      for (float v : want) ASSERT_TRUE(std::isfinite(v));
      EXPECT_TRUE(same_bits(run_alone(*open(checkpoint.get(), options, 2), prompt, 37), want));
      for (int64_t target : simd_targets()) {
        hwy::SetSupportedTargetsForTest(target);
        const auto model = open(checkpoint.get(), options, 5);
        hwy::SetSupportedTargetsForTest(0);
        EXPECT_TRUE(same_bits(run_alone(*model, prompt, 500), want)) << hwy::TargetName(target & -target);
      }
    }
  }
}

TEST(DeterminismTest, AMachineWithoutFmaComputesTheSameBits) {
  const RandomCheckpoint checkpoint(small_config(Architecture::kLlama), DType::kBF16, 7);
  const auto prompt = random_prompt(4, 20, 211);
  for (Quantization quantization : {Quantization::kNone, Quantization::kQ8_0}) {
    const LoadOptions options{.quantization = quantization};
    hwy::SetSupportedTargetsForTest(HWY_SCALAR | HWY_EMU128);
    EXPECT_STREQ(best_kernels().name, "scalar");
    const auto model = open(checkpoint.get(), options, 2);
    hwy::SetSupportedTargetsForTest(0);
    EXPECT_TRUE(same_bits(run_alone(*model, prompt, 7), run_alone(*open(checkpoint.get(), options, 2), prompt, 0)));
  }
}

TEST(DeterminismTest, BitsDoNotDependOnTheOtherSequencesOfABatch) {
  for_each_model([](const auto& checkpoint, const LoadOptions& options, uint32_t vocab) {
    const auto model = open(checkpoint, options, 2);
    constexpr size_t kSequences = 32;
    std::vector<TestSequence> sequences;
    std::vector<TokenId> tokens;
    std::vector<uint32_t> rows, logit_rows;
    for (size_t s = 0; s < kSequences; ++s) {  // prompts of 1..63 tokens, and sequences that only decode
      const auto prompt = random_prompt(s, 1 + 2 * s, vocab);
      rows.push_back(s % 3 == 0 ? 1 : static_cast<uint32_t>(prompt.size()));
      auto& sequence = sequences.emplace_back(*model, prompt);
      for (uint32_t done = 0; done + rows[s] < prompt.size(); ++done) {
        const SequenceSlice slice = sequence.slice(1);
        model->forward(sequence.next(1), {&slice, 1}, {});
        sequence.advance(1);
      }
      const auto next = sequence.next(rows[s]);
      tokens.insert(tokens.end(), next.begin(), next.end());
      logit_rows.push_back(static_cast<uint32_t>(tokens.size()) - 1);
    }
    std::vector<SequenceSlice> slices;
    for (size_t s = 0; s < kSequences; ++s) slices.push_back(sequences[s].slice(rows[s]));
    const auto together = model->forward(tokens, slices, logit_rows);
    for (size_t s = 0; s < kSequences; ++s) {
      const auto alone = TestSequence(*model, random_prompt(s, 1 + 2 * s, vocab)).prefill();
      const std::vector<float> mine(together.begin() + s * vocab, together.begin() + (s + 1) * vocab);
      EXPECT_TRUE(same_bits(mine, alone)) << "sequence " << s;
    }
  });
}

}  // namespace
}  // namespace shoal
