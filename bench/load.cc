// load --model FILE.gguf|FOLDER [--threads N] [--runs N] [--cold] [--model-io mmap|direct] [--quantization none|q8_0|q4_0] [--keep]
// [--swap-in MIB] [--cpu-time] [--json]
//
// How fast weights come to a device: for each type of weights in the file the bytes that packing reads and writes per
// second, beside a plain copy by the same threads in the same run (A B A B, medians); then the whole load by stage. The
// file is expected in the page cache; the first load also takes the device's pages from the system and maps those of the file, the later ones find
// both, and are what a switch costs: bytes read and written by the whole load, per second, beside the copy. --keep, with
// direct reads: what was read stays in memory, as in the server's --weight-cache. --swap-in copies so many
// MiB of KV beside each load, as a switch does when a model's requests are on the host tier, and prints how long both take with
// loads that give way to it and without. --cold drops the file from the cache before every load but the first. --cpu-time counts the processor time of all threads instead of the clock, for machines that have other work.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/json.h"
#include "bench/flags.h"
#include "bench/peer.h"
#include "device/cpu_device.h"
#include "device/host_pages.h"
#include "device/thread_pool.h"
#include "formats/checkpoint.h"
#include "host/opened_models.h"
#include "kernels/pack.h"
#include "kernels/quant_codes.h"
#include "models/backend.h"
#include "models/model.h"
#include "tensor/tensor.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr uint64_t kCopyBytes = 256 * kMiB;  // more than caches hold
constexpr uint32_t kPanelsPerTask = 8;

struct Flags {
  std::string model;
  int threads = 2, runs = 5, swap_in = 0;
  bool cpu_time = false, json = false, cold = false, keep = false;
  ModelIo io = ModelIo::kMapped;
  Quantization quantization = Quantization::kNone;  // of the whole loads
};

struct TypeRates {
  uint64_t stored = 0, packed = 0;
  std::vector<double> pack, copy;  // bytes read and written per second
};

// Seconds that `work` takes by the clock, or of processor time per thread.
template <typename Work>
double seconds_of(const Flags& flags, const Work& work) {
  const auto cpu = [] {
    timespec t{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
  };
  const TimePoint begin = steady_now();
  const double cpu_begin = cpu();
  work();
  return flags.cpu_time ? (cpu() - cpu_begin) / flags.threads : to_seconds(steady_now() - begin);
}

struct Matrix {
  TensorView view;
  WeightFormat format;
  uint64_t offset;  // in the memory that it is packed to
};

std::map<DType, std::vector<Matrix>> matrices_by_type(const Checkpoint& checkpoint) {
  std::map<DType, std::vector<Matrix>> out;
  std::map<DType, uint64_t> bytes;
  for (const auto& [name, view] : checkpoint.weights.all()) {
    if (view.shape.rank() != 2 || !is_weight_type(view.dtype)) continue;
    const WeightFormat format = natural_format(view.dtype);
    if (view.shape[1] % format_columns(format) != 0) continue;
    out[view.dtype].push_back({view, format, bytes[view.dtype]});
    bytes[view.dtype] += round_up(packed_bytes(format, view.shape[0], view.shape[1]), kTensorAlignment);
  }
  return out;
}

void pack_matrices(const std::vector<Matrix>& matrices, ThreadPool& threads, std::byte* memory) {
  struct Task {
    const Matrix* matrix;
    uint64_t panel, panels;
  };
  std::vector<Task> tasks;
  for (const Matrix& matrix : matrices) {
    const uint64_t panels = div_up(matrix.view.shape[0], kPanelRows);
    for (uint64_t at = 0; at < panels; at += kPanelsPerTask) tasks.push_back({&matrix, at, std::min<uint64_t>(panels - at, kPanelsPerTask)});
  }
  threads.parallel_for(tasks.size(), [&](size_t i, int) {
    const Matrix& matrix = *tasks[i].matrix;
    const uint64_t columns = matrix.view.shape[1], row_bytes = matrix.view.row_bytes();
    for (uint64_t panel = tasks[i].panel; panel < tasks[i].panel + tasks[i].panels; ++panel) {
      const std::byte* rows[kPanelRows];
      const uint64_t first = panel * kPanelRows, count = std::min<uint64_t>(kPanelRows, matrix.view.shape[0] - first);
      for (uint64_t row = 0; row < count; ++row) rows[row] = matrix.view.data + (first + row) * row_bytes;
      pack_panel({matrix.view.dtype, {rows, count}, columns, {}, 0}, matrix.format,
                 memory + matrix.offset + panel * panel_bytes(matrix.format, columns));
    }
    flush_panels();
  });
}

double copy_rate(const Flags& flags, ThreadPool& threads, std::byte* memory) {
  const uint64_t share = kCopyBytes / static_cast<uint64_t>(flags.threads) / 4096 * 4096;
  const double seconds = seconds_of(flags, [&] {
    threads.parallel_for(static_cast<size_t>(flags.threads), [&](size_t i, int) {
      std::memcpy(memory + kCopyBytes + i * share, memory + i * share, share);
    });
  });
  return 2.0 * static_cast<double>(share) * flags.threads / seconds;
}

StatusOr<std::map<std::string, TypeRates>> measure_types(const Flags& flags, ThreadPool& threads) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const Checkpoint> checkpoint, open_checkpoint(flags.model));
  std::map<std::string, TypeRates> out;
  for (const auto& [type, matrices] : matrices_by_type(*checkpoint)) {
    TypeRates& rates = out[std::string(dtype_name(type))];
    for (const Matrix& matrix : matrices) {
      rates.stored += matrix.view.bytes;
      rates.packed = std::max(rates.packed, matrix.offset + packed_bytes(matrix.format, matrix.view.shape[0], matrix.view.shape[1]));
    }
    const uint64_t bytes = std::max(rates.packed, 2 * kCopyBytes);
    ASSIGN_OR_RETURN(const std::unique_ptr<HostPages> pages, HostPages::make(static_cast<uint32_t>(div_up(bytes, kPageBytes))));
    ASSIGN_OR_RETURN(const auto memory, pages->map(std::vector<PageRange>{{0, pages->pages()}}));
    std::memset(memory.data(), 1, memory.size());
    for (int run = 0; run <= flags.runs; ++run) {  // the first is not counted: it maps the file
      const double copy = copy_rate(flags, threads, memory.data());
      const double seconds = seconds_of(flags, [&] { pack_matrices(matrices, threads, memory.data()); });
      if (run == 0) continue;
      rates.copy.push_back(copy);
      rates.pack.push_back(static_cast<double>(rates.stored + rates.packed) / seconds);
    }
  }
  return out;
}

using Stages = std::map<std::string, double>;  // seconds

// Drops a file, or the files of a folder, from the system's cache.
void drop_cached(const std::string& path) {
  namespace fs = std::filesystem;
  const auto drop = [](const std::string& file) {
    const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    ::fsync(fd);  // what is not yet on the disk stays
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
  };
  if (!fs::is_directory(path)) return drop(path);
  for (const auto& entry : fs::directory_iterator(path)) drop(entry.path().string());
}

// Where the bytes of the model stay with --keep.
struct Keeper {
  std::unique_ptr<HostPages> pages;
  KeptWeights weights;
  Keeper() {
    weights.room = [this](uint64_t bytes) -> std::span<std::byte> {
      auto made = HostPages::make(static_cast<uint32_t>(div_up(bytes, kPageBytes)));
      if (!made.ok()) return {};
      pages = *std::move(made);
      return pages->map(std::vector<PageRange>{{0, pages->pages()}}).value_or(std::span<std::byte>());
    };
  }
};

// Of the loads but the first: bytes read and written per second, and a plain copy beside each.
struct Rates {
  std::vector<double> load, copy;
};

// The model of the flags, as a server knows it.
ServedModel served(const Flags& flags) {
  return {ModelId(0), "", flags.model, {.quantization = flags.quantization, .io = flags.io}};
}

// One whole load into memory of that device.
StatusOr<Stages> measure_load(const Flags& flags, ThreadPool& threads, Keeper& keeper, OpenedModels& models, std::unique_ptr<CpuDevice>& device, Rates& rates) {
  Stages stages;
  OpenedModel opened;
  LoadControl control;
  Status status;
  const auto timed = [&](const char* name, const auto& work) { stages[name] = seconds_of(flags, [&] { status.Update(work()); }); };
  timed("1 open", [&]() -> Status {
    ASSIGN_OR_RETURN(opened, models.open(served(flags)));
    return OkStatus();
  });
  RETURN_IF_ERROR(status);
  if (device == nullptr) {
    ASSIGN_OR_RETURN(device, CpuDevice::make(static_cast<uint32_t>(div_up(opened.plan->weight_bytes(), kPageBytes))));
  }
  timed("2 pack", [&]() -> Status {
    ASSIGN_OR_RETURN(const auto memory, device->map(std::vector<PageRange>{{0, device->pages()}}));
    control.kept = flags.keep ? &keeper.weights : nullptr;
    const std::unique_ptr<Backend> backend = make_cpu_backend(*device, threads);
    return opened.plan->load(memory.part(0, opened.plan->weight_bytes()), *backend, threads, control).status();
  });
  RETURN_IF_ERROR(status);
  rates.load.push_back(static_cast<double>(control.bytes_read + control.bytes_done) / stages["2 pack"]);
  return stages;
}

// Seconds of the copy of KV and of the load that it runs beside, with and without giving way, in turns.
Status measure_swap_in(const Flags& flags, ThreadPool& threads, const ModelPlan& plan, CpuDevice& device) {
  constexpr uint64_t kBlock = 256 * kKiB;
  ASSIGN_OR_RETURN(Buffer kv, Buffer::allocate(2 * static_cast<uint64_t>(flags.swap_in) * kMiB));
  std::memset(kv.data(), 1, kv.size());
  ASSIGN_OR_RETURN(const DeviceSpan memory, device.map(std::vector<PageRange>{{0, device.pages()}}));
  const std::unique_ptr<Backend> backend = make_cpu_backend(device, threads);
  std::vector<double> copies[2], loads[2];
  for (int i = 0; i < 2 * flags.runs; ++i) {
    std::atomic<int64_t> copied_ns{0};
    const TimePoint begin = steady_now();
    CopyJob job{CopyLane::kKvIn, {}, [&] { copied_ns = (steady_now() - begin).count(); }};
    for (uint64_t at = 0; at < kv.size() / 2; at += kBlock) {
      job.pieces.push_back({host_address(kv.data() + kv.size() / 2 + at), host_address(kv.data() + at), kBlock});
    }
    device.copy(std::move(job));
    LoadControl control;
    if (i % 2 == 1) control.give_way = [&] { device.give_way(); };
    RETURN_IF_ERROR(plan.load(memory.part(0, plan.weight_bytes()), *backend, threads, control).status());
    loads[i % 2].push_back(to_seconds(steady_now() - begin));
    while (copied_ns == 0) std::this_thread::yield();
    copies[i % 2].push_back(static_cast<double>(copied_ns) * 1e-9);
  }
  std::fprintf(flags.json ? stderr : stdout, "\n%d MiB of KV beside the load: %.4f s, the load %.4f s; with loads that give way: %.4f s and %.4f s\n", flags.swap_in,
              median(copies[0]), median(loads[0]), median(copies[1]), median(loads[1]));
  return OkStatus();
}

using Types = std::map<std::string, TypeRates>;
using LaterStages = std::map<std::string, std::vector<double>>;

void print_json(const Flags& flags, const Types& types, const Stages& first, const LaterStages& later, const Rates& rates) {
  Json out = {{"model", flags.model}, {"threads", flags.threads}, {"types", Json::object()}, {"stages", Json::object()}};
  for (const auto& [name, r] : types) {
    out["types"][name] = {{"stored_bytes", r.stored}, {"packed_bytes", r.packed}, {"pack_bytes_per_s", median(r.pack)},
                          {"copy_bytes_per_s", median(r.copy)}};
  }
  out["load_bytes_per_s"] = median(rates.load);
  out["load_copy_bytes_per_s"] = median(rates.copy);
  for (const auto& [name, seconds] : first) out["stages"][name.substr(2)] = {{"first_s", seconds}, {"later_s", median(later.at(name))}};
  std::printf("%s\n", dump_json(out).c_str());
}

void print_table(const Flags& flags, const Types& types, const Stages& first, const LaterStages& later, const Rates& rates) {
  std::printf("%s, %d threads, medians of %d%s\n\n%-8s %12s %12s %14s %14s %8s\n", flags.model.c_str(), flags.threads, flags.runs,
              flags.cpu_time ? ", processor time" : "", "type", "stored", "packed", "pack GB/s", "copy GB/s", "share");
  for (const auto& [name, r] : types) {
    std::printf("%-8s %12s %12s %14.2f %14.2f %8.2f\n", name.c_str(), format_bytes(r.stored).c_str(), format_bytes(r.packed).c_str(),
                median(r.pack) / 1e9, median(r.copy) / 1e9, median(r.pack) / median(r.copy));
  }
  double total_first = 0, total_later = 0;
  std::printf("\n%-8s %12s %12s\n", "stage", "first, s", "later, s");
  for (const auto& [name, seconds] : first) {
    std::printf("%-8s %12.4f %12.4f\n", name.c_str() + 2, seconds, median(later.at(name)));
    total_first += seconds;
    total_later += median(later.at(name));
  }
  std::printf("%-8s %12.4f %12.4f\n", "load", total_first, total_later);
  std::printf("\na switch moves %.2f GB/s, read and written, %.2f of a copy (%.2f GB/s)\n", median(rates.load) / 1e9,
              median(rates.load) / median(rates.copy), median(rates.copy) / 1e9);
}

Status run(const Flags& flags) {
  ThreadPool threads(flags.threads);
  std::unique_ptr<CpuDevice> device;
  Keeper keeper;
  OpenedModels models;
  Rates rates;
  ASSIGN_OR_RETURN(const Stages first, measure_load(flags, threads, keeper, models, device, rates));
  rates = {};
  LaterStages later;
  ASSIGN_OR_RETURN(Buffer copied, Buffer::allocate(2 * kCopyBytes));
  std::memset(copied.data(), 1, copied.size());
  for (int i = 0; i < flags.runs; ++i) {
    if (flags.cold) {
      models.forget(served(flags));  // pages that are mapped cannot be dropped
      models.tidy(steady_now());
      drop_cached(flags.model);
    }
    rates.copy.push_back(copy_rate(flags, threads, copied.data()));
    ASSIGN_OR_RETURN(const Stages stages, measure_load(flags, threads, keeper, models, device, rates));
    for (const auto& [name, seconds] : stages) later[name].push_back(seconds);
  }
  if (flags.swap_in > 0) {
    ASSIGN_OR_RETURN(std::shared_ptr<const Checkpoint> checkpoint, open_checkpoint(flags.model));
    ASSIGN_OR_RETURN(const std::unique_ptr<ModelPlan> plan, plan_model(std::move(checkpoint), {.io = flags.io}));
    RETURN_IF_ERROR(measure_swap_in(flags, threads, *plan, *device));
  }
  device.reset();
  ASSIGN_OR_RETURN(const auto types, measure_types(flags, threads));
  if (flags.json) {
    print_json(flags, types, first, later, rates);
  } else {
    print_table(flags, types, first, later, rates);
  }
  return OkStatus();
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) {
  shoal::Flags flags;
  CLI::App app("How fast a model is loaded, beside a copy of its bytes");
  app.add_option("--model", flags.model, "FILE.gguf or FOLDER")->required()->check(CLI::ExistingPath);
  app.add_option("--threads", flags.threads, "Threads")->check(CLI::Range(1, 1024));
  app.add_option("--runs", flags.runs, "Runs, of which the median counts")->check(CLI::Range(1, 1000));
  app.add_flag("--cold", flags.cold, "From a file that the system has forgotten");
  shoal::add_choice(app, "--model-io", flags.io, "How it is read", {{"mmap", shoal::ModelIo::kMapped}, {"direct", shoal::ModelIo::kDirect}});
  shoal::add_quantization(app, flags.quantization);
  app.add_flag("--keep", flags.keep, "Of what an earlier load left");
  app.add_option("--swap-in", flags.swap_in, "MiB of KV that come back meanwhile")->check(CLI::NonNegativeNumber);
  app.add_flag("--cpu-time", flags.cpu_time, "By processor time");
  app.add_flag("--json", flags.json, "Prints JSON");
  CLI11_PARSE(app, argc, argv);
  const shoal::Status status = shoal::run(flags);
  if (!status.ok()) std::fprintf(stderr, "load: %s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
