#include "apps/json_lines.h"

#include <string>

#include "absl/strings/str_replace.h"
#include "apps/terminal.h"
#include "apps/verbs.h"
#include "nlohmann/json.hpp"

namespace shoal {

std::string json_line(const Json& value) {
  // Valid within JSON strings, but line ends to readers that go by Unicode: a line must be one to them too.
  return absl::StrReplaceAll(dump_json(value), {{"\xc2\x85", "\\u0085"}, {"\xe2\x80\xa8", "\\u2028"}, {"\xe2\x80\xa9", "\\u2029"}}) + "\n";
}

int each_json_line(const std::function<StatusOr<Json>(const OrderedJson&)>& handler) {
  LineReader reader;
  int code = kExitOk;
  size_t number = 0;
  while (auto line = reader.next()) {
    ++number;
    if (line->empty()) continue;
    auto parsed = parse_ordered_json(*line);
    if (parsed.ok() && !parsed->is_object()) parsed = invalid_argument("not a JSON object");
    if (!parsed.ok()) code = kExitFailed;
    const StatusOr<Json> answer = parsed.ok() ? handler(*parsed) : annotate(parsed.status(), absl::StrCat("line ", number));
    const Json out = answer.ok() ? *answer : Json{{"error", std::string(answer.status().message())}};
    if (!show_text(json_line(out))) return kExitFailed;
  }
  return code;
}

}  // namespace shoal
