// Strings, and numbers within bounds.
#include <algorithm>
#include <optional>

#include "text/grammar/regex_gbnf.h"
#include "text/grammar/schema_lowering.h"

namespace shoal::grammar {
namespace {

constexpr std::string_view kTime = "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])";
constexpr std::string_view kDate =
    "[1-9][0-9]{3}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))";

struct Format {
  std::string_view name, pattern;
};
// Each matches a part of what the format allows, without its rare forms (29 February, quoted mail addresses ...).
const Format kFormats[] = {
    {"uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"},
    {"ipv4", "((25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])\\.){3}(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"},
    {"ipv6",
     "([0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}|([0-9a-fA-F]{1,4}:){1,6}:[0-9a-fA-F]{1,4}|([0-9a-fA-F]{1,4}:){1,5}(:[0-9a-fA-F]{1,4}){1,2}|"
     "([0-9a-fA-F]{1,4}:){1,4}(:[0-9a-fA-F]{1,4}){1,3}|([0-9a-fA-F]{1,4}:){1,3}(:[0-9a-fA-F]{1,4}){1,4}|"
     "([0-9a-fA-F]{1,4}:){1,2}(:[0-9a-fA-F]{1,4}){1,5}|::([0-9a-fA-F]{1,4}(:[0-9a-fA-F]{1,4}){0,5})?"},
    {"email", "[A-Za-z0-9_+-]{1,30}(\\.[A-Za-z0-9_+-]{1,30}){0,3}@([A-Za-z0-9]([A-Za-z0-9-]{0,30}[A-Za-z0-9])?\\.){1,4}[A-Za-z]{2,20}"},
    {"hostname", "([A-Za-z0-9]([A-Za-z0-9-]{0,30}[A-Za-z0-9])?\\.){0,5}[A-Za-z]([A-Za-z0-9-]{0,30}[A-Za-z0-9])?"},
    {"uri",
     "[a-z][a-z0-9+.-]{1,15}://([A-Za-z0-9]([A-Za-z0-9-]{0,30}[A-Za-z0-9])?\\.){0,5}[A-Za-z]([A-Za-z0-9-]{0,30}[A-Za-z0-9])?"
     "(:[1-9][0-9]{0,3})?(/[A-Za-z0-9._~!$&'()*+,;=:@-]*)*(\\?[A-Za-z0-9._~!$&'()*+,;=:@/?-]*)?(#[A-Za-z0-9._~!$&'()*+,;=:@/?-]*)?"},
    {"duration",
     "P([1-9][0-9]{0,3}W|[1-9][0-9]{0,3}D(T[1-9][0-9]{0,3}H)?|T([1-9][0-9]{0,3}H([1-9][0-9]{0,3}M([1-9][0-9]{0,3}S)?)?|[1-9][0-9]{0,3}M([1-9][0-9]{0,3}S)?"
     "|[1-9][0-9]{0,3}S))"},
};
// Formats that say nothing about the characters of a string.
constexpr std::string_view kOpenFormats[] = {"binary", "byte", "password", "textarea", "string", "markdown", "color", "int32", "int64", "float", "double"};

}  // namespace

StatusOr<std::string> SchemaLowering::string(const OrderedJson& schema, const std::string& path) {
  ASSIGN_OR_RETURN(const auto least, count_keyword(schema, "minLength", path));
  ASSIGN_OR_RETURN(const auto most, count_keyword(schema, "maxLength", path));
  std::string pattern;
  std::string where = child(path, "pattern");
  if (const auto given = schema.find("pattern"); given != schema.end()) {
    if (!given->is_string()) return invalid_argument(where, ": must be a string");
    pattern = given->get<std::string>();
  }
  if (const auto format = schema.find("format"); format != schema.end()) {
    const std::string name = format->is_string() ? format->get<std::string>() : "";
    const bool open = std::find(std::begin(kOpenFormats), std::end(kOpenFormats), name) != std::end(kOpenFormats);
    const auto known = std::find_if(std::begin(kFormats), std::end(kFormats), [&](const Format& f) { return f.name == name; });
    if (!open) {
      where = child(path, "format");
      if (!pattern.empty()) return invalid_argument(where, ": 'format' beside 'pattern' is not supported");
      if (name == "date") pattern = kDate;
      else if (name == "time") pattern = kTime;
      else if (name == "date-time") pattern = std::string(kDate) + "T" + std::string(kTime);
      else if (known != std::end(kFormats)) pattern = known->pattern;
      else return invalid_argument(where, ": the format '", name, "' is not supported; leave it out or describe it by 'pattern'");
      pattern = absl::StrCat("^(", pattern, ")$");
    }
  }
  if (!pattern.empty()) {
    if (least || most) return invalid_argument(where, ": beside minLength or maxLength it is not supported; write the length into the pattern");
    const auto body = regex_to_gbnf(pattern, RegexUse::kJsonString);
    if (!body.ok()) return invalid_argument(where, ": ", body.status().message());
    return out_.add_rule("text", "\"\\\"\" (" + *body + ") \"\\\"\"");
  }
  if (!most && least.value_or(0) == 0) return out_.shared("string");
  if (most && *most < least.value_or(0)) return invalid_argument(path, ": minLength is more than maxLength");
  const std::string bounds = absl::StrCat("{", least.value_or(0), ",", most ? absl::StrCat(*most) : "", "}");
  return "(\"\\\"\" " + out_.shared("char") + bounds + " \"\\\"\")";
}

StatusOr<std::string> SchemaLowering::number(bool integer, const OrderedJson& schema, const std::string& path) {
  NumberRange range;
  const auto take = [&](const char* key, bool low, bool exclusive) -> Status {
    const auto value = schema.find(key);
    if (value == schema.end() || value->is_boolean()) return OkStatus();  // draft 4: a flag beside minimum or maximum
    if (!value->is_number()) return invalid_argument(child(path, key), ": must be a number");
    std::optional<NumberBound>& bound = low ? range.low : range.high;
    const double given = value->get<double>(), known = bound ? bound->value.get<double>() : given;
    const bool tighter = !bound || (low ? given > known : given < known) || (given == known && exclusive);
    if (tighter) bound = NumberBound{*value, exclusive};
    return OkStatus();
  };
  RETURN_IF_ERROR(take("minimum", true, schema.value("exclusiveMinimum", OrderedJson()) == true));
  RETURN_IF_ERROR(take("maximum", false, schema.value("exclusiveMaximum", OrderedJson()) == true));
  RETURN_IF_ERROR(take("exclusiveMinimum", true, true));
  RETURN_IF_ERROR(take("exclusiveMaximum", false, true));
  if (range.open()) return out_.shared(integer ? "integer" : "number");
  const auto text = integer ? integer_expression(range) : number_expression(range);
  if (!text.ok()) return invalid_argument(path, ": ", text.status().message());
  return *text;
}

}  // namespace shoal::grammar
