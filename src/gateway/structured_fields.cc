#include "gateway/structured_fields.h"

#include "base/json.h"
#include "gateway/strings.h"
#include "nlohmann/json.hpp"
#include "text/grammar/gbnf_builder.h"
#include "text/grammar/grammar_matcher.h"

namespace shoal {
namespace {

using Kind = StructuredOutput::Kind;

constexpr size_t kTextBytesMax = 1u << 20;
constexpr size_t kChoicesMax = 10'000;
// What a client's grammar may become: compiling the largest takes some 100 ms.
constexpr grammar::GrammarLimits kLimits = {.bytes_max = 4u << 20, .rules_max = 20'000, .exprs_max = 300'000, .nodes_max = 100'000};

std::string as_text(const OrderedJson& json) { return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace); }

// Collects what is asked for; the second one is refused.
class Reader {
 public:
  Reader(Fields& fields, std::optional<StructuredOutput>& out) : fields_(fields), out_(out) {}

  void take(Kind kind, std::string param, std::string text, std::vector<std::string> choices = {}) {
    if (!fields_.ok()) return;
    if (out_) {
      return fields_.refuse(invalid_value(param, absl::StrCat("'", param, "' and '", out_->param, "' both say what the answer must look like; send one of them.")));
    }
    if (text.size() > kTextBytesMax) {
      return fields_.refuse(invalid_value(param, absl::StrCat("'", param, "' has ", text.size(), " bytes; the limit is ", kTextBytesMax, ".")));
    }
    out_ = StructuredOutput{kind, std::move(param), std::move(text), std::move(choices)};
  }

  // A schema: an object, true or false, or the text of one.
  void schema(const std::string& param, const OrderedJson& value) {
    if (value.is_string()) return take(Kind::kSchema, param, value.get<std::string>());
    if (!value.is_object() && !value.is_boolean()) return refuse_type(param, "a JSON schema", value);
    take(Kind::kSchema, param, as_text(value));
  }
  void expression(Kind kind, const std::string& param, const OrderedJson& value) {
    if (!value.is_string()) return refuse_type(param, "a string", value);
    if (!value.get_ref<const std::string&>().empty()) take(kind, param, value.get<std::string>());
  }
  void choices(const std::string& param, const OrderedJson& value) {
    if (!value.is_array() || value.empty()) return refuse_type(param, "a list of at least one string", value);
    if (value.size() > kChoicesMax) {
      return fields_.refuse(invalid_value(param, absl::StrCat("'", param, "' has ", value.size(), " entries; the limit is ", kChoicesMax, ".")));
    }
    std::vector<std::string> texts;
    for (const OrderedJson& item : value) {
      if (!item.is_string()) return refuse_type(param, "a list of strings", item);
      texts.push_back(item.get<std::string>());
    }
    take(Kind::kChoice, param, "", std::move(texts));
  }
  void refuse_type(const std::string& param, std::string_view wanted, const OrderedJson& value) {
    fields_.refuse(invalid_value(param, absl::StrCat("'", param, "' must be ", str(wanted), ", not ", value.type_name(), ".")));
  }

 private:
  Fields& fields_;
  std::optional<StructuredOutput>& out_;
};

const OrderedJson* member(const OrderedJson& object, const char* key) {
  const auto it = object.is_object() ? object.find(key) : object.end();
  return !object.is_object() || it == object.end() || it->is_null() ? nullptr : &*it;
}

void read_response_format(Fields& fields, Reader& reader) {
  const OrderedJson* format = fields.find("response_format");
  if (format == nullptr || !fields.ok()) return;
  const std::string name = "response_format";
  if (!format->is_object()) return reader.refuse_type(name, "an object", *format);
  const OrderedJson* type = member(*format, "type");
  const std::string kind = type != nullptr && type->is_string() ? type->get<std::string>() : "";
  if (kind == "text") return;
  if (kind == "json_object") {
    if (const OrderedJson* schema = member(*format, "schema")) return reader.schema(name + ".schema", *schema);
    return reader.take(Kind::kJsonObject, name, "");
  }
  if (kind == "json_schema") {
    if (const OrderedJson* schema = member(*format, "schema")) return reader.schema(name + ".schema", *schema);
    const OrderedJson* wrapper = member(*format, "json_schema");
    if (wrapper == nullptr || !wrapper->is_object()) {
      return fields.refuse(invalid_value(name + ".json_schema", "'response_format.json_schema' must be an object with a 'schema'."));
    }
    if (const OrderedJson* schema = member(*wrapper, "schema")) return reader.schema(name + ".json_schema.schema", *schema);
    return reader.take(Kind::kJsonObject, name, "");
  }
  fields.refuse(unsupported_value(name + ".type", absl::StrCat("'response_format.type' is ", type == nullptr ? "missing" : as_text(*type),
                                                               "; it must be text, json_object or json_schema.")));
}

// vLLM's guided_json, or its later structured_outputs.json: `prefix` is "guided_" or "".
void read_kinds(const OrderedJson& object, const std::string& where, const std::string& prefix, Reader& reader) {
  const auto find = [&](const char* key) { return member(object, (prefix + key).c_str()); };
  const auto name = [&](const char* key) { return where + prefix + key; };
  if (const OrderedJson* value = find("json")) reader.schema(name("json"), *value);
  if (const OrderedJson* value = find("regex")) reader.expression(Kind::kRegex, name("regex"), *value);
  if (const OrderedJson* value = find("choice")) reader.choices(name("choice"), *value);
  if (const OrderedJson* value = find("grammar")) reader.expression(Kind::kGbnf, name("grammar"), *value);
  if (const OrderedJson* value = find("json_object")) {
    if (!value->is_boolean()) return reader.refuse_type(name("json_object"), "true or false", *value);
    if (*value == true) reader.take(Kind::kJsonObject, name("json_object"), "");
  }
}

ApiError refusal(const StructuredOutput& wanted, const Status& status) {
  const bool schema = wanted.kind == Kind::kSchema;
  ApiError error = invalid_value(wanted.param, absl::StrCat("'", wanted.param, "' is not usable: ", status.message(), "."));
  error.code = schema ? "invalid_schema" : "invalid_grammar";
  return error;
}

StatusOr<std::string> gbnf_of(const StructuredOutput& wanted) {
  switch (wanted.kind) {
    case Kind::kJsonObject: return gbnf_of_json_object();
    case Kind::kRegex: return gbnf_of_regex(wanted.text);
    case Kind::kChoice: return gbnf_of_choice(wanted.choices);
    case Kind::kGbnf: return wanted.text;
    case Kind::kSchema: break;
  }
  ASSIGN_OR_RETURN(const OrderedJson schema, parse_ordered_json(wanted.text));
  return gbnf_of_schema(schema);
}

// Two wishes with one key get one grammar. Only GBNF can name tokens, so only it depends on the model.
std::string cache_key(const StructuredOutput& wanted, const ModelEntry& model) {
  std::string key = absl::StrCat(static_cast<int>(wanted.kind), ":");
  if (wanted.kind == Kind::kGbnf) absl::StrAppend(&key, model.id.value, ":");
  key += wanted.text;
  for (const std::string& choice : wanted.choices) absl::StrAppend(&key, choice.size(), ":", choice);
  return key;
}

}  // namespace

void read_structured_output(Fields& fields, std::optional<StructuredOutput>& out) {
  Reader reader(fields, out);
  read_response_format(fields, reader);
  for (const char* key : {"guided_json", "guided_regex", "guided_choice", "guided_grammar", "guided_json_object"}) fields.know(key);
  read_kinds(fields.object(), "", "guided_", reader);
  if (const OrderedJson* outputs = fields.find("structured_outputs")) {
    if (!outputs->is_object()) return reader.refuse_type("structured_outputs", "an object", *outputs);
    read_kinds(*outputs, "structured_outputs.", "", reader);
    if (member(*outputs, "structural_tag") != nullptr) {
      return fields.refuse(unsupported_value("structured_outputs.structural_tag", "'structured_outputs.structural_tag' is not supported; leave it out."));
    }
  }
  if (const OrderedJson* gbnf = fields.find("grammar")) reader.expression(Kind::kGbnf, "grammar", *gbnf);
  if (const OrderedJson* schema = fields.find("json_schema")) reader.schema("json_schema", *schema);
}

ApiResult<GrammarRef> make_grammar(const StructuredOutput& wanted, const ModelText& text) {
  auto gbnf = gbnf_of(wanted);
  if (!gbnf.ok()) return refusal(wanted, gbnf.status());
  Grammar grammar{*std::move(gbnf), {}};
  const auto vocabulary = text.vocabulary.get(*text.tokenizer);
  const auto token_id = [&](std::string_view spelling) { return vocabulary->token_id(spelling); };
  if (const Status checked = check_grammar(grammar, token_id, vocabulary->size(), kLimits); !checked.ok()) return refusal(wanted, checked);
  return GrammarRef(std::move(grammar));
}

ApiResult<GrammarRef> GrammarCache::grammar(const StructuredOutput& wanted, const ModelEntry& model, const ModelText& text) {
  return grammar(cache_key(wanted, model), [&] { return make_grammar(wanted, text); });
}

ApiResult<GrammarRef> GrammarCache::grammar(std::string key, const std::function<ApiResult<GrammarRef>()>& make) {
  {
    std::lock_guard lock(mutex_);
    if (const auto known = by_key_.find(key); known != by_key_.end()) {
      recent_.splice(recent_.begin(), recent_, known->second);
      return known->second->grammar;
    }
  }
  auto made = make();
  if (made.ok() && *made) remember(std::move(key), *made);
  return made;
}

void GrammarCache::remember(std::string key, const GrammarRef& grammar) {
  std::lock_guard lock(mutex_);
  if (by_key_.contains(key)) return;
  const auto size = [](const Entry& entry) { return 2 * entry.key.size() + entry.grammar->gbnf.size() + 200; };
  recent_.push_front({std::move(key), grammar});
  by_key_[recent_.front().key] = recent_.begin();
  bytes_ += size(recent_.front());
  while (recent_.size() > 1 && (recent_.size() > kEntriesMax || bytes_ > kBytesMax)) {
    bytes_ -= size(recent_.back());
    by_key_.erase(recent_.back().key);
    recent_.pop_back();
  }
}

}  // namespace shoal
