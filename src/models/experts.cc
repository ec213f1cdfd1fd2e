#include "models/experts.h"

namespace shoal {
namespace {

// How a family calls the parts.
struct Names {
  std::string router, experts, gate, up, down;
};

// A router that is missing is called as those of the family are, which its experts tell.
Names names_of(const ModelConfig& c, const WeightLayout& layout, const std::string& prefix) {
  const auto has = [&](const char* name) { return layout.has(prefix + name); };
  if (has("block_sparse_moe.gate.weight") || has("block_sparse_moe.experts.0.w1.weight")) {
    return {prefix + "block_sparse_moe.gate", prefix + "block_sparse_moe.experts", "w1", "w3", "w2"};
  }
  const char* router = "mlp.gate";
  if (has("mlp.router.weight") || has("mlp.router.bias")) router = "mlp.router";
  else if (has("mlp.gate.wg.weight")) router = "mlp.gate.wg";
  else if (has("mlp.gate.weight")) router = "mlp.gate";
  else if (c.architecture == Architecture::kLlama4 && has("mlp.experts.gate_up_proj")) router = "mlp.router";
  else if (c.architecture == Architecture::kHunyuanMoe && has("mlp.experts.0.gate_proj.weight")) router = "mlp.gate.wg";
  return {prefix + router, prefix + "mlp.experts", "gate_proj", "up_proj", "down_proj"};
}

RouterRule rule_of(const ExpertConfig& e) {
  RouterRule rule{.experts = e.count + e.zero, .used = e.used};
  if (e.sigmoid_scores) rule.scores = RouterRule::Scores::kSigmoid;
  if (e.softmax_of_chosen) rule.scores = RouterRule::Scores::kSoftmaxOfChosen;
  if (e.group_by_best_two) rule.group_score = RouterRule::GroupScore::kBestTwo;
  rule.groups = e.groups;
  rule.groups_used = e.groups_used;
  rule.normalize = e.normalize;
  rule.sum_min = e.sum_min;
  rule.weight_scale = e.weight_scale;
  return rule;
}

// Whether the experts of a layer are in a tensor for each part. One that is there tells, so that one that is missing is named.
bool in_one(const WeightLayout& layout, const Names& names) {
  const auto has = [&](const char* part) { return layout.has(names.experts + part); };
  return has(".gate_proj.weight") || has(".up_proj.weight") || has(".down_proj.weight");
}

// Of one expert: a tensor of its own, rows of a tensor of all experts, or rows of one that holds gate and up.
Status plan_expert(const ModelConfig& c, WeightLayout& layout, const Names& names, uint32_t index, ExpertPlaces& out) {
  const uint32_t width = c.experts->intermediate_size, count = c.experts->count, hidden = c.hidden_size;
  const auto part = [&](const std::string& name, uint32_t outputs, uint32_t columns, uint32_t first_row, uint32_t rows) {
    return layout.matrix({.name = name, .outputs = outputs, .columns = columns, .first_row = first_row, .stored_rows = rows, .parts = count, .expert = true});
  };
  const std::string fused = names.experts + ".gate_up_proj", own = absl::StrCat(names.experts, ".", index, ".");
  const bool down_alone = layout.has(names.experts + ".down_proj.weight") && !layout.has(names.experts + ".gate_proj.weight") && !layout.has(names.experts + ".up_proj.weight");
  const bool both_in_one = layout.has(fused) || layout.has(names.experts + ".down_proj") || down_alone;
  if ((c.recurrent && c.recurrent->squared_relu)) {  // no gates: what is squared stands in their place
    const bool one = in_one(layout, names);
    const std::string up = one ? names.experts + ".up_proj" : own + names.up, down = one ? names.experts + ".down_proj" : own + names.down;
    ASSIGN_OR_RETURN(out.gate.emplace_back(), one ? part(up, width, hidden, index * width, count * width) : part(up, width, hidden, 0, 0));
    ASSIGN_OR_RETURN(out.down.emplace_back(), one ? part(down, hidden, width, index * hidden, count * hidden) : part(down, hidden, width, 0, 0));
  } else if (both_in_one && c.architecture == Architecture::kLlama4) {  // columns are outputs
    MatrixSpec spec{.name = fused, .outputs = width, .columns = hidden, .first_row = index * hidden, .stored_rows = count * hidden, .parts = count,
                    .transposed = true, .stored_outputs = 2 * width, .expert = true};
    ASSIGN_OR_RETURN(out.gate.emplace_back(), layout.matrix(spec));
    spec.first_output = width;
    ASSIGN_OR_RETURN(out.up.emplace_back(), layout.matrix(spec));
    ASSIGN_OR_RETURN(out.down.emplace_back(), layout.matrix({.name = names.experts + ".down_proj", .outputs = hidden, .columns = width, .first_row = index * width,
                                                             .stored_rows = count * width, .parts = count, .transposed = true, .expert = true}));
  } else if (both_in_one) {
    ASSIGN_OR_RETURN(out.gate.emplace_back(), part(fused, width, hidden, index * 2 * width, 2 * count * width));
    ASSIGN_OR_RETURN(out.up.emplace_back(), part(fused, width, hidden, index * 2 * width + width, 2 * count * width));
    ASSIGN_OR_RETURN(out.down.emplace_back(), part(names.experts + ".down_proj", hidden, width, index * hidden, count * hidden));
  } else if (in_one(layout, names)) {
    ASSIGN_OR_RETURN(out.gate.emplace_back(), part(names.experts + ".gate_proj", width, hidden, index * width, count * width));
    ASSIGN_OR_RETURN(out.up.emplace_back(), part(names.experts + ".up_proj", width, hidden, index * width, count * width));
    ASSIGN_OR_RETURN(out.down.emplace_back(), part(names.experts + ".down_proj", hidden, width, index * hidden, count * hidden));
  } else {
    ASSIGN_OR_RETURN(out.gate.emplace_back(), layout.matrix({.name = own + names.gate, .outputs = width, .columns = hidden, .expert = true}));
    ASSIGN_OR_RETURN(out.up.emplace_back(), layout.matrix({.name = own + names.up, .outputs = width, .columns = hidden, .expert = true}));
    ASSIGN_OR_RETURN(out.down.emplace_back(), layout.matrix({.name = own + names.down, .outputs = hidden, .columns = width, .expert = true}));
  }
  return OkStatus();
}

// Biases of an expert: rows of tensors of all experts, of gate and up apart or by turns.
Status plan_biases(const ModelConfig& c, WeightLayout& layout, const Names& names, uint32_t index, ExpertPlaces& out) {
  const uint32_t width = c.experts->intermediate_size, count = c.experts->count, hidden = c.hidden_size;
  const auto part = [&](const std::string& name, uint32_t size, uint32_t first, uint32_t step) {
    return layout.vector(WeightLayout::VectorPart{.name = name, .size = size, .first = first, .step = step, .stored = step * count * size, .parts = count});
  };
  const std::string fused = names.experts + ".gate_up_proj_bias";
  if (layout.has(fused) || layout.has(names.experts + ".down_proj_bias")) {
    ASSIGN_OR_RETURN(out.gate.back().bias, part(fused, width, index * 2 * width, 2));
    ASSIGN_OR_RETURN(out.up.back().bias, part(fused, width, index * 2 * width + 1, 2));
    ASSIGN_OR_RETURN(out.down.back().bias, part(names.experts + ".down_proj_bias", hidden, index * hidden, 1));
    return OkStatus();
  }
  ASSIGN_OR_RETURN(out.gate.back().bias, part(names.experts + ".gate_proj.bias", width, index * width, 1));
  ASSIGN_OR_RETURN(out.up.back().bias, part(names.experts + ".up_proj.bias", width, index * width, 1));
  ASSIGN_OR_RETURN(out.down.back().bias, part(names.experts + ".down_proj.bias", hidden, index * hidden, 1));
  return OkStatus();
}

// gpt-oss: gate and up by turns, as columns of one tensor, or as rows where it is MXFP4.
Status plan_interleaved_expert(const ModelConfig& c, WeightLayout& layout, const Names& names, uint32_t index, ExpertPlaces& out) {
  const uint32_t width = c.experts->intermediate_size, count = c.experts->count, hidden = c.hidden_size;
  const std::string fused = names.experts + ".gate_up_proj", down = names.experts + ".down_proj";
  if (layout.has(fused + "_blocks") || layout.has(down + "_blocks")) {
    MatrixSpec spec{.name = fused, .outputs = width, .columns = hidden, .first_row = index * 2 * width, .stored_rows = 2 * count * width, .parts = count, .step = 2,
                    .expert = true};
    ASSIGN_OR_RETURN(out.gate.emplace_back(), layout.matrix(spec));
    ++spec.first_row;
    ASSIGN_OR_RETURN(out.up.emplace_back(), layout.matrix(spec));
    ASSIGN_OR_RETURN(out.down.emplace_back(), layout.matrix({.name = down, .outputs = hidden, .columns = width, .first_row = index * hidden,
                                                             .stored_rows = count * hidden, .parts = count, .expert = true}));
  } else if (layout.has(fused) || layout.has(down)) {
    MatrixSpec spec{.name = fused, .outputs = width, .columns = hidden, .first_row = index * hidden, .stored_rows = count * hidden, .parts = count,
                    .transposed = true, .stored_outputs = 2 * width, .step = 2, .expert = true};
    ASSIGN_OR_RETURN(out.gate.emplace_back(), layout.matrix(spec));
    spec.first_output = 1;
    ASSIGN_OR_RETURN(out.up.emplace_back(), layout.matrix(spec));
    ASSIGN_OR_RETURN(out.down.emplace_back(), layout.matrix({.name = down, .outputs = hidden, .columns = width, .first_row = index * width,
                                                             .stored_rows = count * width, .parts = count, .transposed = true, .expert = true}));
  } else {
    RETURN_IF_ERROR(plan_expert(c, layout, names, index, out));
  }
  return plan_biases(c, layout, names, index, out);
}

Status plan_shared(const ModelConfig& c, WeightLayout& layout, const std::string& prefix, ExpertBlock& block) {
  const uint32_t width = c.experts->shared_intermediate_size;
  if (width == 0) return OkStatus();
  std::string at = prefix + "mlp.shared_experts.";
  for (const char* name : {"mlp.shared_expert.", "mlp.shared_mlp."}) {
    if (layout.has(prefix + name + "up_proj.weight")) at = prefix + name;
  }
  if (layout.has(prefix + "mlp.gate_up_proj.weight")) at = prefix + "mlp.";
  if (layout.has(at + "gate_up_proj.weight")) {
    ASSIGN_OR_RETURN(block.shared, plan_fused_mlp_at(c, layout, at, width));
  } else if ((c.recurrent && c.recurrent->squared_relu)) {
    ASSIGN_OR_RETURN(block.shared, plan_ungated_mlp_at(c, layout, at, width));
  } else {
    ASSIGN_OR_RETURN(block.shared, plan_mlp_at(c, layout, at, width));
  }
  if (!c.experts->shared_gate) return OkStatus();
  ASSIGN_OR_RETURN(block.shared_gate, layout.matrix({.name = prefix + "mlp.shared_expert_gate", .outputs = 1, .columns = c.hidden_size,
                                                     .exact = true}));
  return OkStatus();
}

// The step's gate and up.
void begin_shared(const Step& step, const ExpertBlock& block, Activation activation, StepBuffers::Floats h) {
  const StepBuffers& b = step.at();
  if (activation == Activation::kSquaredRelu) return step.linear(h, {{&block.shared->up, b.gate}});  // [rows, shared intermediate]
  step.linear(h, {{&block.shared->gate, b.gate}, {&block.shared->up, b.up}});
}

}  // namespace

StatusOr<ExpertBlock> plan_experts(const ModelConfig& c, WeightLayout& layout, const std::string& prefix) {
  const ExpertConfig& e = *c.experts;
  const Names names = names_of(c, layout, prefix);
  ExpertBlock block;
  block.experts.rule = rule_of(e);
  block.experts.weigh_input = e.weigh_input;
  block.experts.gate_alpha = static_cast<float>(e.gate_alpha);
  block.experts.gate_limit = static_cast<float>(e.gate_limit);
  ASSIGN_OR_RETURN(block.experts.router, layout.matrix({.name = names.router, .outputs = e.count + e.zero, .columns = c.hidden_size, .bias = e.router_bias, .exact = true}));
  layout.require_finite(names.router + ".weight");
  if (e.router_bias) layout.require_finite(names.router + ".bias");
  if (e.selection_bias) {
    const std::string bias = names.router + ".e_score_correction_bias";
    ASSIGN_OR_RETURN(block.experts.selection_bias, layout.vector(bias, e.count + e.zero));
    layout.require_finite(bias);
  }
  if (e.weight_scales) {
    const std::string scale = names.router + ".per_expert_scale";
    ASSIGN_OR_RETURN(block.experts.weight_scale, layout.vector(scale, e.count));
    layout.require_finite(scale);
  }
  for (uint32_t i = 0; i < e.count; ++i) {
    const uint32_t number = layout.begin_expert();
    if (i == 0) block.experts.first = number;
    RETURN_IF_ERROR((c.architecture == Architecture::kGptOss ? plan_interleaved_expert : plan_expert)(c, layout, names, i, block.experts));
  }
  RETURN_IF_ERROR(plan_shared(c, layout, prefix, block));
  return block;
}

std::optional<Exchange> run_experts(const Step& step, const ExpertBlock& block, Activation activation, StepBuffers::Floats h, StepBuffers::Floats x) {
  const StepBuffers& b = step.at();
  if (const std::optional<Exchange> exchange = step.experts(block.experts, activation, h, h, x)) return exchange;
  if (!block.shared) return std::nullopt;
  begin_shared(step, block, activation, h);
  if (!block.shared_gate) {
    step.linear({activation, b.gate, b.up, b.gate}, {{&block.shared->down, x, true}});
    return std::nullopt;
  }
  step.linear({activation, b.gate, b.up, b.gate}, {{&block.shared->down, b.y}});
  step.add_gated(h, *block.shared_gate, b.y, x);
  return std::nullopt;
}

void run_meanwhile(const Step& step, const ExpertBlock& block, Activation activation, StepBuffers::Floats h) {
  if (!block.shared) return;
  const StepBuffers& b = step.at();
  begin_shared(step, block, activation, h);
  step.linear({activation, b.gate, b.up, b.gate}, {{&block.shared->down, b.y}});
}

// What is shared is added after the others, as it is where all are here: a product that is added to x, and one that is made first and
// then added, are the same bits.
void finish_experts(const Step& step, const ExpertBlock& block, StepBuffers::Floats h, StepBuffers::Floats x) {
  const StepBuffers& b = step.at();
  step.combine(block.experts, h, x);
  if (!block.shared) return;
  if (block.shared_gate) return step.add_gated(h, *block.shared_gate, b.y, x);
  step.add_scaled(b.y, 1.0f, x);
}

}  // namespace shoal
