#include <filesystem>
#include <fstream>
#include <limits>

#include "base/json.h"
#include "formats/checkpoint.h"
#include "formats/gguf_file.h"
#include "formats/gguf_names.h"
#include "formats/hf_config.h"
#include "formats/python_json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// A folder that lives as long as the test.
class Folder {
 public:
  Folder() {
    std::string pattern = fs::temp_directory_path() / "shoal_formats_XXXXXX";
    path_ = ::mkdtemp(pattern.data());
  }
  ~Folder() { fs::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }
  void put(const std::string& name, const std::string& bytes) const { std::ofstream(path_ + "/" + name, std::ios::binary) << bytes; }

 private:
  std::string path_;
};

std::string safetensors(const std::string& header, size_t data_bytes) {
  std::string file(8, '\0');
  for (int i = 0; i < 8; ++i) file[i] = static_cast<char>(header.size() >> (8 * i));
  return file + header + std::string(data_bytes, '\1');
}

Json llama_config() {
  return {{"architectures", {"LlamaForCausalLM"}}, {"hidden_size", 64}, {"num_hidden_layers", 3}, {"num_attention_heads", 4},
          {"num_key_value_heads", 2}, {"intermediate_size", 128}, {"vocab_size", 320}, {"max_position_embeddings", 512},
          {"rms_norm_eps", 1e-5}, {"eos_token_id", 2}};
}

void put_model(const Folder& folder) {
  folder.put("config.json", llama_config().dump());
  folder.put("model.safetensors", safetensors(R"({"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}})", 16));
}

std::string message(const Status& status) { return std::string(status.message()); }

TEST(CheckpointTest, AnHfFolderOpensWithItsTensors) {
  Folder folder;
  put_model(folder);
  folder.put("generation_config.json", R"({"eos_token_id":[2,7],"temperature":0.6,"top_k":20,"do_sample":true})");
  const auto checkpoint = open_checkpoint(folder.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const TensorView* tensor = (*checkpoint)->weights.find("a");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->shape, (Shape{2, 2}));
  EXPECT_EQ(tensor->data[15], std::byte{1});
  EXPECT_EQ((*checkpoint)->weights.find("b"), nullptr);
  EXPECT_THAT((*checkpoint)->generation.eos, testing::ElementsAre(2, 7));
  EXPECT_EQ((*checkpoint)->generation.temperature, 0.6);
  EXPECT_EQ((*checkpoint)->generation.top_k, 20);
}

TEST(CheckpointTest, ShardsAreReadThroughTheIndex) {
  Folder folder;
  put_model(folder);
  fs::rename(folder / "model.safetensors", folder / "part1.safetensors");
  folder.put("part2.safetensors", safetensors(R"({"b":{"dtype":"BF16","shape":[3],"data_offsets":[0,6]}})", 6));
  folder.put("model.safetensors.index.json", R"({"weight_map":{"a":"part1.safetensors","b":"part2.safetensors"}})");
  const auto checkpoint = open_checkpoint(folder.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ((*checkpoint)->weights.size(), 2u);
  EXPECT_EQ((*checkpoint)->weights.bytes(), 22u);
}

TEST(CheckpointTest, AnIndexMayNotLeaveTheFolder) {
  Folder folder;
  put_model(folder);
  folder.put("model.safetensors.index.json", R"({"weight_map":{"a":"../model.safetensors"}})");
  EXPECT_THAT(message(open_checkpoint(folder.path()).status()), HasSubstr("not a file of the folder"));
}

TEST(CheckpointTest, TheSameTensorInTwoShardsIsRefused) {
  Folder folder;
  put_model(folder);
  fs::copy(folder / "model.safetensors", folder / "again.safetensors");
  folder.put("model.safetensors.index.json", R"({"weight_map":{"a":"model.safetensors","b":"again.safetensors"}})");
  EXPECT_THAT(message(open_checkpoint(folder.path()).status()), HasSubstr("tensor 'a' is there twice"));
}

TEST(CheckpointTest, ErrorsNameTheFileAndTheCause) {
  Folder folder;
  EXPECT_THAT(message(open_checkpoint(folder / "nothing").status()), HasSubstr("no such file"));
  folder.put("notes.txt", "hello");
  EXPECT_THAT(message(open_checkpoint(folder / "notes.txt").status()), HasSubstr("neither a model folder nor a .gguf"));
  EXPECT_FALSE(open_checkpoint(folder.path()).ok());
  put_model(folder);
  fs::resize_file(folder / "model.safetensors", fs::file_size(folder / "model.safetensors") - 3);
  const auto truncated = open_checkpoint(folder.path()).status();
  EXPECT_THAT(message(truncated), HasSubstr("model.safetensors: tensor 'a'"));
  EXPECT_THAT(message(truncated), HasSubstr("truncated"));
}

TEST(CheckpointTest, FilesOfZerosAreSaidToBeDownloadedInPart) {
  Folder folder;
  folder.put("m.gguf", std::string(1000, '\0'));
  EXPECT_THAT(message(open_checkpoint(folder / "m.gguf").status()), HasSubstr("begins with zeros; the file was not downloaded to its end"));
  for (const char* name : {"model.safetensors", "config.json"}) {
    put_model(folder);
    folder.put(name, std::string(fs::file_size(folder / name), '\0'));
    const std::string error = message(open_checkpoint(folder.path()).status());
    EXPECT_THAT(error, HasSubstr(name));
    EXPECT_THAT(error, HasSubstr("downloaded to its end"));
    fs::remove(folder / name);
  }
}

TEST(CheckpointTest, AGgufFileOfTheCorpusOpens) {
  Folder folder;
  fs::copy(SHOAL_SOURCE_DIR "/tests/corpus/gguf/ok_llama", folder / "m.gguf");
  const auto checkpoint = open_checkpoint(folder / "m.gguf");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ((*checkpoint)->config.vocab_size, 5u);
  EXPECT_TRUE((*checkpoint)->config.rope.interleaved);
  EXPECT_TRUE((*checkpoint)->config.tied_embeddings);
  EXPECT_NE((*checkpoint)->weights.find("model.embed_tokens.weight"), nullptr);
  EXPECT_THAT((*checkpoint)->generation.eos, testing::ElementsAre(2));
  const auto tokenizer = open_gguf_tokenizer(folder / "m.gguf");
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ(tokenizer->model, "llama");
  EXPECT_THAT(tokenizer->tokens, testing::ElementsAre("<unk>", "<s>", "</s>", "a", "b"));
  EXPECT_EQ(tokenizer->scores.back(), 4.0f);
  EXPECT_EQ(tokenizer->padding, std::nullopt);
}

TEST(CheckpointTest, AGgufFileOfAnUnknownFamilyIsRefusedByNameWhateverItsTensorsAreStoredAs) {
  Folder folder;
  std::string bytes = *read_file(SHOAL_SOURCE_DIR "/tests/corpus/gguf/bad_type", 1 << 20);
  folder.put("m.gguf", bytes);
  EXPECT_THAT(message(open_checkpoint(folder / "m.gguf").status()), HasSubstr("(ggml_type) is not served"));
  const size_t at = bytes.find("llama", bytes.find("general.architecture"));
  folder.put("m.gguf", bytes.replace(at, 5, "cloud"));
  EXPECT_THAT(message(open_checkpoint(folder / "m.gguf").status()), HasSubstr("architecture 'cloud' is not served"));
}

TEST(GgufNamesTest, LayersAreTranslatedPerArchitecture) {
  EXPECT_EQ(hf_tensor_name(Architecture::kLlama, "blk.12.attn_q.weight"), "model.layers.12.self_attn.q_proj.weight");
  EXPECT_EQ(hf_tensor_name(Architecture::kLlama, "blk.0.ffn_norm.weight"), "model.layers.0.post_attention_layernorm.weight");
  EXPECT_EQ(gguf_tensor_name(Architecture::kLlama, "model.layers.0.post_attention_layernorm.weight"), "blk.0.ffn_norm.weight");
  EXPECT_EQ(gguf_tensor_name(Architecture::kGemma2, "model.layers.0.pre_feedforward_layernorm.weight"), "blk.0.ffn_norm.weight");
  EXPECT_EQ(gguf_tensor_name(Architecture::kQwen3Moe, "model.layers.12.mlp.gate.weight"), "blk.12.ffn_gate_inp.weight");
  EXPECT_EQ(gguf_tensor_name(Architecture::kLlama, "model.embed_tokens.weight"), "token_embd.weight");
  EXPECT_EQ(gguf_tensor_name(Architecture::kLlama, "model.layers.0.no_such"), "model.layers.0.no_such");
  EXPECT_EQ(hf_tensor_name(Architecture::kGemma2, "blk.0.ffn_norm.weight"), "model.layers.0.pre_feedforward_layernorm.weight");
  EXPECT_EQ(hf_tensor_name(Architecture::kPhi3, "blk.0.ffn_up.weight"), "model.layers.0.mlp.gate_up_proj.weight");
  EXPECT_EQ(hf_tensor_name(Architecture::kLlama, "output.weight"), "lm_head.weight");
  EXPECT_EQ(hf_tensor_name(Architecture::kLlama, "output_norm.weight"), "model.norm.weight");
  EXPECT_EQ(hf_tensor_name(Architecture::kLlama, "rope_freqs.weight"), "rope_freqs.weight");
}

TEST(HfConfigTest, BothPublishedFormsMeanTheSame) {
  Json old_form = llama_config(), new_form = llama_config();
  old_form["rope_theta"] = 5e5;
  old_form["rope_scaling"] = {{"type", "linear"}, {"factor", 4.0}};
  new_form["rope_parameters"] = {{"rope_theta", 5e5}, {"rope_type", "linear"}, {"factor", 4.0}};
  for (const Json& json : {old_form, new_form}) {
    const auto config = parse_hf_config(json);
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(config->rope.theta, 5e5);
    EXPECT_EQ(config->rope.scaling, RopeScaling::kLinear);
    EXPECT_EQ(config->rope.dims, 16u);
    EXPECT_EQ(config->context_length, 2048u);
  }
}

TEST(HfConfigTest, YarnReachesItsFactorTimesTheTrainedLength) {
  Json json = llama_config();
  json["rope_scaling"] = {{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 512}};
  EXPECT_EQ(parse_hf_config(json)->context_length, 2048u);
  json["max_position_embeddings"] = 2048;
  EXPECT_EQ(parse_hf_config(json)->context_length, 2048u);
  json["rope_scaling"] = {{"rope_type", "llama3"}, {"factor", 4.0}, {"original_max_position_embeddings", 512}};
  EXPECT_EQ(parse_hf_config(json)->context_length, 2048u);
}

TEST(HfConfigTest, MissingFieldsAreNamed) {
  for (const char* key : {"hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"}) {
    Json json = llama_config();
    json.erase(key);
    EXPECT_THAT(message(parse_hf_config(json).status()), HasSubstr(key));
  }
}

Json experts_config(const char* architecture) {
  Json json = llama_config();
  json["architectures"] = {architecture};
  json.update({{"num_experts", 16}, {"num_experts_per_tok", 4}, {"moe_intermediate_size", 40}, {"shared_expert_intermediate_size", 80}});
  return json;
}

TEST(HfConfigTest, ExpertsAreThoseOfTheirFamily) {
  Json json = experts_config("Qwen2MoeForCausalLM");
  json["mlp_only_layers"] = {1};
  const auto qwen2 = parse_hf_config(json);
  ASSERT_TRUE(qwen2.ok()) << qwen2.status();
  EXPECT_EQ(qwen2->experts->count, 16u);
  EXPECT_EQ(qwen2->experts->used, 4u);
  EXPECT_EQ(qwen2->experts->shared_intermediate_size, 80u);
  EXPECT_TRUE(qwen2->experts->shared_gate && !qwen2->experts->normalize && !qwen2->experts->sigmoid_scores);
  EXPECT_TRUE(qwen2->experts->layers[0]);
  EXPECT_FALSE(qwen2->experts->layers[1]);

  json = experts_config("Glm4MoeForCausalLM");
  json.update({{"n_group", 4}, {"topk_group", 2}, {"routed_scaling_factor", 2.5}, {"n_shared_experts", 2}, {"first_k_dense_replace", 1}});
  const auto glm = parse_hf_config(json);
  ASSERT_TRUE(glm.ok()) << glm.status();
  EXPECT_TRUE(glm->experts->sigmoid_scores && glm->experts->selection_bias && glm->experts->normalize);
  EXPECT_EQ(glm->experts->shared_intermediate_size, 80u);
  EXPECT_EQ(glm->experts->weight_scale, 2.5);
  EXPECT_FALSE(glm->experts->layers[0]);

  json = experts_config("MixtralForCausalLM");
  const auto mixtral = parse_hf_config(json);
  ASSERT_TRUE(mixtral.ok()) << mixtral.status();
  EXPECT_EQ(mixtral->experts->intermediate_size, mixtral->intermediate_size);
  EXPECT_TRUE(mixtral->experts->normalize);
}

TEST(HfConfigTest, ExpertsThatCannotBeAreRefusedWithTheReason) {
  const auto refusal = [](auto change) {
    Json json = experts_config("Glm4MoeForCausalLM");
    change(json);
    return message(parse_hf_config(json).status());
  };
  EXPECT_THAT(refusal([](Json& j) { j.erase("num_experts"); }), HasSubstr("how many experts"));
  EXPECT_THAT(refusal([](Json& j) { j["num_experts_per_tok"] = 17; }), HasSubstr("17 experts are to be chosen of 16"));
  EXPECT_THAT(refusal([](Json& j) { j["n_group"] = 3; }), HasSubstr("not 3 equal groups"));
  EXPECT_THAT(refusal([](Json& j) { j["n_group"] = 8; }), HasSubstr("do not hold 4"));
  EXPECT_THAT(refusal([](Json& j) { j["routed_scaling_factor"] = -1; }), HasSubstr("not a positive number"));
  EXPECT_THAT(refusal([](Json& j) { j["num_experts"] = 1 << 20; }), HasSubstr("num_experts"));
  EXPECT_THAT(refusal([](Json& j) { j["architectures"] = {"DeepseekV9ForCausalLM"}; }), HasSubstr("DeepseekV9ForCausalLM"));
}

TEST(HfConfigTest, InfinitiesAsPythonWritesThemAreReadAndWordsInStringsKept) {
  const auto json = parse_python_json(R"({"limit": [0.0, Infinity, -Infinity], "no": NaN, "Infinity\"": "NaN \\\"Infinity"})");
  ASSERT_TRUE(json.ok()) << json.status();
  constexpr double kLargest = std::numeric_limits<double>::max();
  EXPECT_EQ((*json)["limit"], Json({0.0, kLargest, -kLargest}));
  EXPECT_TRUE((*json)["no"].is_null());
  EXPECT_EQ((*json)["Infinity\""], "NaN \\\"Infinity");
  EXPECT_FALSE(parse_python_json(R"({"a": Infinity1, "b": NaNa})").ok());

  Folder folder;
  put_model(folder);
  std::string text = llama_config().dump();
  text.insert(1, R"("time_step_limit": [0.0, Infinity],)");
  folder.put("config.json", text);
  EXPECT_TRUE(open_checkpoint(folder.path()).ok()) << open_checkpoint(folder.path()).status();
}

TEST(HfConfigTest, TheModelTypeStandsInForTheClass) {
  Json json = llama_config();
  json.erase("architectures");
  json["model_type"] = "qwen2";
  const auto config = parse_hf_config(json);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->architecture, Architecture::kQwen2);
  EXPECT_TRUE(config->biases.qkv);
  EXPECT_FALSE(config->biases.output);
}

TEST(HfConfigTest, WindowsFollowTheLayers) {
  Json json = llama_config();
  json["architectures"] = {"Gemma3ForCausalLM"};
  json["num_hidden_layers"] = 7;
  json["sliding_window"] = 16;
  auto config = parse_hf_config(json);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->sliding_layers, testing::ElementsAre(true, true, true, true, true, false, true));
  EXPECT_EQ(config->local_rope->theta, 10000.0);
  EXPECT_EQ(config->rope.theta, 1e6);
  json = llama_config();
  json["architectures"] = {"Qwen2ForCausalLM"};
  json["sliding_window"] = 16;
  config = parse_hf_config(json);
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->sliding_window, 0u) << "use_sliding_window is off by default";
}

TEST(HfConfigTest, GenerationFallsBackToTheModelsConfig) {
  const auto generation = parse_generation_config(llama_config(), Json());
  ASSERT_TRUE(generation.ok());
  EXPECT_THAT(generation->eos, testing::ElementsAre(2));
  EXPECT_EQ(generation->temperature, std::nullopt);
}

TEST(SharedFilesTest, VocabularyOnlyFilesGiveTheirTokenizers) {
  const fs::path folder = fs::path(SHOAL_SHARED_DIR) / "data/vocab";
  if (!fs::exists(folder)) GTEST_SKIP() << "no shared vocabularies at " << SHOAL_SHARED_DIR;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".gguf") continue;
    const auto tokenizer = open_gguf_tokenizer(entry.path());
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    EXPECT_GT(tokenizer->tokens.size(), 1000u) << entry.path();
  }
}

}  // namespace
}  // namespace shoal
