#include "models/weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "kernels/pack.h"
#include "kernels/scalar_math.h"
#include "kernels/quant_codes.h"

namespace shoal {
namespace {

// Returns where the new ones begin.
uint64_t reserve(uint64_t bytes, uint64_t& total) { return std::exchange(total, total + round_up(bytes, kTensorAlignment)); }

}  // namespace

namespace {

// "PATH: tensor 'NAME'", as the file calls it.
std::string named(const Checkpoint& checkpoint, const std::string& name) { return checkpoint.path + ": tensor '" + checkpoint.name_in_file(name) + "'"; }

// [a, b, columns] as [a * b, columns], and [columns] as [1, columns].
Shape as_matrix(const TensorView& view) {
  const uint64_t columns = view.shape.rank() == 0 ? 1 : view.shape[view.shape.rank() - 1];
  return Shape{view.rows(), columns};
}

}  // namespace

StatusOr<const TensorView*> WeightLayout::find(const std::string& name, const Shape& shape, const std::optional<Shape>& other) const {
  const TensorView* view = checkpoint_->weights.find(name);
  if (view == nullptr) {
    return not_found(named(*checkpoint_, name), " is missing; the checkpoint is incomplete, fetch it again");
  }
  const bool row = shape.rank() == 1 ? view->shape == Shape{1, shape[0]} : view->shape == Shape{shape[1]} && shape[0] == 1;
  if (view->shape != shape && view->shape != other && !row) {
    return invalid_argument(named(*checkpoint_, name), " has shape ", view->shape.to_string(),
                            " where the config asks for ", other.value_or(shape).to_string());
  }
  if (!is_weight_type(view->dtype)) {
    return unimplemented(named(*checkpoint_, name), " has type ", dtype_name(view->dtype), ", which is not served");
  }
  return view;
}

StatusOr<WeightFormat> WeightLayout::choose_format(const std::string& name, DType type, uint32_t columns, bool head) const {
  WeightFormat format = natural_format(type);
  if (!is_block_type(type) && columns % kQuantBlock == 0) {
    // The output matrix decides between tokens; four bits are too coarse for it.
    if (options_.quantization == Quantization::kQ8_0) format = WeightFormat::kQ8_0;
    if (options_.quantization == Quantization::kQ4_0) format = head ? WeightFormat::kQ8_0 : WeightFormat::kQ4_0;
  }
  if (columns % format_columns(format) != 0) {
    return invalid_argument(named(*checkpoint_, name), " has rows of ", columns, " elements, not whole blocks of ",
                            dtype_name(type));
  }
  return format;
}

// DeepSeek's form of FP8: "<name>.weight_scale_inv" holds one f32 factor per block of rows and columns.
Status WeightLayout::find_scales(const MatrixSpec& spec, MatrixJob& job) const {
  const bool fp8 = job.source.dtype == DType::kF8E4M3 || job.source.dtype == DType::kF8E5M2;
  if (!fp8) return OkStatus();
  const std::string name = spec.name + ".weight_scale_inv";
  const TensorView* scales = checkpoint_->weights.find(name);
  const auto& block = checkpoint_->config.fp8_block;
  if (scales == nullptr || block[0] == 0) {
    return unimplemented(checkpoint_->path, ": FP8 tensor '", spec.name, ".weight' has no block scales ('", name,
                         "' and quantization_config.weight_block_size); only FP8 with block scales is served");
  }
  const Shape want{div_up(job.source.shape[0], block[0]), div_up(job.source.shape[1], block[1])};
  if (scales->dtype != DType::kF32 || scales->shape != want) {
    return invalid_argument(named(*checkpoint_, name), " is ", dtype_name(scales->dtype), " ",
                            scales->shape.to_string(), " where F32 ", want.to_string(), " is needed");
  }
  job.scales = *scales;
  job.scale_rows = block[0];
  job.scale_columns = block[1];
  return OkStatus();
}

StatusOr<WeightLayout::MatrixJob> WeightLayout::find_source(const MatrixSpec& spec, uint32_t stored_rows) const {
  if (spec.expert && (has(spec.name + "_blocks") || has(spec.name + "_scales"))) return find_mxfp4(spec, stored_rows);
  const uint32_t stored_columns = !spec.transposed ? spec.columns : spec.stored_outputs != 0 ? spec.stored_outputs : spec.outputs;
  // Parts in one tensor go by a name without the suffix in HF folders.
  std::string name = spec.name + ".weight";
  std::optional<Shape> other;
  if (spec.parts > 0) {
    if (has(spec.name)) name = spec.name;
    other = Shape{spec.parts, stored_rows / spec.parts, stored_columns};
  }
  ASSIGN_OR_RETURN(const TensorView* source, find(name, Shape{stored_rows, stored_columns}, other));
  if (spec.transposed && is_block_type(source->dtype)) {
    return unimplemented(named(*checkpoint_, name), " has type ", dtype_name(source->dtype), ", which cannot be turned; convert it with a newer converter");
  }
  MatrixJob job;
  job.source = *source;
  return job;
}

// Folders of gpt-oss: "<name>_blocks" [.., columns / 32, 16] and "<name>_scales" [.., columns / 32], bytes both.
StatusOr<WeightLayout::MatrixJob> WeightLayout::find_mxfp4(const MatrixSpec& spec, uint32_t stored_rows) const {
  const uint64_t blocks = spec.columns / kQuantBlock;
  TensorView parts[2];
  for (const auto& [i, suffix, bytes] : {std::tuple{0, "_blocks", uint64_t{16}}, {1, "_scales", uint64_t{1}}}) {
    const TensorView* view = checkpoint_->weights.find(spec.name + suffix);
    if (view == nullptr) return not_found(checkpoint_->path, ": tensor '", spec.name, suffix, "' is missing; the checkpoint is incomplete, fetch it again");
    const bool parted = view->shape.rank() > 1 && view->shape[0] == spec.parts && view->shape[1] == stored_rows / spec.parts;
    if (view->dtype != DType::kU8 || view->bytes != stored_rows * blocks * bytes || !parted || spec.columns % kQuantBlock != 0) {
      return invalid_argument(checkpoint_->path, ": tensor '", spec.name, suffix, "' is ", dtype_name(view->dtype), " ", view->shape.to_string(),
                              " where ", spec.parts, " times ", stored_rows / spec.parts, " rows of ", blocks * bytes, " bytes (U8) are needed");
    }
    parts[i] = *view;
    parts[i].shape = Shape{stored_rows, blocks * bytes};
  }
  MatrixJob job;
  job.source = parts[0];
  job.scales = parts[1];
  job.mxfp4 = true;
  return job;
}

StatusOr<MatrixPlace> WeightLayout::add_matrix(const MatrixSpec& spec, bool head) {
  const uint32_t stored_rows = spec.stored_rows != 0 ? spec.stored_rows : spec.transposed ? spec.columns : spec.outputs;
  ASSIGN_OR_RETURN(MatrixJob job, find_source(spec, stored_rows));
  const DType type = job.mxfp4 ? DType::kMXFP4 : job.source.dtype;
  MatrixPlace place;
  if (spec.exact && !is_block_type(type)) {
    place.matrix.format = natural_format(type);
  } else {
    ASSIGN_OR_RETURN(place.matrix.format, choose_format(spec.name, type, spec.columns, head));
  }
  place.matrix.rows = spec.outputs;
  place.matrix.columns = spec.columns;
  const bool blocks = is_quantized(place.matrix.format);
  if (spec.chunk_unit != 0) place.matrix.chunk_unit = blocks ? std::lcm(spec.chunk_unit, kQuantBlock) : spec.chunk_unit;
  quantized_ |= blocks;
  place.index = static_cast<uint32_t>(matrices_.size());
  place.expert = spec.expert;
  place.offset = reserve(packed_bytes(place.matrix.format, spec.outputs, spec.columns), spec.expert ? expert_bytes_ : matrix_bytes_);
  if (spec.expert) {
    ++experts_.back().matrices;
    experts_.back().bytes = expert_bytes_ - experts_.back().offset;
  }
  if (spec.bias) {
    const std::string bias_name = spec.name + ".bias";
    if (stored_rows != spec.outputs) return unimplemented(checkpoint_->path, ": '", bias_name, "' of a fused matrix is not served");
    ASSIGN_OR_RETURN(place.bias, vector(bias_name, spec.outputs));
  }
  job.place = place;
  job.first_row = spec.first_row;
  job.transposed = spec.transposed;
  job.first_output = spec.first_output;
  job.step = spec.step;
  RETURN_IF_ERROR(find_scales(spec, job));
  matrices_.push_back(job);
  parameters_ += uint64_t{spec.outputs} * spec.columns;
  return place;
}

StatusOr<MatrixPlace> WeightLayout::matrix(const MatrixSpec& spec) { return add_matrix(spec, false); }

uint32_t WeightLayout::begin_expert() {
  experts_.push_back({static_cast<uint32_t>(matrices_.size()), 0, expert_bytes_, 0});
  return static_cast<uint32_t>(experts_.size() - 1);
}

StatusOr<VectorPlace> WeightLayout::vector(const std::string& name, uint32_t size, bool plus_one) {
  ASSIGN_OR_RETURN(const TensorView* source, find(name, Shape{size}));
  if (is_block_type(source->dtype)) return unimplemented(checkpoint_->path, ": vector '", checkpoint_->name_in_file(name), "' is quantised");
  const VectorPlace place{reserve(uint64_t{size} * sizeof(float), vector_bytes_), size};
  vectors_.push_back({place, *source, plus_one});
  parameters_ += size;
  return place;
}

StatusOr<VectorPlace> WeightLayout::vector(const VectorPart& part) {
  std::optional<Shape> other;
  if (part.parts > 0) {
    other = Shape{part.parts, part.stored / part.parts};
  } else if (const TensorView* view = checkpoint_->weights.find(part.name); view != nullptr && view->shape.elements() == part.stored) {
    other = view->shape;
  }
  ASSIGN_OR_RETURN(const TensorView* source, find(part.name, Shape{part.stored}, other));
  if (is_block_type(source->dtype)) return unimplemented(checkpoint_->path, ": vector '", checkpoint_->name_in_file(part.name), "' is quantised");
  const VectorPlace place{reserve(uint64_t{part.size} * sizeof(float), vector_bytes_), part.size};
  vectors_.push_back({place, *source, false, part.first, part.step, part.factor, part.negative_exp});
  parameters_ += part.size;
  return place;
}

StatusOr<EmbeddingPlace> WeightLayout::embedding(const std::string& name, uint32_t vocab, uint32_t hidden) {
  ASSIGN_OR_RETURN(const TensorView* source, find(name + ".weight", Shape{vocab, hidden}));
  const bool fp8 = source->dtype == DType::kF8E4M3 || source->dtype == DType::kF8E5M2;
  if (fp8) return unimplemented(checkpoint_->path, ": embedding '", checkpoint_->name_in_file(name), "' in FP8 is not served");
  const auto index = static_cast<uint32_t>(copies_.size());
  EmbeddingPlace place{source->dtype, index, reserve(source->bytes, matrix_bytes_), source->row_bytes(), std::nullopt};
  copies_.push_back({place.offset, *source});
  parameters_ += uint64_t{vocab} * hidden;
  return place;
}

StatusOr<MatrixPlace> WeightLayout::head(const std::string& name, const std::string& embedding_name, uint32_t vocab,
                                         uint32_t hidden, bool tied, EmbeddingPlace& place) {
  if (!tied) {
    ASSIGN_OR_RETURN(place, embedding(embedding_name, vocab, hidden));
    return add_matrix({.name = name, .outputs = vocab, .columns = hidden}, true);
  }
  ASSIGN_OR_RETURN(const MatrixPlace result, add_matrix({.name = embedding_name, .outputs = vocab, .columns = hidden}, true));
  if (result.matrix.format == natural_format(matrices_.back().source.dtype)) {
    place.tied = result;
    return result;
  }
  ASSIGN_OR_RETURN(place, embedding(embedding_name, vocab, hidden));  // quantised at load: embeddings stay as stored
  parameters_ -= uint64_t{vocab} * hidden;
  return result;
}

// As DType::kMXFP4 of GGUF files, of which pack_panel knows.
void WeightLayout::pack_mxfp4(const MatrixJob& job, uint32_t panel, const std::byte* first_row, std::byte* out) {
  const PackedMatrix& matrix = job.place.matrix;
  const uint32_t first = panel * kPanelRows, count = std::min(kPanelRows, matrix.rows - first);
  const uint64_t row_bytes = *dtype_bytes(DType::kMXFP4, matrix.columns);
  std::vector<std::byte> joined(row_bytes * count);
  const std::byte* rows[kPanelRows];
  for (uint32_t i = 0; i < count; ++i) {
    const uint64_t row = job.first_row + uint64_t{first + i} * job.step;
    rows[i] = joined.data() + i * row_bytes;
    join_mxfp4(first_row + i * job.step * job.source.row_bytes(), job.scales->data + row * job.scales->row_bytes(), matrix.columns, joined.data() + i * row_bytes);
  }
  pack_panel({DType::kMXFP4, {rows, count}, matrix.columns, {}, 0, false}, matrix.format, out);
}

// `first_row` is the panel's first row as stored.
void WeightLayout::pack(const MatrixJob& job, uint32_t panel, const std::byte* first_row, bool read_soon, std::byte* out) {
  if (job.mxfp4) return pack_mxfp4(job, panel, first_row, out);
  const PackedMatrix& matrix = job.place.matrix;
  const uint64_t row_bytes = job.source.row_bytes();
  const std::byte* rows[kPanelRows];
  const float* row_scales[kPanelRows];
  std::vector<float> scales;
  const uint32_t first = panel * kPanelRows;
  const uint32_t count = std::min(kPanelRows, matrix.rows - first);
  const uint64_t scale_stride = job.scales ? job.scales->shape[1] : 0;
  scales.resize(scale_stride * count);
  for (uint32_t i = 0; i < count; ++i) {
    rows[i] = first_row + i * row_bytes;
    if (!job.scales) continue;
    const uint64_t row = uint64_t{job.first_row} + first + i;
    std::memcpy(&scales[i * scale_stride], job.scales->data + row / job.scale_rows * scale_stride * 4, scale_stride * 4);
    row_scales[i] = &scales[i * scale_stride];
  }
  PanelSource source{job.source.dtype, {rows, count}, matrix.columns, {}, job.scale_columns, read_soon};
  if (job.scales) source.row_scales = {row_scales, count};
  pack_panel(source, matrix.format, out);
}

// `stored` is the matrix's first row as stored, of which every one holds a column.
void WeightLayout::pack_transposed(const MatrixJob& job, uint32_t panel, const std::byte* stored, std::byte* out) {
  const PackedMatrix& matrix = job.place.matrix;
  const uint32_t first = panel * kPanelRows, count = std::min(kPanelRows, matrix.rows - first);
  const uint32_t begin = job.first_output + first * job.step, end = begin + (count - 1) * job.step + 1;
  std::vector<float> turned(uint64_t{count} * matrix.columns), part(end - begin);
  for (uint32_t k = 0; k < matrix.columns; ++k) {
    dequantize_row(job.source.dtype, stored + k * job.source.row_bytes(), begin, end, part.data());
    for (uint32_t i = 0; i < count; ++i) {
      float scale = 1;
      if (job.scales) {
        const uint64_t at = (uint64_t{job.first_row} + k) / job.scale_rows * job.scales->shape[1] + (begin + i * job.step) / job.scale_columns;
        std::memcpy(&scale, job.scales->data + at * 4, 4);
      }
      turned[uint64_t{i} * matrix.columns + k] = part[i * job.step] * scale;
    }
  }
  const std::byte* rows[kPanelRows];
  for (uint32_t i = 0; i < count; ++i) rows[i] = reinterpret_cast<const std::byte*>(&turned[uint64_t{i} * matrix.columns]);
  pack_panel({DType::kF32, {rows, count}, matrix.columns, {}, 0, false}, matrix.format, out);
}

void WeightLayout::make_panel(uint32_t matrix, uint32_t panel, std::byte* out) const {
  const MatrixJob& job = matrices_[matrix];
  const uint64_t row = job.transposed ? job.first_row : job.first_row + uint64_t{panel} * kPanelRows * job.step;
  const std::byte* const stored = job.source.data + row * job.source.row_bytes();
  if (job.transposed) pack_transposed(job, panel, stored, out);
  else pack(job, panel, stored, /*read_soon=*/true, out);
  flush_panels();
}

void WeightLayout::will_need(uint32_t matrix) const {
  const MatrixJob& job = matrices_[matrix];
  const uint64_t row_bytes = job.source.row_bytes();
  const std::span<const std::byte> part(job.source.data + job.first_row * row_bytes, job.stored_rows() * row_bytes);
  for (const auto& file : checkpoint_->files) {
    const auto bytes = file->bytes();
    if (part.data() >= bytes.data() && part.data() + part.size() <= bytes.data() + bytes.size()) return file->will_need(part);
  }
}

Status WeightLayout::check_finite() const {
  for (const std::string& name : finite_) {
    const TensorView& view = *checkpoint_->weights.find(name);
    const uint64_t columns = as_matrix(view)[1];
    std::vector<float> row(columns);
    for (uint64_t i = 0; i < view.rows(); ++i) {
      dequantize_row(view.dtype, view.data + i * view.row_bytes(), 0, columns, row.data());
      if (std::all_of(row.begin(), row.end(), [](float x) { return std::isfinite(x); })) continue;
      return invalid_argument(named(*checkpoint_, name), ", which chooses experts, holds something that is not a number; fetch the file again");
    }
  }
  return OkStatus();
}

void WeightLayout::read_vector(const VectorJob& job, float* out) {
  read_stored(job, out);
  for (uint32_t i = 0; i < job.place.size; ++i) {
    if (job.plus_one) out[i] += 1.0f;
    if (job.factor != 1) out[i] *= job.factor;
    if (job.negative_exp) out[i] = static_cast<float>(-portable_exp(std::clamp(double{out[i]}, -600.0, 600.0)));
  }
}

void WeightLayout::read_stored(const VectorJob& job, float* out) {
  if (job.step != 1) {
    std::vector<float> all(uint64_t{job.place.size - 1} * job.step + 1);
    dequantize_row(job.source.dtype, job.source.data, job.first, job.first + all.size(), all.data());
    for (uint32_t i = 0; i < job.place.size; ++i) out[i] = all[uint64_t{i} * job.step];
    return;
  }
  dequantize_row(job.source.dtype, job.source.data, job.first, uint64_t{job.first} + job.place.size, out);
}

std::vector<float> WeightLayout::read(const VectorPlace& place) const {
  const auto job = std::find_if(vectors_.begin(), vectors_.end(), [&](const VectorJob& v) { return v.place.offset == place.offset; });
  CHECK(job != vectors_.end());
  std::vector<float> out(place.size);
  read_vector(*job, out.data());
  return out;
}

}  // namespace shoal
