// How a step's attention is split: into pieces of few queries, and where these are too few for the threads, by segments of
// the context as well, or in a short one by the queries of a KV head. The states of segments are merged in one order (kernels.h),
// so no split shows in the bits.
#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "models/cpu_step.h"

namespace shoal {
namespace {

constexpr uint32_t kPieceQueries[] = {96, 48, 32};  // query heads of one KV head in a task, at most: the more the faster each is
constexpr uint32_t kSegmentTokens = kKvTokens * kSegmentBlocks;
constexpr size_t kTasksPerThread = 4;         // so that threads end together
constexpr uint64_t kPartialFloatsMax = 1 << 20;

bool alike(const KvLayer& a, const KvLayer& b) { return a.queries == b.queries && a.heads == b.heads && a.value_dim == b.value_dim; }

const AttentionSplit& split_of(const std::vector<AttentionSplit>& splits, const KvLayer& layer) {
  return *std::find_if(splits.begin(), splits.end(), [&](const AttentionSplit& split) { return alike(split.of, layer); });
}

// The most at which the threads end together.
uint32_t piece_queries(const KvLayer& layer, const std::vector<BatchRows::Run>& runs, size_t threads) {
  for (const uint32_t queries : kPieceQueries) {
    size_t tasks = 0;
    for (const BatchRows::Run& run : runs) tasks += layer.heads * div_up(uint64_t{run.rows} * layer.group(), queries);
    if (tasks >= kTasksPerThread * threads || tasks % threads == 0) return queries;
  }
  return *std::rbegin(kPieceQueries);
}

AttentionSplit split_layer(const KvLayer& layer, const StepShape& shape, const ForwardInput& input, const std::vector<BatchRows::Run>& runs, size_t threads) {
  AttentionSplit split{layer, {}, false};
  const uint32_t group = layer.group();
  const uint32_t queries = piece_queries(layer, runs, threads);
  uint64_t segments = 0, floats = 0;
  for (const BatchRows::Run& run : runs) {
    const auto rows_each = static_cast<uint32_t>(div_up(run.rows, div_up(uint64_t{run.rows} * group, queries)));
    for (uint32_t row = 0, rows = 0; row < run.rows; row += rows) {
      const uint32_t first = run.first + row;
      rows = std::min(rows_each, run.rows - row);
      const uint32_t reach = (input.slices[run.slice].position + first + rows - 1) / kSegmentTokens + 1;
      split.pieces.push_back({{run.slice, first, rows, run.at + row}, reach, floats});
      segments += reach;
      floats += uint64_t{reach} * layer.heads * rows * group * attention_state_floats(layer.value_dim);
    }
  }
  if (shape.ahead) return split;  // rows reach beyond those of their piece; whole sequences give pieces enough
  const size_t pieces = split.pieces.size();
  split.segments = threads > 1 && segments > pieces && pieces * layer.heads < kTasksPerThread * threads && floats <= shape.partial_floats();
  while (!split.segments && split.parts < group && (pieces * layer.heads * split.parts < threads || group % split.parts != 0)) ++split.parts;
  return split;
}

}  // namespace

uint64_t StepShape::partial_floats() const {
  const uint64_t floats = state_floats * uint64_t{div_up(context, kSegmentTokens)};
  return context <= kSegmentTokens ? 0 : std::min(floats, kPartialFloatsMax);
}

std::vector<AttentionSplit> split_attention(const StepContext& context, const ForwardInput& input, const BatchRows& rows, int threads) {
  const std::vector<BatchRows::Run> runs = rows.runs(input);
  std::vector<AttentionSplit> splits;
  for (const KvLayer& layer : context.kv.layers) {
    const bool known = std::any_of(splits.begin(), splits.end(), [&](const AttentionSplit& split) { return alike(split.of, layer); });
    if (layer.queries > 0 && !known) splits.push_back(split_layer(layer, context.shape, input, runs, static_cast<size_t>(threads)));
  }
  return splits;
}

AttentionCall CpuStep::attention_call(const AttentionPiece& piece, uint64_t head, const AttentionArguments& a) const {
  const KvLayout& kv = context_.kv;
  const KvLayer& layer = a.layer;
  const uint32_t group = layer.group();
  const SequenceSlice& slice = input_.slices[piece.run.slice];
  const uint64_t row = piece.run.at;
  AttentionCall call;
  call.q_stride = layer.query_width();
  call.out_stride = layer.out_width();
  call.q = a.q + row * call.q_stride + head * group * layer.key_dim;
  call.out = a.out + row * call.out_stride + head * group * layer.value_dim;
  call.value_dim = layer.value_dim;
  call.compressed = layer.compressed;
  call.blocks = blocks_.data() + first_block_[piece.run.slice];
  call.key_offset = layer.offset + head * kv.key_bytes(layer);
  call.value_offset = kv.value_offset(layer) + head * kv.value_bytes(layer);
  call.format = kv.format;
  call.head_dim = layer.key_dim;
  call.group = group;
  call.rows = piece.run.rows;
  call.position = slice.position + piece.run.first;
  call.window = a.spec.window;
  call.chunk = a.spec.chunk;
  call.ahead = a.spec.ahead;
  call.length = slice.position + slice.rows;
  call.scale = a.spec.scale;
  call.softcap = a.spec.softcap;
  if (a.spec.selected) {
    const uint64_t stride = selected_words(context_.shape.context);
    call.selected = {CpuDevice::at(at_.selected) + row * stride, stride};
  }
  if (a.spec.sinks != nullptr) call.sinks = weights_.vector(*a.spec.sinks) + head * group;
  return call;
}

void CpuStep::attend(Floats q, Floats k, Floats v, const AttentionSpec& spec, Floats attn) const {
  const KvLayer& layer = context_.kv.layers[spec.layer];
  if (k) store_kv(CpuDevice::at(k), v ? CpuDevice::at(v) : nullptr, layer);
  if (spec.keep != nullptr) {
    std::vector<KeptRows> kept = *spec.keep;
    kept.push_back({q, layer.query_width()});
    keep_asked(std::move(kept));
  }
  const AttentionArguments arguments{CpuDevice::at(q), CpuDevice::at(attn), spec, layer};
  const AttentionSplit& split = split_of(splits_, layer);
  const uint64_t heads = layer.heads;
  // Later rows see more: they go first, so that the threads end together.
  const auto piece_of = [&](size_t task) -> const AttentionPiece& { return split.pieces[split.pieces.size() - 1 - task / heads]; };
  if (split.segments) return attend_by_segments(split, arguments);
  compute_.threads.parallel_for(split.pieces.size() * heads * split.parts, [&](size_t task, int) {
    AttentionCall call = attention_call(piece_of(task / split.parts), task / split.parts % heads, arguments);
    call.group /= split.parts;
    const uint64_t first = task % split.parts * call.group;  // of the group's queries
    call.q += first * layer.key_dim;
    call.out += first * layer.value_dim;
    if (call.sinks != nullptr) call.sinks += first;
    compute_.kernels.attention(call);
  });
}

void CpuStep::attend_by_segments(const AttentionSplit& split, const AttentionArguments& arguments) const {
  const std::vector<AttentionPiece>& pieces = split.pieces;
  const uint32_t heads = arguments.layer.heads;
  const auto with_partial = [&](const AttentionPiece& piece, uint32_t head, uint32_t begin, uint32_t end) {
    AttentionCall call = attention_call(piece, head, arguments);
    const uint64_t state = uint64_t{call.rows} * call.group * attention_state_floats(call.value_dim);
    call.partial = CpuDevice::at(at_.partial) + piece.partial_at + (uint64_t{head} * piece.segments + begin) * state;
    call.segment_begin = begin;
    call.segment_end = end;
    return call;
  };
  size_t tasks = 0;
  for (const AttentionPiece& piece : pieces) tasks += size_t{piece.segments} * heads;
  compute_.threads.parallel_for(tasks, [&](size_t task, int) {
    const AttentionPiece* piece = pieces.data();
    for (; task >= size_t{piece->segments} * heads; ++piece) task -= size_t{piece->segments} * heads;
    const uint32_t segment = static_cast<uint32_t>(task / heads);
    compute_.kernels.attention(with_partial(*piece, static_cast<uint32_t>(task % heads), segment, segment + 1));
  });
  compute_.threads.parallel_for(pieces.size() * heads, [&](size_t task, int) {
    const AttentionPiece& piece = pieces[task / heads];
    compute_.kernels.merge_attention(with_partial(piece, static_cast<uint32_t>(task % heads), 0, piece.segments));
  });
}

}  // namespace shoal
