// What the dense families of 2025 say in their own ways, and folders with encoders around a language model.
#include "formats/hf_families.h"

#include <cmath>
#include <filesystem>

#include "formats/checkpoint.h"
#include "formats/hf_config.h"
#include "formats/hf_names.h"
#include "formats/safetensors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kReferences = SHOAL_SHARED_DIR "/models/reference";

Json config_of(const char* architecture, const Json& more = Json::object()) {
  Json json = {{"architectures", {architecture}}, {"hidden_size", 64}, {"num_hidden_layers", 4}, {"num_attention_heads", 4},
               {"num_key_value_heads", 2}, {"intermediate_size", 128}, {"vocab_size", 320}, {"max_position_embeddings", 512}};
  json.update(more);
  return json;
}

ModelConfig parsed(const Json& json) {
  auto config = parse_hf_config(json);
  EXPECT_TRUE(config.ok()) << config.status();
  return *std::move(config);
}

std::string refusal(const Json& json) {
  const Status status = parse_hf_config(json).status();
  EXPECT_FALSE(status.ok());
  return std::string(status.message());
}

TEST(HfFamiliesTest, WhatAConfigLeavesUnsaidIsWhatItsFamilyMeans) {
  const ModelConfig seed = parsed(config_of("SeedOssForCausalLM"));
  EXPECT_EQ(seed.head_dim, 128u);
  EXPECT_TRUE(seed.biases.qkv && !seed.biases.output);
  const ModelConfig ernie = parsed(config_of("Ernie4_5ForCausalLM", {{"use_bias", true}}));
  EXPECT_TRUE(ernie.rope.interleaved && ernie.tied_embeddings && ernie.biases.qkv && ernie.biases.output && ernie.biases.mlp);
  EXPECT_EQ(ernie.rope.theta, 5e5);
  const ModelConfig glm = parsed(config_of("Glm4ForCausalLM"));
  EXPECT_EQ(glm.rope.dims, 64u);
  EXPECT_TRUE(glm.rope.interleaved && glm.biases.qkv && !glm.biases.output);
}

TEST(HfFamiliesTest, LayersWithoutPositionsAreListedOrEveryNth) {
  Json json = config_of("SmolLM3ForCausalLM", {{"no_rope_layers", {1, 0, 1, 0}}});
  EXPECT_THAT(parsed(json).shapes.rope_layers, ElementsAre(true, false, true, false));
  json["no_rope_layers"] = nullptr;
  json["no_rope_layer_interval"] = 2;
  EXPECT_THAT(parsed(json).shapes.rope_layers, ElementsAre(true, false, true, false));
  json.erase("no_rope_layer_interval");
  EXPECT_THAT(parsed(json).shapes.rope_layers, ElementsAre(true, true, true, false));
  json["no_rope_layers"] = {1, 0};
  EXPECT_THAT(refusal(json), HasSubstr("'no_rope_layers' is not a list with one entry for each of the 4 layers"));
  json["no_rope_layers"] = {1, 1, 1, 2};
  EXPECT_THAT(refusal(json), HasSubstr("'no_rope_layers' entry 3"));
}

TEST(HfFamiliesTest, WhereThereAreWindowsSomeFamiliesTurnOnlyTheirLayers) {
  Json json = config_of("Exaone4ForCausalLM", {{"sliding_window", nullptr}});
  EXPECT_TRUE(parsed(json).turns(3)) << "no windows";
  json["sliding_window"] = 16;
  for (const char* name : {"Exaone4ForCausalLM", "Cohere2ForCausalLM"}) {
    json["architectures"] = {name};
    const ModelConfig config = parsed(json);
    EXPECT_THAT(config.sliding_layers, ElementsAre(true, true, true, false)) << name;
    EXPECT_EQ(config.shapes.rope_layers, config.sliding_layers) << name;
  }
  json["architectures"] = {"Olmo3ForCausalLM"};
  json["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 8.0}, {"original_max_position_embeddings", 64}};
  const ModelConfig olmo = parsed(json);
  EXPECT_TRUE(olmo.turns(3));
  EXPECT_EQ(olmo.rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(olmo.local_rope->scaling, RopeScaling::kNone);
  EXPECT_EQ(olmo.local_rope->theta, 5e5);
}

TEST(HfFamiliesTest, GraniteIsServedWithAndWithoutStateAndExperts) {
  const Json attention = {"attention", "attention", "attention", "attention"};
  Json json = config_of("GraniteMoeHybridForCausalLM", {{"num_local_experts", 0}, {"layer_types", attention}, {"shared_intermediate_size", 96},
                                                        {"position_embedding_type", "rope"}, {"residual_multiplier", 0.5}, {"logits_scaling", 4.0}});
  const ModelConfig config = parsed(json);
  EXPECT_EQ(config.intermediate_size, 96u);
  EXPECT_EQ(config.scales.residual, 0.5);
  EXPECT_EQ(config.scales.logits, 0.25);
  EXPECT_TRUE(config.turns(0));
  json["position_embedding_type"] = nullptr;
  EXPECT_FALSE(parsed(json).turns(0));
  EXPECT_FALSE(config.recurrent.has_value()) << "attention in every layer: a decoder as any other";
  json["layer_types"][2] = "mamba";
  json["mamba_n_heads"] = 8, json["mamba_d_head"] = 16, json["mamba_d_state"] = 16;
  EXPECT_TRUE(parsed(json).recurrent->recurs(2));
  EXPECT_TRUE(parsed(json).recurrent->attends(3));
  json["num_local_experts"] = 8, json["num_experts_per_tok"] = 3;
  EXPECT_EQ(parsed(json).experts->shared_intermediate_size, 96u);
  json["layer_types"][1] = "hyena";
  EXPECT_THAT(refusal(json), HasSubstr("'layer_types' entry 1 is 'hyena'"));
  json.erase("layer_types");
  EXPECT_THAT(refusal(json), HasSubstr("'layer_types' does not say"));
  EXPECT_THAT(refusal(config_of("GraniteForCausalLM", {{"logits_scaling", 0}})), HasSubstr("logits_scaling"));
  EXPECT_THAT(refusal(config_of("GraniteForCausalLM", {{"residual_multiplier", -1}})), HasSubstr("not a positive number"));
}

TEST(HfFamiliesTest, HunyuansDynamicRopeIsAnotherBaseWhereThereIsAnAlpha) {
  Json json = config_of("HunYuanDenseV1ForCausalLM", {{"rope_scaling", {{"type", "dynamic"}, {"alpha", 1000.0}, {"factor", 1.0}}}});
  const ModelConfig config = parsed(json);
  EXPECT_EQ(config.rope.scaling, RopeScaling::kAlpha);
  EXPECT_EQ(config.rope.factor, 1000.0);
  EXPECT_EQ(config.context_length, 512u);
  EXPECT_EQ(config.queries.norm, QkNorm::kTurnedHeads);
  json["architectures"] = {"LlamaForCausalLM"};
  EXPECT_EQ(parsed(json).rope.scaling, RopeScaling::kDynamic);
}

TEST(HfFamiliesTest, QueriesOfMinistralGrowBeyondTheTrainedLength) {
  Json json = config_of("Ministral3ForCausalLM");
  EXPECT_FALSE(parsed(json).queries.growth.has_value());
  json["rope_parameters"] = {{"rope_type", "yarn"}, {"factor", 8.0}, {"original_max_position_embeddings", 64}, {"llama_4_scaling_beta", 0.1}};
  const ModelConfig config = parsed(json);
  EXPECT_EQ(config.queries.growth->factor, 0.1);
  EXPECT_EQ(config.queries.growth->tokens, 64u);
  json["rope_parameters"]["llama_4_scaling_beta"] = -0.1;
  EXPECT_THAT(refusal(json), HasSubstr("growth of queries"));
}

TEST(HfFamiliesTest, WhichLayersOfErnieHaveExpertsIsARangeAndAnInterval) {
  Json json = config_of("Ernie4_5_MoeForCausalLM", {{"moe_num_experts", 8}, {"moe_k", 3}, {"moe_intermediate_size", 40}});
  EXPECT_THAT(parsed(json).experts->layers, ElementsAre(false, true, true, true));
  json["moe_layer_start_index"] = 0;
  json["moe_layer_end_index"] = 2;
  json["moe_layer_interval"] = 2;
  const ModelConfig config = parsed(json);
  EXPECT_THAT(config.experts->layers, ElementsAre(false, true, false, false));
  EXPECT_EQ(config.experts->used, 3u);
  EXPECT_EQ(config.experts->shared_intermediate_size, 80u);
  EXPECT_TRUE(config.experts->selection_bias && !config.experts->sigmoid_scores && config.rope.interleaved);
  json["moe_k"] = 9;
  EXPECT_THAT(refusal(json), HasSubstr("9 experts are to be chosen of 8"));
  json["moe_k"] = 3;
  json["moe_norm_min"] = -1;
  EXPECT_THAT(refusal(json), HasSubstr("least sum of expert weights"));
}

TEST(HfFamiliesTest, HunyuanSaysItsExpertsForEachLayer) {
  Json json = config_of("HunYuanMoEV1ForCausalLM", {{"num_experts", 8}, {"moe_topk", Json::array({2, 2, 2, 2})}, {"moe_intermediate_size", Json::array({48, 48, 48, 48})}});
  const ModelConfig config = parsed(json);
  EXPECT_EQ(config.experts->used, 2u);
  EXPECT_EQ(config.experts->intermediate_size, 48u);
  EXPECT_EQ(config.queries.norm, QkNorm::kTurnedHeads);
  json["moe_topk"][3] = 1;
  EXPECT_THAT(refusal(json), HasSubstr("'moe_topk' differs between layers"));
  json["moe_topk"] = Json::array();
  EXPECT_THAT(refusal(json), HasSubstr("'moe_topk' is an empty list"));
}

TEST(HfFamiliesTest, MiniMaxTurnsAPartOfItsHeadsAndChoosesBySigmoid) {
  Json json = config_of("MiniMaxM2ForCausalLM", {{"num_local_experts", 16}, {"num_experts_per_tok", 4}, {"rotary_dim", 8}});
  const ModelConfig config = parsed(json);
  EXPECT_EQ(config.rope.dims, 8u);
  EXPECT_EQ(config.queries.norm, QkNorm::kWidth);
  EXPECT_TRUE(config.experts->sigmoid_scores && config.experts->selection_bias && config.experts->normalize);
  json["scoring_func"] = "softplus";
  EXPECT_THAT(refusal(json), HasSubstr("'scoring_func' is 'softplus'"));
  json["scoring_func"] = "sigmoid";
  json["rotary_dim"] = 32;
  EXPECT_THAT(refusal(json), HasSubstr("rotary_dim"));
  EXPECT_THAT(refusal(config_of("OlmoeForCausalLM", {{"num_experts", 8}, {"clip_qkv", 8.0}})), HasSubstr("'clip_qkv' is set"));
}

TEST(HfFamiliesTest, GptOssHasWindowsInEverySecondLayerAndExpertsInMxFp4) {
  Json json = config_of("GptOssForCausalLM", {{"num_local_experts", 8}, {"num_experts_per_tok", 4}, {"quantization_config", {{"quant_method", "mxfp4"}}}});
  const ModelConfig config = parsed(json);
  EXPECT_THAT(config.sliding_layers, ElementsAre(true, false, true, false));
  EXPECT_EQ(config.sliding_window, 128u);
  EXPECT_TRUE(config.queries.sinks && config.biases.qkv && config.experts->softmax_of_chosen && config.experts->biases);
  EXPECT_EQ(config.experts->gate_limit, 7.0);
  json["swiglu_limit"] = -7;
  EXPECT_THAT(refusal(json), HasSubstr("swiglu_limit"));
  json["swiglu_limit"] = 7;
  json["quantization_config"] = {{"quant_method", "gptq"}};
  EXPECT_THAT(refusal(json), HasSubstr("'gptq' is not served"));
}

TEST(HfFamiliesTest, Llama4SeesChunksWhereItTurns) {
  Json json = config_of("Llama4ForCausalLM", {{"num_local_experts", 4}, {"num_experts_per_tok", 1}, {"intermediate_size_mlp", 256}, {"no_rope_layers", Json::array()},
                                              {"interleave_moe_layer_step", 2}, {"attention_chunk_size", 32}});
  const ModelConfig config = parsed(json);
  EXPECT_THAT(config.shapes.rope_layers, ElementsAre(true, true, true, false));
  EXPECT_EQ(config.sliding_layers, config.shapes.rope_layers);
  EXPECT_EQ(config.queries.chunk, 32u);
  EXPECT_EQ(config.intermediate_size, 256u);
  EXPECT_EQ(config.experts->intermediate_size, 128u);
  EXPECT_THAT(config.experts->layers, ElementsAre(false, true, false, true));
  EXPECT_TRUE(config.experts->weigh_input && config.queries.growth->unturned_only);
  json["moe_layers"] = {0, 4};
  EXPECT_THAT(refusal(json), HasSubstr("'moe_layers' holds something that is not one of the 4 layers"));
  json["moe_layers"] = nullptr;
  json["floor_scale"] = 0;
  EXPECT_THAT(refusal(json), HasSubstr("floor_scale"));
}

TEST(HfFamiliesTest, ALayerOfLongcatIsTwoAndSomeExpertsGiveBackWhatTheyAreGiven) {
  Json json = config_of("LongcatFlashForCausalLM", {{"num_layers", 2}, {"ffn_hidden_size", 96}, {"expert_ffn_hidden_size", 40}, {"n_routed_experts", 8},
                                                    {"moe_topk", 4}, {"zero_expert_num", 4}, {"q_lora_rank", 16}, {"kv_lora_rank", 16},
                                                    {"qk_nope_head_dim", 16}, {"qk_rope_head_dim", 8}, {"v_head_dim", 16}});
  const ModelConfig config = parsed(json);
  EXPECT_EQ(config.layers, 4u);
  EXPECT_THAT(config.experts->layers, ElementsAre(true, false, true, false));
  EXPECT_EQ(config.experts->zero, 4u);
  EXPECT_EQ(config.latent->scale, 2.0);
  json["moe_topk"] = 13;
  EXPECT_THAT(refusal(json), HasSubstr("13 experts are to be chosen of 12"));
  json["moe_topk"] = 12;
  json["zero_expert_type"] = "copy";
  EXPECT_THAT(refusal(json), HasSubstr("'zero_expert_type' is 'copy'"));
}

TEST(HfFamiliesTest, FoldersWithEncodersAreReadByTheirTextConfig) {
  Json text = config_of("");
  text.erase("architectures");
  text["model_type"] = "ministral3";
  Json json = {{"architectures", {"Mistral3ForConditionalGeneration"}}, {"text_config", text}, {"tie_word_embeddings", true}, {"eos_token_id", {1, 7}}};
  const ModelConfig config = parsed(json);
  EXPECT_EQ(config.architecture, Architecture::kMinistral3);
  EXPECT_TRUE(config.tied_embeddings);
  EXPECT_THAT(parse_generation_config(json, Json())->eos, ElementsAre(1, 7));
  json["text_config"]["model_type"] = "mistral9";
  EXPECT_THAT(refusal(json), HasSubstr("architecture 'Mistral3ForConditionalGeneration' around a language model of type 'mistral9'"));
}

TEST(HfFamiliesTest, TheTextConfigOfGemma3MaySayNextToNothing) {
  const Json text = {{"model_type", "gemma3_text"}, {"hidden_size", 2560}, {"intermediate_size", 10240}, {"num_hidden_layers", 34},
                     {"rope_scaling", {{"factor", 8.0}, {"rope_type", "linear"}}}, {"sliding_window", 1024}};
  const ModelConfig config = parsed({{"architectures", {"Gemma3ForConditionalGeneration"}}, {"text_config", text}});
  EXPECT_EQ(config.vocab_size, 262'208u);
  EXPECT_EQ(config.heads, 8u);
  EXPECT_EQ(config.kv_heads, 4u);
  EXPECT_EQ(config.head_dim, 256u);
  EXPECT_EQ(config.context_length, 131'072u);
  EXPECT_TRUE(config.tied_embeddings);
}

TEST(HfFamiliesTest, Gemma4SaysTheHeadsOfLayersInEitherForm) {
  Json json = {{"architectures", {"Gemma4ForCausalLM"}}, {"hidden_size", 64}, {"intermediate_size", 128}, {"num_hidden_layers", 6},
               {"num_attention_heads", 4}, {"num_key_value_heads", 2}, {"head_dim", 16}, {"global_head_dim", 32}, {"num_global_key_value_heads", 1},
               {"attention_k_eq_v", true}, {"hidden_size_per_layer_input", 0}};
  ModelConfig config = parsed(json);
  EXPECT_EQ(config.sliding_layers, (std::vector<bool>{true, true, true, true, true, false}));
  EXPECT_EQ(config.heads_of(0).head_dim, 16u);
  EXPECT_EQ(config.heads_of(5).head_dim, 32u);
  EXPECT_EQ(config.heads_of(5).kv_heads, 1u);
  EXPECT_EQ(config.rope.scaling, RopeScaling::kProportional);
  EXPECT_EQ(config.rope.dims, 32u);
  EXPECT_EQ(config.rope.turning_pairs, 4u);
  EXPECT_EQ(config.local_rope->dims, 16u);
  json["per_layer_config"] = {{"5", {{"head_dim", 48}, {"num_key_value_heads", 4}}}};
  config = parsed(json);
  EXPECT_EQ(config.heads_of(5).head_dim, 48u);
  EXPECT_EQ(config.heads_of(5).kv_heads, 4u);
  json["per_layer_config"]["5"]["num_key_value_heads"] = 3;
  EXPECT_THAT(refusal(json), HasSubstr("4 attention heads of layer 5 cannot share 3"));
}

TEST(HfFamiliesTest, LastLayersOfGemma4ReadWhatTheLastOfTheirKindStores) {
  Json json = {{"architectures", {"Gemma4ForCausalLM"}}, {"hidden_size", 64}, {"intermediate_size", 128}, {"num_hidden_layers", 5},
               {"num_attention_heads", 4}, {"num_key_value_heads", 2}, {"num_kv_shared_layers", 2}, {"use_double_wide_mlp", true},
               {"layer_types", {"sliding_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention"}}};
  const ModelConfig config = parsed(json);
  EXPECT_THAT(config.shapes.kv_source, ElementsAre(0, 1, 2, 1, 2));
  EXPECT_THAT(config.shapes.mlp_width, ElementsAre(128, 128, 128, 256, 256));
  json["num_kv_shared_layers"] = 4;
  EXPECT_THAT(refusal(json), HasSubstr("an earlier layer of its kind, and there is none"));
  json["num_kv_shared_layers"] = 5;
  EXPECT_THAT(refusal(json), HasSubstr("5 of 5 layers are to read"));
}

TEST(HfFamiliesTest, MiMoHasOtherHeadsInLayersWithWindows) {
  Json json = {{"architectures", {"MiMoV2FlashForCausalLM"}}, {"vocab_size", 320}, {"hidden_size", 64}, {"intermediate_size", 128}, {"num_hidden_layers", 3},
               {"num_attention_heads", 4}, {"num_key_value_heads", 2}, {"head_dim", 24}, {"v_head_dim", 16}, {"sliding_window_size", 15},
               {"hybrid_layer_pattern", {0, 1, 0}}, {"moe_layer_freq", {0, 1, 1}}, {"moe_intermediate_size", 40}, {"n_routed_experts", 8}};
  const ModelConfig config = parsed(json);
  EXPECT_EQ(config.sliding_window, 16u) << "the config leaves the token itself out";
  EXPECT_EQ(config.heads_of(1).kv_heads, 4u);
  EXPECT_EQ(config.heads_of(2).kv_heads, 2u);
  EXPECT_EQ(config.heads_of(2).value_dim, 16u);
  EXPECT_EQ(config.experts->layers, (std::vector<bool>{false, true, true}));
  EXPECT_EQ(config.experts->shared_intermediate_size, 0u);
  json["moe_layer_freq"] = {0, 2, 1};
  EXPECT_THAT(refusal(json), HasSubstr("'moe_layer_freq' entry 1"));
}

TEST(HfNamesTest, PrefixesAreTakenOffAndEncodersLeftOut) {
  const auto name = [](const char* stored, Architecture a = Architecture::kMistral) { return model_tensor_name(a, stored); };
  EXPECT_EQ(name("language_model.model.layers.0.mlp.up_proj.weight"), "model.layers.0.mlp.up_proj.weight");
  EXPECT_EQ(name("model.language_model.norm.weight"), "model.norm.weight");
  EXPECT_EQ(name("language_model.lm_head.weight"), "lm_head.weight");
  EXPECT_EQ(name("vision_tower.patch_conv.weight"), std::nullopt);
  EXPECT_EQ(name("model.multi_modal_projector.norm.weight"), std::nullopt);
  EXPECT_EQ(name("lm_head.weight"), "lm_head.weight");
}

TEST(HfNamesTest, WhatFamiliesNameTheirOwnWayIsNamedAsOthersDo) {
  const std::string layer = "model.layers.3.";
  EXPECT_EQ(model_tensor_name(Architecture::kHunyuanDense, layer + "self_attn.query_layernorm.weight"), layer + "self_attn.q_norm.weight");
  const auto longcat = [](const char* stored) { return *model_tensor_name(Architecture::kLongcatFlash, stored); };
  EXPECT_EQ(longcat("model.layers.3.self_attn.1.o_proj.weight"), "model.layers.7.self_attn.o_proj.weight");
  EXPECT_EQ(longcat("model.layers.3.mlps.0.up_proj.weight"), "model.layers.6.mlp.up_proj.weight");
  EXPECT_EQ(longcat("model.layers.3.mlp.router.classifier.weight"), "model.layers.6.mlp.gate.weight");
  EXPECT_EQ(longcat("model.layers.3.mlp.router.e_score_correction_bias"), "model.layers.6.mlp.gate.e_score_correction_bias");
  EXPECT_EQ(longcat("model.layers.3.mlp.experts.0.up_proj.weight"), "model.layers.6.mlp.experts.0.up_proj.weight");
  EXPECT_EQ(longcat("model.layers.x.mlps.0.up_proj.weight"), "model.layers.x.mlps.0.up_proj.weight");
  EXPECT_EQ(model_tensor_name(Architecture::kErnie45Moe, layer + "mlp.moe_statics.e_score_correction_bias"), layer + "mlp.gate.e_score_correction_bias");
  EXPECT_EQ(model_tensor_name(Architecture::kMiniMaxM2, layer + "block_sparse_moe.e_score_correction_bias"),
            layer + "block_sparse_moe.gate.e_score_correction_bias");
  EXPECT_EQ(model_tensor_name(Architecture::kGraniteHybrid, layer + "shared_mlp.input_linear.weight"), layer + "mlp.gate_up_proj.weight");
  EXPECT_EQ(model_tensor_name(Architecture::kGlm4, layer + "post_self_attn_layernorm.weight"), layer + "post_attention_layernorm.weight");
  EXPECT_EQ(model_tensor_name(Architecture::kGlm4, layer + "post_attention_layernorm.weight"), layer + "pre_feedforward_layernorm.weight");
  EXPECT_EQ(model_tensor_name(Architecture::kGemma4, layer + "experts.gate_up_proj"), layer + "mlp.experts.gate_up_proj");
  EXPECT_EQ(model_tensor_name(Architecture::kGemma4, layer + "router.proj.weight"), layer + "mlp.gate.weight");
  EXPECT_EQ(model_tensor_name(Architecture::kMiMoV2, layer + "self_attn.attention_sink_bias"), layer + "self_attn.sinks");
  EXPECT_EQ(model_tensor_name(Architecture::kLlama, layer + "post_attention_layernorm.weight"), layer + "post_attention_layernorm.weight");
}

TEST(HfNamesTest, ErrorsNameWhatAFolderCallsATensor) {
  struct Case {
    Architecture architecture;
    const char* stored;
    const char* outer = "model.";
  };
  constexpr Case kCases[] = {
      {Architecture::kLlama, "model.layers.3.mlp.up_proj.weight"},
      {Architecture::kMistral, "language_model.model.layers.3.mlp.up_proj.weight", "language_model.model."},
      {Architecture::kMistral, "language_model.lm_head.weight", "language_model.model."},
      {Architecture::kQwen35, "model.language_model.norm.weight", "model.language_model."},
      {Architecture::kQwen3, "layers.3.mlp.up_proj.weight", ""},
      {Architecture::kQwen3, "lm_head.weight", ""},
      {Architecture::kGlm4, "model.layers.3.post_self_attn_layernorm.weight"},
      {Architecture::kGlm4, "model.layers.3.post_attention_layernorm.weight"},
      {Architecture::kGemma4, "model.language_model.layers.3.router.proj.weight", "model.language_model."},
      {Architecture::kGraniteHybrid, "model.layers.3.shared_mlp.input_linear.weight"},
      {Architecture::kGraniteHybrid, "model.layers.3.block_sparse_moe.router.layer.weight"},
      {Architecture::kLlama4, "language_model.model.layers.3.feed_forward.router.weight", "language_model.model."},
      {Architecture::kFalconH1, "model.layers.3.pre_ff_layernorm.weight"},
      {Architecture::kFalconH1, "model.final_layernorm.weight"},
      {Architecture::kLfm2Moe, "model.layers.3.feed_forward.experts.7.w1.weight"},
      {Architecture::kLfm2Moe, "model.layers.3.feed_forward.expert_bias"},
      {Architecture::kLfm2, "model.layers.3.self_attn.out_proj.weight"},
      {Architecture::kLfm2, "model.embedding_norm.weight"},
      {Architecture::kNemotronH, "backbone.layers.3.norm.weight", "backbone."},
      {Architecture::kNemotronH, "backbone.layers.3.mixer.A_log", "backbone."},
      {Architecture::kNemotronH, "backbone.layers.3.mixer.experts.2.up_proj.weight", "backbone."},
      {Architecture::kNemotronH, "backbone.embeddings.weight", "backbone."},
      {Architecture::kLongcatFlash, "model.layers.3.self_attn.1.o_proj.weight"},
      {Architecture::kLongcatFlash, "model.layers.3.mlps.0.up_proj.weight"},
      {Architecture::kLongcatFlash, "model.layers.3.mlp.router.classifier.weight"},
      {Architecture::kLongcatFlash, "model.layers.3.mlp.router.e_score_correction_bias"},
      {Architecture::kLongcatFlash, "model.layers.3.mlp.experts.0.up_proj.weight"},
  };
  for (const Case& one : kCases) {
    EXPECT_EQ(folder_tensor_name(one.architecture, *model_tensor_name(one.architecture, one.stored), one.outer), one.stored);
  }
}

// Every tensor of the reference folders, for there it is known what a folder calls it.
TEST(HfNamesTest, EveryTensorOfTheReferenceFoldersIsNamedAsItIsStored) {
  size_t folders = 0;
  if (!std::filesystem::exists(kReferences)) GTEST_SKIP() << "no reference folders here";
  for (const auto& entry : std::filesystem::directory_iterator(kReferences)) {
    const std::string path = entry.path();
    const auto checkpoint = open_checkpoint(path);
    if (!checkpoint.ok()) continue;
    ++folders;
    for (const auto& file : (*checkpoint)->files) {
      const auto tensors = parse_safetensors(file->bytes());
      ASSERT_TRUE(tensors.ok()) << path;
      for (const NamedTensor& tensor : *tensors) {
        const auto name = model_tensor_name((*checkpoint)->config.architecture, tensor.name);
        EXPECT_TRUE(!name || (*checkpoint)->name_in_file(*name) == tensor.name) << path << ": " << tensor.name << ", but " << (*checkpoint)->name_in_file(*name);
      }
    }
  }
  EXPECT_GT(folders, 0u);
}

}  // namespace
}  // namespace shoal
