#include "text/tokenizer/post_processor.h"

#include "nlohmann/json.hpp"
#include "text/tokenizer/json_fields.h"

namespace shoal {
namespace {

constexpr size_t kTemplateItemsMax = 64;

// The ids of a special token of a template, from its table; a token without an entry is looked up by its spelling.
StatusOr<std::vector<TokenId>> special_ids(const Json& config, const std::string& name, const TokenLookup& token_id) {
  const Json* table = member(config, "special_tokens");
  const Json* entry = table == nullptr ? nullptr : member(*table, name);
  if (entry == nullptr) {
    if (const auto id = token_id(name)) return std::vector<TokenId>{*id};
    return invalid_argument("template names the token '", name, "', which neither 'special_tokens' nor the vocabulary has");
  }
  ASSIGN_OR_RETURN(const Json* const ids, array_member(*entry, "ids"));
  std::vector<TokenId> out;
  if (ids->size() > kTemplateItemsMax) return invalid_argument("token '", name, "' stands for ", ids->size(), " ids");
  for (const Json& id : *ids) {
    ASSIGN_OR_RETURN(const int64_t value, json_int(Json::object({{"ids", id}}), "ids", -1, 0, INT32_MAX));
    out.push_back(static_cast<TokenId>(value));
  }
  return out;
}

StatusOr<PostProcessor> make_template(const Json& config, const TokenLookup& token_id) {
  PostProcessor processor;
  processor.explicit_template = true;
  ASSIGN_OR_RETURN(const Json* const items, array_member(config, "single"));
  if (items->size() > kTemplateItemsMax) return invalid_argument("'single' has ", items->size(), " items");
  int sequences = 0;
  for (const Json& item : *items) {
    if (member(item, "Sequence") != nullptr) {
      ++sequences;
      continue;
    }
    const Json* special = member(item, "SpecialToken");
    if (special == nullptr) return invalid_argument("'single' has an item that is neither Sequence nor SpecialToken");
    ASSIGN_OR_RETURN(const std::string name, json_string(*special, "id", ""));
    ASSIGN_OR_RETURN(const std::vector<TokenId> ids, special_ids(config, name, token_id));
    auto& side = sequences == 0 ? processor.before : processor.after;
    side.insert(side.end(), ids.begin(), ids.end());
  }
  if (sequences != 1) return invalid_argument("'single' must hold the sequence once, not ", sequences, " times");
  return processor;
}

// "cls" and "sep" are [spelling, id].
StatusOr<TokenId> pair_id(const Json& config, std::string_view key) {
  const Json* pair = member(config, key);
  if (pair == nullptr || !pair->is_array() || pair->size() != 2) {
    return invalid_argument("'", std::string(key), "' must be [token, id]");
  }
  ASSIGN_OR_RETURN(const int64_t id, json_int(Json::object({{"id", pair->at(1)}}), "id", -1, 0, INT32_MAX));
  return static_cast<TokenId>(id);
}

StatusOr<PostProcessor> make_bert(const Json& config) {
  PostProcessor processor;
  processor.explicit_template = true;
  ASSIGN_OR_RETURN(const TokenId cls, pair_id(config, "cls"));
  ASSIGN_OR_RETURN(const TokenId sep, pair_id(config, "sep"));
  processor.before = {cls};
  processor.after = {sep};
  return processor;
}

StatusOr<PostProcessor> make_sequence(const Json& config, const TokenLookup& token_id, int depth) {
  RETURN_IF_ERROR(check_sequence_depth(depth));
  ASSIGN_OR_RETURN(const Json* const items, array_member(config, "processors"));
  if (items->size() > kTemplateItemsMax) return invalid_argument("'processors' has ", items->size(), " items");
  PostProcessor all;
  for (const Json& item : *items) {
    ASSIGN_OR_RETURN(const PostProcessor inner, make_post_processor(item, token_id, depth + 1));
    all.before.insert(all.before.begin(), inner.before.begin(), inner.before.end());
    all.after.insert(all.after.end(), inner.after.begin(), inner.after.end());
    all.explicit_template |= inner.explicit_template;
  }
  return all;
}

}  // namespace

StatusOr<PostProcessor> make_post_processor(const Json& config, const TokenLookup& token_id, int depth) {
  ASSIGN_OR_RETURN(const std::string type, component_type(config));
  if (type == "ByteLevel") return PostProcessor{};
  if (type == "TemplateProcessing") return make_template(config, token_id);
  if (type == "BertProcessing" || type == "RobertaProcessing") return make_bert(config);
  if (type == "Sequence") return make_sequence(config, token_id, depth);
  return unimplemented("post-processor '", type, "' is not supported");
}

}  // namespace shoal
