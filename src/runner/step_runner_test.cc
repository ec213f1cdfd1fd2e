// Passes that are left and resumed: the same bits for every number of lanes, in whatever order they go on, and nothing lost
// when one cannot.
#include "runner/step_runner.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <vector>

#include "base/rng.h"
#include "models/decoder.h"
#include "models/random_checkpoint.h"
#include "models/test_runner.h"

namespace shoal {
namespace {

constexpr float kFactor = 1.5f;
constexpr uint32_t kVocab = 211;

// After each layer the residual stream is scaled: here, or by whom the pass asks.
class ScaledLayers : public DecoderLayers {
 public:
  ScaledLayers(std::shared_ptr<const DecoderLayers> layers, uint32_t width, bool elsewhere)
      : layers_(std::move(layers)), width_(width), elsewhere_(elsewhere) {}

  std::optional<Exchange> run(const Step& step, uint32_t layer, uint32_t part) const override {
    if (part == 1) return std::nullopt;
    EXPECT_FALSE(layers_->run(step, layer, part).has_value());
    if (elsewhere_) return Exchange{layer, step.rows(), width_, step.at().x, step.at().x};
    step.scale(step.at().x, kFactor);
    return std::nullopt;
  }

 private:
  const std::shared_ptr<const DecoderLayers> layers_;
  const uint32_t width_;
  const bool elsewhere_;
};

// Answers in any order, and only when nobody can go on without.
class Elsewhere : public ExchangePartner {
 public:
  explicit Elsewhere(uint64_t seed) : rng_(seed) {}

  void ask(uint32_t lane, const Exchange& exchange) override {
    EXPECT_FALSE(asked_.contains(lane)) << "one exchange of a lane at a time";
    asked_[lane] = exchange;
    most_ = std::max(most_, asked_.size());
    ++count_;
  }
  StatusOr<std::optional<uint32_t>> answered() override {
    if (std::exchange(silent_, silent_ > 0 ? silent_ - 1 : 0) > 0) return std::nullopt;
    silent_ = silence_;
    if (away_after_ == 0) {
      asked_.clear();
      return unavailable("server 'b' is away");
    }
    --away_after_;
    const auto next = std::next(asked_.begin(), static_cast<ptrdiff_t>(rng_.below(asked_.size())));
    const auto [lane, exchange] = *next;
    float* const out = CpuDevice::at(exchange.output);
    const float* const in = CpuDevice::at(exchange.input);
    for (uint64_t i = 0; i < uint64_t{exchange.rows} * exchange.width; ++i) out[i] = in[i] * kFactor;
    asked_.erase(next);
    return lane;
  }

  void answer_after(size_t looks) { silent_ = silence_ = looks; }  // that find nothing, each time
  void be_away_after(size_t answers) { away_after_ = answers; }
  void be_back() { away_after_ = SIZE_MAX; }
  size_t most() const { return most_; }
  size_t count() const { return count_; }

 private:
  Rng rng_;
  std::map<uint32_t, Exchange> asked_;
  size_t most_ = 0, count_ = 0, away_after_ = SIZE_MAX, silent_ = 0, silence_ = 0;
};

class StepRunnerTest : public testing::Test {
 protected:
  enum class Memory { kWhole, kLeast };  // for all weights, or for one layer's experts only
  std::unique_ptr<TestModel> open(bool elsewhere, Architecture architecture = Architecture::kQwen3, Memory memory = Memory::kWhole) {
    const ModelConfig config = small_config(architecture);
    const RandomCheckpoint& checkpoint = checkpoints_.emplace_back(config, DType::kBF16, 7);
    const auto wrap = [&](std::shared_ptr<const DecoderLayers> layers) {
      return std::make_shared<const ScaledLayers>(std::move(layers), config.hidden_size, elsewhere);
    };
    auto plan = *plan_decoder(checkpoint.get(), {}, wrap);
    const uint64_t bytes = memory == Memory::kWhole ? plan->weight_bytes() : plan->least_weight_bytes();
    return *TestModel::load(std::move(plan), 2, bytes);
  }

  static std::shared_ptr<const Request> request(uint64_t id) {
    auto request = std::make_shared<Request>();
    request->id = RequestId(id);
    Rng rng(id);
    for (uint64_t i = 0; i < 1 + 7 * id; ++i) request->prompt.push_back(static_cast<TokenId>(rng.below(kVocab)));
    request->sampling.seed = id;
    request->sampling.logprobs = 3;
    request->max_tokens = 100;
    return request;
  }

  // Does a step.
  using Drive = std::function<StepResult(StepRunner& runner, const RunnerJob& job)>;
  // Prompts of `sequences` requests and then steps of one token each.
  struct Run {
    std::vector<std::vector<SampledToken>> tokens;
    size_t deferred = 0;
  };
  static Run run(TestModel& model, uint32_t lanes, Elsewhere* partner, size_t sequences, const std::function<void(size_t step)>& before = {},
                 const Drive& drive = [](StepRunner& runner, const RunnerJob& job) { return runner.run(job); }) {
    const DeviceSpan workspace = model.on().garbage(StepRunner::workspace_bytes(model.plan(), 512, 16, lanes));
    StepRunner runner(workspace, {lanes});
    std::vector<std::vector<DeviceAddress>> blocks(sequences);
    std::vector<std::array<std::vector<DeviceAddress>, 2>> states(sequences);  // read and written by turns
    std::vector<std::shared_ptr<const Request>> requests;
    for (uint64_t s = 0; s < sequences; ++s) {
      requests.push_back(request(s + 1));
      const auto add = [&](std::vector<DeviceAddress>& to, size_t count) {
        while (to.size() < count) to.push_back(model.on().garbage(model.plan().kv_block_bytes()).begin);
      };
      add(blocks[s], 8);
      for (auto& state : states[s]) add(state, model.plan().state_blocks());
    }
    Run out;
    out.tokens.resize(sequences);
    for (size_t step = 0; step < 4;) {
      ResolvedStep next;
      next.input.step = step + 1;
      for (size_t s = 0; s < sequences; ++s) {
        const auto computed = static_cast<uint32_t>(step == 0 ? 0 : requests[s]->prompt.size() + step - 1);
        StepSlice slice{requests[s]->id, computed, step == 0 ? requests[s]->prompt : std::vector<TokenId>{out.tokens[s].back().token}, {}};
        const auto give = [&](std::vector<BlockId>& ids, const std::vector<DeviceAddress>& at) {
          ids.resize(at.size());
          next.blocks.insert(next.blocks.end(), at.begin(), at.end());
        };
        give(slice.blocks, blocks[s]);
        if (step > 0) give(slice.state_before, states[s][step % 2]);
        give(slice.state_after, states[s][(step + 1) % 2]);
        slice.prompt_length = static_cast<uint32_t>(requests[s]->prompt.size());
        slice.sample = true;
        slice.output_index = static_cast<uint32_t>(step);
        slice.params = requests[s];
        next.input.slices.push_back(std::move(slice));
      }
      if (before) before(step);
      const StepResult result = drive(runner, {&model.model(), kVocab, &next, nullptr, partner});
      if (!result.deferred.ok()) {
        EXPECT_TRUE(result.slices.empty());
        ++out.deferred;
        if (partner != nullptr) partner->be_back();
        continue;
      }
      EXPECT_EQ(result.slices.size(), sequences);
      for (size_t s = 0; s < sequences; ++s) {
        EXPECT_EQ(result.slices[s].request, requests[s]->id);
        EXPECT_TRUE(result.slices[s].error.ok() && result.slices[s].finite);
        out.tokens[s].push_back(result.slices[s].sampled.at(0));
      }
      ++step;
    }
    return out;
  }

  static void expect_same(const Run& a, const Run& b) {
    for (size_t s = 0; s < a.tokens.size(); ++s) {
      for (size_t i = 0; i < a.tokens[s].size(); ++i) {
        EXPECT_EQ(a.tokens[s][i].token, b.tokens[s][i].token);
        EXPECT_EQ(a.tokens[s][i].logprob, b.tokens[s][i].logprob) << "bits, not tolerances";
      }
    }
  }

 private:
  std::deque<RandomCheckpoint> checkpoints_;  // what models read from as long as they are used
};

TEST_F(StepRunnerTest, EveryNumberOfLanesGivesTheSameBitsOfModelsWithExpertsWhereverTheyAre) {
  for (const Architecture architecture : {Architecture::kQwen2Moe, Architecture::kGlm4Moe, Architecture::kDeepseekV3, Architecture::kDeepseekV32, Architecture::kErnie45Moe,
                                          Architecture::kMiniMaxM2, Architecture::kGptOss, Architecture::kLlama4, Architecture::kLongcatFlash, Architecture::kGemma4,
                                          Architecture::kMiMoV2, Architecture::kQwen3Next, Architecture::kNemotronH, Architecture::kLfm2Moe, Architecture::kKimiLinear}) {
    SCOPED_TRACE(architecture_name(architecture));
    ASSERT_TRUE(small_config(architecture).experts);
    const Run want = run(*open(false, architecture), 1, nullptr, 7);
    const auto part = open(false, architecture, Memory::kLeast), there = open(true, architecture, Memory::kLeast);
    for (uint32_t lanes = 1; lanes <= kPassesMax; ++lanes) {
      expect_same(run(*part, lanes, nullptr, 7), want);
      Elsewhere partner(lanes);
      expect_same(run(*there, lanes, &partner, 7), want);
    }
  }
}

TEST_F(StepRunnerTest, EveryNumberOfLanesAndEveryOrderOfAnswersGivesTheSameBits) {
  const auto here = open(false), there = open(true);
  const Run want = run(*here, 1, nullptr, 7);
  for (uint32_t lanes = 2; lanes <= kPassesMax; ++lanes) expect_same(run(*here, lanes, nullptr, 7), want);
  for (uint32_t lanes = 1; lanes <= kPassesMax; ++lanes) {
    for (uint64_t seed = 0; seed < 5; ++seed) {
      Elsewhere partner(seed);
      expect_same(run(*there, lanes, &partner, 7), want);
      EXPECT_EQ(partner.most(), lanes) << "all lanes are under way at once";
      EXPECT_EQ(partner.count(), 4u * lanes * small_config(Architecture::kQwen3).layers);
    }
  }
}

// The steps of one model wait for answers, and those of another one are computed meanwhile, layer by layer, until the first can go on.
TEST_F(StepRunnerTest, StepsOfTwoModelsThatShareTheDeviceGiveTheBitsOfEachAlone) {
  const auto here = open(false), there = open(true), other = open(false, Architecture::kQwen2Moe);
  const Run want = run(*here, 1, nullptr, 5), want_other = run(*other, 1, nullptr, 4);
  for (const uint32_t lanes : {1u, 3u}) {
    Elsewhere partner(lanes);
    partner.answer_after(2);
    size_t pauses = 0;
    const auto beside = [&](StepRunner& first, const RunnerJob& first_job) {
      first.begin(first_job);
      EXPECT_EQ(first.go_on(), StepRunner::Progress::kWaits);
      const Run got_other = run(*other, 1, nullptr, 4, {}, [&](StepRunner& second, const RunnerJob& job) {
        second.begin(job);
        while (second.go_on([&] { return first.ready(); }) == StepRunner::Progress::kPaused) {
          EXPECT_NE(first.go_on(), StepRunner::Progress::kPaused);
          ++pauses;
        }
        return second.end();
      });
      expect_same(got_other, want_other);
      while (first.go_on() != StepRunner::Progress::kDone) {
      }
      return first.end();
    };
    expect_same(run(*there, lanes, &partner, 5, {}, beside), want);
    EXPECT_GT(pauses, 4u);
  }
}

TEST_F(StepRunnerTest, OneSequenceIsOneLane) {
  const auto here = open(false), there = open(true);
  Elsewhere partner(1);
  expect_same(run(*there, 4, &partner, 1), run(*here, 1, nullptr, 1));
  EXPECT_EQ(partner.most(), 1u);
}

TEST_F(StepRunnerTest, AStepThatCannotGoOnIsDeferredAndLosesNothing) {
  const auto here = open(false), there = open(true);
  const Run want = run(*here, 1, nullptr, 5);
  for (size_t answers = 0; answers < 5; ++answers) {
    for (size_t when : {0, 2}) {
      Elsewhere partner(answers);
      bool once = true;
      const Run got = run(*there, 3, &partner, 5, [&](size_t step) {
        if (step == when && std::exchange(once, false)) partner.be_away_after(answers);
      });
      EXPECT_EQ(got.deferred, 1u);
      expect_same(got, want);
    }
  }
}

TEST_F(StepRunnerTest, AModelThatAsksWhereNobodyAnswersIsDeferredByName) {
  const auto there = open(true);
  const DeviceSpan workspace = there->on().garbage(StepRunner::workspace_bytes(there->plan(), 16, 1));
  StepRunner runner(workspace);
  ResolvedStep step;
  step.input.step = 1;
  StepSlice slice{RequestId(1), 0, {1, 2, 3}, {BlockId(0)}};
  slice.params = request(1);
  step.input.slices.push_back(slice);
  step.blocks = {there->on().garbage(there->plan().kv_block_bytes()).begin};
  const StepResult result = runner.run({&there->model(), kVocab, &step});
  EXPECT_EQ(result.deferred.code(), StatusCode::kUnavailable);
  EXPECT_NE(result.deferred.message().find("layer 0"), std::string_view::npos);
}

}  // namespace
}  // namespace shoal
