// Fits of the published profiles against the coefficients that the digest of them gives.
#include "sim/costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "absl/strings/str_cat.h"
#include "base/json.h"

namespace shoal {
namespace {

constexpr char kHeader[] = "model,gpu,prompt_tokens_per_request,batch_size,prefill_ms,decode_step_ms\n";

TEST(Costs, APlaneIsFoundExactly) {
  std::vector<Sample> samples;
  for (double a : {1.0, 2.0, 5.0, 9.0}) {
    for (double b : {1.0, 3.0, 4.0}) samples.push_back({a * 1000, b, 0.5 + 0.002 * a * 1000 + 0.25 * b});
  }
  const auto x = fit_plane(samples);
  EXPECT_NEAR(x[0], 0.5, 1e-9);
  EXPECT_NEAR(x[1], 0.002, 1e-12);
  EXPECT_NEAR(x[2], 0.25, 1e-9);
}

TEST(Costs, ATermThatWouldBeNegativeIsLeftOut) {
  const std::vector<Sample> samples = {{1, 0, 3}, {2, 0, 2}, {3, 0, 1}};
  const auto x = fit_plane(samples);
  EXPECT_NEAR(x[0], 2, 1e-9);
  EXPECT_EQ(x[1], 0);
}

TEST(Costs, ProfilesThatCannotBeReadNameTheLine) {
  const auto message = [](const std::string& csv) { return std::string(CostTable::fit(csv).status().message()); };
  EXPECT_THAT(message("a,b\n"), testing::HasSubstr("line 1"));
  EXPECT_THAT(message(std::string(kHeader) + "m,g,16,1,1.0\n"), testing::HasSubstr("line 2: has 5 of 6 cells"));
  EXPECT_THAT(message(std::string(kHeader) + "m,g,16,1,1.0,nan\n"), testing::HasSubstr("line 2: 'nan' is not a positive number"));
  EXPECT_THAT(message(std::string(kHeader) + "m,g,16,1,1.0,1.0\n"), testing::HasSubstr("it needs 3"));
  EXPECT_THAT(message(kHeader), testing::HasSubstr("no profile"));
}

// What is arithmetic or reading is shared, launches are not, and exchanges come on top.
TEST(Costs, AGangSharesTheWorkAndPaysForItsExchanges) {
  const Hardware& device = *find_hardware("H800");
  const ModelShape& model = *find_model_shape("qwen2_72b");
  StepCost alone = roofline(model, device);
  alone.decode_by_sequences = {{1, 0.08}, {8, 0.09}};
  const StepCost gang = tensor_cost(model, device, alone, 4);
  const double read = alone.decode_seconds - 0.005;
  EXPECT_GT(gang.decode_seconds, 0.005 + read / 4);
  EXPECT_LT(gang.decode_seconds, 0.005 + read / 4 + 0.003);  // some 140 exchanges of 15 us
  EXPECT_NEAR(gang.decode_context_seconds, alone.decode_context_seconds / 4, 1e-15);
  EXPECT_GT(gang.prefill_token_seconds, alone.prefill_token_seconds / 4);
  EXPECT_LT(gang.prefill_token_seconds, alone.prefill_token_seconds / 2);
  EXPECT_LT(gang.decode_by_sequences[0].second, 0.08);
  EXPECT_LT(gang.decode_by_sequences[0].second, gang.decode_by_sequences[1].second);
  EXPECT_EQ(tensor_cost(model, device, alone, 1).decode_seconds, alone.decode_seconds);
  EXPECT_EQ(tensor_gang(device, 4).memory_bytes, 4 * device.memory_bytes);
  StepCost slower = alone;  // than the roofline: what it does not explain is not shared
  slower.decode_seconds += 1;
  EXPECT_NEAR(tensor_cost(model, device, slower, 4).decode_seconds, gang.decode_seconds + 1, 1e-9);
}

TEST(Costs, ShapesOfOtherModelsAreRead) {
  const std::string header = "name,parameters,weight_bytes,kv_bytes_per_token,max_len\n";
  const auto shapes = parse_model_shapes(header + "mine,1e9,2000000000,65536,4096\n");
  ASSERT_TRUE(shapes.ok()) << shapes.status();
  EXPECT_EQ(shapes->at(0).name, "mine");
  EXPECT_EQ(shapes->at(0).weight_bytes, 2000000000u);
  EXPECT_THAT(std::string(parse_model_shapes(header + "mine,0,1,1,1\n").status().message()), testing::HasSubstr("line 2: '0' is not a positive"));
}

TEST(Costs, AChunkedPromptCostsWhatTheWholeOneDoesAndOneMoreReadOfTheWeights) {
  const StepCost cost{0.005, 2e-5, 1e-9, 0.008, 1e-7, 1e-4};
  const auto step = [&](uint32_t begin, uint32_t end) {
    StepInput input;
    StepSlice slice;
    slice.begin = begin;
    slice.tokens.resize(end - begin);
    input.slices.push_back(slice);
    return to_seconds(cost.of(input));
  };
  EXPECT_NEAR(step(0, 1000), 0.005 + 0.02 + 0.001, 1e-8);
  EXPECT_NEAR(step(0, 400) + step(400, 1000), step(0, 1000) + 0.005, 1e-8);
  EXPECT_NEAR(step(999, 1000), 0.008 + 1e-4 + 1e-4, 1e-8);
}

TEST(Costs, TheRooflineIsWithinAFactorOfTwoOfWhatWasMeasured) {
  const StepCost h800 = roofline(*find_model_shape("qwen2_5_7b"), *find_hardware("H800"));
  EXPECT_GT(h800.decode_seconds, 0.00849 / 2);
  EXPECT_LT(h800.decode_seconds, 0.00849 * 2);
  EXPECT_GT(h800.prefill_token_seconds, 21.86e-6 / 2);
  EXPECT_LT(h800.prefill_token_seconds, 21.86e-6 * 2);
}

// The digest's leading terms, and what was measured: prefills of 1 x 1024 and 1 x 2048, decodes of 1 x 1024, 16 x 128 and
// 100 x 16 tokens.
struct Expected {
  const char *model, *gpu;
  double prefill_us_per_token, decode_ms, prefill_1024, prefill_2048, decode_1, decode_16, decode_100;
};
constexpr Expected kExpected[] = {{"qwen2_5_7b", "H800", 21.86, 8.49, 25.6, 49.6, 9.3, 10.0, 17.6},
                                  {"yi1_5_9b_chat", "H800", 28.75, 11.70, 32.8, 65.1, 11.9, 13.2, 21.1},
                                  {"llama2_13b_chat", "H800", 44.51, 12.93, 48.5, 101.2, 14.4, 16.3, 27.4},
                                  {"qwen2_5_7b", "H100", 21.10, 8.99, 25.0, 48.3, 9.0, 10.5, 17.1},
                                  {"llama2_13b_chat", "H20", 187.9, 21.80, 217.4, 419.9, 22.9, 26.3, 51.7},
                                  {"qwen2_5_7b", "A100", 57.96, 12.52, 65.3, 128.0, 13.4, 15.0, 25.1},
                                  {"llama2_13b_chat", "A100", 118.6, 20.37, 140.5, 256.8, 21.2, 24.8, 40.7},
                                  {"qwen2_5_7b", "A10", 215.4, 34.01, 237.3, 461.2, 34.5, 37.0, 50.7},
                                  {"yi1_5_6b_chat", "A10", 168.4, 28.43, 182.0, 367.4, 27.5, 32.5, 42.7}};

double prefill_ms(const StepCost& c, double length) {
  return 1e3 * (c.prefill_seconds + c.prefill_token_seconds * length + c.prefill_square_seconds * length * length);
}
double decode_ms(const StepCost& c, double length, double batch) {
  return 1e3 * (c.decode_seconds + c.decode_context_seconds * length * batch + c.decode_sequence_seconds * batch);
}

TEST(Costs, FitsOfThePublishedProfilesPredictWhatWasMeasured) {
  const auto csv = read_file(SHOAL_SHARED_DIR "/data/pooling/step_profiles.csv", 16 << 20);
  if (!csv.ok()) GTEST_SKIP() << "no published profiles here";
  const auto table = CostTable::fit(*csv);
  ASSERT_TRUE(table.ok()) << table.status();
  for (const Expected& e : kExpected) {
    const FittedCost* fitted = table->find(e.model, e.gpu);
    ASSERT_NE(fitted, nullptr) << e.model << " " << e.gpu;
    const StepCost& c = fitted->cost;
    EXPECT_NEAR(c.prefill_token_seconds * 1e6, e.prefill_us_per_token, 0.04 * e.prefill_us_per_token) << e.model << " " << e.gpu;
    EXPECT_NEAR(c.decode_seconds * 1e3, e.decode_ms, 0.02 * e.decode_ms) << e.model << " " << e.gpu;
    EXPECT_NEAR(prefill_ms(c, 1024), e.prefill_1024, 0.14 * e.prefill_1024) << e.model << " " << e.gpu;
    EXPECT_NEAR(prefill_ms(c, 2048), e.prefill_2048, 0.06 * e.prefill_2048) << e.model << " " << e.gpu;
    EXPECT_NEAR(decode_ms(c, 1024, 1), e.decode_1, 0.1 * e.decode_1) << e.model << " " << e.gpu;
    EXPECT_NEAR(decode_ms(c, 128, 16), e.decode_16, 0.1 * e.decode_16) << e.model << " " << e.gpu;
    EXPECT_NEAR(decode_ms(c, 16, 100), e.decode_100, 0.09 * e.decode_100) << e.model << " " << e.gpu;
    EXPECT_GT(fitted->quality.r2_prefill, 0.98) << e.model << " " << e.gpu;
    EXPECT_GT(fitted->quality.r2_decode, 0.8) << e.model << " " << e.gpu;
  }
}

// What was fitted to steps that were seen predicts others, can be written, and read again.
TEST(SeenSteps, AFitOfThemPredictsOthersAndSurvivesAFile) {
  const StepCost truth{0.004, 3e-5, 1e-9, 0.009, 2e-7, 1e-4};
  const auto step = [](uint32_t sequences, uint32_t begin, uint32_t tokens) {
    StepInput input;
    for (uint32_t i = 0; i < sequences; ++i) {
      StepSlice& slice = input.slices.emplace_back();
      slice.begin = begin;
      slice.tokens.resize(tokens);
    }
    return input;
  };
  SeenSteps seen;
  EXPECT_FALSE(seen.fit().ok());
  for (uint32_t i = 0; i < 60; ++i) {
    const StepInput prompt = step(1 + i % 3, 64 * (i % 5), 16 + 40 * (i % 7)), decode = step(1 + i % 8, 100 + 37 * i, 1);
    const double hiccup = i % 20 == 7 ? 5 : 1;  // the machine was elsewhere
    seen.add(prompt, hiccup * to_seconds(truth.of(prompt)));
    seen.add(decode, hiccup * to_seconds(truth.of(decode)));
  }
  const auto fitted = seen.fit();
  ASSERT_TRUE(fitted.ok()) << fitted.status();
  EXPECT_GT(fitted->quality.points_left_out, 0u);
  CostTable table;
  table.add("m", "cpu", *fitted);
  const auto again = CostTable::fit(table.to_csv());
  ASSERT_TRUE(again.ok()) << again.status();
  for (const StepInput& input : {step(2, 0, 300), step(5, 900, 1)}) {
    EXPECT_NEAR(to_seconds(again->find("m", "cpu")->cost.of(input)), to_seconds(truth.of(input)), 0.02 * to_seconds(truth.of(input)));
  }
  for (const char* decodes : {"5,-6,", "0,0,", "5,6,1", "5,6,2:1 1:1", "5,6,1:-1", "5,6,1:1:1"}) {
    const std::string text = "model,gpu,prefill_s,prefill_token_s,prefill_square_s,decode_s,decode_context_s,decode_sequence_s,decode_by_sequences\nm,cpu,0.1,1,1,0,";
    EXPECT_FALSE(CostTable::fit(absl::StrCat(text, decodes, "\n")).ok()) << decodes;
  }
}

// Kernels that take rows by fours compute two sequences as slowly as four; no line says so.
TEST(SeenSteps, DecodesAreFittedToTheMeanForTheirNumberOfSequences) {
  const std::map<uint32_t, double> of = {{1, 0.005}, {2, 0.010}, {4, 0.011}, {8, 0.016}};
  const auto decode = [](uint32_t sequences, uint32_t context) {
    StepInput input;
    for (uint32_t i = 0; i < sequences; ++i) {
      StepSlice& slice = input.slices.emplace_back();
      slice.begin = context - 1;
      slice.tokens.resize(1);
    }
    return input;
  };
  SeenSteps seen;
  for (uint32_t i = 0; i < 40; ++i) {
    StepInput prompt = decode(1, 1);
    prompt.slices[0].tokens.resize(10 + i);
    seen.add(prompt, 0.005 + 0.001 * i);
    // Every other step is slow by a fifth, and the mean is what counts.
    for (const auto& [n, seconds] : of) seen.add(decode(n, 100 + 50 * (i / 2)), (i % 2 == 0 ? 0.9 : 1.1) * (seconds + n * 1e-6 * (100 + 50 * (i / 2))));
  }
  const auto fitted = seen.fit();
  ASSERT_TRUE(fitted.ok()) << fitted.status();
  const StepCost& cost = fitted->cost;
  const auto bare = [&](uint32_t n) { return to_seconds(cost.of(decode(n, 2))); };
  for (const auto& [n, seconds] : of) EXPECT_NEAR(bare(n), seconds, 0.02 * seconds) << n;
  EXPECT_NEAR(bare(3), 0.0105, 0.0003);                                             // between two that were seen
  EXPECT_NEAR(bare(12), bare(8) + 4 * cost.decode_sequence_seconds, 3e-5);          // beyond them
  EXPECT_NEAR(to_seconds(cost.of(decode(4, 5002))) - bare(4), 4 * 5000e-6, 0.001);  // context
}

}  // namespace
}  // namespace shoal
