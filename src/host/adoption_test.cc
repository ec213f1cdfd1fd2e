// Weights that are still on the device when their model comes back, on a real node: the same answers, and fewer bytes.
#include <gtest/gtest.h>

#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>

#include "base/queue.h"
#include "device/cpu_device.h"
#include "host/model_loader.h"
#include "host/test_client.h"
#include "wire/records.pb.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;

std::string bundled(const std::string& name) { return std::string(SHOAL_SOURCE_DIR) + "/models/" + name; }
std::string reference(const std::string& name) { return std::string(SHOAL_SHARED_DIR) + "/models/reference/" + name; }

// A node whose loads are watched.
class Watched {
 public:
  Watched(NodeHostConfig config, const std::vector<ServedModel>& models, bool adopt = true) : client_(network_) {
    NodePlan plan = *plan_node(config, models);
    EXPECT_TRUE(plan.refused.empty());
    plan.fill_ahead = false;
    plan.node.adopt_weights = adopt;
    plan.record = [this](std::string_view record) { note(record); };
    host_ = *NodeHost::start(std::move(plan), network_);
  }

  struct Load {
    uint32_t model = 0;
    uint64_t written = 0, adopted = 0;
    bool ok = true;
  };
  Client::Answer ask(uint32_t model, uint32_t seed = 1, uint32_t tokens = 12) {
    Request request = greedy(ModelId(model), long_prompt(seed, 30), tokens);
    for (TokenId& token : request.prompt) token = token % 300 + 5;
    request.min_tokens = tokens;
    request.sampling.logprobs = 0;
    return client_.wait(client_.submit(request));
  }
  Client& client() { return client_; }
  std::vector<Load> loads() {
    std::lock_guard lock(mutex_);
    return loads_;
  }
  Load last() {
    const auto all = loads();
    EXPECT_FALSE(all.empty());
    return all.empty() ? Load{} : all.back();
  }

 private:
  void note(std::string_view bytes) {
    pb::Record record;
    if (!record.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) || !record.has_event()) return;
    const bool whole = record.event().has_weights() && !record.event().weights().packing();
    if (!whole && !record.event().has_packed()) return;
    const pb::LoadEnded& end = whole ? record.event().weights() : record.event().packed();
    std::lock_guard lock(mutex_);
    loads_.push_back({end.model(), end.stages().bytes_written(), end.stages().bytes_adopted(), !end.has_failure()});
  }

  std::mutex mutex_;
  std::vector<Load> loads_;
  LoopbackNetwork network_;
  Client client_;
  std::unique_ptr<NodeHost> host_;
};

std::vector<ServedModel> two_models() {
  return {{ModelId(0), "a", bundled("tiny-llama"), {}, 256}, {ModelId(1), "b", bundled("tiny-qwen3"), {}, 256}};
}

// Memory for one of them at a time.
NodeHostConfig for_one(uint64_t host_memory) {
  NodeHostConfig config = small_config(9 * kMiB);
  config.tokens_per_step = 64;
  config.sequences_max = 4;
  config.host_memory_bytes = host_memory;
  return config;
}

TEST(Adoption, ABAGivesTheSameBitsHoweverMuchOfAWasTaken) {
  std::vector<Bits> want;
  for (uint32_t model : {0u, 1u}) want.push_back(bits_of(Watched(for_one(0), two_models(), false).ask(model)));
  for (const uint64_t host_memory : {uint64_t{0}, 2 * kMiB, 4 * kMiB, 64 * kMiB}) {
    SCOPED_TRACE(host_memory);
    Watched node(for_one(host_memory), two_models());
    for (int i = 0; i < 6; ++i) EXPECT_EQ(bits_of(node.ask(i % 2)), want[i % 2]) << i;
    const auto loads = node.loads();
    ASSERT_GE(loads.size(), 6u) << "both fit";
    if (host_memory < 64 * kMiB) continue;
    for (size_t i = 2; i < loads.size(); ++i) {
      EXPECT_EQ(loads[i].written, 0u) << i;
      EXPECT_GT(loads[i].adopted, kMiB);
    }
  }
}

TEST(Adoption, WhatWasTakenIsBroughtAgainAndNothingElse) {
  Watched node(for_one(0), two_models());
  for (int i = 0; i < 6; ++i) node.ask(i % 2);
  uint64_t partly = 0;
  for (const Watched::Load& load : node.loads()) partly += load.written > 0 && load.adopted > 0;
  EXPECT_GT(partly, 0u);
}

TEST(Adoption, ItCanBeSwitchedOff) {
  Watched node(for_one(64 * kMiB), two_models(), false);
  for (int i = 0; i < 4; ++i) node.ask(i % 2);
  for (const Watched::Load& load : node.loads()) EXPECT_EQ(load.adopted, 0u);
}

// Of the same size and shape, and with another content: the pages of the one are never taken for the other's.
TEST(Adoption, AModelWithOtherFilesAdoptsNothing) {
  const fs::path copy = fs::temp_directory_path() / ("shoal_adopt_" + std::to_string(::getpid()));
  fs::remove_all(copy);
  fs::copy(bundled("tiny-llama"), copy);
  auto models = two_models();
  models[0].path = copy;
  Watched node(for_one(64 * kMiB), models);
  const Bits before = bits_of(node.ask(0));
  node.ask(1);
  EXPECT_EQ(bits_of(node.ask(0)), before);
  EXPECT_EQ(node.last().written, 0u);
  node.ask(1);
  {
    std::fstream file(copy / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    const auto size = static_cast<std::streamoff>(fs::file_size(copy / "model.safetensors"));
    std::string bytes(64, '\0');
    for (std::streamoff at = size / 3; at < size / 2; at += 4096) {
      file.seekg(at), file.read(bytes.data(), 64);
      std::reverse(bytes.begin(), bytes.end());  // pairs of bytes change places and with them numbers, none of which is absurd
      for (size_t i = 0; i + 1 < bytes.size(); i += 2) std::swap(bytes[i], bytes[i + 1]);
      file.seekp(at), file.write(bytes.data(), 64);
    }
  }
  fs::last_write_time(copy / "model.safetensors", fs::last_write_time(copy / "model.safetensors") + std::chrono::seconds(2));
  const Bits after = bits_of(node.ask(0));
  EXPECT_EQ(node.last().adopted, 0u);
  auto changed = two_models();
  changed[0].path = copy;
  EXPECT_EQ(after, bits_of(Watched(for_one(0), changed).ask(0)));
  EXPECT_NE(after, before);
  node.ask(1);
  EXPECT_EQ(bits_of(node.ask(0)), after);
  EXPECT_EQ(node.last().written, 0u) << "they are adopted from then on";
  fs::remove_all(copy);
}

// A loader by itself, whose loads are called off before a piece of our choice. One thread brings them in the order of the file; of two
// the one may be held up while it calls off until the other has brought the rest, and what has come by then is left to chance.
class Loading {
 public:
  explicit Loading(int threads) : plan_(*plan_node(for_one(0), two_models())), device_(*CpuDevice::make(2 * kPages)), threads_(2), backend_(make_cpu_backend(*device_, threads_)) {
    loader_ = std::make_unique<ModelLoader>(*device_, *backend_, CpuShare{.threads = threads}, *WeightCache::make(0), nullptr, [] { return false; },
                                            [this] { if (begun_++ == last_) loader_->cancel(); }, [this](LoadedModel loaded) { loaded_.push(std::move(loaded)); });
  }

  struct End {
    Status status;
    LoadStages stages;
    std::vector<PageSpan> whole;
    std::string bytes;  // of the weights, where the load ended well
  };
  // Into the model's own pages, of which `whole` are said to be as a load left them.
  End load(uint32_t model, std::vector<PageSpan> whole, int last = INT_MAX) {
    begun_ = 0;
    last_ = last;
    const NodeModel& facts = plan_.node.models.at(model);
    loader_->start({plan_.served.at(ModelId(model)), facts, {{model * kPages, weight_pages(facts)}}, false, std::move(whole)});
    LoadedModel loaded = *loaded_.pop(std::chrono::seconds(60));
    End end{loaded.status, loaded.stages, loaded.whole, {}};
    if (end.status.ok()) end.bytes.assign(reinterpret_cast<const char*>(CpuDevice::at(loaded.memory.begin)), facts.weight_bytes);
    loaded.model.reset();
    if (!loaded.memory.empty()) device_->unmap(loaded.memory);
    return end;
  }
  int pieces() const { return begun_; }  // of the last load

 private:
  static constexpr uint32_t kPages = 16;
  const NodePlan plan_;
  const std::unique_ptr<CpuDevice> device_;
  ThreadPool threads_;
  const std::unique_ptr<Backend> backend_;
  BoundedQueue<LoadedModel> loaded_{4};
  std::atomic<int> begun_{0}, last_{INT_MAX};
  std::unique_ptr<ModelLoader> loader_;
};

// The load after one that was called off before its piece number `pieces`; nothing if that was over by then.
std::optional<Loading::End> load_after_one_called_off(int pieces, int threads, const std::string& want) {
  SCOPED_TRACE(testing::Message() << "before piece " << pieces << ", " << threads << " threads");
  Loading loading(threads);
  const Loading::End off = loading.load(0, {}, pieces);
  if (off.status.ok()) {
    EXPECT_TRUE(off.bytes == want);
    return std::nullopt;
  }
  EXPECT_EQ(off.status.code(), StatusCode::kCancelled) << off.status;
  Loading::End again = loading.load(0, off.whole);
  EXPECT_TRUE(again.status.ok()) << again.status;
  EXPECT_TRUE(again.bytes == want);
  EXPECT_EQ(again.stages.bytes_adopted > 0, !off.whole.empty());
  EXPECT_LE(again.stages.bytes_written + again.stages.bytes_adopted, want.size());
  return again;
}

TEST(Adoption, WhatALoadHadBroughtWhenItWasCalledOffIsNotBroughtAgain) {
  const std::string want = Loading(1).load(0, {}).bytes;
  ASSERT_FALSE(want.empty());
  uint64_t adopted = 0;
  int pieces = 0;
  for (; const auto again = load_after_one_called_off(pieces, 1, want); ++pieces) {
    EXPECT_GE(again->stages.bytes_adopted, adopted) << "what had come earlier, before piece " << pieces;
    adopted = again->stages.bytes_adopted;
  }
  EXPECT_GE(pieces, 3);
  EXPECT_GT(adopted, want.size() / 3);
  for (int i = 0; i < pieces; ++i) load_after_one_called_off(i, 2, want);
}

TEST(Adoption, WhatIsThereOfALoadGrowsHoweverOftenItIsCalledOff) {
  const std::string want = Loading(1).load(0, {}).bytes;
  for (const int threads : {1, 2}) {
    Loading loading(threads);
    std::vector<PageSpan> whole;
    int called_off = 0;
    for (int pieces = 0;; pieces += 3, ++called_off) {
      ASSERT_LT(pieces, 10'000);
      const Loading::End end = loading.load(0, whole, pieces);
      if (end.status.ok()) {
        EXPECT_TRUE(end.bytes == want);
        EXPECT_EQ(end.stages.bytes_adopted > 0, !whole.empty());
        break;
      }
      EXPECT_GE(page_count(end.whole), page_count(whole)) << "nothing of it is lost";
      whole = end.whole;
    }
    if (threads > 1) continue;
    EXPECT_GE(called_off, 3);
    EXPECT_FALSE(whole.empty());
  }
}

TEST(Adoption, NobodyAdoptsWhatAnotherModelsLoadBrought) {
  const std::string want = Loading(1).load(1, {}).bytes;
  Loading loading(1);
  ASSERT_TRUE(loading.load(0, {}).status.ok());
  const Loading::End off = loading.load(0, {}, loading.pieces() - 3);
  ASSERT_EQ(off.status.code(), StatusCode::kCancelled);
  ASSERT_FALSE(off.whole.empty());
  const Loading::End other = loading.load(1, off.whole);
  ASSERT_TRUE(other.status.ok()) << other.status;
  EXPECT_EQ(other.stages.bytes_adopted, 0u);
  EXPECT_TRUE(other.bytes == want);
}

// A load is called off somewhere in its course; what stood by before it is still there, and so is what it brought.
TEST(Adoption, LoadsThatAreCalledOffLeaveNothingWrong) {
  std::vector<Bits> want;
  for (uint32_t model : {0u, 1u}) want.push_back(bits_of(Watched(for_one(0), two_models(), false).ask(model)));
  for (const uint64_t host_memory : {uint64_t{0}, 4 * kMiB}) {
    Watched node(for_one(host_memory), two_models());
    for (uint32_t round = 0; round < 60; ++round) {
      const uint32_t a = round % 2;
      const RequestId gone = node.client().submit(greedy(ModelId(1 - a), long_prompt(1, 30), 8));
      std::this_thread::sleep_for(std::chrono::microseconds(round * 60));
      node.client().send(Cancel{gone, 0});
      ASSERT_EQ(bits_of(node.ask(a)), want[a]) << "round " << round;
    }
  }
}

// Experts as blocks, layers that keep a state, latents: whatever lies in the pages.
TEST(Adoption, ModelsOfAllKindsComeBackAsTheyWere) {
  const std::vector<std::string> names = {"qwen3.5", "qwen3-next", "nemotron-h-moe", "lfm2-moe", "kimi-linear"};
  if (!fs::exists(reference(names[0]))) GTEST_SKIP() << "no shared models at " << SHOAL_SHARED_DIR;
  std::vector<ServedModel> models;
  for (uint32_t i = 0; i < names.size(); ++i) models.push_back({ModelId(i), names[i], reference(names[i]), {}, 128});
  NodeHostConfig config = small_config(8 * kMiB);
  config.tokens_per_step = 64;
  config.sequences_max = 4;
  config.host_memory_bytes = 0;
  std::vector<Bits> want;
  Watched plain(config, models, false);
  for (uint32_t i = 0; i < names.size(); ++i) want.push_back(bits_of(plain.ask(i)));
  for (const uint64_t host_memory : {0 * kMiB, 8 * kMiB, 128 * kMiB}) {
    config.host_memory_bytes = host_memory;
    Watched node(config, models);
    for (uint32_t i = 0; i < 3 * names.size(); ++i) EXPECT_EQ(bits_of(node.ask(i % names.size())), want[i % names.size()]) << names[i % names.size()] << ", round " << i / names.size();
    const auto loads = node.loads();
    ASSERT_GT(loads.size(), 2 * names.size()) << "all of them fit";
    for (size_t i = names.size(); host_memory == 128 * kMiB && i < loads.size(); ++i) EXPECT_EQ(loads[i].written, 0u) << i;
  }
}

}  // namespace
}  // namespace shoal
