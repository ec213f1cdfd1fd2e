// A node's weights for real: performs the effects about loads and drops, owns the models that are on the device, and says as
// events what became of a load. What is under way the node's LoadDesk knows. Used by the node's loop thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "device/device.h"
#include "host/model_loader.h"
#include "host/served_models.h"
#include "roles/effect.h"
#include "roles/event.h"

namespace shoal {

class WeightsDriver {
 public:
  // What the loader says on its thread is brought to ended() by whoever made it. `device` and `served` outlive this.
  WeightsDriver(Device& device, const ServedModels& served, std::unique_ptr<ModelLoader> loader)
      : device_(device), served_(served), loader_(std::move(loader)) {}

  void start(const LoadWeights& effect, TimePoint now);
  void cancel() { loader_->cancel(); }
  void read_ahead(ModelId model) { loader_->read_ahead(served_.at(model).model); }
  void drop(ModelId model);  // REQUIRES: it is on the device, or its load failed

  // What the loader said, in the node's words: WeightsReady, WeightsPacked or DigestKnown.
  Event ended(LoadedModel loaded, TimePoint now);
  LoadProgress progress(ModelId loading) const { return {loading, loader_->progress()}; }
  // A line in the log each second.
  void log_progress(ModelId loading, TimePoint now);
  Model& model(ModelId id) const { return *residents_.at(id).model; }  // REQUIRES: it is on the device

 private:
  struct Resident {
    DeviceSpan memory;
    std::unique_ptr<Model> model;
  };
  void log_end(const LoadedModel& loaded, TimePoint now) const;
  std::string rate(TimePoint now) const;

  Device& device_;
  const ServedModels& served_;
  std::map<ModelId, Resident> residents_;
  std::map<ModelId, std::shared_ptr<const ExpertSlots>> slots_;  // of models that left
  TimePoint started_{}, logged_{};
  double unmap_seconds_ = 0;  // of weights dropped since the last load ended
  const std::unique_ptr<ModelLoader> loader_;
};

}  // namespace shoal
