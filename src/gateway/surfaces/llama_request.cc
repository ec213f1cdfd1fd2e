#include "gateway/surfaces/llama_request.h"

#include <array>
#include <optional>

#include "gateway/other_fields.h"
#include "gateway/request_fields.h"
#include "gateway/strings.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr size_t kNameBytesMax = 1024;
constexpr size_t kTextBytesMax = 64u << 20;  // the body's own limit is tighter
constexpr size_t kFilesMax = 1024;

// Names of fields, and what they are called here.
constexpr std::pair<const char*, const char*> kRenamed[] = {{"repeat_penalty", "repetition_penalty"}, {"n_probs", "logprobs"}};
constexpr const char* kDropped[] = {"prompt", "n_predict", "samplers", "id_slot", "cache_prompt", "n_keep", "n_discard", "n_indent", "repeat_last_n",
                                    "t_max_predict_ms", "t_max_prompt_ms", "timings_per_token", "return_progress", "return_tokens", "response_fields",
                                    "input_prefix", "input_suffix", "input_extra", "post_sampling_probs", "min_keep", "dynatemp_range",
                                    "dynatemp_exponent", "lora", "backend_sampling", "preserved_tokens", "grammar_lazy"};

bool is_negative(const OrderedJson& value) { return value.is_number() && value.get<double>() < 0; }

// [[id, bias], ...] as an object of ids. What is not of that form stays, to be refused by name.
OrderedJson bias_object(const OrderedJson& list) {
  if (!list.is_array()) return list;
  OrderedJson out = OrderedJson::object();
  for (const OrderedJson& pair : list) {
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_number_integer()) return list;
    out[std::to_string(pair[0].get<int64_t>())] = pair[1] == false ? OrderedJson(-100) : pair[1];
  }
  return out;
}

// The body in the words of a completion.
OrderedJson translated(const OrderedJson& body, const std::string& prompt_key) {
  OrderedJson out = OrderedJson::object();
  for (const auto& [key, value] : body.items()) {
    const auto is_it = [&key = key](const char* name) { return key == name; };
    if (std::any_of(std::begin(kDropped), std::end(kDropped), is_it)) continue;
    const auto renamed = std::find_if(std::begin(kRenamed), std::end(kRenamed), [&key = key](const auto& pair) { return key == pair.first; });
    const std::string name = renamed == std::end(kRenamed) ? key : renamed->second;
    if (key == "n_probs" && value == 0) continue;
    if (key == "seed" && is_negative(value)) continue;
    out[name] = key == "logit_bias" ? bias_object(value) : value;
  }
  if (body.contains("n_predict") && !is_negative(body["n_predict"])) out["max_tokens"] = body["n_predict"];
  if (body.contains(prompt_key)) out["prompt"] = body[prompt_key];
  return out;
}

ApiResult<LlamaRequest> parse_translated(const OrderedJson& body, OrderedJson translated, const RequestLimits& limits) {
  const bool unnamed = !translated.contains("model") || translated["model"] == "";
  if (unnamed) translated["model"] = "-";  // there may be only one
  auto completion = parse_completion_request(dump_ordered_json(translated), limits);
  if (!completion.ok()) {
    ApiError error = completion.error();
    for (const auto& [theirs, ours] : kRenamed) {
      if (error.param == ours) error.message += absl::StrCat(" ('", theirs, "')");
    }
    return error;
  }
  LlamaRequest out{.completion = *std::move(completion)};
  if (unnamed) out.completion.common.model.clear();
  if (!body.contains("n_predict") || is_negative(body["n_predict"])) out.completion.common.max_tokens.reset();
  out.completion.common.max_tokens_is_bound = true;
  out.completion.common.stream = translated.value("stream", OrderedJson(false)) == true;
  Fields fields(body);
  fields.boolean("return_tokens", out.return_tokens);
  if (!fields.ok()) return *fields.error();
  return out;
}

// The markers of one family of models, in the order in which a prompt is written.
struct GapMarkers {
  std::string_view prefix, suffix, middle;
  bool suffix_first = false;
};

constexpr GapMarkers kGapMarkers[] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},  {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},        {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"},
    {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"}, {"▁<PRE>", "▁<SUF>", "▁<MID>"},
    {"<PRE>", "<SUF>", "<MID>"},                             {"[PREFIX]", "[SUFFIX]", "", true},
};
constexpr std::string_view kFileMarkers[] = {"<|file_sep|>", "<file_sep>", "<|file_separator|>"};

std::optional<TokenId> marker(const Tokenizer& tokenizer, std::string_view spelling) {
  const auto id = tokenizer.token_id(spelling);
  return id && tokenizer.is_special(*id) ? id : std::nullopt;
}

}  // namespace

ApiResult<LlamaRequest> parse_llama_completion(std::string_view body, const RequestLimits& limits) {
  const auto json = parse_body(body);
  if (!json.ok()) return json.error();
  auto out = parse_translated(*json, translated(*json, "prompt"), limits);
  if (out.ok()) out->many = json->contains("prompt") && (*json)["prompt"].is_array() && !(*json)["prompt"].empty() && !(*json)["prompt"][0].is_number();
  if (out.ok() && out->many && out->completion.common.stream) {
    return invalid_value("stream", "'stream' is not there with several prompts; send them one by one.");
  }
  return out;
}

ApiResult<InfillRequest> parse_llama_infill(std::string_view body, const RequestLimits& limits) {
  const auto json = parse_body(body);
  if (!json.ok()) return json.error();
  Fields fields(*json);
  InfillRequest out;
  std::string begun;
  fields.text("input_prefix", kTextBytesMax, out.text.prefix);
  fields.text("input_suffix", kTextBytesMax, out.text.suffix);
  fields.text("prompt", kTextBytesMax, begun);
  out.text.prefix += begun;  // what is written already where the gap begins
  if (fields.ok() && fields.find("input_prefix") == nullptr && fields.find("input_suffix") == nullptr) {
    fields.refuse("input_prefix", "'input_prefix' and 'input_suffix' are missing.");
  }
  const OrderedJson* extra = fields.find("input_extra");
  if (extra != nullptr && (!extra->is_array() || extra->size() > kFilesMax)) {
    fields.refuse("input_extra", absl::StrCat("'input_extra' must be a list of at most ", kFilesMax, " objects with 'filename' and 'text'."));
  }
  for (size_t i = 0; fields.ok() && extra != nullptr && i < extra->size(); ++i) {
    const std::string where = absl::StrCat("input_extra.[", i, "]");
    if (!(*extra)[i].is_object()) {
      fields.refuse(where, "'" + where + "' must be an object with 'filename' and 'text'.");
      break;
    }
    Fields file((*extra)[i], where + ".");
    InfillText::File& added = out.text.files.emplace_back();
    file.text("filename", kNameBytesMax, added.name);
    file.text("text", kTextBytesMax, added.text);
    if (!file.ok()) fields.refuse(*file.error());
  }
  if (!fields.ok()) return *fields.error();
  OrderedJson completion = translated(*json, "input_prefix");
  completion["prompt"] = "-";  // written when the model is known
  auto parsed = parse_translated(*json, std::move(completion), limits);
  if (!parsed.ok()) return parsed.error();
  out.request = *std::move(parsed);
  return out;
}

ApiResult<std::vector<TokenId>> infill_prompt(const InfillText& text, const PrepareContext& context) {
  const Tokenizer& tokenizer = *context.text->tokenizer;
  const auto known = [&](const GapMarkers& m) {
    return marker(tokenizer, m.prefix) && marker(tokenizer, m.suffix) && (m.middle.empty() || marker(tokenizer, m.middle));
  };
  const auto markers = std::find_if(std::begin(kGapMarkers), std::end(kGapMarkers), known);
  if (markers == std::end(kGapMarkers)) {
    return ApiError{.http_status = 501, .type = "invalid_request_error", .message = "This model was not trained to fill gaps: its vocabulary has no tokens for that.",
                    .param = "model", .code = "unsupported_model"};
  }
  std::vector<TextPart> parts;
  const auto file_marker = std::find_if(std::begin(kFileMarkers), std::end(kFileMarkers), [&](std::string_view m) { return marker(tokenizer, m).has_value(); });
  for (const InfillText::File& file : text.files) {
    if (file_marker != std::end(kFileMarkers)) parts.push_back({str(*file_marker), true});
    parts.push_back({absl::StrCat(file.name, "\n", file.text, "\n"), false});
  }
  const auto piece = [&](std::string_view mark, const std::string& what) {
    parts.push_back({str(mark), true});
    if (!what.empty()) parts.push_back({what, false});
  };
  if (markers->suffix_first) piece(markers->suffix, text.suffix);
  piece(markers->prefix, text.prefix);
  if (!markers->suffix_first) piece(markers->suffix, text.suffix);
  if (!markers->middle.empty()) piece(markers->middle, "");
  size_t bytes = 0;
  for (const TextPart& part : parts) bytes += part.text.size();
  const size_t most = 2 * size_t{context.max_model_len};  // what is longer is refused without being counted to its end
  if (tokenizer.tokens_min(bytes) > most) return prompt_far_too_long(context.max_model_len, tokenizer.tokens_min(bytes));
  return tokenizer.encode(parts, {.add_special = true, .parse_special = true, .tokens_max = most});
}

}  // namespace shoal
