// Checkpoints whose experts are damaged, in every form that experts are stored in: an error that names the tensor, before anything computes.
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/test_experts.h"
#include "models/test_runner.h"

namespace shoal {
namespace {

using testing::HasSubstr;

// The checkpoint with `change` made to each tensor's view; false: without the tensor.
std::shared_ptr<const Checkpoint> changed(const Checkpoint& from, const std::function<bool(const std::string& name, TensorView& view)>& change) {
  auto result = std::make_shared<Checkpoint>(from);
  result->weights = {};
  for (auto [name, view] : from.weights.all()) {
    if (change(name, view)) CHECK(result->weights.add(name, view));
  }
  return result;
}

// Of "model.layers.L.BLOCK.experts.E.PART" or, of all experts in one, "model.layers.L.BLOCK.experts.PART".
struct ExpertTensor {
  uint32_t layer = 0, expert = 0;
  std::string part;
};
std::optional<ExpertTensor> expert_tensor(const std::string& name) {
  const std::string before = "model.layers.", within = ".experts.";
  const size_t at = name.find(within);
  if (at == std::string::npos || !name.starts_with(before)) return std::nullopt;
  ExpertTensor tensor{.part = name.substr(at + within.size())};
  const size_t dot = tensor.part.find('.');
  if (absl::SimpleAtoi(tensor.part.substr(0, dot), &tensor.expert)) tensor.part.erase(0, dot + 1);
  CHECK(absl::SimpleAtoi(name.substr(before.size(), name.find('.', before.size()) - before.size()), &tensor.layer));
  return tensor;
}

// Tensors of experts that a load reads, one for each part of the layer and expert that come last.
std::vector<std::string> expert_tensors(const Checkpoint& checkpoint) {
  std::map<std::string, std::tuple<uint32_t, uint32_t, std::string>> last;  // by part
  for (const auto& [name, view] : checkpoint.weights.all()) {
    const auto tensor = expert_tensor(name);
    if (!tensor || tensor->layer >= checkpoint.config.layers || tensor->expert >= checkpoint.config.experts->count) continue;
    auto& found = last[tensor->part];
    found = std::max(found, {tensor->layer, tensor->expert, name});
  }
  std::vector<std::string> names;
  for (const auto& [part, found] : last) names.push_back(std::get<2>(found));
  return names;
}

TEST(ExpertDamage, AnExpertsTensorThatIsMissingOrOfAnotherShapeIsNamed) {
  for (const std::string& path : models_with_experts()) {
    const auto whole = *open_checkpoint(path);
    ASSERT_TRUE(plan_model(whole, {}).ok()) << path;
    const std::vector<std::string> names = expert_tensors(*whole);
    EXPECT_GE(names.size(), 2u) << path;
    for (const std::string& damaged : names) {
      SCOPED_TRACE(path + " " + damaged);
      const std::string called = whole->name_in_file(damaged);
      EXPECT_EQ(called.starts_with("blk."), whole->format == "gguf");
      const Status missing = plan_model(changed(*whole, [&](const auto& name, TensorView&) { return name != damaged; }), {}).status();
      EXPECT_EQ(missing.code(), StatusCode::kNotFound);
      EXPECT_THAT(std::string(missing.message()), testing::AllOf(HasSubstr("'" + called), HasSubstr("' is missing")));
      const Status turned = plan_model(changed(*whole, [&](const auto& name, TensorView& view) {
        if (name != damaged) return true;
        std::vector<uint64_t> sizes;
        for (size_t i = 0; i < view.shape.rank(); ++i) sizes.push_back(view.shape[i]);
        const size_t held = is_block_type(view.dtype) || sizes.size() > 2 ? 1 : 0;  // rows of quantised blocks stay whole
        if (held == 1 && sizes.size() == 2) view.shape = Shape{sizes[0] * 2, sizes[1]};
        else if (sizes.size() == 3) view.shape = Shape{sizes[1], sizes[0], sizes[2]};
        else if (sizes.size() == 2) view.shape = Shape{sizes[1], sizes[0]};
        else view.shape = Shape{2, sizes[0] / 2};
        return true;
      }), {}).status();
      EXPECT_EQ(turned.code(), StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(turned.message()), HasSubstr("'" + called + "'"));
    }
  }
}

constexpr const char* kRouters[] = {"mlp.gate", "mlp.gate.wg", "mlp.router", "block_sparse_moe.gate"};

TEST(ExpertDamage, ARouterThatIsMissingIsNamed) {
  for (const std::string& path : models_with_experts()) {
    const auto whole = *open_checkpoint(path);
    std::string damaged;
    for (uint32_t layer = 0; layer < whole->config.layers; ++layer) {
      for (const char* router : kRouters) {
        const std::string name = absl::StrCat("model.layers.", layer, ".", router, ".weight");
        if (whole->weights.find(name) != nullptr) damaged = name;
      }
    }
    const Status missing = plan_model(changed(*whole, [&](const auto& name, TensorView&) { return name != damaged; }), {}).status();
    EXPECT_FALSE(missing.ok()) << path;
    EXPECT_THAT(std::string(missing.message()), HasSubstr("'" + whole->name_in_file(damaged) + "'")) << path;
  }
}

// Of what decides which experts compute: without numbers others would, in silence.
TEST(ExpertDamage, ARouterThatHoldsNoNumbersIsNamedByTheLoad) {
  const std::vector<std::string> parts = {"weight", "bias", "scale", "per_expert_scale", "e_score_correction_bias"};
  for (const std::string& path : models_with_experts()) {
    const auto whole = *open_checkpoint(path);
    std::map<std::string, std::string> of_part;
    for (uint32_t layer = 0; layer < whole->config.layers; ++layer) {
      for (const char* router : kRouters) {
        for (const std::string& part : parts) {
          const std::string name = absl::StrCat("model.layers.", layer, ".", router, ".", part);
          if (whole->weights.find(name) != nullptr) of_part[part] = name;
        }
      }
    }
    EXPECT_GE(of_part.size(), 1u) << path;
    for (const auto& [part, damaged] : of_part) {
      SCOPED_TRACE(path + " " + damaged);
      std::deque<Tensor> memory;
      const auto broken = changed(*whole, [&](const auto& name, TensorView& view) {
        if (name != damaged) return true;
        Tensor& copy = memory.emplace_back(*Tensor::allocate(view.dtype, view.shape));
        std::memcpy(copy.data(), view.data, view.bytes);
        const uint32_t nan = view.dtype == DType::kF32 ? 0x7fc00000 : view.dtype == DType::kF16 ? 0x7e00 : 0x7fc0;
        EXPECT_FALSE(is_block_type(view.dtype));
        std::memcpy(copy.data(), &nan, view.dtype == DType::kF32 ? 4 : 2);
        view = copy.view();
        return true;
      });
      const auto model = TestModel::open(broken, {});
      EXPECT_EQ(model.status().code(), StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(model.status().message()), HasSubstr("'" + whole->name_in_file(damaged) + "', which chooses experts"));
    }
  }
}

}  // namespace
}  // namespace shoal
