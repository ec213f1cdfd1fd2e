#include "apps/settings.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "CLI/CLI.hpp"
#include "apps/serve_flags.h"

namespace shoal {
namespace {

struct Parsed {
  ServeFlags flags;
  Status status;
};

// A command line of `serve`, with the given lines as its YAML file.
Parsed parse(std::vector<std::string> words, const std::string& yaml = "") {
  CLI::App app("test");
  CLI::App* verb = app.add_subcommand("serve");
  Parsed parsed;
  add_serve_flags(*verb, parsed.flags);
  name_environment(*verb);
  words.insert(words.begin(), "serve");
  if (!yaml.empty()) {
    const std::string path = testing::TempDir() + "shoal_settings_test_" + std::to_string(getpid()) + ".yaml";
    std::ofstream(path) << yaml;
    words.insert(words.end(), {"--config", path});
  }
  std::reverse(words.begin(), words.end());  // as CLI11 wants them
  app.parse(words);
  parsed.status = settle_config(*verb);
  return parsed;
}

std::vector<FoundModel> models(const std::vector<std::string>& names) {
  std::vector<FoundModel> out;
  for (const std::string& name : names) {
    FoundModel model;
    model.entry.name = name;
    model.entry.id = ModelId(static_cast<uint32_t>(out.size()));
    out.push_back(std::move(model));
  }
  return out;
}

TEST(Settings, TheCommandLineBeatsTheEnvironmentBeatsTheFile) {
  setenv("SHOAL_PORT", "1002", 1);
  setenv("SHOAL_MAX_NUM_SEQS", "12", 1);
  const Parsed parsed = parse({"--port", "1001"}, "port: 1003\nmax-num-seqs: 13\nmax-model-len: 14\n");
  unsetenv("SHOAL_PORT");
  unsetenv("SHOAL_MAX_NUM_SEQS");
  ASSERT_TRUE(parsed.status.ok()) << parsed.status;
  EXPECT_EQ(parsed.flags.port, 1001);
  EXPECT_EQ(parsed.flags.engine.max_num_seqs, 12u);
  EXPECT_EQ(parsed.flags.engine.max_model_len, 14u);
}

TEST(Settings, ListsAndFlagsCanBeInTheFile) {
  const Parsed parsed = parse({}, "alias: [a=b, c=d]\nno-prefix-cache: true\npreload: all\n");
  ASSERT_TRUE(parsed.status.ok()) << parsed.status;
  EXPECT_EQ(parsed.flags.aliases, (std::vector<std::string>{"a=b", "c=d"}));
  EXPECT_TRUE(parsed.flags.engine.no_prefix_cache);
  EXPECT_EQ(parsed.flags.preload, "all");
}

TEST(Settings, AnUnknownKeyNamesTheNearestOne) {
  const Parsed parsed = parse({}, "max-modell-len: 5\n");
  EXPECT_EQ(parsed.status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(parsed.status.message().find("did you mean 'max-model-len'?"), absl::string_view::npos) << parsed.status;
}

TEST(Settings, WhatIsNotAMapOrNotAValueIsRefused) {
  for (const char* yaml : {"- a\n- b\n", "port: {a: 1}\n", "port: [\n", "port: many\n", "quantization: q3\n"}) {
    EXPECT_EQ(parse({}, yaml).status.code(), StatusCode::kInvalidArgument) << yaml;
  }
}

TEST(Settings, MemoryAndTypesAreCheckedByName) {
  EngineFlags flags;
  flags.device_memory = "2GiB";
  EXPECT_EQ(*device_memory_bytes(flags), 2ull << 30);
  flags.device_memory = "lots";
  EXPECT_NE(device_memory_bytes(flags).status().message().find("--device-memory"), absl::string_view::npos);
  flags.quantization = "q8_0";
  EXPECT_EQ(load_options(flags)->quantization, Quantization::kQ8_0);
  EXPECT_EQ(load_options(flags)->kv_type, KvType::kAuto);
  flags.kv_cache_dtype = "q8_0";
  EXPECT_EQ(load_options(flags)->kv_type, KvType::kQ8_0);
}

TEST(ServeFlags, AliasesNeedAModelUnlessThereIsOne) {
  auto one = models({"a"});
  ASSERT_TRUE(apply_aliases({"x", "a=y"}, one).ok());
  EXPECT_EQ(one[0].entry.aliases, (std::vector<std::string>{"x", "y"}));
  auto two = models({"a", "b"});
  EXPECT_FALSE(apply_aliases({"x"}, two).ok());
  EXPECT_TRUE(apply_aliases({"b=x"}, two).ok());
  for (const char* bad : {"c=x", "a=b", "a=", "a=x"}) {
    auto again = models({"a", "b"});
    again[1].entry.aliases = {};
    ASSERT_TRUE(apply_aliases({"b=x"}, again).ok());
    EXPECT_FALSE(apply_aliases({"b=z", bad, "a=x"}, again).ok()) << bad;
  }
}

TEST(ServeFlags, PoolingIsSetForAllModelsOrOne) {
  ServeFlags flags;
  flags.pooling["ttft"] = {"5", "b=2.5"};
  flags.pooling["priority"] = {"a=-3"};
  flags.pooling["max-wait"] = {"b=30"};
  flags.pooling["pin"] = {"a"};
  auto two = models({"a", "b"});
  ASSERT_TRUE(apply_pooling(flags, two).ok());
  EXPECT_EQ(two[0].pooling.slo.ttft, std::chrono::seconds(5));
  EXPECT_EQ(two[1].pooling.slo.ttft, std::chrono::milliseconds(2500));
  EXPECT_EQ(two[0].pooling.priority, -3);
  EXPECT_TRUE(two[0].pooling.pinned);
  EXPECT_FALSE(two[1].pooling.pinned);
  EXPECT_EQ(two[0].pooling.max_wait, Duration::max());
  EXPECT_EQ(two[1].pooling.max_wait, std::chrono::seconds(30));
}

TEST(ServeFlags, PoolingOfAnUnknownModelOrOutOfRangeIsRefusedByName) {
  for (const auto& [field, bad, word] : {std::tuple("tbt", "c=1", "did you mean"), std::tuple("tbt", "a=", "--tbt"),
                                         std::tuple("tbt", "0", "--tbt"), std::tuple("ttft", "nan", "--ttft"),
                                         std::tuple("priority", "1e9", "--priority"), std::tuple("pin", "x", "--pin")}) {
    ServeFlags flags;
    flags.pooling[field] = {bad};
    auto two = models({"a", "b"});
    const Status status = apply_pooling(flags, two);
    EXPECT_FALSE(status.ok()) << bad;
    EXPECT_NE(status.message().find(word), absl::string_view::npos) << status;
  }
}

TEST(ServeFlags, TheSchedulingAndTheHostMemoryAreWords) {
  EngineFlags flags;
  EXPECT_EQ(*scheduling_of(flags), Scheduling::kToken);
  flags.scheduling = "static";
  EXPECT_EQ(*scheduling_of(flags), Scheduling::kStatic);
  EXPECT_EQ(*host_memory_bytes(flags), std::nullopt);
  flags.host_memory = "0";
  EXPECT_EQ(*host_memory_bytes(flags), 0u);
  flags.host_memory = "1GiB";
  EXPECT_EQ(*host_memory_bytes(flags), 1ull << 30);
  EXPECT_EQ(*weight_cache_bytes(flags), 0u);
  flags.weight_cache = "1GiB";
  EXPECT_NE(weight_cache_bytes(flags).status().message().find("--model-io direct"), absl::string_view::npos);
  flags.model_io = "direct";
  EXPECT_EQ(*weight_cache_bytes(flags), 1ull << 30);
  flags.host_memory = "much";
  EXPECT_NE(host_memory_bytes(flags).status().message().find("--host-memory"), absl::string_view::npos);
}

TEST(ServeFlags, PreloadNamesAllOrSome) {
  const auto served = models({"a", "b", "c"});
  EXPECT_TRUE(models_to_preload("", served)->empty());
  EXPECT_EQ(models_to_preload("all", served)->size(), 3u);
  EXPECT_EQ(models_to_preload("", {served[1]})->size(), 1u) << "whoever serves one model will want it";
  EXPECT_TRUE(models_to_preload("none", {served[1]})->empty());
  EXPECT_EQ(*models_to_preload("c,a", served), (std::vector<ModelId>{ModelId(2), ModelId(0)}));
  EXPECT_NE(models_to_preload("d", served).status().message().find("no model 'd'"), absl::string_view::npos);
}

TEST(ServeFlags, KeysComeFromFlagsAndFile) {
  const std::string path = testing::TempDir() + "shoal_keys_test";
  std::ofstream(path) << "# people\none name=uno rpm=1\ntwo\r\n\n";
  ServeFlags flags;
  flags.api_keys = {"zero"};
  flags.key_limits.requests_per_minute = 7;
  flags.api_key_file = path;
  const auto keys = api_keys(flags);
  ASSERT_TRUE(keys.ok()) << keys.status();
  ASSERT_EQ(keys->size(), 3u);
  EXPECT_EQ((*keys)[1].name, "uno");
  EXPECT_EQ((*keys)[1].limits.requests_per_minute, 1u);
  EXPECT_EQ((*keys)[2].digest, key_digest("two"));
  EXPECT_EQ((*keys)[2].limits.requests_per_minute, 7u);
  flags.api_keys = {""};
  EXPECT_FALSE(api_keys(flags).ok());
  flags.api_keys = {};
  std::ofstream(path) << "one\ntwo speed=3\n";
  EXPECT_NE(api_keys(flags).status().message().find(":2"), absl::string_view::npos);
}

TEST(ServeFlags, ThatOnlyMakeSenseTogetherAreAskedForTogether) {
  EXPECT_TRUE(check_serve_flags({}).ok());
  EXPECT_FALSE(check_serve_flags({.ssl_certfile = "a.pem"}).ok());
  EXPECT_FALSE(check_serve_flags({.admin_port = 9000}).ok());
  EXPECT_TRUE(check_serve_flags({.admin_port = 9000, .admin_key = "k"}).ok());
  EXPECT_FALSE(check_serve_flags({.cors_origins = {"chat.example.org"}}).ok());
}

}  // namespace
}  // namespace shoal
