#include "text/pre_tokenizer.h"

#include "nlohmann/json.hpp"
#include "text/byte_level.h"
#include "text/json_fields.h"
#include "text/unicode.h"

namespace shoal {
namespace {

using Range = Pieces::Range;

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

// A stretch of a piece, and whether it is a delimiter. The spans of a piece cover it.
struct Span {
  size_t begin, end;
  bool delimiter;
};

void apply_behavior(const std::vector<Span>& spans, Behavior behavior, std::vector<Range>& out) {
  const size_t first = out.size();
  bool previous = false;
  switch (behavior) {
    case Behavior::kRemoved:
    case Behavior::kIsolated:
      for (const Span& s : spans) {
        if (!s.delimiter || behavior == Behavior::kIsolated) out.push_back({s.begin, s.end});
      }
      break;
    case Behavior::kContiguous:
    case Behavior::kMergedWithPrevious:
      for (const Span& s : spans) {
        const bool join = behavior == Behavior::kContiguous ? s.delimiter == previous : s.delimiter && !previous;
        if (join && out.size() > first) {
          out.back().end = s.end;
        } else {
          out.push_back({s.begin, s.end});
        }
        previous = s.delimiter;
      }
      break;
    case Behavior::kMergedWithNext: {
      const size_t before = out.size();
      for (auto s = spans.rbegin(); s != spans.rend(); ++s) {
        if (s->delimiter && !previous && out.size() > before) {
          out.back().begin = s->begin;
        } else {
          out.push_back({s->begin, s->end});
        }
        previous = s->delimiter;
      }
      std::reverse(out.begin() + static_cast<ptrdiff_t>(before), out.end());
    }
  }
  std::erase_if(out, [](const Range& r) { return r.begin == r.end; });
}

// Cuts every piece with `find(piece, emit)`, which calls emit(begin, end) for the delimiters from left to right.
template <typename Find>
void split(Pieces& pieces, Behavior behavior, bool invert, const Find& find) {
  std::vector<Range> out;
  out.reserve(pieces.ranges.size() + pieces.text.size() / 4);
  std::vector<Span> spans;
  const std::string_view text = pieces.text;
  for (const Range range : pieces.ranges) {
    spans.clear();
    size_t done = range.begin;
    find(text.substr(range.begin, range.end - range.begin), [&](size_t begin, size_t end) {
      begin += range.begin, end += range.begin;
      if (done != begin) spans.push_back({done, begin, invert});
      spans.push_back({begin, end, !invert});
      done = end;
    });
    if (done != range.end) spans.push_back({done, range.end, invert});
    if (behavior == Behavior::kIsolated) {
      for (const Span& s : spans) {
        if (s.begin != s.end) out.push_back({s.begin, s.end});
      }
      continue;
    }
    std::vector<Range> of_piece;
    apply_behavior(spans, behavior, of_piece);
    out.insert(out.end(), of_piece.begin(), of_piece.end());
  }
  pieces.ranges = std::move(out);
}

class RegexSplit : public PreTokenizer {
 public:
  RegexSplit(Regex regex, Behavior behavior, bool invert) : regex_(std::move(regex)), behavior_(behavior), invert_(invert) {}
  void apply(Pieces& pieces) const override {
    split(pieces, behavior_, invert_, [&](std::string_view piece, const auto& emit) { regex_.for_each_match(piece, emit); });
  }

 private:
  const Regex regex_;
  const Behavior behavior_;
  const bool invert_;
};

// Every code point for which `is_delimiter` holds is a delimiter of its own.
class CharSplit : public PreTokenizer {
 public:
  CharSplit(bool (*is_delimiter)(char32_t), Behavior behavior) : is_delimiter_(is_delimiter), behavior_(behavior) {}
  void apply(Pieces& pieces) const override {
    split(pieces, behavior_, false, [&](std::string_view piece, const auto& emit) {
      for (size_t at = 0, bytes = 0; at < piece.size(); at += bytes) {
        if (is_delimiter_(unicode::decode(piece, at, &bytes))) emit(at, at + bytes);
      }
    });
  }

 private:
  bool (*const is_delimiter_)(char32_t);
  const Behavior behavior_;
};

class FixedLength : public PreTokenizer {
 public:
  explicit FixedLength(size_t length) : length_(length) {}
  void apply(Pieces& pieces) const override {
    split(pieces, Behavior::kIsolated, false, [&](std::string_view piece, const auto& emit) {
      size_t begin = 0, count = 0;
      for (size_t at = 0; at < piece.size();) {
        at += unicode::step(piece, at);
        if (++count < length_ && at < piece.size()) continue;
        emit(begin, at);
        begin = at, count = 0;
      }
    });
  }

 private:
  const size_t length_;
};

// Rewrites every piece: `f(piece, index, out)` appends what it becomes.
template <typename F>
void rewrite(Pieces& pieces, const F& f) {
  std::string text;
  text.reserve(pieces.text.size() + 16);
  size_t index = 0;
  for (Range& range : pieces.ranges) {
    const size_t begin = text.size();
    f(std::string_view(pieces.text).substr(range.begin, range.end - range.begin), index++, text);
    range = {begin, text.size()};
  }
  pieces.text = std::move(text);
}

class ByteLevel : public PreTokenizer {
 public:
  ByteLevel(bool add_prefix_space, std::optional<Regex> regex, bool raw_bytes)
      : add_prefix_space_(add_prefix_space), regex_(std::move(regex)), raw_bytes_(raw_bytes) {}

  void apply(Pieces& pieces) const override {
    if (add_prefix_space_) {
      rewrite(pieces, [](std::string_view piece, size_t, std::string& out) {
        if (piece.front() != ' ') out += ' ';
        out += piece;
      });
    }
    if (regex_) {
      split(pieces, Behavior::kIsolated, false,
            [&](std::string_view piece, const auto& emit) { regex_->for_each_match(piece, emit); });
    }
    if (raw_bytes_) return;
    rewrite(pieces, [](std::string_view piece, size_t, std::string& out) { out += byte_level::from_bytes(piece); });
  }

 private:
  const bool add_prefix_space_;
  const std::optional<Regex> regex_;
  const bool raw_bytes_;
};

class Metaspace : public PreTokenizer {
 public:
  enum class Prepend { kAlways, kFirst, kNever };
  Metaspace(std::string replacement, Prepend prepend, bool split)
      : replacement_(std::move(replacement)), prepend_(prepend), split_(split) {}

  void apply(Pieces& pieces) const override {
    rewrite(pieces, [&](std::string_view piece, size_t index, std::string& out) {
      const bool here = prepend_ == Prepend::kAlways || (prepend_ == Prepend::kFirst && index == 0 && pieces.at_start);
      if (here && piece.front() != ' ' && !piece.starts_with(replacement_)) out += replacement_;
      for (const char c : piece) {
        if (c == ' ') {
          out += replacement_;
        } else {
          out += c;
        }
      }
    });
    if (!split_) return;
    shoal::split(pieces, Behavior::kMergedWithNext, false, [&](std::string_view piece, const auto& emit) {
      for (size_t at = piece.find(replacement_); at != std::string_view::npos; at = piece.find(replacement_, at)) {
        emit(at, at + replacement_.size());
        at += replacement_.size();
      }
    });
  }

 private:
  const std::string replacement_;
  const Prepend prepend_;
  const bool split_;
};

class Sequence : public PreTokenizer {
 public:
  explicit Sequence(std::vector<std::unique_ptr<PreTokenizer>> steps) : steps_(std::move(steps)) {}
  void apply(Pieces& pieces) const override {
    for (const auto& step : steps_) step->apply(pieces);
  }

 private:
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
  std::optional<Regex> regex;
  if (use_regex) {
    ASSIGN_OR_RETURN(regex, Regex::compile(byte_level::kGpt2Regex));
  }
  return std::make_unique<ByteLevel>(prefix, std::move(regex), raw_bytes);
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
