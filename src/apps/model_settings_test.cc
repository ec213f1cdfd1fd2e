#include "apps/model_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "apps/settings.h"
#include "base/json.h"

namespace shoal {
namespace {

using testing::HasSubstr;

struct Read {
  std::vector<ModelSettings> models;
  std::vector<std::string> problems;
};

Read read(const std::string& yaml) {
  const std::string path = testing::TempDir() + "shoal_model_settings_test_" + std::to_string(getpid()) + ".yaml";
  std::ofstream(path) << yaml;
  Read out;
  out.models = read_model_settings(path, out.problems);
  unlink(path.c_str());
  return out;
}

std::vector<FoundModel> found(const std::vector<std::string>& names) {
  std::vector<FoundModel> out;
  for (const std::string& name : names) {
    FoundModel model;
    model.entry.name = name;
    model.entry.trained_len = model.entry.max_model_len = 1000;
    out.push_back(std::move(model));
  }
  return out;
}

TEST(ModelSettings, EveryKeyIsReadInEitherSpelling) {
  const Read r = read("port: 1\nmodels:\n  org/a:\n    ttft: 500ms\n    tbt: 0.05\n    max_wait: 2m\n    idle-ttl: 1h\n    priority: -3\n    pin: yes\n"
                      "    preload: false\n    context: 64\n    aliases: [x, y]\n    tool_call_parser: hermes\n    reasoning-parser: none\n  b:\n");
  ASSERT_EQ(r.problems, std::vector<std::string>());
  ASSERT_EQ(r.models.size(), 2u);
  const ModelSettings& a = r.models[0];
  EXPECT_EQ(a.model, "org/a");
  EXPECT_THAT(a.where, HasSubstr(".yaml:3"));
  EXPECT_DOUBLE_EQ(a.pooling.at(pooling_field("ttft")), 0.5);
  EXPECT_DOUBLE_EQ(a.pooling.at(pooling_field("max-wait")), 120);
  EXPECT_DOUBLE_EQ(a.pooling.at(pooling_field("idle-ttl")), 3600);
  auto models = found({"b", "org/a"});
  EXPECT_TRUE(apply_model_settings(r.models, models)->empty());
  EXPECT_EQ(models[1].pooling.slo.tbt, std::chrono::milliseconds(50));
  EXPECT_EQ(models[1].pooling.priority, -3);
  EXPECT_TRUE(models[1].pooling.pinned);
  EXPECT_EQ(models[1].preload, std::optional<bool>(false));
  EXPECT_EQ(models[1].entry.max_model_len, 64u);
  EXPECT_EQ(models[1].entry.aliases, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(models[1].entry.tool_call_parser, "hermes");
  EXPECT_EQ(models[0].pooling.slo, SloTarget());
}

TEST(ModelSettings, ThePageOnOperatingHasEveryRowOfTheTable) {
  const auto page = read_file(SHOAL_SOURCE_DIR "/docs/OPERATING.md", kConfigBytesMax);
  ASSERT_TRUE(page.ok()) << page.status();
  for (const PoolingField& field : pooling_fields()) {
    std::string key = field.key;
    std::replace(key.begin(), key.end(), '-', '_');
    const std::string values = field.is_time() ? "time" : field.is_switch() ? "true, false" : absl::StrCat(field.min, " .. ", field.max);
    EXPECT_THAT(*page, HasSubstr(absl::StrCat("| `", key, "` | ", values, " | ", field.meaning, " |\n")));
  }
}

TEST(ModelSettings, WhatIsShownIsReadBackToTheSame) {
  const Read before = read("models:\n  a: {ttft: 0.3ms, max-wait: 2m, priority: -3, pin: no}\n  b: {pin: yes, tbt: 0.1, idle_ttl: 0, preload: true}\n");
  const Read after = read(models_yaml(before.models));
  ASSERT_EQ(after.models.size(), before.models.size());
  for (size_t i = 0; i < before.models.size(); ++i) EXPECT_EQ(after.models[i].pooling, before.models[i].pooling) << models_yaml(before.models);
}

TEST(ModelSettings, FaultsNameTheLineTheModelAndTheKey) {
  const std::pair<const char*, std::vector<const char*>> cases[] = {
      {"models:\n  a:\n    tftt: 1\n", {":3: model 'a'", "key 'tftt' is unknown; did you mean 'ttft'?"}},
      {"models:\n  a:\n    ttft: soon\n", {":3: model 'a': key 'ttft'", "'soon' must be seconds from 0.001"}},
      {"models:\n  a:\n    tbt: 0\n", {":3", "'tbt'"}},
      {"models:\n  a:\n    tbt: [1]\n", {":3", "must be one value"}},
      {"models:\n  a:\n    priority: 1.5\n", {":3", "whole number from -1000 to 1000"}},
      {"models:\n  a:\n    pin: maybe\n", {":3", "true or false"}},
      {"models:\n  a:\n    context: 0\n", {":3", "'context'"}},
      {"models:\n  a:\n    aliases: [\"\"]\n", {":3", "1 to 256 bytes"}},
      {"models:\n  a:\n    pin: true\n    pin: false\n", {":4", "twice"}},
      {"models:\n  a: 5\n", {":2", "must be a map of settings"}},
      {"models:\n  a:\n  a:\n", {":3", "twice"}},
      {"models: [a]\n", {":1", "must be a map from a model's name"}},
      {"models: [\n", {".yaml:"}},
  };
  for (const auto& [yaml, words] : cases) {
    const Read r = read(yaml);
    ASSERT_EQ(r.problems.size(), 1u) << yaml;
    for (const char* word : words) EXPECT_THAT(r.problems[0], HasSubstr(word)) << yaml;
  }
  EXPECT_EQ(read("models:\n  a:\n    x: 1\n    y: 2\n").problems.size(), 2u) << "all of them are told at once";
  EXPECT_TRUE(read("port: 5\n").models.empty());
}

TEST(ModelSettings, AbsentModelsAreToldAndTakenNamesRefused) {
  auto models = found({"llama", "qwen"});
  const auto absent = apply_model_settings(read("models:\n  lama: {pin: true}\n").models, models);
  ASSERT_EQ(absent->size(), 1u);
  EXPECT_THAT(absent->front(), HasSubstr("there is no model 'lama'; did you mean 'llama'?"));
  EXPECT_FALSE(apply_model_settings(read("models:\n  qwen: {alias: llama}\n").models, models).ok());
  EXPECT_FALSE(apply_model_settings(read("models:\n  qwen: {alias: x}\n  llama: {alias: x}\n").models, models).ok());
}

TEST(ModelSettings, TimesHaveUnits) {
  EXPECT_DOUBLE_EQ(*parse_seconds("2.5", 0, 10), 2.5);
  EXPECT_DOUBLE_EQ(*parse_seconds("250ms", 0, 10), 0.25);
  EXPECT_DOUBLE_EQ(*parse_seconds("1e1s", 0, 10), 10);
  for (const char* bad : {"", "ms", "5 parsecs", "-1", "11", "nan", "inf", "1h2m"}) EXPECT_FALSE(parse_seconds(bad, 0, 10).ok()) << bad;
}

}  // namespace
}  // namespace shoal
