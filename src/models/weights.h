// Where every weight of a model goes: a layout made from the checkpoint's headers, and the load that fills it.
//
// An architecture asks for its tensors by name and shape; what it gets back are places in the model's one piece of memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "formats/checkpoint.h"
#include "kernels/ops.h"
#include "kernels/packed.h"
#include "device/device_span.h"
#include "models/backend.h"
#include "models/model.h"

namespace shoal {

// A model's memory. The vectors lie together, so that they can be there long before the matrices; the experts come last, so that a
// model can do with memory for a part of them (ExpertCache).
struct WeightMemory {
  DeviceAddress matrices;
  DeviceAddress vectors;
  DeviceAddress experts;
};

// A vector of f32 at an offset of the vectors.
struct VectorPlace {
  uint64_t offset = 0;
  uint32_t size = 0;
};
// A packed matrix at an offset of the matrices, or of the experts.
struct MatrixPlace {
  PackedMatrix matrix;  // data and bias unset
  uint32_t index = 0;   // among the layout's matrices
  bool expert = false;
  uint64_t offset = 0;
  std::optional<VectorPlace> bias;
};
// Rows of the token embedding as stored, or, where a tied output matrix of the same precision exists, taken from that.
struct EmbeddingPlace {
  DType dtype = DType::kF32;
  uint32_t index = 0;  // among the layout's copies
  uint64_t offset = 0;
  uint64_t row_bytes = 0;
  std::optional<MatrixPlace> tied;
};

// What a matrix is asked for as.
struct MatrixSpec {
  std::string name;  // without ".weight"
  uint32_t outputs = 0, columns = 0;
  bool bias = false;        // name + ".bias"
  uint32_t chunk_unit = 0;  // columns; see PackedMatrix. Rounded up to whole quantisation blocks
  // Rows [first_row, first_row + outputs) of a stored matrix of `stored_rows`; 0: the whole matrix.
  uint32_t first_row = 0, stored_rows = 0;
  uint32_t parts = 0;     // the stored shape may be [parts, rows / parts, columns], its name without ".weight"
  // Stored as [columns, outputs], rows [first_row, first_row + columns) of `stored_rows`.
  bool transposed = false;
  uint32_t first_output = 0, stored_outputs = 0;  // ... which has this many columns, of which the first is this; 0: outputs
  uint32_t step = 1;      // outputs are every step-th stored row (transposed: column)
  bool exact = false;     // never quantised at load: it decides instead of computing
  bool expert = false;    // of the expert that is asked for last (begin_expert)
};

class UnpackedWeights;

class WeightLayout {
 public:
  WeightLayout(std::shared_ptr<const Checkpoint> checkpoint, const LoadOptions& options)
      : checkpoint_(std::move(checkpoint)), options_(options) {}

  // NotFound, InvalidArgument or Unimplemented naming the tensor, what is wrong with it and what was expected.
  StatusOr<MatrixPlace> matrix(const MatrixSpec& spec);
  // Tensor `name`; `plus_one` adds 1 to every element (Gemma's norms).
  StatusOr<VectorPlace> vector(const std::string& name, uint32_t size, bool plus_one = false);
  // Elements first, first + step, ... of a tensor of `stored` elements.
  struct VectorPart {
    std::string name;
    uint32_t size = 0, first = 0, step = 1, stored = 0;
    uint32_t parts = 0;  // stored as [parts, stored / parts] or flat; 0: in any shape
    float factor = 1;  // of what is stored
    bool negative_exp = false;  // -exp(what is stored)
  };
  StatusOr<VectorPlace> vector(const VectorPart& part);
  // The token embedding [vocab, hidden] and the output matrix, tied or not.
  StatusOr<EmbeddingPlace> embedding(const std::string& name, uint32_t vocab, uint32_t hidden);
  StatusOr<MatrixPlace> head(const std::string& name, const std::string& embedding, uint32_t vocab, uint32_t hidden, bool tied,
                             EmbeddingPlace& place);
  // What is asked for as an expert's from here on is the next expert's. Its number: layer after layer, from 0.
  uint32_t begin_expert();
  // A load fails that finds something in tensor `name` that is not a number. REQUIRES: there is one.
  void require_finite(const std::string& name) { finite_.push_back(name); }
  // Whether there is a tensor of that name.
  bool has(const std::string& name) const { return checkpoint_->weights.find(name) != nullptr; }

  uint64_t bytes() const { return experts_at() + expert_bytes_; }
  uint64_t experts_at() const { return matrix_bytes_ + vector_bytes_; }
  WeightMemory in(DeviceAddress memory) const { return {memory, memory + matrix_bytes_, memory + experts_at()}; }
  uint64_t parameters() const { return parameters_; }
  bool quantized() const { return quantized_; }  // any matrix is in a quantised format

  // Those that are not among what the load finds in its place.
  void load_vectors(WeightSink& sink, LoadControl& control) const;
  enum class Experts : uint8_t { kLoaded, kLeft };
  // Fills the rest, with or without the experts, as far as the load does not find it in its place; no sink: only reads. See ModelPlan::load. What is in its place is no longer among
  // the `unpacked`, if there are such.
  Status load_matrices(WeightSink* sink, Experts experts, ThreadPool& threads, LoadControl& control, UnpackedWeights* unpacked) const;
  // A vector of this layout, from the file.
  std::vector<float> read(const VectorPlace& place) const;

  // An expert's matrices [first, first + matrices) and their bytes [offset, offset + bytes) of the experts.
  struct Expert {
    uint32_t first = 0, matrices = 0;
    uint64_t offset = 0, bytes = 0;
  };
  std::span<const Expert> experts() const { return experts_; }

  // ---- straight from the files, mapped ones (UnpackedWeights, ExpertCache) ----
  ModelIo io() const { return options_.io; }
  size_t matrix_count() const { return matrices_.size(); }
  const MatrixPlace& place(uint32_t index) const { return matrices_[index].place; }
  const PackedMatrix& matrix(uint32_t index) const { return matrices_[index].place.matrix; }
  void will_need(uint32_t matrix) const;  // a hint
  size_t copy_count() const { return copies_.size(); }
  const TensorView& copied(uint32_t index) const { return copies_[index].source; }
  void make_panel(uint32_t matrix, uint32_t panel, std::byte* out) const;
  // InvalidArgument naming a tensor of require_finite().
  Status check_finite() const;
  // DataLoss if what was read of them is not to be believed.
  Status check() const { return checkpoint_->check(); }

 private:
  struct MatrixJob {
    MatrixPlace place;
    TensorView source;
    uint32_t first_row = 0;
    std::optional<TensorView> scales;  // of an FP8 matrix: f32 [blocks of rows, blocks of columns]
    uint32_t scale_rows = 0, scale_columns = 0;
    bool transposed = false;
    uint32_t first_output = 0, step = 1;  // MatrixSpec
    bool mxfp4 = false;  // source: blocks of a row [columns / 2] bytes; scales: [columns / 32] bytes
    uint64_t stored_rows() const { return transposed ? place.matrix.columns : (place.matrix.rows - 1) * uint64_t{step} + 1; }
  };
  struct VectorJob {
    VectorPlace place;
    TensorView source;
    bool plus_one;
    uint32_t first = 0, step = 1;
    float factor = 1;
    bool negative_exp = false;
  };
  struct CopyJob {
    uint64_t offset;
    TensorView source;
  };

  // `other`: a shape that the same elements may be stored in instead.
  StatusOr<const TensorView*> find(const std::string& name, const Shape& shape, const std::optional<Shape>& other = std::nullopt) const;
  StatusOr<WeightFormat> choose_format(const std::string& name, DType type, uint32_t columns, bool head) const;
  StatusOr<MatrixPlace> add_matrix(const MatrixSpec& spec, bool head);
  Status find_scales(const MatrixSpec& spec, MatrixJob& job) const;
  StatusOr<MatrixJob> find_source(const MatrixSpec& spec, uint32_t stored_rows) const;
  StatusOr<MatrixJob> find_mxfp4(const MatrixSpec& spec, uint32_t stored_rows) const;
  struct Piece {  // what one thread does at a time
    const MatrixJob* matrix;  // panels [begin, end) of it
    const CopyJob* copy;      // or bytes [begin, end)
    uint64_t begin, end;
    std::span<const std::byte> source;
  };
  std::vector<Piece> pieces(Experts experts) const;  // in the order of the files
  std::vector<Piece> missing(std::vector<Piece> pieces, std::span<const ByteRange> present, LoadControl& control, UnpackedWeights* unpacked) const;
  void note(const Piece& piece, UnpackedWeights& unpacked) const;
  std::vector<ByteRange> left_of(std::span<const Piece> work, std::span<const char> filled, Experts experts) const;
  ByteRange place_of(const Piece& piece) const;  // in the model's memory
  uint64_t fill(const Piece& piece, std::span<const std::byte> source, WeightSink& sink) const;
  static void read_vector(const VectorJob& job, float* out);
  static void read_stored(const VectorJob& job, float* out);
  static void pack_mxfp4(const MatrixJob& job, uint32_t panel, const std::byte* first_row, std::byte* out);
  static void pack(const MatrixJob& job, uint32_t panel, const std::byte* first_row, bool read_soon, std::byte* out);
  static void pack_transposed(const MatrixJob& job, uint32_t panel, const std::byte* stored, std::byte* out);

  std::shared_ptr<const Checkpoint> checkpoint_;
  LoadOptions options_;
  uint64_t matrix_bytes_ = 0, vector_bytes_ = 0, expert_bytes_ = 0;
  uint64_t parameters_ = 0;
  bool quantized_ = false;
  std::vector<MatrixJob> matrices_;
  std::vector<VectorJob> vectors_;
  std::vector<CopyJob> copies_;
  std::vector<Expert> experts_;
  std::vector<std::string> finite_;
};

}  // namespace shoal
