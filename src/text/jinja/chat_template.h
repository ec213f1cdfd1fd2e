// Chat templates: the Jinja subset that model publishers use, with budgets, and with the origin of every character.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "text/tokenizer/tokenizer.h"

namespace shoal {

struct TemplateLimits {
  uint64_t steps_max = 5'000'000;      // statements and expression nodes evaluated
  uint32_t depth_max = 100;            // nested macros, includes, expressions
  size_t output_bytes_max = 32u << 20;
};

struct RenderOptions {
  // Seconds since 1970 UTC for strftime_now().
  int64_t now_unix_seconds = 0;
  TemplateLimits limits;
  // Variables whose text a client wrote.
  std::vector<std::string> untrusted_variables = {"messages", "tools", "documents"};
};

// Immutable after parse(); render() may be called from any thread.
class ChatTemplate {
 public:
  // InvalidArgument with line number for what does not parse. Settings of the reference environment: trim_blocks,
  // lstrip_blocks, loop controls, tojson, raise_exception, strftime_now.
  static StatusOr<std::unique_ptr<ChatTemplate>> parse(std::string_view source);
  virtual ~ChatTemplate() = default;

  // `variables`: messages, tools, add_generation_prompt, bos_token ... Text that comes from `messages`, `tools` or
  // `documents` gives untrusted parts, the template's own text and other variables trusted ones. (The role of a message
  // counts as the template's own if it is one of the usual words: templates build control tokens around it.)
  // InvalidArgument with the template's own words for raise_exception(), ResourceExhausted when a budget is spent.
  virtual StatusOr<std::vector<TextPart>> render(const Json& variables, const RenderOptions& options) const = 0;
  // The same with the keys of objects in the client's order, which is what tojson and loops over mappings print (Json
  // sorts them, and a model was trained on tools as their authors write them). Prefer this one.
  virtual StatusOr<std::vector<TextPart>> render_ordered(const OrderedJson& variables, const RenderOptions& options) const;
};

// The text of all parts.
std::string join(const std::vector<TextPart>& parts);
// The text of what a template makes of `variables`, empty where it refuses them.
std::string text_or_nothing(const ChatTemplate& chat_template, const OrderedJson& variables);

}  // namespace shoal
