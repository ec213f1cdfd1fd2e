#include "text/tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "nlohmann/json.hpp"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/json_fields.h"
#include "text/tokenizer/unicode.h"

namespace shoal {
namespace {

// What becomes of a delimiter: dropped, its own piece, part of a neighbour, or joined with adjacent delimiters.
enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

StatusOr<Behavior> parse_behavior(const Json& config, std::string_view fallback) {
  ASSIGN_OR_RETURN(const std::string name, json_string(config, "behavior", fallback));
  if (name == "Removed") return Behavior::kRemoved;
  if (name == "Isolated") return Behavior::kIsolated;
  if (name == "MergedWithPrevious") return Behavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return Behavior::kMergedWithNext;
  if (name == "Contiguous") return Behavior::kContiguous;
  return invalid_argument("'behavior' is '", name, "', which is not a split behaviour");
}

// Cuts one piece: takes the spans that cover it from left to right, and hands on the pieces they make together.
class SpanJoiner {
 public:
  SpanJoiner(std::string_view piece, Behavior behavior, PieceSink& next) : piece_(piece), behavior_(behavior), next_(next) {}

  // False: nothing more is wanted.
  bool add(size_t begin, size_t end, bool delimiter) {
    switch (behavior_) {
      case Behavior::kRemoved: return delimiter || give({begin, end});
      case Behavior::kIsolated: return give({begin, end});
      case Behavior::kContiguous: return join_previous({begin, end}, delimiter == previous_, delimiter);
      case Behavior::kMergedWithPrevious: return join_previous({begin, end}, delimiter && !previous_, delimiter);
      case Behavior::kMergedWithNext: break;
    }
    if (!delimiter) return give({std::exchange(held_, std::nullopt).value_or(Range{begin, end}).begin, end});
    const bool wanted = finish();
    held_ = Range{begin, end};
    return wanted;
  }
  // What was held back for a next span.
  bool finish() {
    const std::optional<Range> held = std::exchange(held_, std::nullopt);
    return !held || give(*held);
  }

 private:
  struct Range {
    size_t begin, end;
  };
  bool join_previous(Range span, bool join, bool delimiter) {
    previous_ = delimiter;
    if (join && held_) {
      held_->end = span.end;
      return true;
    }
    const bool wanted = finish();
    held_ = span;
    return wanted;
  }
  bool give(Range range) { return range.begin == range.end || next_.take(piece_.substr(range.begin, range.end - range.begin)); }

  const std::string_view piece_;
  const Behavior behavior_;
  PieceSink& next_;
  std::optional<Range> held_;
  bool previous_ = false;  // whether the span before was a delimiter
};

// Cuts a piece with `find(piece, emit)`, which calls emit(begin, end) for the delimiters from left to right until it
// returns false.
template <typename Find>
bool split(std::string_view piece, Behavior behavior, bool invert, PieceSink& next, const Find& find) {
  SpanJoiner spans(piece, behavior, next);
  size_t done = 0;
  bool wanted = true;
  find(piece, [&](size_t begin, size_t end) {
    if (done != begin) wanted = spans.add(done, begin, invert);
    wanted = wanted && spans.add(begin, end, !invert);
    done = end;
    return wanted;
  });
  if (wanted && done != piece.size()) wanted = spans.add(done, piece.size(), invert);
  return wanted && spans.finish();
}

// A step that makes of a piece what it makes of it wherever the piece stands.
class Local : public PreTokenizer {
 public:
  std::unique_ptr<PieceSink> open(PieceSink& next, bool) const override { return std::make_unique<Stage>(*this, next); }

 protected:
  virtual bool cut(std::string_view piece, PieceSink& next) const = 0;

 private:
  class Stage : public PieceSink {
   public:
    Stage(const Local& step, PieceSink& next) : step_(step), next_(next) {}
    bool take(std::string_view piece) override { return step_.cut(piece, next_); }

   private:
    const Local& step_;
    PieceSink& next_;
  };
};

class RegexSplit : public Local {
 public:
  RegexSplit(Regex regex, Behavior behavior, bool invert) : regex_(std::move(regex)), behavior_(behavior), invert_(invert) {}
  bool keeps_all() const override { return behavior_ != Behavior::kRemoved; }

 protected:
  bool cut(std::string_view piece, PieceSink& next) const override {
    return split(piece, behavior_, invert_, next, [&](std::string_view p, const auto& emit) { regex_.for_each_match(p, emit); });
  }

 private:
  const Regex regex_;
  const Behavior behavior_;
  const bool invert_;
};

// Every code point for which `is_delimiter` holds is a delimiter of its own.
class CharSplit : public Local {
 public:
  CharSplit(bool (*is_delimiter)(char32_t), Behavior behavior) : is_delimiter_(is_delimiter), behavior_(behavior) {}
  bool keeps_all() const override { return behavior_ != Behavior::kRemoved; }

 protected:
  bool cut(std::string_view piece, PieceSink& next) const override {
    return split(piece, behavior_, false, next, [&](std::string_view p, const auto& emit) {
      for (size_t at = 0, bytes = 0; at < p.size(); at += bytes) {
        if (is_delimiter_(unicode::decode(p, at, &bytes)) && !emit(at, at + bytes)) return;
      }
    });
  }

 private:
  bool (*const is_delimiter_)(char32_t);
  const Behavior behavior_;
};

class FixedLength : public Local {
 public:
  explicit FixedLength(size_t length) : length_(length) {}

 protected:
  bool cut(std::string_view piece, PieceSink& next) const override {
    size_t begin = 0, count = 0;
    for (size_t at = 0; at < piece.size();) {
      at += unicode::step(piece, at);
      if (++count < length_ && at < piece.size()) continue;
      if (!next.take(piece.substr(begin, at - begin))) return false;
      begin = at, count = 0;
    }
    return true;
  }

 private:
  const size_t length_;
};

// Bytes as the printable characters that a vocabulary is written in.
class ByteSpelling : public Local {
 protected:
  bool cut(std::string_view piece, PieceSink& next) const override { return next.take(byte_level::from_bytes(piece)); }
};

class PrefixSpace : public Local {
 protected:
  bool cut(std::string_view piece, PieceSink& next) const override {
    return piece.front() == ' ' ? next.take(piece) : next.take(std::string(" ").append(piece));
  }
};

class Metaspace : public PreTokenizer {
 public:
  enum class Prepend { kAlways, kFirst, kNever };
  Metaspace(std::string replacement, Prepend prepend, bool split)
      : replacement_(std::move(replacement)), prepend_(prepend), split_(split) {}

  std::unique_ptr<PieceSink> open(PieceSink& next, bool at_start) const override {
    return std::make_unique<Stage>(*this, next, at_start);
  }

 private:
  class Stage : public PieceSink {
   public:
    Stage(const Metaspace& step, PieceSink& next, bool at_start) : step_(step), next_(next), first_(at_start) {}
    bool take(std::string_view piece) override {
      const bool prepend = step_.prepend_ == Prepend::kAlways || (step_.prepend_ == Prepend::kFirst && first_);
      first_ = false;
      return step_.cut(step_.replaced(piece, prepend), next_);
    }

   private:
    const Metaspace& step_;
    PieceSink& next_;
    bool first_;  // nothing was taken since the start of the whole text
  };

  std::string replaced(std::string_view piece, bool prepend) const {
    std::string out;
    out.reserve(piece.size() + replacement_.size());
    if (prepend && piece.front() != ' ' && !piece.starts_with(replacement_)) out += replacement_;
    for (const char c : piece) {
      if (c == ' ') {
        out += replacement_;
      } else {
        out += c;
      }
    }
    return out;
  }
  bool cut(std::string_view piece, PieceSink& next) const {
    if (!split_) return next.take(piece);
    return split(piece, Behavior::kMergedWithNext, false, next, [&](std::string_view p, const auto& emit) {
      for (size_t at = p.find(replacement_); at != std::string_view::npos; at = p.find(replacement_, at)) {
        if (!emit(at, at + replacement_.size())) return;
        at += replacement_.size();
      }
    });
  }

  const std::string replacement_;
  const Prepend prepend_;
  const bool split_;
};

class Sequence : public PreTokenizer {
 public:
  explicit Sequence(std::vector<std::unique_ptr<PreTokenizer>> steps) : steps_(std::move(steps)) {}
  std::unique_ptr<PieceSink> open(PieceSink& next, bool at_start) const override {
    return std::make_unique<Chain>(steps_, next, at_start);
  }
  bool keeps_all() const override {
    return std::all_of(steps_.begin(), steps_.end(), [](const auto& step) { return step->keeps_all(); });
  }

 private:
  class Chain : public PieceSink {
   public:
    Chain(const std::vector<std::unique_ptr<PreTokenizer>>& steps, PieceSink& next, bool at_start) : head_(&next) {
      for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
        stages_.push_back((*step)->open(*head_, at_start));
        head_ = stages_.back().get();
      }
    }
    bool take(std::string_view piece) override { return head_->take(piece); }

   private:
    std::vector<std::unique_ptr<PieceSink>> stages_;
    PieceSink* head_;
  };
  const std::vector<std::unique_ptr<PreTokenizer>> steps_;
};

using Made = StatusOr<std::unique_ptr<PreTokenizer>>;

Made make_sequence(const Json& config, bool raw_bytes, int depth) {
  RETURN_IF_ERROR(check_sequence_depth(depth));
  ASSIGN_OR_RETURN(const Json* const items, array_member(config, "pretokenizers"));
  std::vector<std::unique_ptr<PreTokenizer>> steps;
  for (const Json& item : *items) {
    const bool last = steps.size() + 1 == items->size();
    auto step = make_pre_tokenizer(item, raw_bytes && last, depth + 1);
    if (!step.ok()) return annotate(step.status(), absl::StrCat("pretokenizers[", steps.size(), "]"));
    steps.push_back(*std::move(step));
  }
  return std::make_unique<Sequence>(std::move(steps));
}

Made make_byte_level(const Json& config, bool raw_bytes) {
  ASSIGN_OR_RETURN(const bool prefix, json_bool(config, "add_prefix_space", true));
  ASSIGN_OR_RETURN(const bool use_regex, json_bool(config, "use_regex", true));
  std::vector<std::unique_ptr<PreTokenizer>> steps;
  if (prefix) steps.push_back(std::make_unique<PrefixSpace>());
  if (use_regex) {
    ASSIGN_OR_RETURN(Regex regex, Regex::compile(byte_level::kGpt2Regex));
    steps.push_back(std::make_unique<RegexSplit>(std::move(regex), Behavior::kIsolated, false));
  }
  if (!raw_bytes) steps.push_back(std::make_unique<ByteSpelling>());
  return std::make_unique<Sequence>(std::move(steps));
}

// "prepend_scheme" wins over the older "add_prefix_space"; without either a space is always prepended.
Made make_metaspace(const Json& config) {
  ASSIGN_OR_RETURN(std::string replacement, json_string(config, "replacement", "\u2581"));
  ASSIGN_OR_RETURN(const bool prefix, json_bool(config, "add_prefix_space", true));
  ASSIGN_OR_RETURN(const std::string scheme, json_string(config, "prepend_scheme", prefix ? "always" : "never"));
  ASSIGN_OR_RETURN(const bool split, json_bool(config, "split", true));
  if (unicode::length(replacement) != 1) return invalid_argument("'replacement' must be one character");
  Metaspace::Prepend prepend;
  if (scheme == "always") {
    prepend = Metaspace::Prepend::kAlways;
  } else if (scheme == "first") {
    prepend = Metaspace::Prepend::kFirst;
  } else if (scheme == "never") {
    prepend = Metaspace::Prepend::kNever;
  } else {
    return invalid_argument("'prepend_scheme' is '", scheme, "'; always, first and never are known");
  }
  return std::make_unique<Metaspace>(std::move(replacement), prepend, split);
}

Made make_split(const Json& config) {
  ASSIGN_OR_RETURN(Pattern pattern, pattern_member(config));
  ASSIGN_OR_RETURN(const Behavior behavior, parse_behavior(config, ""));
  ASSIGN_OR_RETURN(const bool invert, json_bool(config, "invert", false));
  return std::make_unique<RegexSplit>(std::move(pattern.regex), behavior, invert);
}

Made make_regex_split(std::string_view pattern, Behavior behavior, bool invert) {
  ASSIGN_OR_RETURN(Regex regex, Regex::compile(pattern));
  return std::make_unique<RegexSplit>(std::move(regex), behavior, invert);
}

Made make_char_delimiter(const Json& config) {
  ASSIGN_OR_RETURN(const std::string delimiter, json_string(config, "delimiter", ""));
  if (unicode::length(delimiter) != 1) return invalid_argument("'delimiter' must be one character");
  Json pattern = {{"pattern", {{"String", delimiter}}}, {"behavior", "Removed"}};
  return make_split(pattern);
}

Made make_bert() {
  std::vector<std::unique_ptr<PreTokenizer>> steps;
  steps.push_back(std::make_unique<CharSplit>(unicode::is_whitespace, Behavior::kRemoved));
  steps.push_back(std::make_unique<CharSplit>(unicode::is_punctuation, Behavior::kIsolated));
  return std::make_unique<Sequence>(std::move(steps));
}

}  // namespace

StatusOr<std::unique_ptr<PreTokenizer>> make_pre_tokenizer(const Json& config, bool raw_bytes, int depth) {
  ASSIGN_OR_RETURN(const std::string type, component_type(config));
  if (type == "Sequence") return make_sequence(config, raw_bytes, depth);
  if (type == "ByteLevel") return make_byte_level(config, raw_bytes);
  if (type == "Split") return make_split(config);
  if (type == "Metaspace") return make_metaspace(config);
  if (type == "BertPreTokenizer") return make_bert();
  if (type == "CharDelimiterSplit") return make_char_delimiter(config);
  if (type == "Whitespace") return make_regex_split("\\w+|[^\\w\\s]+", Behavior::kRemoved, true);
  if (type == "WhitespaceSplit") return std::make_unique<CharSplit>(unicode::is_whitespace, Behavior::kRemoved);
  if (type == "Digits") {
    ASSIGN_OR_RETURN(const bool individual, json_bool(config, "individual_digits", false));
    return std::make_unique<CharSplit>(unicode::is_numeric, individual ? Behavior::kIsolated : Behavior::kContiguous);
  }
  if (type == "Punctuation") {
    ASSIGN_OR_RETURN(const Behavior behavior, parse_behavior(config, "Isolated"));
    return std::make_unique<CharSplit>(unicode::is_punctuation, behavior);
  }
  if (type == "FixedLength") {
    ASSIGN_OR_RETURN(const int64_t length, json_int(config, "length", 5, 1, 1 << 20));
    return std::make_unique<FixedLength>(static_cast<size_t>(length));
  }
  return unimplemented("pre-tokenizer '", type, "' is not supported");
}

bool ends_in_byte_level(const Json& config) {
  const Json* at = &config;
  for (int depth = 0; depth <= kSequenceDepthMax; ++depth) {
    const auto type = component_type(*at);
    if (!type.ok()) return false;
    if (*type == "ByteLevel") return true;
    const Json* items = member(*at, "pretokenizers");
    if (*type != "Sequence" || items == nullptr || !items->is_array() || items->empty()) return false;
    at = &items->back();
  }
  return false;
}

std::unique_ptr<PreTokenizer> make_regex_pre_tokenizer(std::vector<Regex> expressions) {
  std::vector<std::unique_ptr<PreTokenizer>> steps;
  for (Regex& regex : expressions) {
    steps.push_back(std::make_unique<RegexSplit>(std::move(regex), Behavior::kIsolated, false));
  }
  return std::make_unique<Sequence>(std::move(steps));
}

}  // namespace shoal
