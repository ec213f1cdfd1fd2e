// Answers in OpenAI's harmony format: messages "<|start|>assistant<|channel|>CHANNEL to=RECIPIENT<|message|>TEXT<|end|>".
// The prompt ends with "<|start|>assistant", so an answer begins inside a header.
#include "text/answers/answer_parser.h"
#include "text/answers/call_reader.h"
#include "text/answers/json_scanner.h"

namespace shoal {
namespace {

constexpr size_t kHeaderBytesMax = 1024;
constexpr std::string_view kMessage = "<|message|>";
constexpr std::string_view kEnds[] = {"<|end|>", "<|call|>", "<|return|>", "<|start|>", "<|channel|>"};
constexpr std::string_view kFunctions = "to=functions.";

class HarmonyParser : public AnswerParser {
 public:
  explicit HarmonyParser(const AnswerParserOptions& options) : tools_(options.tools), shows_reasoning_(options.reasoning) {}

  void push(std::string_view text, AnswerDelta& out) override {
    pending_ += text;
    std::string_view rest = pending_;
    while (state_ == State::kHeader ? read_header(rest, out) : read_message(rest, out)) {
    }
    pending_.erase(0, pending_.size() - rest.size());
  }

  void finish(bool cut, AnswerDelta& out) override {
    if (state_ == State::kMessage) {
      show(pending_, out);
      incomplete_ = kind_ == Kind::kCall && !call_done_;
    } else if (!cut && channels_ == 0) {
      out.content += header_ + pending_;  // a model that does not keep to the format
    }
    pending_.clear();
    state_ = State::kHeader;
  }

  bool in_reasoning() const override { return state_ == State::kMessage && kind_ == Kind::kReasoning; }
  bool in_call() const override { return incomplete_ || (state_ == State::kMessage && kind_ == Kind::kCall && !call_done_); }
  uint32_t calls() const override { return calls_; }

 private:
  enum class State { kHeader, kMessage };
  enum class Kind { kContent, kReasoning, kCall };

  bool read_header(std::string_view& rest, AnswerDelta& out) {
    const size_t at = rest.find(kMessage);
    if (at == std::string_view::npos) {
      if (header_.size() + rest.size() > kHeaderBytesMax) {  // no header at all
        if (channels_ == 0) out.content += header_ + std::string(rest);
        header_.clear();
        rest = {};
        begin(Kind::kContent);
      }
      return false;
    }
    header_ += rest.substr(0, at);
    rest.remove_prefix(at + kMessage.size());
    open(out);
    header_.clear();
    return true;
  }

  void open(AnswerDelta& out) {
    const size_t to = header_.find(kFunctions);
    if (to != std::string::npos && tools_ != nullptr) {
      const std::string_view after = std::string_view(header_).substr(to + kFunctions.size());
      size_t size = 0;
      while (size < after.size() && is_tool_name(after.substr(size, 1))) ++size;
      if (is_tool_name(after.substr(0, size))) {
        begin(Kind::kCall);
        call_done_ = false;
        scanner_ = JsonScanner();
        out.calls.push_back({.index = calls_++, .name = std::string(after.substr(0, size)), .id = "", .arguments = ""});
        return;
      }
    }
    const bool analysis = header_.find("<|channel|>analysis") != std::string::npos;
    begin(analysis ? Kind::kReasoning : Kind::kContent);
  }

  void begin(Kind kind) {
    kind_ = kind;
    state_ = State::kMessage;
    ++channels_;
  }

  bool read_message(std::string_view& rest, AnswerDelta& out) {
    for (size_t at = rest.find('<'); at != std::string_view::npos; at = rest.find('<', at + 1)) {
      for (const std::string_view end : kEnds) {
        const std::string_view there = rest.substr(at, end.size());
        if (there == end) {
          show(rest.substr(0, at), out);
          const bool header = end == "<|channel|>";  // some models leave out <|start|>
          rest.remove_prefix(at + (header ? 0 : end.size()));
          state_ = State::kHeader;
          return true;
        }
        if (end.starts_with(there)) {
          show(rest.substr(0, at), out);
          rest.remove_prefix(at);
          return false;
        }
      }
    }
    show(rest, out);
    rest = {};
    return false;
  }

  void show(std::string_view text, AnswerDelta& out) {
    if (kind_ == Kind::kCall) return send(text, out);
    (kind_ == Kind::kReasoning && shows_reasoning_ ? out.reasoning : out.content) += text;
  }

  void send(std::string_view text, AnswerDelta& out) {
    std::string piece;
    for (const char c : text) {
      if (call_done_ || (scanner_.depth() == 0 && c != '{')) continue;
      const bool in_string = scanner_.in_string();
      const JsonScanner::Status status = scanner_.push(c);
      if (status == JsonScanner::Status::kBad) {
        call_done_ = true;  // clients keep what was right
        break;
      }
      append_json_byte(c, in_string, piece);
      call_done_ = status == JsonScanner::Status::kDone;
    }
    if (piece.empty()) return;
    if (out.calls.empty() || !out.calls.back().name.empty()) out.calls.push_back({.index = calls_ - 1, .name = "", .id = "", .arguments = ""});
    out.calls.back().arguments += piece;
  }

  const std::shared_ptr<const ToolList> tools_;
  const bool shows_reasoning_;
  State state_ = State::kHeader;
  Kind kind_ = Kind::kContent;
  std::string pending_, header_;
  JsonScanner scanner_;
  bool call_done_ = false;
  bool incomplete_ = false;
  uint32_t channels_ = 0;
  uint32_t calls_ = 0;
};

}  // namespace

std::unique_ptr<AnswerParser> make_harmony_parser(const AnswerParserOptions& options) {
  return std::make_unique<HarmonyParser>(options);
}

}  // namespace shoal
