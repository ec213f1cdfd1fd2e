// JSON lines on stdin, JSON lines on stdout.
#pragma once

#include <functional>
#include <string>

#include "base/json.h"
#include "base/status.h"

namespace shoal {

// The value on one line, whatever its texts hold, with a newline.
std::string json_line(const Json& value);

// Answers each object of stdin, its keys in the order they were written, with one line: the handler's object, or {"error": text}. The exit code of the verb: a
// line that is not a JSON object fails it, a line whose answer is an error does not.
int each_json_line(const std::function<StatusOr<Json>(const OrderedJson&)>& handler);

}  // namespace shoal
