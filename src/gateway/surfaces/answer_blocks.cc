#include "gateway/surfaces/answer_blocks.h"

namespace shoal {

using What = BlockEvent::What;

void AnswerBlocks::begin(BlockKind kind, std::vector<BlockEvent>& out) {
  open_ = BlockEvent{.what = What::kBegin, .kind = kind, .index = next_++, .text = "", .name = "", .id = ""};
  out.push_back(*open_);
}

void AnswerBlocks::end(std::vector<BlockEvent>& out) {
  if (!open_) return;
  open_->what = What::kEnd;
  out.push_back(*std::move(open_));
  open_.reset();
}

void AnswerBlocks::add(BlockKind kind, const std::string& text, std::vector<BlockEvent>& out) {
  if (text.empty()) return;
  if (!open_ || open_->kind != kind) {
    end(out);
    begin(kind, out);
  }
  open_->text += text;
  BlockEvent piece = *open_;
  piece.what = What::kPiece;
  piece.text = text;
  out.push_back(std::move(piece));
}

std::vector<BlockEvent> AnswerBlocks::push(const ChoiceDelta& delta) {
  std::vector<BlockEvent> out;
  add(BlockKind::kReasoning, delta.reasoning, out);
  add(BlockKind::kText, delta.text, out);
  for (const CallDelta& call : delta.calls) {
    if (!call.name.empty()) {
      end(out);
      open_ = BlockEvent{.what = What::kBegin, .kind = BlockKind::kCall, .index = next_++, .text = "", .name = call.name, .id = call.id};
      out.push_back(*open_);
    }
    if (open_ && open_->kind == BlockKind::kCall) add(BlockKind::kCall, call.arguments, out);
  }
  if (delta.finish) end(out);
  return out;
}

ChoiceDelta whole_delta(const CollectedChoice& choice) {
  ChoiceDelta delta;
  delta.text = choice.text;
  delta.reasoning = choice.reasoning;
  delta.calls = choice.calls;
  delta.finish = FinishReason::kStop;
  return delta;
}

}  // namespace shoal
