#include "gateway/surfaces/pooled_request.h"

#include <algorithm>
#include <cmath>

#include "gateway/fields.h"
#include "gateway/other_fields.h"
#include "gateway/strings.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr size_t kNameBytesMax = 1024;
constexpr size_t kTextBytesMax = 64u << 20;  // the body's own limit is tighter
constexpr size_t kItemsMax = 2048;           // OpenAI's

using Item = PooledRequest::Item;

void read_model(Fields& fields, PooledRequest& out) {
  fields.text("model", kNameBytesMax, out.model);
  if (fields.ok() && out.model.empty()) fields.refuse("model", "'model' is missing: name one of the models of GET /v1/models.");
}

bool check_count(Fields& fields, std::string_view key, size_t count) {
  if (count > kItemsMax) fields.refuse(key, absl::StrCat("'", str(key), "' has ", count, " entries; the limit is ", kItemsMax, "."));
  return fields.ok();
}

// A text; an empty one is the special tokens that its tokenizer puts around it.
bool read_text(Fields& fields, std::string_view where, const OrderedJson& value, std::string& out) {
  if (!value.is_string()) {
    fields.refuse(where, absl::StrCat("'", str(where), "' must be a text, not ", value.type_name(), "."));
  } else {
    out = value.get<std::string>();
  }
  return fields.ok();
}

bool read_ids(Fields& fields, std::string_view where, const OrderedJson& list, std::vector<TokenId>& out) {
  if (list.empty()) fields.refuse(where, absl::StrCat("'", str(where), "' is empty."));
  for (const OrderedJson& item : list) {
    const auto id = as_integer(item, 0, INT32_MAX);
    if (!id) {
      fields.refuse(where, absl::StrCat("'", str(where), "' holds ", dump_ordered_json(item), "; token ids are integers from 0."));
      break;
    }
    out.push_back(static_cast<TokenId>(*id));
  }
  return fields.ok();
}

// A text, a list of texts, a list of ids, or a list of lists of ids.
void read_input(Fields& fields, std::string_view key, PooledRequest& out) {
  const OrderedJson* input = fields.find(key);
  if (!fields.ok()) return;
  if (input == nullptr) return fields.refuse(key, absl::StrCat("'", str(key), "' is missing."));
  const bool one_of_ids = input->is_array() && !input->empty() && input->front().is_number();
  if (input->is_string() || one_of_ids) {
    Item& item = out.items.emplace_back();
    std::string text;
    std::vector<TokenId> ids;
    if (one_of_ids ? read_ids(fields, key, *input, ids) : read_text(fields, key, *input, text)) {
      if (one_of_ids) item.first = std::move(ids);
      else item.first = std::move(text);
    }
    return;
  }
  if (!input->is_array() || input->empty()) {
    return fields.refuse(key, absl::StrCat("'", str(key), "' must be a text, a list of texts, a list of token ids or a list of such lists."));
  }
  if (!check_count(fields, key, input->size())) return;
  for (size_t i = 0; i < input->size() && fields.ok(); ++i) {
    const std::string where = absl::StrCat(str(key), "[", i, "]");
    std::string text;
    std::vector<TokenId> ids;
    if ((*input)[i].is_array()) {
      if (read_ids(fields, where, (*input)[i], ids)) out.items.push_back({std::move(ids), std::nullopt});
    } else if (read_text(fields, where, (*input)[i], text)) {
      out.items.push_back({std::move(text), std::nullopt});
    }
  }
}

void read_cut(Fields& fields, PooledRequest& out) {
  int64_t most = -2;
  fields.integer("truncate_prompt_tokens", -1, INT32_MAX, most);
  if (most == -1) out.cut_to_fit = true;  // vLLM's word for "what the model takes"
  if (most == 0) fields.refuse("truncate_prompt_tokens", "'truncate_prompt_tokens' is 0; it must be -1 or at least 1.");
  if (most > 0) out.cut_to = static_cast<uint32_t>(most);
  for (const char* key : {"user", "encoding_format", "priority", "add_special_tokens", "truncation_side"}) fields.know(key);
}

void read_dimensions(Fields& fields, PooledRequest& out) {
  uint32_t dimensions = 0;
  fields.integer("dimensions", 1, 1 << 20, dimensions);
  if (dimensions > 0) out.dimensions = dimensions;
}

// Texts, or objects with a "text".
std::vector<std::string> read_documents(Fields& fields, std::string_view key) {
  std::vector<std::string> out;
  const OrderedJson* list = fields.find(key);
  if (!fields.ok()) return out;
  if (list == nullptr || !list->is_array() || list->empty()) {
    fields.refuse(key, absl::StrCat("'", str(key), "' must be a list of at least one text."));
    return out;
  }
  if (!check_count(fields, key, list->size())) return out;
  for (size_t i = 0; i < list->size() && fields.ok(); ++i) {
    const OrderedJson& item = (*list)[i];
    const bool object = item.is_object() && item.contains("text");
    read_text(fields, absl::StrCat(str(key), "[", i, "]"), object ? item["text"] : item, out.emplace_back());
  }
  return out;
}

std::vector<std::string> one_or_more(Fields& fields, std::string_view key) {
  const OrderedJson* value = fields.find(key);
  if (value == nullptr || !value->is_string()) return read_documents(fields, key);
  std::vector<std::string> out(1);
  read_text(fields, key, *value, out.front());
  return out;
}

// ---- to token ids -------------------------------------------------------------------------------------------------------------

// The special tokens that a tokenizer puts around a text.
struct Around {
  std::vector<TokenId> before, after;
};

Around around(const Tokenizer& tokenizer) {
  const std::vector<TokenId> bare = tokenizer.encode("a", {.add_special = false, .parse_special = false});
  const std::vector<TokenId> whole = tokenizer.encode("a", {.add_special = true, .parse_special = false});
  const auto at = std::search(whole.begin(), whole.end(), bare.begin(), bare.end());
  if (bare.empty() || at == whole.end()) return {};
  return {{whole.begin(), at}, {at + static_cast<ptrdiff_t>(bare.size()), whole.end()}};
}

class PooledEncoder {
 public:
  PooledEncoder(const PooledRequest& request, const PrepareContext& context)
      : request_(request), context_(context), tokenizer_(*context.text->tokenizer), around_(around(tokenizer_)),
        takes_(context.max_model_len), limit_(std::min(takes_, request.cut_to.value_or(takes_))),
        cuts_(request.cut_to_fit || request.cut_to.has_value()) {}

  ApiResult<std::vector<TokenId>> single(const TextOrIds& text) const {
    if (const auto* ids = std::get_if<std::vector<TokenId>>(&text)) return checked(*ids);
    auto body = bare(std::get<std::string>(text));
    if (!body.ok()) return body.error();
    return surrounded({}, *std::move(body), around_.after);
  }

  // [CLS] first [SEP] second [SEP]; RoBERTa's has two marks between.
  ApiResult<std::vector<TokenId>> pair(const std::string& first, const std::string& second, PairForm form) const {
    auto a = bare(first), b = bare(second);
    if (!a.ok()) return a.error();
    if (!b.ok()) return b.error();
    std::vector<TokenId> begin = *std::move(a);
    for (int marks = form == PairForm::kJoined ? 0 : form == PairForm::kTwoMarks ? 2 : 1; marks > 0; --marks) {
      begin.insert(begin.end(), around_.after.begin(), around_.after.end());
    }
    return surrounded(begin, *std::move(b), around_.after);
  }

  // Texts with special tokens around, all of them the caller's.
  ApiResult<std::vector<TokenId>> parts(const std::vector<TextPart>& parts) const {
    return checked(tokenizer_.encode(parts, {.add_special = false, .parse_special = true, .tokens_max = 2 * size_t{takes_}}));
  }

 private:
  ApiResult<std::vector<TokenId>> bare(const std::string& text) const {
    const size_t most = 2 * size_t{takes_};  // what is longer is cut, or refused without being counted to its end
    if (!cuts_ && tokenizer_.tokens_min(text.size()) > most) return prompt_far_too_long(takes_, tokenizer_.tokens_min(text.size()));
    return tokenizer_.encode(text, {.add_special = false, .parse_special = false, .tokens_max = most});
  }

  // before + begin + body + after, of which the body is cut.
  ApiResult<std::vector<TokenId>> surrounded(const std::vector<TokenId>& begin, std::vector<TokenId> body, const std::vector<TokenId>& after) const {
    const size_t fixed = around_.before.size() + begin.size() + after.size();
    if (cuts_ && fixed < limit_ && fixed + body.size() > limit_) body.resize(limit_ - fixed);
    std::vector<TokenId> ids = around_.before;
    for (const auto* part : {&begin, &std::as_const(body), &after}) ids.insert(ids.end(), part->begin(), part->end());
    return checked(std::move(ids));
  }

  ApiResult<std::vector<TokenId>> checked(std::vector<TokenId> ids) const {
    if (ids.size() > takes_) {
      ApiError error = context_length_exceeded(takes_, static_cast<uint32_t>(ids.size()), 0);
      error.message = absl::StrCat("This model's maximum context length is ", takes_, " tokens. However, your text has ", ids.size(),
                                   " tokens. Please shorten it, or have it cut with 'truncate_prompt_tokens'.");
      error.param = "input";
      return error;
    }
    if (ids.empty()) return invalid_value("input", "The text is empty: it has no tokens.");
    for (const TokenId id : ids) {
      if (static_cast<uint32_t>(id) < context_.model->vocab_size) continue;
      return invalid_value("input", absl::StrCat("Token id ", id, " is outside the model's vocabulary of ", context_.model->vocab_size, "."));
    }
    return ids;
  }

  const PooledRequest& request_;
  const PrepareContext& context_;
  const Tokenizer& tokenizer_;
  const Around around_;
  const uint32_t takes_, limit_;  // tokens of one text: what the model takes, what it is cut to
  const bool cuts_;
};

// Qwen3-Reranker's form (arXiv 2506.05176): a chat that asks for "yes" or "no".
std::vector<TextPart> yes_no_prompt(const Item& item, const std::string& instruction) {
  const std::string wanted = instruction.empty() ? "Given a web search query, retrieve relevant passages that answer the query" : instruction;
  return {{"<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. Note that the answer can only "
           "be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n", true},
          {absl::StrCat("<Instruct>: ", wanted, "\n<Query>: ", std::get<std::string>(item.first), "\n<Document>: ", *item.second), false},
          {"<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n", true}};
}

bool says_reranker(const std::string& name) { return absl::AsciiStrToLower(name).find("rerank") != std::string::npos; }

std::optional<ApiError> wrong_use(const ModelEntry& model, PooledUse use) {
  const auto refuse = [&](const char* what) { return invalid_value("model", absl::StrCat("The model '", model.name, "' ", what)); };
  if (use == PooledUse::kEmbed) {
    if (!model.pooled) return refuse("generates text and makes no embeddings; name a model that does.");
    if (model.pooled->labels > 0) return refuse("judges pairs of texts and makes no embeddings; use /v1/rerank or /v1/score.");
    return std::nullopt;
  }
  if (!model.pooled && !says_reranker(model.name)) return refuse("is no reranker; name a model that is.");
  if (model.pooled && model.pooled->labels == 0) return refuse("makes embeddings and is no reranker; name a model that is, or use /v1/embeddings.");
  if (model.pooled && model.pooled->labels > 2) return refuse(absl::StrCat("tells ", model.pooled->labels, " classes apart and is no reranker.").c_str());
  return std::nullopt;
}

}  // namespace

ApiResult<PooledRequest> parse_embeddings_request(std::string_view body, const RequestLimits&) {
  const auto json = parse_body(body);
  if (!json.ok()) return json.error();
  Fields fields(*json);
  PooledRequest out;
  read_model(fields, out);
  read_input(fields, "input", out);
  std::string encoding = "float";
  fields.text("encoding_format", 64, encoding);
  if (fields.ok() && encoding != "float" && encoding != "base64") fields.refuse("encoding_format", "'encoding_format' must be float or base64, not '" + encoding + "'.");
  out.base64 = encoding == "base64";
  read_dimensions(fields, out);
  read_cut(fields, out);
  check_misspelt_fields(fields);
  if (!fields.ok()) return *fields.error();
  return out;
}

ApiResult<PooledRequest> parse_rerank_request(std::string_view body, const RequestLimits&) {
  const auto json = parse_body(body);
  if (!json.ok()) return json.error();
  Fields fields(*json);
  PooledRequest out;
  read_model(fields, out);
  std::string query;
  const OrderedJson* given = fields.find("query");
  if (given == nullptr) fields.refuse("query", "'query' is missing.");
  if (fields.ok()) read_text(fields, "query", *given, query);
  for (std::string& document : read_documents(fields, "documents")) out.items.push_back({query, std::move(document)});
  uint32_t top_n = 0;
  fields.integer("top_n", 0, INT32_MAX, top_n);
  if (top_n > 0) out.top_n = top_n;
  fields.boolean("return_documents", out.return_documents);
  fields.text("instruction", kTextBytesMax, out.instruction);
  read_cut(fields, out);
  check_misspelt_fields(fields);
  if (!fields.ok()) return *fields.error();
  return out;
}

ApiResult<PooledRequest> parse_score_request(std::string_view body, const RequestLimits&) {
  const auto json = parse_body(body);
  if (!json.ok()) return json.error();
  Fields fields(*json);
  PooledRequest out;
  read_model(fields, out);
  const std::vector<std::string> first = one_or_more(fields, "text_1"), second = one_or_more(fields, "text_2");
  if (fields.ok() && first.size() != 1 && first.size() != second.size()) {
    fields.refuse("text_2", absl::StrCat("'text_1' has ", first.size(), " texts and 'text_2' ", second.size(), "; one, or as many, are needed."));
  }
  for (size_t i = 0; fields.ok() && i < second.size(); ++i) out.items.push_back({first[first.size() == 1 ? 0 : i], second[i]});
  read_cut(fields, out);
  check_misspelt_fields(fields);
  if (!fields.ok()) return *fields.error();
  return out;
}

ApiResult<PooledRequest> parse_ollama_embed(std::string_view body, const RequestLimits&) {
  const auto json = parse_body(body);
  if (!json.ok()) return json.error();
  Fields fields(*json);
  PooledRequest out;
  read_model(fields, out);
  read_input(fields, json->contains("prompt") ? "prompt" : "input", out);
  out.cut_to_fit = true;  // Ollama's default
  fields.boolean("truncate", out.cut_to_fit);
  read_dimensions(fields, out);
  for (const char* key : {"options", "keep_alive"}) fields.know(key);
  check_misspelt_fields(fields);
  if (!fields.ok()) return *fields.error();
  return out;
}

ApiResult<PreparedRequest> prepare_pooled(const PooledRequest& request, PooledUse use, const PrepareContext& context) {
  const ModelEntry& model = *context.model;
  if (auto error = wrong_use(model, use)) return *error;
  PreparedRequest out;
  out.model = context.model;
  out.text = context.text;
  out.request.model = model.id;
  out.request.max_tokens = 0;
  out.output.pooled = true;
  const PooledEncoder encoder(request, context);
  for (const PooledRequest::Item& item : request.items) {
    auto ids = !model.pooled ? encoder.parts(yes_no_prompt(item, request.instruction))
               : item.second ? encoder.pair(std::get<std::string>(item.first), *item.second, model.pooled->pairs)
                             : encoder.single(item.first);
    if (!ids.ok()) return ids.error();
    out.prompts.emplace_back().ids = *std::move(ids);
  }
  if (model.pooled) return out;
  TokenRules rules;
  for (const char* word : {"no", "yes"}) {
    const std::vector<TokenId> ids = context.text->tokenizer->encode(word, {.add_special = false, .parse_special = false});
    if (ids.size() != 1) return invalid_value("model", "The model '" + model.name + "' has no token for '" + word + "', so it cannot be asked.");
    rules.allowed.push_back(ids.front());
  }
  out.output.first_is_no = rules.allowed[0] < rules.allowed[1];
  std::sort(rules.allowed.begin(), rules.allowed.end());
  out.request.sampling.rules = SharedValue<TokenRules>(std::move(rules));
  return out;
}

float score_of(const std::vector<float>& values) {
  const double logit = values.size() == 1 ? values[0] : double{values[1]} - values[0];
  return static_cast<float>(1.0 / (1.0 + std::exp(-logit)));
}

void normalize(std::vector<float>& v) {
  double squares = 0;
  for (const float x : v) squares += double{x} * x;
  if (squares <= 0) return;
  const double scale = 1.0 / std::sqrt(squares);
  for (float& x : v) x = static_cast<float>(x * scale);
}

}  // namespace shoal
