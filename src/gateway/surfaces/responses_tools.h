// `tools`, `tool_choice` and `parallel_tool_calls` of OpenAI's responses.
#pragma once

#include "gateway/fields.h"
#include "gateway/surfaces/responses_request.h"

namespace shoal {

void read_response_tools(Fields& fields, const RequestLimits& limits, ResponsesRequest& out);

}  // namespace shoal
