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

#include "base/ids.h"
#include "base/status.h"
#include "base/time.h"
#include "formats/weight_source.h"

namespace shoal {

class ThreadPool;
struct Checkpoint;

enum class Quantization { kNone, kQ8_0, kQ4_0 };
enum class KvType { kAuto, kF32, kF16, kBF16, kQ8_0 };

struct LoadOptions {
  Quantization quantization = Quantization::kNone;  // quantise F32/F16/BF16 matrices at load; embeddings and norms stay
  KvType kv_type = KvType::kAuto;                   // auto: f32 for unquantised weights, f16 otherwise
  ModelIo io = ModelIo::kMapped;
  bool operator==(const LoadOptions&) const = default;
};

// One sequence's consecutive rows of a step.
struct SequenceSlice {
  uint32_t rows;
  uint32_t position;                   // of the first row; tokens [0, position) are in the KV blocks already
  uint32_t rope_length;                // prompt length of the sequence: fixes the base of dynamic rope for its life
  std::span<std::byte* const> blocks;  // KV blocks that cover tokens [0, position + rows), each block_bytes long
};

struct ForwardInput {
  std::span<const TokenId> tokens;           // [rows]
  std::span<const SequenceSlice> slices;     // their rows, in order, are the rows of the batch
  std::span<const uint32_t> logit_rows;      // ascending rows whose logits are wanted
};

class Model {
 public:
  virtual ~Model() = default;

  // One step. Writes K/V of every row into its block and logits f32 [logit_rows, vocab_size] for the rows asked for.
  // Bits depend on a sequence's own tokens only: not on the other rows, on how its tokens were cut into steps, on the
  // number of threads or on the vector width.
  // An error only of a model that was handed out early (LoadControl): its files were written to, or its load failed; what
  // this call wrote is not to be believed.
  // REQUIRES: workspace.size() >= ModelPlan::workspace_bytes(rows, logit rows); one forward at a time.
  virtual Status forward(const ForwardInput& input, std::span<std::byte> workspace, std::span<float> logits) = 0;
};

// A load under way, between whoever does it and whoever watches it, on other threads.
struct LoadControl {
  std::atomic<bool> cancelled{false};     // set it: the load ends within a piece of 1 MiB per thread
  std::atomic<uint64_t> bytes_done{0};    // rises to weight_bytes()
  KeptWeights* kept = nullptr;            // of this model, for direct reads
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
  virtual uint64_t kv_block_bytes() const = 0;    // K and V of kTokensPerBlock tokens in every layer
  virtual uint64_t workspace_bytes(uint32_t rows_max, uint32_t logit_rows_max) const = 0;
  virtual uint32_t vocab_size() const = 0;
  virtual uint32_t context_length() const = 0;    // longest sequence the positions allow
  virtual uint64_t parameter_count() const = 0;
  // Prompts longer than this have K of their own (rope scaling that looks at the length): sequences share their KV only
  // with prompts of equal length.
  virtual uint32_t kv_salt_above() const { return UINT32_MAX; }

  // Reads, converts and packs every weight into `memory` (weight_bytes() long, 64-byte aligned) with all of
  // load_threads. Cancelled if `control` says so; DataLoss
  // naming the file if it cannot be read to its end or was written to since it was opened. The model
  // computes on step_threads, which may be busy with other models' steps meanwhile. It refers to `memory` and to
  // step_threads, which outlive it; the plan and the checkpoint need not.
  virtual StatusOr<std::unique_ptr<Model>> load(std::span<std::byte> memory, ThreadPool& load_threads,
                                                ThreadPool& step_threads, LoadControl& control) const = 0;
  // Reads the files into control.kept and nothing else, so that a load finds them there. Errors as of load().
  virtual Status read_ahead(ThreadPool& threads, LoadControl& control) const = 0;
};

// InvalidArgument or Unimplemented naming the architecture, tensor or type that cannot be served, and why. The plan
// shares ownership of the checkpoint's mapped files.
StatusOr<std::unique_ptr<ModelPlan>> plan_model(std::shared_ptr<const Checkpoint> checkpoint, const LoadOptions& options);

}  // namespace shoal
