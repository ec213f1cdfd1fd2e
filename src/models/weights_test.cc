#include <cstring>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/random_checkpoint.h"
#include "models/step.h"
#include "models/test_runner.h"

namespace shoal {
namespace {

using testing::HasSubstr;

std::string message(const Status& status) { return std::string(status.message()); }

Status plan_status(const Checkpoint& checkpoint) {
  return plan_model(std::make_shared<Checkpoint>(checkpoint), {}).status();
}

TEST(PlanTest, AMissingTensorIsNamed) {
  const RandomCheckpoint random(small_config(Architecture::kLlama), DType::kF32, 1);
  Checkpoint checkpoint = *random.get();
  checkpoint.config.layers = 3;
  checkpoint.config.sliding_layers.assign(3, false);
  const Status status = plan_status(checkpoint);
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(message(status), HasSubstr("'model.layers.2.input_layernorm.weight' is missing"));
}

TEST(PlanTest, AWrongShapeIsNamedWithBothShapes) {
  const RandomCheckpoint random(small_config(Architecture::kLlama), DType::kF32, 1);
  Checkpoint checkpoint = *random.get();
  checkpoint.config.intermediate_size = 1u << 20;
  EXPECT_THAT(message(plan_status(checkpoint)), HasSubstr("shape [160, 96] where the config asks for [1048576, 96]"));
}

TEST(PlanTest, AWrongTypeIsNamed) {
  const RandomCheckpoint random(small_config(Architecture::kLlama), DType::kF32, 1);
  Checkpoint checkpoint = *random.get();
  WeightMap weights;
  for (auto [name, view] : random.get()->weights.all()) {
    if (name == "model.norm.weight") view.dtype = DType::kI32;
    ASSERT_TRUE(weights.add(name, view));
  }
  checkpoint.weights = weights;
  const Status status = plan_status(checkpoint);
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(message(status), HasSubstr("'model.norm.weight' has type I32"));
}

TEST(PlanTest, BytesAreKnownBeforeTheLoadAndExact) {
  const ModelConfig config = small_config(Architecture::kLlama);
  const RandomCheckpoint random(config, DType::kBF16, 1);
  auto plan = plan_model(random.get(), {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ((*plan)->kv_block_bytes(), 2u * 16 * config.layers * config.kv_heads * config.head_dim * sizeof(float));
  EXPECT_EQ((*plan)->vocab_size(), config.vocab_size);
  EXPECT_GE((*plan)->weight_bytes(), (*plan)->parameter_count() * 2);
  EXPECT_LE((*plan)->weight_bytes(), (*plan)->parameter_count() * 2 * 11 / 10);
  auto quantized = plan_model(random.get(), {.quantization = Quantization::kQ8_0});
  ASSERT_TRUE(quantized.ok());
  EXPECT_LT((*quantized)->weight_bytes(), (*plan)->weight_bytes());
  EXPECT_EQ((*quantized)->kv_block_bytes() * 2, (*plan)->kv_block_bytes()) << "auto: f16 beside quantised weights";
  EXPECT_EQ((*quantized)->parameter_count(), (*plan)->parameter_count());
  EXPECT_LT((*plan)->workspace_bytes(1, 1), (*plan)->workspace_bytes(64, 1));
}

TEST(PlanTest, BytesOfAKvBlockFollowTheTypeOfTheCacheAndPadOddHeads) {
  ModelConfig config = small_config(Architecture::kLlama);
  const auto block_bytes = [&](KvType type, uint32_t head_dim) {
    config.head_dim = config.rope.dims = head_dim;
    const RandomCheckpoint random(config, DType::kBF16, 1);
    return (*plan_model(random.get(), {.kv_type = type}))->kv_block_bytes() / (2 * config.layers * config.kv_heads);
  };
  EXPECT_EQ(block_bytes(KvType::kF32, 64), 16u * 64 * 4);
  EXPECT_EQ(block_bytes(KvType::kBF16, 64), 16u * 64 * 2);
  EXPECT_EQ(block_bytes(KvType::kQ8_0, 64), 16u * (64 + 2 * 2));
  EXPECT_EQ(block_bytes(KvType::kF16, 40), 16u * 48 * 2);
  EXPECT_EQ(block_bytes(KvType::kQ8_0, 40), 16u * (64 + 2 * 2));
}

TEST(LoadTest, ProgressEndsAtTheWeightsBytesAndACancelledLoadSaysSo) {
  const RandomCheckpoint random(small_config(Architecture::kLlama), DType::kBF16, 1);
  auto plan = plan_model(random.get(), {});
  ASSERT_TRUE(plan.ok());
  TestDevice on;
  const DeviceSpan memory = on.allocate((*plan)->weight_bytes());
  LoadControl control;
  EXPECT_TRUE((*plan)->load(memory, *on.backend, on.threads, control).ok());
  EXPECT_EQ(control.bytes_done.load(), (*plan)->weight_bytes());
  control.cancelled = true;
  control.bytes_done = 0;
  EXPECT_EQ((*plan)->load(memory, *on.backend, on.threads, control).status().code(), StatusCode::kCancelled);
}

// A model whose q_proj is FP8 with a scale per block of 16 x 32, and the same model in f32.
TEST(LoadTest, Fp8BlocksAreMultipliedByTheirScales) {
  const ModelConfig config = small_config(Architecture::kLlama);
  const RandomCheckpoint random(config, DType::kF32, 1);
  const uint32_t rows = config.heads * config.head_dim, columns = config.hidden_size;
  Tensor fp8 = *Tensor::allocate(DType::kF8E4M3, Shape{rows, columns});
  Tensor plain = *Tensor::allocate(DType::kF32, Shape{rows, columns});
  Tensor scales = *Tensor::allocate(DType::kF32, Shape{(rows + 15) / 16, columns / 32});
  Rng rng(5);
  auto* scale = reinterpret_cast<float*>(scales.data());
  for (uint64_t i = 0; i < scales.view().bytes / 4; ++i) scale[i] = std::ldexp(1.0f, -static_cast<int>(rng.below(6)) - 4);
  for (uint32_t r = 0; r < rows; ++r) {
    for (uint32_t k = 0; k < columns; ++k) {
      const auto bits = static_cast<uint8_t>(rng.below(0x78) | (rng.below(2) << 7));  // finite
      fp8.data()[r * columns + k] = static_cast<std::byte>(bits);
      reinterpret_cast<float*>(plain.data())[r * columns + k] = f32_from_f8e4m3(bits) * scale[r / 16 * (columns / 32) + k / 32];
    }
  }
  const std::string name = "model.layers.0.self_attn.q_proj.weight";
  const auto with = [&](const TensorView& q, bool scaled) {
    auto checkpoint = std::make_shared<Checkpoint>(*random.get());
    checkpoint->weights = WeightMap();
    for (const auto& [n, view] : random.get()->weights.all()) CHECK(checkpoint->weights.add(n, n == name ? q : view));
    if (scaled) CHECK(checkpoint->weights.add(name + "_scale_inv", scales.view()));
    if (scaled) checkpoint->config.fp8_block = {16, 32};
    return checkpoint;
  };
  EXPECT_THAT(message(plan_model(with(fp8.view(), false), {}).status()), HasSubstr("no block scales"));
  auto a = TestModel::open(with(fp8.view(), true), {});
  auto b = TestModel::open(with(plain.view(), false), {});
  ASSERT_TRUE(a.ok()) << a.status();
  ASSERT_TRUE(b.ok()) << b.status();
  const std::vector<TokenId> prompt = {3, 50, 200, 7};
  // Scales that are powers of two lose nothing in bf16.
  EXPECT_EQ(TestSequence(**a, prompt).prefill(), TestSequence(**b, prompt).prefill());
}

// gpt-oss in folders has gate and up by turns, and consecutive elements in a byte; in GGUF files they are tensors of their own.
TEST(LoadTest, MxFp4OfFoldersAndOfGgufFilesIsTheSame) {
  const ModelConfig config = small_config(Architecture::kGptOss);
  const RandomCheckpoint random(config, DType::kF32, 1);
  const uint32_t experts = config.experts->count, hidden = config.hidden_size, width = config.experts->intermediate_size;
  Rng rng(5);
  std::deque<Tensor> tensors;
  auto folder = std::make_shared<Checkpoint>(*random.get()), gguf = std::make_shared<Checkpoint>(*random.get());
  for (auto* checkpoint : {folder.get(), gguf.get()}) {
    checkpoint->weights = WeightMap();
    for (const auto& [n, view] : random.get()->weights.all()) {
      if (!n.ends_with("experts.gate_up_proj") && !n.ends_with("experts.down_proj")) CHECK(checkpoint->weights.add(n, view));
    }
  }
  const auto add = [&](const std::string& name, uint32_t rows, uint32_t columns, std::initializer_list<const char*> parts) {
    const uint32_t blocks = columns / 32;
    Tensor& codes = tensors.emplace_back(*Tensor::allocate(DType::kU8, Shape{experts, rows, blocks, 16}));
    Tensor& scales = tensors.emplace_back(*Tensor::allocate(DType::kU8, Shape{experts, rows, blocks}));
    for (uint64_t i = 0; i < codes.view().bytes; ++i) codes.data()[i] = static_cast<std::byte>(rng.below(256));
    for (uint64_t i = 0; i < scales.view().bytes; ++i) scales.data()[i] = static_cast<std::byte>(118 + rng.below(6));
    const auto stored = [&](const std::string& n, const TensorView& view) { CHECK(folder->weights.add(n, view)); };
    stored(name + "_blocks", codes.view());
    stored(name + "_scales", scales.view());
    const auto step = static_cast<uint32_t>(parts.size());
    uint32_t turn = 0;
    for (const char* part : parts) {
      Tensor& own = tensors.emplace_back(*Tensor::allocate(DType::kMXFP4, Shape{experts, rows / step, columns}));
      for (uint32_t block = 0; block < experts * rows / step * blocks; ++block) {
        const uint32_t from = (block / blocks * step + turn) * blocks + block % blocks;
        std::byte* out = own.data() + block * 17;
        out[0] = scales.data()[from];
        for (uint32_t k = 0; k < 32; ++k) {
          const std::byte code = k % 2 == 0 ? codes.data()[from * 16 + k / 2] & std::byte{15} : codes.data()[from * 16 + k / 2] >> 4;
          if (k < 16) out[1 + k] = code; else out[1 + k - 16] |= code << 4;
        }
      }
      CHECK(gguf->weights.add(name.substr(0, name.rfind('.') + 1) + part + ".weight", own.view()));
      ++turn;
    }
  };
  for (uint32_t i = 0; i < config.layers; ++i) {
    const std::string at = absl::StrCat("model.layers.", i, ".mlp.experts.");
    add(at + "gate_up_proj", 2 * width, hidden, {"gate_proj", "up_proj"});
    add(at + "down_proj", hidden, width, {"down_proj"});
  }
  auto a = TestModel::open(folder, {}), b = TestModel::open(gguf, {});
  ASSERT_TRUE(a.ok()) << a.status();
  ASSERT_TRUE(b.ok()) << b.status();
  const std::vector<TokenId> prompt = {3, 50, 200, 7};
  EXPECT_EQ(TestSequence(**a, prompt).prefill(), TestSequence(**b, prompt).prefill());
  folder->config.experts->intermediate_size = 96;
  EXPECT_THAT(message(plan_status(*folder)), HasSubstr("gate_up_proj_blocks' is U8 [12, 128, 3, 16] where 12 times 192 rows of 48 bytes (U8) are needed"));
}

TEST(LoadTest, QuantisedTiedEmbeddingsStayAsStored) {
  const ModelConfig config = small_config(Architecture::kGemma2);
  ASSERT_TRUE(config.tied_embeddings);
  const RandomCheckpoint random(config, DType::kBF16, 1);
  auto plain = plan_model(random.get(), {}), quantized = plan_model(random.get(), {.quantization = Quantization::kQ8_0});
  ASSERT_TRUE(plain.ok() && quantized.ok());
  EXPECT_EQ((*plain)->parameter_count(), (*quantized)->parameter_count());
}

TEST(WeightsTest, ARouterThatHoldsNoNumbersIsNamedByTheLoad) {
  for (const char* name : {"model.layers.1.mlp.gate.weight", "model.layers.1.mlp.gate.e_score_correction_bias"}) {
    const RandomCheckpoint checkpoint(small_config(Architecture::kGlm4Moe), DType::kF32, 3);
    const TensorView& router = *checkpoint.get()->weights.find(name);
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::memcpy(const_cast<std::byte*>(router.data) + router.bytes - sizeof nan, &nan, sizeof nan);
    const auto model = TestModel::open(checkpoint.get(), {});
    EXPECT_EQ(model.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(model.status().message()), testing::HasSubstr(name));
  }
}

TEST(WeightsTest, MisshapedTensorsOfAStateAreNamed) {
  for (const char* name : {"model.layers.0.linear_attn.conv1d.weight", "model.layers.0.linear_attn.A_log", "model.layers.0.linear_attn.dt_bias",
                           "model.layers.0.linear_attn.norm.weight", "model.layers.0.linear_attn.in_proj_qkvz.weight"}) {
    const RandomCheckpoint checkpoint(small_config(Architecture::kQwen3Next), DType::kF32, 3);
    auto changed = std::make_shared<Checkpoint>(*checkpoint.get());
    changed->weights = {};
    for (const auto& [stored, view] : checkpoint.get()->weights.all()) {
      TensorView tensor = view;
      if (stored == name) tensor.shape = Shape{7}, tensor.bytes = 28;
      ASSERT_TRUE(changed->weights.add(stored, tensor));
    }
    const auto plan = plan_model(changed, {});
    EXPECT_EQ(plan.status().code(), StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(std::string(plan.status().message()), testing::HasSubstr(name));
  }
}

TEST(StateLayout, NoPieceLiesAcrossTwoBlocks) {
  StateLayout layout;
  layout.layers = {{.channels = 1300, .taps = 4, .heads = 5, .key_dim = 32, .value_dim = 100}, {}, {.channels = 70, .taps = 3}};
  const size_t least = StateLayout::piece_bytes_max(layout.layers), block = least + 1000;
  layout.place(block);
  std::vector<std::pair<size_t, size_t>> pieces;  // from, to
  const auto add = [&](const StatePlace& place, size_t bytes) {
    EXPECT_LE(place.offset + bytes, block);
    EXPECT_EQ(place.offset % 64, 0u);
    pieces.emplace_back(place.block * block + place.offset, place.block * block + place.offset + bytes);
  };
  const StateLayer& first = layout.layers[0];
  ASSERT_EQ(first.tails.size(), 3u);
  ASSERT_EQ(first.scans.size(), 10u);
  for (size_t i = 0; i < 3; ++i) add(first.tails[i], 3 * std::min<size_t>(kTailChannels, 1300 - i * kTailChannels) * 4);
  for (size_t i = 0; i < 10; ++i) add(first.scans[i], 32 * (i % 2 == 0 ? 64 : 48) * 4);
  add(layout.layers[2].tails.at(0), 2 * 70 * 4);
  std::sort(pieces.begin(), pieces.end());
  for (size_t i = 1; i < pieces.size(); ++i) EXPECT_GE(pieces[i].first, pieces[i - 1].second);
  EXPECT_EQ(layout.blocks, pieces.back().first / block + 1);
}

// DeepSeek-V2: 128 heads whose absorbed queries are 576 wide, 160 experts.
TEST(StepShape, TheWorkspaceOfManyHeadsAndExpertsIsWhatTheirProductsNeed) {
  StepShape shape;
  shape.hidden = 5120;
  shape.q_width = 128 * 576;
  shape.kv_width = 576;
  shape.mlp_width = 12288;
  shape.rope_half = 32;
  shape.state_floats = 128 * attention_state_floats(512);
  shape.context = 4096;
  shape.quantized = true;
  shape.experts = 160;
  shape.experts_used = 6;
  shape.expert_width = 1536;
  shape.latent_heads = 128;
  shape.latent_width = 512;
  shape.latent_query = 128 * 192;
  EXPECT_LT(shape.bytes(512, 256), uint64_t{3} << 29);
}

}  // namespace
}  // namespace shoal
