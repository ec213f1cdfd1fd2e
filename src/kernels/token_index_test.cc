#include "kernels/token_index.h"

#include <cmath>

#include "kernels/ref/ref.h"
#include "kernels/test_backends.h"

namespace shoal {
namespace {

TEST(TokenIndexTest, EveryBackendHasTheBitsOfTheOracle) {
  for_each_backend([](const Kernels& kernels) {
    for (const auto& [heads, dim] : {std::pair{16u, 16u}, {5u, 24u}, {64u, 128u}}) {
      Rng rng(heads);
      const Floats keys = random_floats(rng, dim * 16), q = random_floats(rng, heads * dim), weights = random_floats(rng, heads);
      Floats want(16), got(16);
      IndexScoresCall call{keys.data(), q.data(), weights.data(), 0.125f, heads, dim, want.data()};
      ref::index_scores(call);
      call.scores = got.data();
      kernels.index_scores(call);
      EXPECT_TRUE(same_bits(want, got)) << heads;
    }
  });
}

std::vector<uint32_t> selected(const Floats& scores, uint32_t top) {
  std::vector<uint16_t> bits((scores.size() + 15) / 16, 0xffff);
  select_tokens(scores, top, bits.data());
  std::vector<uint32_t> tokens;
  for (uint32_t t = 0; t < bits.size() * 16; ++t) {
    if (bits[t / 16] >> (t % 16) & 1) tokens.push_back(t);
  }
  return tokens;
}

TEST(TokenIndexTest, TheLargestAreSelectedAndOfEqualOnesTheFirst) {
  EXPECT_EQ(selected({1, 5, 3, 4, 2}, 2), (std::vector<uint32_t>{1, 3}));
  EXPECT_EQ(selected({2, 1, 2, 2, 3}, 3), (std::vector<uint32_t>{0, 2, 4}));
  EXPECT_EQ(selected({0, 0, 0, 0}, 2), (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(selected({NAN, 1, NAN, -1}, 3), (std::vector<uint32_t>{0, 1, 3}));
  EXPECT_EQ(selected({3, 1}, 7), (std::vector<uint32_t>{0, 1})) << "fewer than are asked for";
  Floats many(37);
  for (uint32_t t = 0; t < 37; ++t) many[t] = static_cast<float>(t * 13 % 37);
  EXPECT_EQ(selected(many, 37).size(), 37u);
  EXPECT_EQ(selected(many, 20).size(), 20u);
}

}  // namespace
}  // namespace shoal
