// The load that fills a layout: what it brings in which order, by which threads, and what it finds there.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <mutex>
#include <utility>

#include "base/check.h"
#include "kernels/pack.h"
#include "models/unpacked_weights.h"
#include "models/weights.h"

namespace shoal {
namespace {

// Calls body(i) for each piece, begun in their order, in which the source reads them ahead.
template <typename Body>
void for_each_in_order(ThreadPool& threads, size_t pieces, const Body& body) {
  std::atomic<size_t> next{0};
  threads.parallel_for(pieces, [&](size_t, int) { body(next.fetch_add(1, std::memory_order_relaxed)); });
}

constexpr uint64_t kPieceBytes = 1 << 20;  // of the source

}  // namespace

bool covers(std::span<const ByteRange> ranges, uint64_t begin, uint64_t end) {
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), begin, [](uint64_t at, const ByteRange& range) { return at < range.begin; });
  return after != ranges.begin() && std::prev(after)->end >= end;
}

void WeightLayout::load_vectors(WeightSink& sink, LoadControl& control) const {
  for (const VectorJob& job : vectors_) {
    const uint64_t at = matrix_bytes_ + job.place.offset, bytes = job.place.size * sizeof(float);
    if (covers(control.present, at, at + bytes)) continue;
    const std::span<std::byte> out = sink.take(at, bytes);
    read_vector(job, reinterpret_cast<float*>(out.data()));
    sink.give_back(at, out);
    control.bytes_written += bytes;
  }
}

std::vector<WeightLayout::Piece> WeightLayout::pieces(Experts experts) const {
  std::vector<Piece> pieces;
  for (const MatrixJob& job : matrices_) {
    if (job.place.expert && experts == Experts::kLeft) continue;
    const uint64_t row_bytes = job.source.row_bytes(), panels = job.place.matrix.panels();
    if (job.transposed) {  // each panel is of all stored rows
      pieces.push_back({&job, nullptr, 0, panels, {job.source.data + job.first_row * row_bytes, job.stored_rows() * row_bytes}});
      continue;
    }
    const uint64_t step = std::max<uint64_t>(kPieceBytes / (kPanelRows * row_bytes), 1);
    for (uint64_t begin = 0; begin < panels; begin += step) {
      const uint64_t end = std::min(panels, begin + step);
      const uint64_t first = begin * kPanelRows, last = std::min<uint64_t>(end * kPanelRows, job.place.matrix.rows);
      const uint64_t stored = (last - first - 1) * job.step + 1;
      pieces.push_back({&job, nullptr, begin, end, {job.source.data + (job.first_row + first * job.step) * row_bytes, stored * row_bytes}});
    }
  }
  for (const CopyJob& job : copies_) {
    for (uint64_t begin = 0; begin < job.source.bytes; begin += kPieceBytes) {
      const uint64_t end = std::min(job.source.bytes, begin + kPieceBytes);
      pieces.push_back({nullptr, &job, begin, end, {job.source.data + begin, end - begin}});
    }
  }
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return std::less<>()(a.source.data(), b.source.data()); });
  return pieces;
}

ByteRange WeightLayout::place_of(const Piece& piece) const {
  if (piece.copy != nullptr) return {piece.copy->offset + piece.begin, piece.copy->offset + piece.end};
  const MatrixPlace& place = piece.matrix->place;
  const uint64_t at = (place.expert ? experts_at() : 0) + place.offset, panel = panel_bytes(place.matrix.format, place.matrix.columns);
  return {at + piece.begin * panel, at + piece.end * panel};
}

// Returns the bytes written.
uint64_t WeightLayout::fill(const Piece& piece, std::span<const std::byte> source, WeightSink& sink) const {
  const auto [at, end] = place_of(piece);
  const std::span<std::byte> out = sink.take(at, end - at);
  if (piece.copy != nullptr) {
    std::memcpy(out.data(), source.data(), source.size());
    sink.give_back(at, out);
    return source.size();
  }
  const PackedMatrix& matrix = piece.matrix->place.matrix;
  const uint64_t panel_stored = kPanelRows * piece.matrix->step * piece.matrix->source.row_bytes();
  const uint64_t bytes = panel_bytes(matrix.format, matrix.columns);
  for (uint64_t panel = 0; panel < piece.end - piece.begin; ++panel) {
    if (piece.matrix->transposed) {
      pack_transposed(*piece.matrix, static_cast<uint32_t>(panel), source.data(), out.data() + panel * bytes);
      continue;
    }
    pack(*piece.matrix, static_cast<uint32_t>(piece.begin + panel), source.data() + panel * panel_stored, /*read_soon=*/false, out.data() + panel * bytes);
  }
  flush_panels();
  sink.give_back(at, out);
  return out.size();
}

void WeightLayout::note(const Piece& piece, UnpackedWeights& unpacked) const {
  const uint64_t done = piece.end - piece.begin;
  if (piece.matrix != nullptr) unpacked.packed(piece.matrix->place.index, done);
  else unpacked.copied(static_cast<uint32_t>(piece.copy - copies_.data()), done);
}

// Without what is there.
std::vector<WeightLayout::Piece> WeightLayout::missing(std::vector<Piece> pieces, std::span<const ByteRange> present, LoadControl& control,
                                                       UnpackedWeights* unpacked) const {
  if (present.empty()) return pieces;
  std::erase_if(pieces, [&](const Piece& piece) {
    const auto [begin, end] = place_of(piece);
    if (!covers(present, begin, end)) return false;
    control.bytes_done += end - begin;
    if (unpacked != nullptr) note(piece, *unpacked);
    return true;
  });
  return pieces;
}

// Where those belong that are not filled, and what comes from no load.
std::vector<ByteRange> WeightLayout::left_of(std::span<const Piece> work, std::span<const char> filled, Experts experts) const {
  std::vector<ByteRange> left;
  for (size_t i = 0; i < work.size(); ++i) {
    if (!filled[i]) left.push_back(place_of(work[i]));
  }
  if (experts == Experts::kLeft) left.push_back({experts_at(), bytes()});
  return left;
}

Status WeightLayout::load_matrices(WeightSink* sink, Experts experts, ThreadPool& threads, LoadControl& control, UnpackedWeights* unpacked) const {
  const std::vector<Piece> work = missing(pieces(experts), sink != nullptr ? control.present : std::vector<ByteRange>(), control, unpacked);
  std::vector<std::span<const std::byte>> extents;
  for (const Piece& piece : work) extents.push_back(piece.source);
  // What is kept is of all extents, or of none.
  ASSIGN_OR_RETURN(const auto source, open_weight_source(*checkpoint_, options_.io, std::move(extents), control.present.empty() ? control.kept : nullptr));
  std::mutex mutex;
  Status first_error;
  std::atomic<bool> failed{false};
  std::vector<char> filled(work.size(), 0);
  const auto fail = [&](const Status& status) {
    std::lock_guard lock(mutex);
    first_error.Update(status);
    failed = true;
    source->stop();
  };
  for_each_in_order(threads, work.size(), [&](size_t i) {
    if (failed.load(std::memory_order_relaxed)) return;
    if (control.cancelled.load(std::memory_order_relaxed)) return fail(absl::CancelledError("the load was cancelled"));
    if (control.give_way) control.give_way();
    const TimePoint begin = control.clock ? control.clock() : TimePoint{};
    const auto bytes = source->take(i);
    if (!bytes.ok()) return fail(bytes.status());
    const TimePoint taken = control.clock ? control.clock() : TimePoint{};
    if (sink != nullptr) {
      const uint64_t written = fill(work[i], *bytes, *sink);
      filled[i] = 1;
      control.bytes_done.fetch_add(written, std::memory_order_relaxed);
      control.bytes_written.fetch_add(written, std::memory_order_relaxed);
    }
    control.bytes_read.fetch_add(bytes->size(), std::memory_order_relaxed);
    source->give_back(i);
    if (unpacked != nullptr) note(work[i], *unpacked);
    if (!control.clock) return;
    control.read_ns.fetch_add((taken - begin).count(), std::memory_order_relaxed);
    control.repack_ns.fetch_add((control.clock() - taken).count(), std::memory_order_relaxed);
  });
  if (first_error.ok()) first_error = checkpoint_->check();
  if (sink != nullptr) sink->finish();
  if (first_error.code() == StatusCode::kCancelled) control.left = left_of(work, filled, experts);
  if (!first_error.ok() && first_error.code() != StatusCode::kCancelled && control.kept != nullptr) control.kept->have.clear();
  RETURN_IF_ERROR(first_error);
  if (sink != nullptr) control.bytes_done.store(experts == Experts::kLoaded ? bytes() : experts_at());
  return OkStatus();
}

}  // namespace shoal
