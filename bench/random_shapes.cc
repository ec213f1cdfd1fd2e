#include "bench/random_shapes.h"

#include <cstring>
#include <string_view>

namespace shoal {
namespace {

bool is(const RandomShape& shape, std::string_view architecture) { return shape.architecture == architecture; }

// Adds the tensors of a layer.
class LayerTensors {
 public:
  LayerTensors(const RandomShape& shape, const std::string& type, uint32_t layer, std::vector<RandomTensor>& out)
      : s_(shape), type_(type), at_("blk." + std::to_string(layer) + "."), out_(out) {}

  void matrix(const std::string& name, uint64_t rows, uint64_t columns) { out_.push_back({at_ + name + ".weight", type_, {columns, rows}, {}}); }
  void vector(const std::string& name, uint64_t size, float fill) { filled(name, {size}, fill); }
  // Rows shorter than a block of the type are of one with shorter blocks.
  void matrices(const std::string& name, uint64_t count, uint64_t rows, uint64_t columns) {
    const std::string type = columns % random_types().at(type_).elements == 0 ? type_ : "q8_0";
    out_.push_back({at_ + name + ".weight", type, {columns, rows, count}, {}});
  }

  void heads() {
    const uint64_t q = uint64_t{s_.heads} * s_.head_dim, kv = uint64_t{s_.kv_heads} * s_.head_dim;
    matrix("attn_q", delta_nets(s_) ? 2 * q : q, s_.hidden);  // gated queries
    matrix("attn_k", kv, s_.hidden);
    matrix("attn_v", kv, s_.hidden);
    if (s_.qkv_bias) {
      vector("attn_q.bias", q, 0.01f);
      vector("attn_k.bias", kv, 0.01f);
      vector("attn_v.bias", kv, 0.01f);
    }
    if (is(s_, "qwen3moe") || is(s_, "lfm2") || delta_nets(s_)) {
      vector("attn_q_norm.weight", s_.head_dim, 1);
      vector("attn_k_norm.weight", s_.head_dim, 1);
    }
    matrix("attn_output", s_.hidden, q);
  }

  void latent() {
    const uint64_t queries = uint64_t{s_.heads} * (s_.head_dim + s_.latent.rope);
    if (s_.latent.query > 0) {
      matrix("attn_q_a", s_.latent.query, s_.hidden);
      vector("attn_q_a_norm.weight", s_.latent.query, 1);
      matrix("attn_q_b", queries, s_.latent.query);
    } else {
      matrix("attn_q", queries, s_.hidden);
    }
    matrix("attn_kv_a_mqa", s_.latent.rank + s_.latent.rope, s_.hidden);
    vector("attn_kv_a_norm.weight", s_.latent.rank, 1);
    matrices("attn_k_b", s_.heads, s_.latent.rank, s_.head_dim);
    matrices("attn_v_b", s_.heads, s_.latent.value, s_.latent.rank);
    matrix("attn_output", s_.hidden, uint64_t{s_.heads} * s_.latent.value);
  }

  void state() {
    if (s_.recurrent.inner == 0) return short_convolution();
    delta_nets(s_) ? delta_net() : mamba();
  }

  void mlp(const std::string& suffix, uint64_t width) {
    if (!single_blocks(s_)) matrix("ffn_gate" + suffix, width, s_.hidden);
    matrix("ffn_up" + suffix, width, s_.hidden);
    matrix("ffn_down" + suffix, s_.hidden, width);
  }

  void experts() {
    const RandomShape::Experts& e = s_.experts;
    out_.push_back({at_ + "ffn_gate_inp.weight", "f32", {s_.hidden, e.count}, {}});
    matrices("ffn_gate_exps", e.count, e.width, s_.hidden);
    matrices("ffn_up_exps", e.count, e.width, s_.hidden);
    matrices("ffn_down_exps", e.count, s_.hidden, e.width);
    if (e.shared > 0) mlp("_shexp", uint64_t{e.shared} * e.width);
    if (delta_nets(s_)) vector("ffn_gate_inp_shexp.weight", s_.hidden, 0.01f);
  }

 private:
  void filled(const std::string& name, std::vector<uint64_t> dims, float fill) { out_.push_back({at_ + name, "f32", std::move(dims), fill}); }
  void convolution(const std::string& name, uint64_t channels) {
    out_.push_back({at_ + name + ".weight", "f32", {s_.recurrent.taps, channels}, {}});
  }

  void delta_net() {
    const RandomShape::Recurrent& r = s_.recurrent;
    const uint64_t channels = 2 * uint64_t{r.groups} * r.state + r.inner;
    matrix("attn_qkv", channels, s_.hidden);
    matrix("attn_gate", r.inner, s_.hidden);
    if (is(s_, "qwen3next")) {
      matrix("ssm_ba", 2 * r.heads, s_.hidden);
    } else {
      matrix("ssm_alpha", r.heads, s_.hidden);
      matrix("ssm_beta", r.heads, s_.hidden);
    }
    convolution("ssm_conv1d", channels);
    vector("ssm_a", r.heads, -1);
    vector("ssm_dt.bias", r.heads, -1);
    vector("ssm_norm.weight", r.inner / r.heads, 1);
    matrix("ssm_out", s_.hidden, r.inner);
  }

  void mamba() {
    const RandomShape::Recurrent& r = s_.recurrent;
    const uint64_t channels = r.inner + 2 * uint64_t{r.groups} * r.state;
    matrix("ssm_in", r.inner + channels + r.heads, s_.hidden);
    convolution("ssm_conv1d", channels);
    vector("ssm_conv1d.bias", channels, 0.01f);
    filled("ssm_a", {1, r.heads}, -1);
    filled("ssm_d", {1, r.heads}, 1);
    vector("ssm_dt.bias", r.heads, -1);
    if (!is(s_, "falcon-h1")) filled("ssm_norm.weight", {r.inner / r.groups, r.groups}, 1);
    matrix("ssm_out", s_.hidden, r.inner);
  }

  void short_convolution() {
    convolution("shortconv.conv", s_.hidden);
    matrix("shortconv.in_proj", 3 * uint64_t{s_.hidden}, s_.hidden);
    matrix("shortconv.out_proj", s_.hidden, s_.hidden);
  }

  const RandomShape& s_;
  const std::string& type_;
  const std::string at_;
  std::vector<RandomTensor>& out_;
};

void add_mixer(LayerTensors& layer, const RandomShape& s, uint32_t index) {
  if (s.latent.rank > 0) return layer.latent();
  if (s.recurrent.taps == 0) return layer.heads();
  const RandomLayer kind = random_layer(s, index);
  if (kind == RandomLayer::kState || kind == RandomLayer::kBoth) layer.state();
  if (kind == RandomLayer::kAttention || kind == RandomLayer::kBoth) layer.heads();
}

const char* mlp_norm(const RandomShape& s) {
  if (delta_nets(s)) return "post_attention_norm.weight";
  return is(s, "falcon-h1") ? "ffn_norm" : "ffn_norm.weight";
}

}  // namespace

uint64_t RandomTensor::rows() const {
  uint64_t count = 1;
  for (size_t i = 1; i < dims.size(); ++i) count *= dims[i];
  return count;
}

RandomLayer random_layer(const RandomShape& shape, uint32_t layer) {
  const char* const pattern = shape.recurrent.pattern;
  return static_cast<RandomLayer>(pattern[layer % std::strlen(pattern)]);
}

bool single_blocks(const RandomShape& shape) { return is(shape, "nemotron_h"); }
bool delta_nets(const RandomShape& shape) { return is(shape, "qwen3next") || is(shape, "qwen35") || is(shape, "qwen35moe"); }

const std::map<std::string, RandomShape>& random_shapes() {
  static const std::map<std::string, RandomShape> shapes = {
      {"llama-1.1b", {"llama", 2048, 22, 32, 4, 64, 5632, 32'000, false, false, 10'000.0f}},
      {"qwen2-0.5b", {"qwen2", 896, 24, 14, 2, 64, 4864, 151'936, true, true, 1'000'000.0f}},
      {"llama-0.1b", {"llama", 768, 12, 12, 4, 64, 2048, 32'000, true, false, 10'000.0f}},
      {"llama-0.3b", {"llama", 1024, 20, 16, 4, 64, 4096, 32'000, true, false, 10'000.0f}},
      // With experts. The first two: layers of the two below, with fewer of them and of experts.
      {"qwen3-moe-1.4b", {"qwen3moe", 2048, 8, 32, 4, 128, 6144, 32'000, true, false, 1'000'000.0f, {32, 4, 768, 0, 0}}},
      {"deepseek-v2-1.7b", {"deepseek2", 2048, 10, 16, 1, 128, 10'240, 32'000, false, false, 10'000.0f, {32, 6, 768, 2, 1}, {512, 64, 128, 768}}},
      {"qwen3-30b-a3b", {"qwen3moe", 2048, 48, 32, 4, 128, 6144, 32'000, true, false, 1'000'000.0f, {128, 8, 768, 0, 0}}},
      {"deepseek-v2-lite", {"deepseek2", 2048, 27, 16, 1, 128, 10'944, 32'000, true, false, 10'000.0f, {64, 6, 1408, 2, 1}, {512, 64, 128}}},
      {"deepseek-v2", {"deepseek2", 5120, 60, 128, 1, 128, 12'288, 32'000, true, false, 10'000.0f, {160, 6, 1536, 2, 1}, {512, 64, 128, 1536}}},
      // With a state.
      {"qwen3.5-0.5b", {"qwen35", 1024, 24, 8, 2, 256, 3584, 32'000, true, false, 10'000'000.0f, {}, {}, {"rrra", 4, 2048, 16, 16, 128}}},
      {"qwen3.5-moe-1.2b", {"qwen35moe", 2048, 8, 16, 2, 256, 5120, 32'000, true, false, 10'000'000.0f, {32, 4, 512, 1}, {}, {"rrra", 4, 4096, 32, 16, 128}}},
      {"qwen3-next-1.2b", {"qwen3next", 2048, 8, 16, 2, 256, 5120, 32'000, true, false, 10'000'000.0f, {32, 4, 512, 1}, {}, {"rrra", 4, 4096, 32, 16, 128}}},
      {"granite-4-h-0.7b", {"granitehybrid", 1536, 20, 12, 4, 128, 4096, 32'000, true, false, 10'000.0f, {}, {}, {"rrrrrarrrr", 4, 3072, 48, 1, 128}}},
      {"granite-4-h-moe-1.1b", {"granitehybrid", 1536, 10, 12, 4, 128, 512, 32'000, true, false, 10'000.0f, {32, 6, 512, 2}, {}, {"rrrrrarrrr", 4, 3072, 48, 1, 128}}},
      {"nemotron-h-0.7b", {"nemotron_h", 2048, 24, 32, 8, 128, 8192, 32'000, true, false, 10'000.0f, {}, {}, {"rmrmrmam", 4, 4096, 64, 8, 128}}},
      {"falcon-h1-0.5b", {"falcon-h1", 1024, 36, 8, 2, 64, 2048, 32'000, true, false, 100'000'000'000.0f, {}, {}, {"b", 4, 1536, 24, 1, 128}}},
      {"lfm2-0.7b", {"lfm2", 1536, 16, 24, 8, 64, 6912, 32'000, true, false, 1'000'000.0f, {}, {}, {"rrarrarrarararar", 3}}},
  };
  return shapes;
}

const std::map<std::string, RandomType>& random_types() {
  static const std::map<std::string, RandomType> types = {
      {"f32", {0, 1, 4}}, {"f16", {1, 1, 2}}, {"q4_0", {2, 32, 18}}, {"q8_0", {8, 32, 34}}, {"bf16", {30, 1, 2}},
      {"q4_k", {12, 256, 144}}, {"q6_k", {14, 256, 210}}};
  return types;
}

std::vector<RandomTensor> random_tensors(const RandomShape& s, const std::string& type) {
  std::vector<RandomTensor> out;
  out.push_back({"token_embd.weight", type, {s.hidden, s.vocab}, {}});
  for (uint32_t l = 0; l < s.layers; ++l) {
    LayerTensors layer(s, type, l, out);
    layer.vector("attn_norm.weight", s.hidden, 1);
    add_mixer(layer, s, l);
    if (single_blocks(s)) {
      if (random_layer(s, l) == RandomLayer::kMlp) layer.mlp("", s.mlp);
      continue;
    }
    layer.vector(mlp_norm(s), s.hidden, 1);
    s.experts.count > 0 && l >= s.experts.dense_layers ? layer.experts() : layer.mlp("", s.mlp);
  }
  out.push_back({is(s, "lfm2") ? "token_embd_norm.weight" : "output_norm.weight", "f32", {s.hidden}, 1.0f});
  if (!s.tied) out.push_back({"output.weight", type, {s.hidden, s.vocab}, {}});
  return out;
}

}  // namespace shoal
