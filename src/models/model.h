// A model: weights laid out for the kernels, and the forward pass over them.
//
//   Checkpoint (formats) --plan_model--> ModelPlan: exact bytes, nothing allocated --load--> Model
//
// A plan is made from headers alone, so admission knows every byte before one is read.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/expert_counts.h"
#include "base/ids.h"
#include "base/status.h"
#include "base/time.h"
#include "formats/weight_source.h"
#include "models/pass.h"

namespace shoal {

class Backend;
class ExpertPlan;
class ThreadPool;
struct Checkpoint;

enum class Quantization { kNone, kQ8_0, kQ4_0 };
enum class KvType { kAuto, kF32, kF16, kBF16, kQ8_0 };

struct LoadOptions {
  Quantization quantization = Quantization::kNone;  // quantise F32/F16/BF16 matrices at load; embeddings and norms stay
  KvType kv_type = KvType::kAuto;                   // auto: f32 for unquantised weights, f16 otherwise
  ModelIo io = ModelIo::kMapped;
  bool experts_elsewhere = false;                   // routed experts are neither loaded nor computed here: passes ask for them (pass.h)
  bool operator==(const LoadOptions&) const = default;
};

// What lies in the slots of a model that holds a part of its experts (models/expert_cache.h), for its next load into the same memory.
struct ExpertSlots {
  std::vector<uint32_t> experts;  // by slot; UINT32_MAX: none
  std::vector<double> uses;       // by expert, in any unit
};

class Model {
 public:
  virtual ~Model() = default;

  // Begins a pass, which writes K/V of every row into its block. Up to kPassesMax passes of disjoint sequences may be under
  // way, each in a workspace of its own; they are advanced by one thread.
  // Bits depend on a sequence's own tokens only: not on the other rows, on how its tokens were cut into passes, on the
  // number of threads or on the vector width. A pass that is not finished has no effect but what it wrote to the blocks
  // beyond `position`, and to states other than `before`.
  // `input` and what it refers to outlive the pass. An error as of Pass::advance().
  // REQUIRES: workspace.bytes >= workspace_bytes(rows, logits).
  virtual StatusOr<std::unique_ptr<Pass>> begin(const ForwardInput& input, DeviceSpan workspace) = 0;

  virtual uint64_t workspace_bytes(uint32_t rows, uint32_t logit_rows) const = 0;

  // Every row looks at every other: a pass holds whole sequences, or its K/V mean nothing. Then what begin() says of sequences
  // that were cut does not hold.
  virtual bool whole_sequences() const { return false; }

  // Of the passes until now; empty of a model without experts. By the thread that advances them.
  virtual ExpertCounts expert_counts() const { return {}; }
  // Null if its memory holds all of its experts, or none. REQUIRES: no pass is under way.
  virtual std::shared_ptr<const ExpertSlots> expert_slots() const { return nullptr; }
};
constexpr uint32_t kPassesMax = 4;

// Bytes [begin, end) of a model's memory.
struct ByteRange {
  uint64_t begin = 0, end = 0;
};

// Whether all of [begin, end) is among the `ranges`, which are ascending and apart.
bool covers(std::span<const ByteRange> ranges, uint64_t begin, uint64_t end);

// A load under way, between whoever does it and whoever watches it, on other threads.
struct LoadControl {
  std::atomic<bool> cancelled{false};     // set it: the load ends within a piece of 1 MiB per thread
  std::atomic<uint64_t> bytes_done{0};    // rises to weight_bytes()
  KeptWeights* kept = nullptr;            // of this model, for direct reads
  // What the same load of the same files has put there before, and is there still: ascending, apart. It is not brought again; bytes
  // of it that lie beside others may be written once more, as they are. REQUIRES: set before the load.
  std::vector<ByteRange> present;
  std::shared_ptr<const ExpertSlots> slots;  // as of Model::expert_slots() when it left, or null
  std::atomic<uint64_t> bytes_written{0}; // of bytes_done; the others were there
  // By a load that was cancelled: what of the memory it did not come to, in no order. All else is as it would have left it.
  std::vector<ByteRange> left;
  std::function<void()> give_way;         // called before each piece; may wait a moment
  std::function<TimePoint()> clock;       // empty: no time below is measured
  // If set, and the files can be computed from: called with the model before its weights are packed. It makes what it needs
  // from the mapped files until they are, more slowly; the bits are the same. load() then returns null when they are.
  std::function<void(std::unique_ptr<Model>)> early;
  std::atomic<int64_t> read_ns{0};        // of all threads together: waiting for bytes of the files
  std::atomic<int64_t> repack_ns{0};      // and laying them out
  std::atomic<uint64_t> bytes_read{0};
};

class ModelPlan {
 public:
  virtual ~ModelPlan() = default;

  virtual uint64_t weight_bytes() const = 0;      // of the packed weights, alignment included
  // What load() can do with: all but the experts, of which memory for one layer's is enough. Else weight_bytes().
  virtual uint64_t least_weight_bytes() const { return weight_bytes(); }
  virtual uint64_t kv_block_bytes() const = 0;    // K and V of kTokensPerBlock tokens in every layer
  // KV blocks that hold the state of a sequence in layers that keep one instead of K and V; 0: there are none.
  virtual uint32_t state_blocks() const { return 0; }
  virtual uint64_t state_bytes() const { return 0; }  // used in them
  virtual uint64_t workspace_bytes(uint32_t rows_max, uint32_t logit_rows_max) const = 0;
  virtual uint32_t vocab_size() const = 0;
  virtual uint32_t context_length() const = 0;    // longest sequence the positions allow
  virtual uint64_t parameter_count() const = 0;
  // Prompts longer than this have K of their own (rope scaling that looks at the length): sequences share their KV only
  // with prompts of equal length. 0: none share any (Model::whole_sequences).
  virtual uint32_t kv_salt_above() const { return UINT32_MAX; }

  // What a server of this model's experts needs; null: it has none. Shares what it needs with the plan.
  virtual std::shared_ptr<const ExpertPlan> expert_plan() const { return nullptr; }

  // Reads, converts and packs every weight into `memory` (least_weight_bytes() at least, 64-byte aligned) of the backend's device,
  // with all of load_threads. If that is less than weight_bytes(), experts are packed when passes need them, and the model
  // keeps the files open. Cancelled if `control` says so; DataLoss naming the file if it cannot be read to its end or was
  // written to since it was opened. The model computes on the backend, which may be busy with other models' passes
  // meanwhile. It refers to `memory` and to the backend, which outlive it; the plan and the checkpoint need not.
  virtual StatusOr<std::unique_ptr<Model>> load(DeviceSpan memory, Backend& backend, ThreadPool& load_threads,
                                                LoadControl& control) const = 0;
  // Reads the files into control.kept and nothing else, so that a load finds them there. Errors as of load().
  virtual Status read_ahead(ThreadPool& threads, LoadControl& control) const = 0;
};

// InvalidArgument or Unimplemented naming the architecture, tensor or type that cannot be served, and why. The plan
// shares ownership of the checkpoint's mapped files.
StatusOr<std::unique_ptr<ModelPlan>> plan_model(std::shared_ptr<const Checkpoint> checkpoint, const LoadOptions& options);

}  // namespace shoal
