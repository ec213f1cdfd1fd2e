// Brings a model's weights into a device's pages, on a thread of its own.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/ids.h"
#include "base/queue.h"
#include "base/status.h"
#include "base/switch_record.h"
#include "device/device.h"
#include "device/thread_pool.h"
#include "host/content_hasher.h"
#include "host/node_plan.h"
#include "host/opened_models.h"
#include "host/weight_cache.h"
#include "memory/page_pool.h"
#include "models/backend.h"
#include "models/model.h"

namespace shoal {

// What a load is told of, once or twice.
struct LoadedModel {
  enum class Part : uint8_t {
    kWhole,   // the load has ended
    kUsable,  // the model computes from its files, and its weights are being packed; kPacked follows
    kPacked,  // the load has ended; what else is here was said before, but for the status and the stages
    kNamed,   // some time after a load: its weights' content is known now
  };
  Part part = Part::kWhole;
  ModelId id;
  Status status;
  DeviceSpan memory;              // mapped pages, also after a failure
  std::unique_ptr<Model> model;   // null after a failure
  LoadStages stages;              // but unmapping
  ModelDigest weights;            // see WeightsReady
  std::vector<PageSpan> whole;    // likewise
  std::shared_ptr<const Checkpoint> unread;  // if their content is not known, and kNamed may follow
};

class LoadStopwatch;

class ModelLoader {
 public:
  using OnLoaded = std::function<void(LoadedModel)>;

  // `on_loaded` runs on a thread of the loader; `give_way` is called before each piece of a load and may wait a moment.
  // `device` and `backend`, which the models compute on, outlive the loader and every model it loaded. `digests`: what files hold, and
  // none: that is not asked; they are read while not `busy`.
  ModelLoader(Device& device, Backend& backend, const CpuShare& cpus, std::unique_ptr<WeightCache> cache, std::shared_ptr<DigestStore> digests,
              std::function<bool()> busy, std::function<void()> give_way, OnLoaded on_loaded);
  ~ModelLoader();  // cancels a load under way

  struct Job {
    ServedModel model;
    NodeModel facts;  // as planned at start; files of another shape are refused
    std::vector<PageRange> pages;
    bool early = false;  // the model may be handed out before its weights are packed, where that gives the first token sooner
    // Pages of the memory that are as its load left them, and what lay in its slots then. They are adopted if that load was of
    // the same files.
    std::vector<PageSpan> whole = {};
    std::shared_ptr<const ExpertSlots> slots = nullptr;
  };
  // One load at a time: not before on_loaded said the end of the one before. Called by one thread, as are those below.
  void start(Job job);
  // Reads the files of a model that comes next into the memory of this machine (the system's cache, or ours), until the
  // next start(). A hint.
  void read_ahead(ServedModel model);
  // The load under way ends within milliseconds, with Cancelled unless it is done by then. Nothing happens without one.
  void cancel();

  // Of the load under way, or the last one.
  float progress() const;  // 0..1
  uint64_t bytes_done() const { return control_->bytes_done.load(); }

 private:
  void work();
  struct Work {
    Job job;
    std::shared_ptr<LoadControl> control;
    bool ahead = false;  // only to be read
  };
  // Which files a model's memory was filled from.
  struct Filled {
    std::vector<FileIdentity> files;
    LoadOptions load;
    bool operator==(const Filled&) const = default;
  };
  LoadedModel load(const Work& work);
  Status fill(const Work& work, LoadedModel& result, LoadStopwatch& stages);
  void adopt(const Job& job, const Filled& filled, LoadControl& control);
  ModelDigest digest_of(const OpenedModel& opened, const LoadOptions& options) const;
  void name_later(const ServedModel& model, uint64_t stamp, std::shared_ptr<const Checkpoint> unread);
  Status read_files(const ServedModel& model, LoadControl& control);

  Device& device_;
  Backend& backend_;
  const std::vector<int> cpus_;
  ThreadPool load_threads_;
  const std::unique_ptr<WeightCache> cache_;  // this and the next are used by the loader's thread
  OpenedModels opened_;
  std::map<ModelId, Filled> filled_;  // whose last load ended well, or was called off
  const std::function<void()> give_way_;
  const OnLoaded on_loaded_;
  BoundedQueue<Work> jobs_{16};
  std::shared_ptr<LoadControl> control_;  // of the load under way, or the last one
  std::shared_ptr<LoadControl> ahead_;    // of what was asked to be read last
  uint64_t bytes_total_ = 1;
  ContentHasher hasher_;
  std::thread thread_;
};

}  // namespace shoal
