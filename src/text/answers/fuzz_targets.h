// What the fuzzer of answers runs, shared with a unit test.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/check.h"
#include "nlohmann/json.hpp"
#include "text/answers/answer_parser.h"

namespace shoal::fuzz {

// The text of an answer, after four bytes that choose the families, how it begins and where it is cut: however it is
// cut, it says the same.
inline void answer_parser(std::string_view input) {
  if (input.size() < 4) return;
  const auto byte = [&](size_t at) { return static_cast<unsigned char>(input[at]); };
  AnswerParserOptions options;
  options.format.calls = &call_syntaxes()[byte(0) % call_syntaxes().size()];
  options.format.reasoning = &reasoning_syntaxes()[byte(1) % reasoning_syntaxes().size()];
  options.starts_reasoning = byte(2) % 2 == 1;
  options.tools = std::make_shared<ToolList>(ToolList{{"get_weather", nullptr}, {"now", nullptr}});
  const std::string_view text = input.substr(4);
  const auto say = [&](size_t step) {
    const auto parser = make_answer_parser(options);
    AnswerDelta said;
    for (size_t at = 0; at < text.size(); at += step) parser->push(text.substr(at, step), said);
    parser->finish(byte(2) % 4 > 1, said);
    std::string out = "content " + said.content + " reasoning " + said.reasoning;
    uint32_t begun = 0;
    for (const CallDelta& call : said.calls) {
      CHECK(call.name.empty() ? call.index + 1 == begun : call.index == begun++);
      out += call.name.empty() ? call.arguments : " call " + call.name + " ";
    }
    CHECK(begun == parser->calls());
    return out;
  };
  const std::string whole = say(text.size() + 1);
  CHECK(say(1) == whole);
  CHECK(say(2 + byte(3) % 14) == whole);
}

}  // namespace shoal::fuzz
