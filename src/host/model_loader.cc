#include "host/model_loader.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/log.h"
#include "formats/checkpoint.h"
#include "host/weights_identity.h"

namespace shoal {
namespace {

constexpr size_t kAheadBytes = 1 * kMiB;  // asked for at a time
constexpr size_t kCacheProbes = 64;       // of a file

uint32_t page_count(std::span<const PageRange> pages) {
  return std::accumulate(pages.begin(), pages.end(), 0u, [](uint32_t sum, const PageRange& range) { return sum + range.count; });
}

// Whether reading the files would hardly wait for a disk.
bool cached(const Checkpoint& checkpoint) {
  size_t probes = 0, found = 0;
  for (const auto& file : checkpoint.files) {
    for (size_t i = 0; i < std::min(kCacheProbes, file->bytes().size()); ++i) {
      ++probes;
      found += file->cached(file->bytes().subspan(file->bytes().size() / kCacheProbes * i));
    }
  }
  return found * 10 >= probes * 9;
}

std::vector<FileIdentity> identities_of(const Checkpoint& checkpoint) {
  std::vector<FileIdentity> identities;
  for (const auto& file : checkpoint.files) identities.push_back(file->identity());
  for (const auto& [path, identity] : checkpoint.described_by) identities.push_back(identity);
  return identities;
}

// Other weights of the same shape may come in place of what was planned for, and nothing else.
Status check_shape(const ModelLoader::Job& job, const ModelPlan& plan) {
  const NodeModel& facts = job.facts;
  const bool part = facts.weight_bytes < plan.weight_bytes() && facts.weight_bytes >= plan.least_weight_bytes();
  if (plan.weight_bytes() != facts.weight_bytes && !part) {
    return data_loss(job.model.path, ": its weights take ", plan.weight_bytes(), " bytes, not the ", facts.weight_bytes,
                     " of when the server started; the file was replaced, restart the server to serve the new one");
  }
  if (plan.kv_block_bytes() != facts.kv_block_bytes || plan.state_blocks() != facts.state_blocks || plan.vocab_size() != facts.vocab_size || plan.kv_salt_above() != facts.kv_salt_above ||
      plan.context_length() < facts.max_model_len) {
    return data_loss(job.model.path, ": it is a model of another shape than when the server started; the files were replaced, restart the "
                     "server to serve the new one");
  }
  return OkStatus();
}

// Of `count` pages those that none of these bytes lie in.
std::vector<PageSpan> pages_without(std::vector<ByteRange> bytes, uint32_t count) {
  std::sort(bytes.begin(), bytes.end(), [](const ByteRange& a, const ByteRange& b) { return a.begin < b.begin; });
  std::vector<PageSpan> spans;
  uint32_t at = 0;
  const auto until = [&](uint64_t page) {
    const auto end = static_cast<uint32_t>(std::min<uint64_t>(page, count));
    if (end > at) spans.push_back({at, end - at});
  };
  for (const ByteRange& range : bytes) {
    if (range.begin == range.end) continue;
    until(range.begin / kPageBytes);
    at = static_cast<uint32_t>(std::clamp<uint64_t>(div_up(range.end, kPageBytes), at, count));
  }
  until(count);
  return spans;
}

}  // namespace

// The stages of a load, one after the other.
class LoadStopwatch {
 public:
  double lap() {  // seconds since the one before
    const TimePoint now = steady_now();
    return to_seconds(now - std::exchange(began_, now));
  }

 private:
  TimePoint began_ = steady_now();
};

ModelLoader::ModelLoader(Device& device, Backend& backend, const CpuShare& cpus, std::unique_ptr<WeightCache> cache,
                         std::shared_ptr<DigestStore> digests, std::function<bool()> busy, std::function<void()> give_way, OnLoaded on_loaded)
    : device_(device),
      backend_(backend),
      cpus_(cpus.cpus),
      load_threads_(ThreadPoolOptions{.threads = cpus.threads, .cpus = cpus.cpus, .pin = false}),
      cache_(std::move(cache)),
      give_way_(std::move(give_way)),
      on_loaded_(std::move(on_loaded)),
      control_(std::make_shared<LoadControl>()),
      ahead_(std::make_shared<LoadControl>()),
      hasher_(std::move(digests), std::move(busy)),
      thread_([this] { work(); }) {}

ModelLoader::~ModelLoader() {
  cancel();
  ahead_->cancelled = true;
  jobs_.close();
  thread_.join();
}

void ModelLoader::start(Job job) {
  control_ = std::make_shared<LoadControl>();
  control_->clock = steady_now;
  control_->give_way = give_way_;
  ahead_->cancelled = true;
  bytes_total_ = std::max<uint64_t>(job.facts.weight_bytes, 1);
  jobs_.push({std::move(job), control_});
}

void ModelLoader::read_ahead(ServedModel model) {
  ahead_->cancelled = true;
  ahead_ = std::make_shared<LoadControl>();
  ahead_->clock = steady_now;
  ahead_->give_way = give_way_;
  jobs_.push({{std::move(model), {}, {}}, ahead_, true});
}

void ModelLoader::cancel() { control_->cancelled = true; }

float ModelLoader::progress() const {
  return static_cast<float>(bytes_done()) / static_cast<float>(bytes_total_);
}

void ModelLoader::work() {
  bind_this_thread(cpus_);
  while (true) {
    std::optional<Work> work = jobs_.pop(std::chrono::seconds(1));
    if (!work && jobs_.closed()) return;
    if (!work) {
      opened_.tidy(steady_now());
      continue;
    }
    if (work->ahead) {
      const Status read = read_files(work->job.model, *work->control);
      if (!read.ok() && read.code() != StatusCode::kCancelled) log_debug("read ahead: ", read.message());  // its load will say it
      continue;
    }
    LoadedModel loaded = load(*work);
    const uint64_t stamp = loaded.weights.stamp;
    std::shared_ptr<const Checkpoint> unread = loaded.status.ok() ? std::move(loaded.unread) : nullptr;
    on_loaded_(std::move(loaded));
    if (unread != nullptr) name_later(work->job.model, stamp, std::move(unread));
    opened_.tidy(steady_now());  // now that nobody waits
  }
}

ModelDigest ModelLoader::digest_of(const OpenedModel& opened, const LoadOptions& options) const {
  ModelDigest digest = opened.stamp;
  if (const auto files = hasher_.find(*opened.checkpoint)) digest.content = weights_content(*files, options);
  return digest;
}

// What is read past the system's cache is not brought into it for its name.
void ModelLoader::name_later(const ServedModel& model, uint64_t stamp, std::shared_ptr<const Checkpoint> unread) {
  if (model.load.io == ModelIo::kDirect) return;
  hasher_.want(std::move(unread), [this, id = model.id, load = model.load, stamp](const ModelDigest::Content& files) {
    on_loaded_({.part = LoadedModel::Part::kNamed, .id = id, .weights = {stamp, weights_content(files, load)}});
  });
}

Status ModelLoader::read_files(const ServedModel& model, LoadControl& control) {
  ASSIGN_OR_RETURN(const OpenedModel opened, opened_.open(model));
  if (model.load.io == ModelIo::kDirect) {
    control.kept = cache_->use(model.id);
    if (control.kept == nullptr) return OkStatus();
    return opened.plan->read_ahead(load_threads_, control);
  }
  for (const auto& file : opened.checkpoint->files) {
    const std::span<const std::byte> bytes = file->bytes();
    for (size_t at = 0; at < bytes.size() && !control.cancelled; at += kAheadBytes) {
      file->will_need(bytes.subspan(at, std::min(kAheadBytes, bytes.size() - at)));
    }
  }
  return OkStatus();
}

// What is there of the same files need not be brought again.
void ModelLoader::adopt(const Job& job, const Filled& filled, LoadControl& control) {
  const auto found = filled_.find(job.model.id);
  if (found == filled_.end() || found->second != filled) {
    filled_.erase(job.model.id);
    return;
  }
  for (const PageSpan& span : job.whole) control.present.push_back({span.first * kPageBytes, (uint64_t{span.first} + span.count) * kPageBytes});
  control.slots = job.slots;
}

Status ModelLoader::fill(const Work& work, LoadedModel& result, LoadStopwatch& stopwatch) {
  const Job& job = work.job;
  LoadControl& control = *work.control;
  // Fresh memory costs more than what is put there, and a model that was here before is packed as soon as it is computed from.
  const bool early = job.early && 2 * device_.fresh(job.pages) > page_count(job.pages);
  ASSIGN_OR_RETURN(result.memory, device_.map(job.pages));
  result.stages.map_seconds = stopwatch.lap();
  ASSIGN_OR_RETURN(const OpenedModel opened, opened_.open(job.model));
  result.stages.open_seconds = stopwatch.lap();
  RETURN_IF_ERROR(check_shape(job, *opened.plan));
  result.weights = digest_of(opened, job.model.load);
  if (!result.weights.known()) result.unread = opened.checkpoint;
  const Filled filled{identities_of(*opened.checkpoint), job.model.load};
  adopt(job, filled, control);
  if (job.model.load.io == ModelIo::kDirect) control.kept = cache_->use(job.model.id);
  if (early && cached(*opened.checkpoint)) {
    control.early = [&](std::unique_ptr<Model> model) {
      result.part = LoadedModel::Part::kPacked;
      on_loaded_({LoadedModel::Part::kUsable, job.model.id, OkStatus(), result.memory, std::move(model), result.stages, result.weights});
    };
  }
  const DeviceSpan memory = result.memory.part(0, std::min(opened.plan->weight_bytes(), job.facts.weight_bytes));
  StatusOr<std::unique_ptr<Model>> model = opened.plan->load(memory, backend_, load_threads_, control);
  if (!model.ok()) {
    // What was written is what is to be there, if the files are what they were.
    const bool called_off = model.status().code() == StatusCode::kCancelled && opened.checkpoint->check().ok();
    if (!called_off) {
      filled_.erase(job.model.id);
      return model.status();
    }
    result.whole = pages_without(std::move(control.left), page_count(job.pages));
  }
  filled_[job.model.id] = filled;
  RETURN_IF_ERROR(model.status());
  result.model = *std::move(model);
  return OkStatus();
}

LoadedModel ModelLoader::load(const Work& work) {
  LoadControl& control = *work.control;
  LoadedModel result;
  result.id = work.job.model.id;
  LoadStopwatch stopwatch;
  result.status = fill(work, result, stopwatch);
  if (!result.status.ok() && result.status.code() != StatusCode::kCancelled) opened_.forget(work.job.model);
  const double fill_seconds = stopwatch.lap();
  const double read = static_cast<double>(control.read_ns), repack = static_cast<double>(control.repack_ns);
  const double read_share = read + repack > 0 ? read / (read + repack) : 0;
  result.stages.read_seconds = fill_seconds * read_share;
  result.stages.repack_seconds = fill_seconds * (1 - read_share);
  result.stages.bytes_read = control.bytes_read;
  const uint64_t done = control.bytes_done, written = control.present.empty() ? done : std::min(control.bytes_written.load(), done);
  result.stages.bytes_written = written;
  result.stages.bytes_adopted = done - written;
  if (read_share > 0.5) cache_->measured(work.job.model.id, control.bytes_read, fill_seconds);  // else they were there
  return result;
}

}  // namespace shoal
