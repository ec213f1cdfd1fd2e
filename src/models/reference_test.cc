// Every architecture against the reference implementation's logits and greedy tokens, on the models of the shared folder.
#include <filesystem>
#include <set>
#include <string>

#include "base/check.h"
#include "base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/rope.h"
#include "models/test_runner.h"
#include "nlohmann/json.hpp"
#include "tensor/half.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;

constexpr double kLogitTolerance = 2e-4;  // of the range of the logits
constexpr double kMargin = 1e-3;          // of the range: below it either token is right

std::vector<std::string> reference_models() {
  const std::set<std::string> experts = {"mixtral", "qwen2-moe", "qwen3-moe", "deepseek-v2", "deepseek-v2-lite", "deepseek-v3",
                                         "deepseek-v3-yarn"};
  std::vector<std::string> names;
  const fs::path root = fs::path(SHOAL_SHARED_DIR) / "models/reference";
  if (!fs::exists(root)) return names;
  for (const auto& entry : fs::directory_iterator(root)) {
    const std::string name = entry.path().filename();
    if (!experts.contains(name)) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

struct Range {
  float low, high;
  double span() const { return high - low; }
};
Range range_of(const std::vector<float>& logits) {
  const auto [low, high] = std::minmax_element(logits.begin(), logits.end());
  return {*low, *high};
}

// Largest difference of the last logits over their range, for one case; checks the greedy continuation.
double check_case(TestModel& model, const Json& reference) {
  const auto prompt = reference["prompt"].get<std::vector<TokenId>>();
  const auto want = reference["last_logits"].get<std::vector<float>>();
  TestSequence sequence(model, prompt);
  std::vector<float> logits = sequence.prefill();
  const double span = range_of(want).span();
  double worst = 0;
  for (size_t i = 0; i < want.size(); ++i) worst = std::max(worst, std::fabs(double{want[i]} - logits[i]) / span);
  if (reference["greedy"].is_null()) return worst;
  const auto greedy = reference["greedy"].get<std::vector<TokenId>>();
  const auto margins = reference["greedy_margins"].get<std::vector<double>>();
  for (size_t i = 0; i < greedy.size(); ++i) {
    const TokenId token = argmax(logits);
    if (token != greedy[i]) {
      EXPECT_LT(margins[i], kMargin * span) << "token " << i << " of a prompt of " << prompt.size();
      break;
    }
    logits = sequence.step(token);
  }
  return worst;
}

// The reference of a model stored in bf16 was cast to bf16 as a whole and back, its rotary frequencies included; loading
// the same folder with from_pretrained keeps them in f32, as Shoal does. This gives the checkpoint the divisors that
// bring the frequencies of the reference about.
std::shared_ptr<const Checkpoint> with_rounded_frequencies(const Checkpoint& original, Tensor& divisors) {
  auto checkpoint = std::make_shared<Checkpoint>(original);
  RopeConfig& rope = checkpoint->config.rope;
  std::vector<float> exact(rope.dims / 2);
  rope_frequencies(rope, 0, exact.data());
  divisors = *Tensor::allocate(DType::kF32, Shape{exact.size()});
  float* out = reinterpret_cast<float*>(divisors.data());
  for (size_t i = 0; i < exact.size(); ++i) out[i] = exact[i] / f32_from_bf16(bf16_from_f32(exact[i]));
  rope.frequency_factors = true;
  CHECK(checkpoint->weights.add("rope_freqs.weight", divisors.view()).ok());
  return checkpoint;
}

TEST(ReferenceTest, LogitsAndGreedyTokensAreThoseOfTheReference) {
  const auto names = reference_models();
  if (names.empty()) GTEST_SKIP() << "no shared models at " << SHOAL_SHARED_DIR;
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    const std::string folder = std::string(SHOAL_SHARED_DIR) + "/models/reference/" + name;
    const Json reference = *parse_json(*read_file(folder + "/reference.json", 64u << 20));
    auto checkpoint = open_checkpoint(folder);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    Tensor divisors;
    if (reference["stored_dtype"] == "bfloat16") checkpoint = with_rounded_frequencies(**checkpoint, divisors);
    auto model = TestModel::open(*checkpoint, {});
    ASSERT_TRUE(model.ok()) << model.status();
    double worst = 0;
    for (const Json& c : reference["cases"]) worst = std::max(worst, check_case(**model, c));
    EXPECT_LT(worst, kLogitTolerance);
    RecordProperty(name, std::to_string(worst));
    std::printf("  %-22s worst error / range %.7f\n", name.c_str(), worst);
  }
}

TEST(ReferenceTest, GgufFilesAreNoWorseThanAFifthAboveLlamaCpp) {
  const fs::path root = fs::path(SHOAL_SHARED_DIR) / "models/gguf";
  if (!fs::exists(root)) GTEST_SKIP() << "no shared models at " << SHOAL_SHARED_DIR;
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(root)) {
    if (entry.path().extension() == ".gguf") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) {
    SCOPED_TRACE(file.filename().string());
    auto model = TestModel::open(file, {});
    if (model.status().code() == StatusCode::kUnimplemented) {  // by name: experts are not served yet
      EXPECT_THAT(std::string(model.status().message()), testing::AnyOf(testing::HasSubstr("experts"), testing::HasSubstr("deepseek2")));
      continue;
    }
    ASSERT_TRUE(model.ok()) << model.status();
    const Json reference = *parse_json(*read_file(fs::path(file).replace_extension(".json"), 64u << 20));
    double mean = 0, worst = 0, peer = 0;
    for (const Json& c : reference["cases"]) {
      const auto want = c["last_logits"].get<std::vector<float>>();
      const std::vector<float> got = TestSequence(**model, c["prompt"].get<std::vector<TokenId>>()).prefill();
      double error = 0;
      for (size_t i = 0; i < want.size(); ++i) error = std::max(error, std::fabs(double{want[i]} - got[i]) / range_of(want).span());
      mean += error / reference["cases"].size();
      worst = std::max(worst, error);
    }
    for (double e : reference["llama_cpp_error_over_range"].get<std::vector<double>>()) {
      peer += e / reference["llama_cpp_error_over_range"].size();
    }
    std::printf("  %-20s error / range mean %.5f worst %.5f, llama.cpp mean %.5f\n", file.stem().c_str(), mean, worst, peer);
    EXPECT_LE(mean, std::max(1.2 * peer, 2e-3));
    EXPECT_LT(worst, 0.08);
  }
}

TEST(ReferenceTest, TrainedModelsSayWhatTheReferenceSays) {
  for (const char* name : {"tiny-llama", "tiny-qwen3"}) {
    const std::string folder = std::string(SHOAL_SHARED_DIR) + "/models/" + name;
    if (!fs::exists(folder)) GTEST_SKIP() << "no shared models at " << SHOAL_SHARED_DIR;
    auto model = TestModel::open(folder, {});
    ASSERT_TRUE(model.ok()) << model.status();
    const Json reference = *parse_json(*read_file(folder + "/reference_answers.json", 64u << 20));
    int same = 0;
    for (const Json& c : reference["greedy"]) {
      TestSequence sequence(**model, c["prompt_ids"].get<std::vector<TokenId>>());
      std::vector<float> logits = sequence.prefill();
      bool equal = true;
      for (TokenId token : c["output_ids"].get<std::vector<TokenId>>()) {
        equal &= argmax(logits) == token;
        logits = sequence.step(token);
      }
      same += equal;
    }
    std::printf("  %s: %d of %zu answers token for token\n", name, same, reference["greedy"].size());
    EXPECT_GE(same, 198);
  }
}

TEST(ReferenceTest, QuantisedAtLoadStaysNearTheReference) {
  const std::string folder = std::string(SHOAL_SHARED_DIR) + "/models/tiny-llama";
  if (!fs::exists(folder)) GTEST_SKIP() << "no shared models at " << SHOAL_SHARED_DIR;
  const std::vector<TokenId> prompt = {1, 17, 300, 42, 511, 90, 4};
  auto exact = TestModel::open(folder, {});
  ASSERT_TRUE(exact.ok()) << exact.status();
  const std::vector<float> want = TestSequence(**exact, prompt).prefill();
  for (auto [quantization, tolerance] : {std::pair{Quantization::kQ8_0, 0.02}, std::pair{Quantization::kQ4_0, 0.25}}) {
    auto model = TestModel::open(folder, {.quantization = quantization});
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_LT((*model)->plan().weight_bytes(), (*exact)->plan().weight_bytes());
    const std::vector<float> got = TestSequence(**model, prompt).prefill();
    double worst = 0;
    for (size_t i = 0; i < want.size(); ++i) worst = std::max(worst, std::fabs(double{want[i]} - got[i]) / range_of(want).span());
    EXPECT_LT(worst, tolerance);
    std::printf("  quantised to %d bits: worst error / range %.5f\n", quantization == Quantization::kQ8_0 ? 8 : 4, worst);
  }
}

}  // namespace
}  // namespace shoal
