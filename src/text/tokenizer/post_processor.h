// What is put around a text: the "post_processor" of tokenizer.json.
#pragma once

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/json.h"
#include "base/status.h"

namespace shoal {

// The ids before and after the text; `explicit_template` says whether the file spelled them out.
struct PostProcessor {
  std::vector<TokenId> before, after;
  bool explicit_template = false;
};

using TokenLookup = std::function<std::optional<TokenId>(std::string_view)>;

// TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel (offsets only: nothing to do) and Sequence.
StatusOr<PostProcessor> make_post_processor(const Json& config, const TokenLookup& token_id, int depth = 0);

}  // namespace shoal
