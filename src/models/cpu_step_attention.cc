// How a step's attention is split: into pieces of few queries, and where these are too few for the threads, by segments of
// the context as well. The states of segments are merged in one order (kernels.h), so no split shows in the bits.
#include <algorithm>

#include "base/bytes.h"
#include "models/cpu_step.h"

namespace shoal {
namespace {

constexpr uint32_t kPieceQueries = 32;        // query heads of one KV head in a task
constexpr uint32_t kSegmentTokens = kKvTokens * kSegmentBlocks;
constexpr size_t kTasksPerThread = 4;         // so that threads end together
constexpr uint64_t kPartialFloatsMax = 1 << 20;

}  // namespace

uint64_t StepShape::partial_floats() const {
  if (head_dim == 0) return 0;
  const uint64_t floats = uint64_t{q_width / head_dim} * attention_state_floats(head_dim) * div_up(context, kSegmentTokens);
  return context <= kSegmentTokens ? 0 : std::min(floats, kPartialFloatsMax);
}

void CpuStep::plan_attention() {
  const uint32_t group = context_.shape.q_width / context_.kv.head_dim / context_.kv.heads;
  const uint32_t rows_each = std::max<uint32_t>(1, kPieceQueries / group);
  uint64_t segments = 0, floats = 0;
  for (uint32_t s = 0; s < input_.slices.size(); ++s) {
    const SequenceSlice& slice = input_.slices[s];
    for (uint32_t row = 0; row < slice.rows; row += rows_each) {
      const uint32_t rows = std::min(rows_each, slice.rows - row);
      const uint32_t reach = (slice.position + row + rows - 1) / kSegmentTokens + 1;
      pieces_.push_back({s, row, rows, reach, floats});
      segments += reach;
      floats += uint64_t{reach} * context_.kv.heads * rows * group * attention_state_floats(context_.kv.values());
    }
  }
  if (context_.shape.ahead) return;  // rows reach beyond those of their piece; whole sequences give pieces enough
  const size_t threads = static_cast<size_t>(compute_.threads.size());
  split_segments_ = threads > 1 && segments > pieces_.size() && pieces_.size() * context_.kv.heads < kTasksPerThread * threads &&
                    floats <= context_.shape.partial_floats();
}

AttentionCall CpuStep::attention_call(const AttentionPiece& piece, uint64_t head, const AttentionArguments& a) const {
  const KvLayout& kv = context_.kv;
  const uint64_t width = context_.shape.q_width;
  const uint32_t group = static_cast<uint32_t>(width / kv.head_dim / kv.heads);
  const SequenceSlice& slice = input_.slices[piece.slice];
  const uint64_t row = uint64_t{batch_.begin(piece.slice)} + piece.first_row;
  AttentionCall call;
  call.q_stride = width;
  call.out_stride = width / kv.head_dim * kv.values();
  call.q = a.q + row * call.q_stride + head * group * kv.head_dim;
  call.out = a.out + row * call.out_stride + head * group * kv.values();
  call.value_dim = kv.value_dim;
  call.blocks = blocks_.data() + first_block_[piece.slice];
  call.key_offset = kv.key_offset(a.spec.layer) + head * kv.head_bytes();
  call.value_offset = kv.value_offset(a.spec.layer) + head * kv.head_bytes();
  call.format = kv.format;
  call.head_dim = kv.head_dim;
  call.group = group;
  call.rows = piece.rows;
  call.position = slice.position + piece.first_row;
  call.window = a.spec.window;
  call.chunk = a.spec.chunk;
  call.ahead = a.spec.ahead;
  call.length = slice.position + slice.rows;
  call.scale = a.spec.scale;
  call.softcap = a.spec.softcap;
  if (a.spec.sinks != nullptr) call.sinks = vector(*a.spec.sinks) + head * group;
  return call;
}

void CpuStep::attend(Floats q, Floats k, Floats v, const AttentionSpec& spec, Floats attn) const {
  store_kv(CpuDevice::at(k), v ? CpuDevice::at(v) : nullptr, spec.layer);
  const AttentionArguments arguments{CpuDevice::at(q), CpuDevice::at(attn), spec};
  const uint64_t heads = context_.kv.heads;
  // Later rows see more: they go first, so that the threads end together.
  const auto piece_of = [&](size_t task) -> const AttentionPiece& { return pieces_[pieces_.size() - 1 - task / heads]; };
  if (split_segments_) return attend_by_segments(arguments);
  compute_.threads.parallel_for(pieces_.size() * heads, [&](size_t task, int) {
    compute_.kernels.attention(attention_call(piece_of(task), task % heads, arguments));
  });
}

void CpuStep::attend_by_segments(const AttentionArguments& arguments) const {
  const uint32_t heads = context_.kv.heads;
  const auto with_partial = [&](const AttentionPiece& piece, uint32_t head, uint32_t begin, uint32_t end) {
    AttentionCall call = attention_call(piece, head, arguments);
    const uint64_t state = uint64_t{call.rows} * call.group * attention_state_floats(call.values());
    call.partial = CpuDevice::at(at_.partial) + piece.partial_at + (uint64_t{head} * piece.segments + begin) * state;
    call.segment_begin = begin;
    call.segment_end = end;
    return call;
  };
  size_t tasks = 0;
  for (const AttentionPiece& piece : pieces_) tasks += size_t{piece.segments} * heads;
  compute_.threads.parallel_for(tasks, [&](size_t task, int) {
    const AttentionPiece* piece = pieces_.data();
    for (; task >= size_t{piece->segments} * heads; ++piece) task -= size_t{piece->segments} * heads;
    const uint32_t segment = static_cast<uint32_t>(task / heads);
    compute_.kernels.attention(with_partial(*piece, static_cast<uint32_t>(task % heads), segment, segment + 1));
  });
  compute_.threads.parallel_for(pieces_.size() * heads, [&](size_t task, int) {
    const AttentionPiece& piece = pieces_[task / heads];
    compute_.kernels.merge_attention(with_partial(piece, static_cast<uint32_t>(task % heads), 0, piece.segments));
  });
}

}  // namespace shoal
