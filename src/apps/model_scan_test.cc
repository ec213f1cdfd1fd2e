#include "apps/model_scan.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "apps/model_text.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;

const std::string kModels = std::string(SHOAL_SOURCE_DIR) + "/models";

class ScanTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) / ("shoal_scan_test_" + std::to_string(getpid()));
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }
  void copy(const std::string& model, const std::string& as) {
    fs::copy(kModels + "/" + model, root_ / as, fs::copy_options::recursive);
  }

  fs::path root_;
};

TEST_F(ScanTest, TheBundledModelsAreFoundByNameWithTheirFacts) {
  const auto scan = scan_models(kModels, {}, 0);
  ASSERT_TRUE(scan.ok()) << scan.status();
  ASSERT_EQ(scan->models.size(), 4u);
  EXPECT_TRUE(scan->unservable.empty());
  const ModelEntry& model = scan->models[2].entry;
  EXPECT_EQ(model.name, "tiny-qwen3");
  EXPECT_EQ(model.id, ModelId(2));
  EXPECT_EQ(model.architecture, "qwen3");
  EXPECT_EQ(model.max_model_len, 2048u);
  EXPECT_EQ(model.vocab_size, 768u);
  EXPECT_EQ(model.eos_ids, (std::vector<TokenId>{2}));
  EXPECT_EQ(model.defaults.temperature, 0.0f);
  EXPECT_EQ(model.defaults.max_new_tokens, 256u);
}

TEST_F(ScanTest, AModelFolderItselfIsServed) {
  const auto scan = scan_models(kModels + "/tiny-llama/", {}, 100);
  ASSERT_TRUE(scan.ok());
  ASSERT_EQ(scan->models.size(), 1u);
  EXPECT_EQ(scan->models[0].entry.name, "tiny-llama");
  EXPECT_EQ(scan->models[0].entry.max_model_len, 100u);
}

TEST_F(ScanTest, BrokenModelsAreNamedWithTheReasonAndTheRestIsFound) {
  copy("tiny-llama", "good");
  copy("tiny-llama", "no-tokenizer");
  fs::remove(root_ / "no-tokenizer" / "tokenizer.json");
  copy("tiny-llama", "cut");
  fs::resize_file(root_ / "cut" / "model.safetensors", 1000);
  fs::create_directory(root_ / "no-config");
  std::ofstream(root_ / "bad.gguf") << "GGUF but not really";
  const auto scan = scan_models(root_.string(), {}, 0);
  ASSERT_TRUE(scan.ok());
  ASSERT_EQ(scan->models.size(), 1u);
  EXPECT_EQ(scan->models[0].entry.name, "good");
  ASSERT_EQ(scan->unservable.size(), 3u);
  for (const Unservable& model : scan->unservable) EXPECT_FALSE(model.reason.empty()) << model.name;
  EXPECT_EQ(scan->unservable[2].name, "no-tokenizer");
  EXPECT_NE(scan->unservable[2].reason.find("tokenizer.json"), std::string::npos);
}

TEST_F(ScanTest, OneNameIsServedOnce) {
  copy("tiny-llama", "same");
  fs::create_directory(root_ / "sub");
  std::ofstream(root_ / "same.gguf") << "x";
  const auto scan = scan_models(root_.string(), {}, 0);
  ASSERT_TRUE(scan.ok());
  EXPECT_EQ(scan->models.size() + scan->unservable.size(), 2u);
}

TEST_F(ScanTest, MissingPathsAreErrors) {
  EXPECT_EQ(scan_models((root_ / "none").string(), {}, 0).status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(scan_models(root_.string(), {}, 0)->models.empty());
}

TEST_F(ScanTest, ModelsAreFoundByPathOrByNameInTheModelsFolder) {
  EXPECT_EQ(find_model("tiny-llama", kModels, {}, 0)->entry.name, "tiny-llama");
  EXPECT_EQ(find_model(kModels + "/tiny-llama", "elsewhere", {}, 0)->entry.name, "tiny-llama");
  EXPECT_EQ(find_model("none", kModels, {}, 0).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(find_model(kModels, kModels, {}, 0).status().code(), StatusCode::kInvalidArgument);
}

TEST(ModelText, ComesWithTokenizerTemplateAndVariables) {
  const auto text = load_model_text(kModels + "/tiny-llama");
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ((*text)->template_variables.at("bos_token"), "<|bos|>");
  EXPECT_EQ((*text)->eos_id, 2);
  EXPECT_FALSE((*text)->knows_developer_role);
  EXPECT_NE((*text)->chat_template, nullptr);
}

TEST_F(ScanTest, TheTemplateOfAMultimodalFolderMayStandInAFileOfItsOwn) {
  std::ofstream(root_ / "tokenizer_config.json") << "{}";
  EXPECT_EQ(load_chat_template_source(root_.string()).status().code(), StatusCode::kNotFound);
  std::ofstream(root_ / "chat_template.json") << R"({"chat_template": "apart"})";
  EXPECT_EQ(*load_chat_template_source(root_.string()), "apart");
}

}  // namespace
}  // namespace shoal
