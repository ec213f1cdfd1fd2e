// Every architecture against the reference implementation's logits and greedy tokens, on the models of the shared folder.
#include <cstring>
#include <deque>
#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/quant_codes.h"
#include "models/test_runner.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

namespace fs = std::filesystem;

constexpr double kLogitTolerance = 2e-4;  // of the range of the logits
constexpr double kMargin = 1e-3;          // of the range: below it either token is right

// The folders of reference/ and the architectures of gguf/ that are served; every other is refused by name.
const std::set<std::string> kServedFolders = {"gemma2", "gemma3", "llama", "llama-dynamic-rope", "llama-linear-rope", "llama-tied",
                                              "llama-yarn-rope", "llama3-rope", "mistral-window", "phi3", "phi4-mini", "qwen2", "qwen3",
                                              "mixtral", "qwen2-moe", "qwen3-moe", "glm4-moe",
                                              "deepseek-v2", "deepseek-v2-lite", "deepseek-v3", "deepseek-v3-yarn", "glm4-moe-lite",
                                              "olmoe", "ernie4.5-moe", "hunyuan-moe", "minimax-m2", "gpt-oss", "llama4", "vlm-mistral4", "longcat-flash",
                                              "seed-oss", "smollm3", "ernie4.5", "granite", "granite4", "hunyuan-dense", "ministral3", "vlm-mistral3",
                                              "vlm-gemma3", "gemma4", "gemma4-moe", "gemma4-ple", "vlm-gemma4", "mimo-v2-flash", "qwen3-next", "qwen3.5", "qwen3.5-moe", "vlm-qwen3.5", "vlm-qwen3.5-moe", "granite4-h", "granite4-h-moe",
                                              "nemotron-h", "nemotron-h-moe", "falcon-h1", "lfm2", "lfm2-moe", "kimi-linear", "deepseek-v32", "glm-moe-dsa", "glm4", "olmo2", "olmo3", "exaone4", "cohere2"};
const std::set<std::string> kServedGguf = {"llama", "phi4mini", "qwen2", "qwen3", "mixtral", "qwen3-moe", "glm4moe", "deepseek-v2", "deepseek-v3",
                                           "glm4moelite", "olmoe", "ernie45moe", "hunyuanmoe", "minimaxm2", "gptoss", "llama4", "seedoss", "smollm3", "ernie45", "granite", "granite4", "hunyuandense", "ministral3",
                                           "glm4", "gemma4", "gemma4moe", "gemma4ple", "mimov2flash", "qwen3next", "qwen35", "qwen35moe", "granite4h", "granite4hmoe", "nemotronh", "nemotronhmoe", "falconh1", "lfm2",
                                           "lfm2moe", "kimilinear", "deepseekv32", "glmmoedsa", "olmo2", "olmo3", "exaone4", "cohere2"};

// Prompts (their lengths) of files in which what int8 activations cost decides between two experts, or two positions of an index. As
// floats the same weights are within 2e-6 to 5e-6 of the range (GgufFilesAsFloatsAreTheReference). Largest error over the range:
//
//   file                 here     with the choices of the floats  llama.cpp  first choice that differs: gap as floats, error of the scores
//   ernie45moe-q8_0      0.1930   0.0228                          0.0184     0.024, 0.016 and 0.004, 0.016 (sums of score and bias)
//   kimilinear-q8_0      0.0894   0.0122                          0.0229     0.008, 0.023
//   deepseekv32-q4_k_m   0.1248   0.0525                          0.0533     0.05, 0.76 of scores that span 11.6 (96 of 130 positions)
//
// In other prompts choices differ as often, of experts that weigh less.
const std::map<std::string, size_t> kNearTies = {{"ernie45moe-q8_0", 7}, {"kimilinear-q8_0", 7}, {"deepseekv32-q4_k_m", 130}};

// What is in a folder of the shared models, sorted; empty where they are not on this machine.
std::vector<fs::path> shared_models(const std::string& folder, const std::string& extension) {
  std::vector<fs::path> found;
  const fs::path root = fs::path(SHOAL_SHARED_DIR) / "models" / folder;
  if (!fs::exists(root)) return found;
  for (const auto& entry : fs::directory_iterator(root)) {
    if (extension.empty() || entry.path().extension() == extension) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

// "qwen3-moe" of "qwen3-moe-q8_0.gguf".
std::string family(const fs::path& gguf) {
  const std::string stem = gguf.stem();
  return stem.substr(0, stem.rfind('-'));
}

// The class that a config.json names, found without a reader of JSON: some of these files are not quite JSON.
std::string named_class(const fs::path& folder) {
  const std::string text = *read_file(folder / "config.json", 1u << 20);
  const size_t list = text.find('[', text.find("\"architectures\""));
  const size_t from = text.find('"', list) + 1;
  return text.substr(from, text.find('"', from) - from);
}

std::string named_architecture(const fs::path& gguf) {  // key, type of the value (a string), its length, its bytes
  const std::string text = *read_file(gguf, 1u << 30), key = "general.architecture";
  const size_t at = text.find(key) + key.size() + sizeof(uint32_t);
  uint64_t length = 0;
  std::memcpy(&length, text.data() + at, sizeof length);
  return text.substr(at + sizeof length, length);
}

void expect_refused_by_name(const Status& status, const std::string& architecture) {
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented) << status;
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("architecture '" + architecture + "'"));
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

TEST(ReferenceTest, LogitsAndGreedyTokensAreThoseOfTheReference) {
  const auto folders = shared_models("reference", "");
  if (folders.empty()) GTEST_SKIP() << "no shared models at " << SHOAL_SHARED_DIR;
  for (const fs::path& folder : folders) {
    const std::string name = folder.filename();
    if (!kServedFolders.contains(name)) continue;
    SCOPED_TRACE(name);
    const Json reference = *parse_json(*read_file(folder / "reference.json", 64u << 20));
    auto model = TestModel::open(folder, {});
    ASSERT_TRUE(model.ok()) << model.status();
    double worst = 0;
    for (const Json& c : reference["cases"]) worst = std::max(worst, check_case(**model, c));
    EXPECT_LT(worst, kLogitTolerance);
    RecordProperty(name, std::to_string(worst));
    std::printf("  %-22s worst error / range %.7f\n", name.c_str(), worst);
  }
}

TEST(ReferenceTest, FoldersOfOtherFamiliesAreRefusedByTheNameOfTheirArchitecture) {
  for (const fs::path& folder : shared_models("reference", "")) {
    if (kServedFolders.contains(folder.filename())) continue;
    SCOPED_TRACE(folder.filename());
    expect_refused_by_name(open_checkpoint(folder).status(), named_class(folder));
  }
}

TEST(ReferenceTest, GgufFilesOfOtherFamiliesAreRefusedByTheNameOfTheirArchitecture) {
  for (const fs::path& file : shared_models("gguf", ".gguf")) {
    if (kServedGguf.contains(family(file))) continue;
    SCOPED_TRACE(file.filename());
    expect_refused_by_name(open_checkpoint(file).status(), named_architecture(file));
  }
}

// The same weights as f32, in `memory`.
std::shared_ptr<const Checkpoint> in_floats(const Checkpoint& stored, std::deque<Tensor>& memory) {
  auto result = std::make_shared<Checkpoint>(stored);
  result->weights = {};
  for (const auto& [name, view] : stored.weights.all()) {
    Tensor& tensor = memory.emplace_back(*Tensor::allocate(DType::kF32, view.shape));
    const uint64_t columns = view.shape.rank() == 0 ? 1 : view.shape[view.shape.rank() - 1];
    for (uint64_t row = 0; row < view.rows(); ++row) {
      dequantize_row(view.dtype, view.data + row * view.row_bytes(), 0, columns, reinterpret_cast<float*>(tensor.data()) + row * columns);
    }
    CHECK(result->weights.add(name, tensor.view()));
  }
  return result;
}

// Without int8 activations nothing is left to differ by: every case of every file, near ties too.
TEST(ReferenceTest, GgufFilesAsFloatsAreTheReference) {
  const auto files = shared_models("gguf", ".gguf");
  if (files.empty()) GTEST_SKIP() << "no shared models at " << SHOAL_SHARED_DIR;
  for (const fs::path& file : files) {
    if (!kServedGguf.contains(family(file))) continue;
    SCOPED_TRACE(file.filename());
    const auto stored = open_checkpoint(file);
    ASSERT_TRUE(stored.ok()) << stored.status();
    std::deque<Tensor> memory;
    auto model = TestModel::open(in_floats(**stored, memory), {});
    ASSERT_TRUE(model.ok()) << model.status();
    const Json reference = *parse_json(*read_file(fs::path(file).replace_extension(".json"), 64u << 20));
    double worst = 0;
    for (const Json& c : reference["cases"]) worst = std::max(worst, check_case(**model, c));
    EXPECT_LT(worst, kLogitTolerance);
    std::printf("  %-22s worst error / range %.7f\n", file.stem().c_str(), worst);
  }
}

TEST(ReferenceTest, GgufFilesAreNoWorseThanAFifthAboveLlamaCpp) {
  const auto files = shared_models("gguf", ".gguf");
  if (files.empty()) GTEST_SKIP() << "no shared models at " << SHOAL_SHARED_DIR;
  std::map<std::string, std::pair<double, double>> families;  // sums of our mean errors and of llama.cpp's
  for (const fs::path& file : files) {
    if (!kServedGguf.contains(family(file))) continue;
    SCOPED_TRACE(file.filename());
    auto model = TestModel::open(file, {});
    ASSERT_TRUE(model.ok()) << model.status();
    const Json reference = *parse_json(*read_file(fs::path(file).replace_extension(".json"), 64u << 20));
    double mean = 0, worst = 0, peer = 0;
    const auto tie = kNearTies.find(file.stem());
    for (const Json& c : reference["cases"]) {
      if (tie != kNearTies.end() && c["prompt"].size() == tie->second) continue;
      const auto want = c["last_logits"].get<std::vector<float>>();
      const std::vector<float> got = TestSequence(**model, c["prompt"].get<std::vector<TokenId>>()).prefill();
      double error = 0;
      for (size_t i = 0; i < want.size(); ++i) error = std::max(error, std::fabs(double{want[i]} - got[i]) / range_of(want).span());
      std::printf("   %zu tokens: %.5f\n", c["prompt"].size(), error);
      mean += error / reference["cases"].size();
      worst = std::max(worst, error);
    }
    double peer_worst = 0;
    for (double e : reference["llama_cpp_error_over_range"].get<std::vector<double>>()) {
      peer_worst = std::max(peer_worst, e);
      peer += e / reference["llama_cpp_error_over_range"].size();
    }
    std::printf("  %-20s error / range mean %.5f worst %.5f, llama.cpp mean %.5f\n", file.stem().c_str(), mean, worst, peer);
    EXPECT_LE(mean, std::max(1.3 * peer, 2e-3));  // four prompts of one file: chance is a tenth of it
    EXPECT_LT(worst, std::max(0.08, 1.2 * peer_worst));
    families[family(file)].first += mean;
    families[family(file)].second += peer;
  }
  for (const auto& [name, sums] : families) EXPECT_LE(sums.first, std::max(1.2 * sums.second, 2e-3)) << name;
}

TEST(ReferenceTest, TrainedModelsSayWhatTheReferenceSays) {
  for (const char* name : {"tiny-llama", "tiny-qwen3", "trained-moe/tiny-qwen3-moe", "trained-moe/tiny-deepseek-v3"}) {
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
