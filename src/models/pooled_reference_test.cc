// Models that make vectors and scores against float32 references, on the models of the shared folder.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "formats/checkpoint.h"
#include "gtest/gtest.h"
#include "models/test_runner.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

namespace fs = std::filesystem;

constexpr double kTolerance = 1e-5;  // of components of vectors of length 1, and of scores

std::vector<fs::path> folders() {
  std::vector<fs::path> found;
  const fs::path root = fs::path(SHOAL_SHARED_DIR) / "models" / "embeddings";
  if (!fs::exists(root)) return found;
  for (const auto& entry : fs::directory_iterator(root)) {
    if (fs::exists(entry.path() / "reference.json")) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

// What the model makes of these texts in one pass.
std::vector<std::vector<float>> pooled(TestModel& model, const std::vector<std::vector<TokenId>>& texts) {
  std::vector<std::unique_ptr<TestSequence>> sequences;
  std::vector<SequenceSlice> slices;
  std::vector<TokenId> tokens;
  std::vector<uint32_t> last;
  for (const auto& text : texts) {
    sequences.push_back(std::make_unique<TestSequence>(model, text));
    slices.push_back(sequences.back()->slice(static_cast<uint32_t>(text.size())));
    tokens.insert(tokens.end(), text.begin(), text.end());
    last.push_back(static_cast<uint32_t>(tokens.size()) - 1);
  }
  const std::vector<float> all = model.forward(tokens, slices, last);
  const size_t width = all.size() / texts.size();
  std::vector<std::vector<float>> out;
  for (size_t i = 0; i < texts.size(); ++i) out.emplace_back(all.begin() + static_cast<ptrdiff_t>(i * width), all.begin() + static_cast<ptrdiff_t>((i + 1) * width));
  return out;
}

void expect_vector(std::vector<float> got, const Json& want, bool normalized) {
  double squares = 0;
  for (const float x : got) squares += double{x} * x;
  ASSERT_EQ(got.size(), want.size());
  for (size_t d = 0; d < got.size(); ++d) {
    EXPECT_NEAR(normalized ? got[d] / std::sqrt(squares) : got[d], want[d].get<double>(), kTolerance) << "component " << d;
  }
}

TEST(PooledReference, VectorsAndScoresAreThoseOfTheReferenceAndTheSameInAnyBatch) {
  const auto all = folders();
  if (all.empty()) GTEST_SKIP() << "the shared models are not here";
  for (const fs::path& folder : all) {
    SCOPED_TRACE(folder);
    const Json reference = *parse_json(*read_file(folder / "reference.json", 64u << 20));
    if (reference.contains("prefix")) continue;  // asks a generative model for two logits
    const auto checkpoint = open_checkpoint(folder);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    ASSERT_TRUE((*checkpoint)->config.pooled.has_value());
    auto model = TestModel::open(*checkpoint, {});
    ASSERT_TRUE(model.ok()) << model.status();
    std::vector<std::vector<TokenId>> texts;
    for (const Json& c : reference["cases"]) texts.push_back(c["ids"].get<std::vector<TokenId>>());
    const auto together = pooled(**model, texts);
    for (size_t i = 0; i < texts.size(); ++i) {
      SCOPED_TRACE(i);
      EXPECT_EQ(pooled(**model, {texts[i]}).front(), together[i]);
      const Json& c = reference["cases"][i];
      if (c.contains("vector")) {
        expect_vector(together[i], c["vector"], (*checkpoint)->config.pooled->normalize);
      } else {
        ASSERT_EQ(together[i].size(), 1u);
        EXPECT_NEAR(together[i][0], c["logit"].get<double>(), kTolerance);
      }
    }
  }
}

}  // namespace
}  // namespace shoal
