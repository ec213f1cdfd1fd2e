// The deltas of one choice as blocks that follow each other: reasoning, text, calls. Interfaces that number the parts of an answer
// are written from these.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gateway/choice_stream.h"
#include "gateway/openai_body.h"

namespace shoal {

enum class BlockKind { kReasoning, kText, kCall };

struct BlockEvent {
  enum class What { kBegin, kPiece, kEnd } what = What::kBegin;
  BlockKind kind = BlockKind::kText;
  uint32_t index = 0;        // of the block in the answer
  std::string text;          // kPiece: what is added; kEnd: the whole block
  std::string name, id;      // of a call
};

class AnswerBlocks {
 public:
  // What the next delta begins, adds and ends. With `finish` everything is ended.
  std::vector<BlockEvent> push(const ChoiceDelta& delta);

 private:
  void add(BlockKind kind, const std::string& text, std::vector<BlockEvent>& out);
  void begin(BlockKind kind, std::vector<BlockEvent>& out);
  void end(std::vector<BlockEvent>& out);

  std::optional<BlockEvent> open_;  // with all its text so far
  uint32_t next_ = 0;
};

// A collected choice as one delta.
ChoiceDelta whole_delta(const CollectedChoice& choice);

}  // namespace shoal
