#include "gateway/model_card.h"

#include <gtest/gtest.h>

namespace shoal {
namespace {

ModelCard card() {
  ModelCard card;
  ModelEntry& e = card.entry;
  e.name = "org/model";
  e.path = "/srv/models/model";
  e.aliases = {"gpt-4o"};
  e.architecture = "Llama";
  e.max_model_len = 2048;
  e.trained_len = 4096;
  e.vocab_size = 32000;
  e.eos_ids = {2, 7};
  e.defaults.temperature = 0.5f;
  e.defaults.top_k = 40;
  e.tool_call_parser = "hermes";
  e.parameter_count = 135'000'000;
  e.weight_bytes = 98'000'000;
  e.created_unix_seconds = 1'790'000'000;
  e.slo = {std::chrono::seconds(3), std::chrono::milliseconds(70)};
  e.pooled = PooledEntry{384, 1, true, PairForm::kTwoMarks};
  card.stamp = 0xfedcba9876543210ull;
  return card;
}

TEST(ModelCard, SaysOfAModelWhatTheEntryDoes) {
  const auto read = read_cards(write_cards({card()}));
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), 1u);
  const ModelEntry& a = read->front().entry;
  const ModelEntry b = card().entry;
  EXPECT_EQ(read->front().stamp, card().stamp);
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.path, b.path);
  EXPECT_EQ(a.aliases, b.aliases);
  EXPECT_EQ(a.architecture, b.architecture);
  EXPECT_EQ(a.max_model_len, b.max_model_len);
  EXPECT_EQ(a.trained_len, b.trained_len);
  EXPECT_EQ(a.vocab_size, b.vocab_size);
  EXPECT_EQ(a.eos_ids, b.eos_ids);
  EXPECT_EQ(a.defaults.temperature, b.defaults.temperature);
  EXPECT_EQ(a.defaults.top_k, b.defaults.top_k);
  EXPECT_FALSE(a.defaults.top_p.has_value());
  EXPECT_EQ(a.tool_call_parser, b.tool_call_parser);
  EXPECT_EQ(a.weight_bytes, b.weight_bytes);
  EXPECT_EQ(a.slo, b.slo);
  ASSERT_TRUE(a.pooled.has_value());
  EXPECT_EQ(a.pooled->width, 384u);
  EXPECT_EQ(a.pooled->pairs, PairForm::kTwoMarks);
}

TEST(ModelCard, WhatIsNoneIsRefusedWithTheModelAndTheField) {
  const std::string good = write_cards({card()});
  for (const auto& [from, to, word] : std::vector<std::array<std::string, 3>>{
           {"\"vocab_size\":32000", "\"vocab_size\":-1", "vocab_size"}, {"\"max_model_len\":2048", "\"max_model_len\":0", "max_model_len"},
           {"\"eos_ids\":[2,7]", "\"eos_ids\":[\"x\"]", "eos_ids"}, {"\"top_k\":40", "\"top_k\":[]", "top_k"}, {"\"pairs\":1", "\"pairs\":9", "pairs"},
           {"\"stamp\":18364758544493064720", "\"stamp\":-5", "stamp"}}) {
    std::string bad = good;
    ASSERT_NE(bad.find(from), std::string::npos) << from << " in " << bad;
    bad.replace(bad.find(from), from.size(), to);
    const auto read = read_cards(bad);
    ASSERT_FALSE(read.ok()) << bad;
    EXPECT_NE(read.status().message().find(word), std::string::npos) << read.status();
    EXPECT_NE(read.status().message().find("org/model"), std::string::npos) << read.status();
  }
  EXPECT_FALSE(read_cards("{}").ok());
  EXPECT_FALSE(read_cards("[7]").ok());
}

}  // namespace
}  // namespace shoal
