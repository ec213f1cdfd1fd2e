#include "text/answers/answer_parser.h"

#include <algorithm>

#include "text/answers/call_reader.h"
#include "text/answers/space.h"

namespace shoal {
namespace {

constexpr size_t kSpaceMax = 64;  // inside a literal


// A literal that is looked for in text, and what it means there.
struct Marker {
  enum class Kind { kReasoning, kSection, kCall, kWrapper } kind;
  std::string_view literal;
};

class MarkedParser : public AnswerParser {
 public:
  explicit MarkedParser(const AnswerParserOptions& options)
      : tools_(options.tools), calls_syntax_(tools_ != nullptr ? options.format.calls : nullptr),
        reasoning_(options.reasoning ? options.format.reasoning : nullptr) {
    if (reasoning_ != nullptr && options.begins_in_reasoning()) state_ = State::kReasoning;
    drop_space_ = opened_by_prompt_ = state_ == State::kReasoning;
    const auto add = [this](Marker::Kind kind, std::string_view literal) {
      if (!trim(literal).empty()) markers_.push_back({kind, trim(literal)});
    };
    if (calls_syntax_ != nullptr) {
      add(Marker::Kind::kSection, calls_syntax_->section_begin);
      if (!calls_syntax_->bare) add(Marker::Kind::kCall, calls_syntax_->begin);
      add(calls_syntax_->bare ? Marker::Kind::kSection : Marker::Kind::kCall, calls_syntax_->other_begin);
    }
    if (reasoning_ != nullptr) {
      add(Marker::Kind::kReasoning, reasoning_->begin);
      for (const std::string_view wrapper : reasoning_->wrappers) add(Marker::Kind::kWrapper, wrapper);
    }
  }

  void push(std::string_view text, AnswerDelta& out) override {
    pending_ += text;
    std::string_view rest = pending_;
    while (step(rest, out)) {
    }
    pending_.erase(0, pending_.size() - rest.size());
  }

  void finish(bool cut, AnswerDelta& out) override {
    std::string_view rest = pending_;
    switch (state_) {
      case State::kText: content(rest, out); break;
      case State::kReasoning: think(trim_right(rest), out); break;
      case State::kSection:
        if (!cut) not_a_call(rest, out);
        break;
      case State::kCall: {
        const CallReader::Status status = reader_->finish(cut, out);
        incomplete_ = status != CallReader::Status::kDone;
        if (incomplete_ && !reader_->begun() && !cut) {
          not_a_call(rest, out);
          incomplete_ = false;
        }
        break;
      }
      case State::kSkip: break;
    }
    pending_.clear();
    state_ = State::kText;
  }

  bool in_reasoning() const override { return state_ == State::kReasoning; }
  bool in_call() const override { return incomplete_ || state_ == State::kCall; }
  uint32_t calls() const override { return calls_; }

 private:
  enum class State { kReasoning, kText, kSection, kCall, kSkip };

  bool step(std::string_view& rest, AnswerDelta& out) {
    switch (state_) {
      case State::kReasoning: return read_reasoning(rest, out);
      case State::kText: return read_text(rest, out);
      case State::kSection: return read_section(rest, out);
      case State::kCall: return read_call(rest, out);
      case State::kSkip: return skip(rest);
    }
    return false;
  }

  // --- text

  void content(std::string_view text, AnswerDelta& out) {
    if (drop_space_) text = trim_left(text);
    if (text.empty()) return;
    drop_space_ = false;
    if (at_start_) at_start_ = trim(text).empty();
    out.content += text;
  }
  void think(std::string_view text, AnswerDelta& out) {
    if (drop_space_) text = trim_left(text);
    if (text.empty()) return;
    drop_space_ = false;
    out.reasoning += text;
  }
  // What came since the call seemed to begin is content.
  void not_a_call(std::string_view& rest, AnswerDelta& out) {
    if (!announced_ || state_ == State::kCall) content(raw_, out);
    content(rest, out);
    rest = {};
    raw_.clear();
  }

  // The end of the text before `at` that is held back: white space that is dropped if a call follows it.
  size_t end_of_words(std::string_view text, size_t at) const {
    if (calls_syntax_ == nullptr) return at;
    while (at > 0 && is_space(text[at - 1])) --at;
    return at;
  }

  bool read_reasoning(std::string_view& rest, AnswerDelta& out) {
    if (drop_space_ && opened_by_prompt_) {  // a model may write what the prompt has already
      const MatchResult again = match_literal(reasoning_->begin, trim_left(rest));
      if (again.match == Match::kPartial) return false;
      if (again.match == Match::kFull) rest = trim_left(rest).substr(again.bytes);
      opened_by_prompt_ = false;
    }
    for (size_t at = clean_; at < rest.size(); ++at) {
      const MatchResult match = match_literal(reasoning_->end, rest.substr(at));
      const bool calls = match.match == Match::kNo && begins_call(rest.substr(at));
      if (match.match == Match::kNo && !calls) continue;
      const size_t words = trim_right(rest.substr(0, at)).size();
      think(rest.substr(0, words), out);
      if (match.match == Match::kPartial || waits_) {
        rest.remove_prefix(words);
        clean_ = at - words;
        return false;
      }
      rest.remove_prefix(calls ? at : at + match.bytes);
      clean_ = 0;
      state_ = State::kText;
      at_start_ = drop_space_ = true;
      return true;
    }
    const size_t words = trim_right(rest).size();
    think(rest.substr(0, words), out);
    rest.remove_prefix(words);
    clean_ = rest.size();
    return false;
  }

  // A call ends the reasoning: models forget to, and what constrains calls looks for their marker alone.
  bool begins_call(std::string_view text) {
    waits_ = false;
    for (const Marker& marker : markers_) {
      if (marker.kind != Marker::Kind::kSection && marker.kind != Marker::Kind::kCall) continue;
      const MatchResult match = match_literal(marker.literal, text);
      waits_ |= match.match == Match::kPartial;
      if (match.match == Match::kFull) return !(waits_ = false);
    }
    return waits_;
  }

  bool read_text(std::string_view& rest, AnswerDelta& out) {
    if (at_start_ && calls_syntax_ != nullptr && calls_syntax_->bare) {
      const std::string_view words = trim_left(rest);
      if (words.empty()) return false;
      if (words[0] == (calls_syntax_->list_begin.empty() ? '{' : '[')) return enter_section(rest, rest.size() - words.size(), 0);
    }
    for (size_t at = clean_; at < rest.size(); ++at) {
      for (const Marker& marker : markers_) {
        if (rest[at] != marker.literal[0]) continue;
        if (marker.kind == Marker::Kind::kReasoning && !(at_start_ && trim(rest.substr(0, at)).empty())) continue;
        const MatchResult match = match_literal(marker.literal, rest.substr(at));
        if (match.match == Match::kNo) continue;
        const size_t words = end_of_words(rest, at);
        content(rest.substr(0, words), out);
        if (match.match == Match::kPartial) {
          rest.remove_prefix(words);
          clean_ = at - words;
          return false;
        }
        clean_ = 0;
        return enter(marker, rest, words, at, match.bytes, out);
      }
    }
    const size_t words = end_of_words(rest, rest.size());
    content(rest.substr(0, words), out);
    rest.remove_prefix(words);
    clean_ = rest.size();
    return false;
  }

  bool enter(const Marker& marker, std::string_view& rest, size_t words, size_t at, size_t bytes, AnswerDelta& out) {
    switch (marker.kind) {
      case Marker::Kind::kReasoning:
        rest.remove_prefix(at + bytes);
        state_ = State::kReasoning;
        drop_space_ = true;
        return true;
      case Marker::Kind::kWrapper:
        content(rest.substr(words, at - words), out);
        rest.remove_prefix(at + bytes);
        return true;
      case Marker::Kind::kSection:
        rest.remove_prefix(words);
        return enter_section(rest, at - words, bytes);
      case Marker::Kind::kCall:
        raw_ = rest.substr(words, at - words + bytes);
        rest.remove_prefix(at + bytes);
        announced_ = false;
        start_call();
        return true;
    }
    return false;
  }

  // --- calls

  bool enter_section(std::string_view& rest, size_t space, size_t bytes) {
    raw_ = rest.substr(0, space + bytes);
    rest.remove_prefix(space + bytes);
    announced_ = false;
    state_ = State::kSection;
    return true;
  }

  void start_call() {
    reader_ = std::make_unique<CallReader>(*calls_syntax_, *tools_, calls_);
    state_ = State::kCall;
  }

  bool is_separator(char c) const {
    if (is_space(c)) return true;
    if (c == ',' || c == ';') return true;
    return (c == '[' || c == ']') && calls_syntax_->shape != CallShape::kTagged;
  }

  // Between the calls of a section.
  bool read_section(std::string_view& rest, AnswerDelta& out) {
    size_t skipped = 0;
    const bool loose = calls_syntax_->shape == CallShape::kJsonCall || calls_syntax_->shape == CallShape::kPython;
    while (skipped < rest.size() && (loose ? is_separator(rest[skipped]) : is_space(rest[skipped]))) ++skipped;
    if (!announced_) raw_ += rest.substr(0, skipped);
    rest.remove_prefix(skipped);
    if (rest.empty()) return false;
    const std::string_view end = trim(calls_syntax_->section_end);
    const MatchResult ended = end.empty() ? MatchResult{} : match_literal(end, rest);
    if (ended.match == Match::kFull) {
      rest.remove_prefix(ended.bytes);
      leave_calls();
      return true;
    }
    if (starts_call(rest)) return true;
    if (ended.match == Match::kPartial || waits_) return false;
    state_ = State::kText;
    if (!announced_) {
      content(raw_, out);
      raw_.clear();
    } else {
      at_start_ = drop_space_ = true;
    }
    return true;
  }

  bool starts_call(std::string_view& rest) {
    waits_ = false;
    if (announced_) raw_.clear();
    if (calls_syntax_->shape == CallShape::kJsonCall && rest[0] == '{') return start_call(), true;
    if (calls_syntax_->shape == CallShape::kPython && is_tool_name(rest.substr(0, 1))) return start_call(), true;
    for (const std::string_view literal : {calls_syntax_->begin, calls_syntax_->other_begin}) {
      if (literal.empty()) continue;
      const MatchResult match = match_literal(literal, rest);
      waits_ |= match.match == Match::kPartial;
      if (match.match != Match::kFull) continue;
      raw_ += rest.substr(0, match.bytes);
      rest.remove_prefix(match.bytes);
      if (calls_syntax_->bare) return true;  // a marker before what is a call without it too
      return start_call(), true;
    }
    return false;
  }

  void leave_calls() {
    state_ = State::kText;
    at_start_ = drop_space_ = true;
    raw_.clear();
  }

  bool has_section() const { return calls_syntax_->bare || !calls_syntax_->section_begin.empty(); }

  bool read_call(std::string_view& rest, AnswerDelta& out) {
    const std::string_view before = rest;
    const bool begun = reader_->begun();
    const CallReader::Status status = reader_->read(rest, out);
    if (!begun) raw_ += before.substr(0, before.size() - rest.size());
    if (reader_->begun() && !begun) {
      ++calls_;
      announced_ = true;
      raw_.clear();
    }
    if (status == CallReader::Status::kMore) return false;
    if (status == CallReader::Status::kDone) {
      state_ = has_section() ? State::kSection : State::kText;
      if (!has_section()) leave_calls();
      return true;
    }
    if (reader_->begun()) {
      state_ = calls_syntax_->end.empty() && calls_syntax_->section_end.empty() ? State::kText : State::kSkip;
      at_start_ = false;
      return true;
    }
    state_ = State::kText;
    at_start_ = false;
    content(raw_, out);
    raw_.clear();
    return true;
  }

  // Past the rest of a call that broke.
  bool skip(std::string_view& rest) {
    for (size_t at = 0; at < rest.size(); ++at) {
      for (const std::string_view literal : {calls_syntax_->section_end, calls_syntax_->end}) {
        if (literal.empty()) continue;
        const MatchResult match = match_literal(literal, rest.substr(at));
        if (match.match == Match::kNo || is_space(rest[at])) continue;
        rest.remove_prefix(at + (match.match == Match::kFull ? match.bytes : 0));
        if (match.match == Match::kPartial) return false;
        if (has_section() && literal.data() == calls_syntax_->end.data()) {
          state_ = State::kSection;
        } else {
          leave_calls();
        }
        return true;
      }
    }
    rest = {};
    return false;
  }

  const std::shared_ptr<const ToolList> tools_;
  const CallSyntax* const calls_syntax_;
  const ReasoningSyntax* const reasoning_;
  std::vector<Marker> markers_;

  State state_ = State::kText;
  std::string pending_;       // not decided yet
  size_t clean_ = 0;          // so much of its beginning begins no marker
  std::string raw_;           // of a call that clients do not know of yet
  bool announced_ = false;    // this call, or one of this section, has begun
  bool at_start_ = true;      // nothing but white space since the beginning, the reasoning or a call
  bool drop_space_ = false;   // white space that comes next is not shown
  bool opened_by_prompt_ = false;
  bool waits_ = false;        // for the rest of a marker
  bool incomplete_ = false;
  std::unique_ptr<CallReader> reader_;
  uint32_t calls_ = 0;
};

}  // namespace

MatchResult match_literal(std::string_view literal, std::string_view text) {
  literal = trim_right(literal);
  size_t j = 0;
  for (size_t i = 0; i < literal.size(); ++i, ++j) {
    const bool joint = i > 0 && literal[i - 1] == '>' && literal[i] == '<';
    if (joint || is_space(literal[i])) {
      const size_t begin = j;
      while (j < text.size() && j - begin < kSpaceMax && is_space(text[j])) ++j;
      while (i < literal.size() && is_space(literal[i])) ++i;
    }
    if (j == text.size()) return {Match::kPartial, 0};
    if (text[j] != literal[i]) return {Match::kNo, 0};
  }
  return {Match::kFull, j};
}

std::unique_ptr<AnswerParser> make_answer_parser(const AnswerParserOptions& options) {
  const AnswerFormat& format = options.format;
  const bool reads_calls = options.tools != nullptr && format.calls != nullptr;
  if (format.calls != nullptr && format.calls->shape == CallShape::kHarmony) return make_harmony_parser(options);
  if (!reads_calls && (!options.reasoning || format.reasoning == nullptr)) return nullptr;
  return std::make_unique<MarkedParser>(options);
}

}  // namespace shoal
