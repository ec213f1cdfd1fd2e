#include "text/tokenizer/normalizer.h"

#include <algorithm>
#include <functional>

#include "absl/strings/escaping.h"
#include "nlohmann/json.hpp"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/charsmap.h"
#include "text/tokenizer/json_fields.h"
#include "text/tokenizer/unicode.h"

namespace shoal {
namespace {

// A file may chain replacements that each multiply the text. Steps stop once it has grown this much, and what one
// replacement may insert is bounded, so the worst file costs a constant factor of memory.
constexpr size_t kGrowthMax = 16;
constexpr size_t kGrowthSlackBytes = 4096;
constexpr size_t kContentBytesMax = 64;
constexpr size_t kShrinkMax = 1u << 20;  // a bound beyond it says nothing

Status check_content(std::string_view key, std::string_view content) {
  if (content.size() <= kContentBytesMax) return OkStatus();
  return invalid_argument("'", std::string(key), "' of ", content.size(), " bytes; the limit is ", kContentBytesMax);
}

// A character of a composed form has at most so many parts, each a character of the text or of what one became.
constexpr size_t kComposedMax = 4;

// A rewrite code point by code point: `map` appends what stands in place of c and says whether it handled c at all.
class CharNormalizer : public Normalizer {
 public:
  using Map = bool (*)(char32_t c, std::string& out);
  // `drops`: whether nothing may stand in place of a code point.
  CharNormalizer(Map map, bool drops) : map_(map), drops_(drops) {}

  size_t shrink_max() const override { return drops_ ? 0 : unicode::kCharBytesMax; }

  void apply(MarkedText& text) const override {
    Rewriter out(text);
    std::string replacement;
    size_t kept = 0;
    const std::string_view source = text.text;
    for (size_t at = 0, bytes = 0; at < source.size(); at += bytes) {
      replacement.clear();
      if (!map_(unicode::decode(source, at, &bytes), replacement)) continue;
      out.keep(kept, at);
      out.put(replacement, at, at + bytes);
      kept = at + bytes;
    }
    out.keep(kept, source.size());
    text = out.take();
  }

 private:
  const Map map_;
  const bool drops_;
};

bool lowercase(char32_t c, std::string& out) { return unicode::append_lower(out, c), true; }
bool drop_marks(char32_t c, std::string&) { return unicode::is_mark(c); }
bool drop_nonspacing_marks(char32_t c, std::string&) { return unicode::is_nonspacing_mark(c); }

bool nmt(char32_t c, std::string& out) {
  if ((c >= 0x1 && c <= 0x8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F) return true;
  const bool space = c == 0x9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
                     c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
  if (space) out = " ";
  return space;
}

bool bert_clean(char32_t c, std::string& out) {
  if (c == 0 || c == 0xFFFD || unicode::is_control(c)) return true;
  if (!unicode::is_whitespace(c)) return false;
  out = " ";
  return true;
}

bool bert_chinese(char32_t c, std::string& out) {
  const auto in = [c](char32_t first, char32_t last) { return c >= first && c <= last; };
  const bool ideograph = in(0x4E00, 0x9FFF) || in(0x3400, 0x4DBF) || in(0x20000, 0x2A6DF) || in(0x2A700, 0x2B73F) ||
                         in(0x2B740, 0x2B81F) || in(0x2B920, 0x2CEAF) || in(0xF900, 0xFAFF) || in(0x2F800, 0x2FA1F);
  if (!ideograph) return false;
  out = " ";
  unicode::append(out, c);
  out += ' ';
  return true;
}

class UnicodeForm : public Normalizer {
 public:
  explicit UnicodeForm(unicode::Form form) : form_(form) {}

  size_t shrink_max() const override { return unicode::kCharBytesMax * kComposedMax; }

  void apply(MarkedText& text) const override {
    if (unicode::is_ascii(text.text)) return;
    if (text.marks.empty()) {
      text.text = unicode::normalize(text.text, form_);
      return;
    }
    // Nothing composes with or reorders across the start of an ASCII character, so each of them and what follows it
    // up to the next can be normalised alone and keep its marks.
    Rewriter out(text);
    const std::string_view source = text.text;
    for (size_t begin = 0; begin < source.size();) {
      size_t end = begin + 1;
      while (end < source.size() && static_cast<uint8_t>(source[end]) >= 0x80) ++end;
      const std::string_view run = source.substr(begin, end - begin);
      const std::string normal = unicode::normalize(run, form_);
      if (normal == run) {
        out.keep(begin, end);
      } else {
        out.put(normal, begin, end);
      }
      begin = end;
    }
    text = out.take();
  }

 private:
  const unicode::Form form_;
};

class Prepend : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  size_t shrink_max() const override { return 1; }
  void apply(MarkedText& text) const override {
    if (text.text.empty()) return;
    if (!text.marks.empty()) text.marks.insert(0, prefix_.size(), text.marks[0]);
    text.text.insert(0, prefix_);
  }

 private:
  const std::string prefix_;
};

class ReplaceLiteral : public Normalizer {
 public:
  ReplaceLiteral(std::string from, std::string to) : from_(std::move(from)), to_(std::move(to)) {}
  size_t shrink_max() const override { return to_.empty() ? 0 : std::max<size_t>(1, (from_.size() + to_.size() - 1) / to_.size()); }
  void apply(MarkedText& text) const override {
    size_t at = text.text.find(from_);
    if (at == std::string::npos) return;
    Rewriter out(text);
    size_t kept = 0;
    for (; at != std::string::npos; at = text.text.find(from_, kept)) {
      out.keep(kept, at);
      kept = at + from_.size();
      out.put(to_, at, kept);
    }
    out.keep(kept, text.text.size());
    text = out.take();
  }

 private:
  const std::string from_, to_;
};

class ReplaceRegex : public Normalizer {
 public:
  ReplaceRegex(Regex regex, std::string to) : regex_(std::move(regex)), to_(std::move(to)) {}
  size_t shrink_max() const override { return 0; }
  void apply(MarkedText& text) const override {
    Rewriter out(text);
    size_t kept = 0;
    regex_.for_each_match(text.text, [&](size_t begin, size_t end) {
      out.keep(kept, begin);
      out.put(to_, begin, end);
      kept = end;
      return true;
    });
    out.keep(kept, text.text.size());
    text = out.take();
  }

 private:
  const Regex regex_;
  const std::string to_;
};

class Strip : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  size_t shrink_max() const override { return 0; }
  void apply(MarkedText& text) const override {
    size_t begin = 0, end = text.text.size(), bytes = 0;
    while (left_ && begin < end && unicode::is_whitespace(unicode::decode(text.text, begin, &bytes))) begin += bytes;
    while (right_ && end > begin && unicode::is_whitespace(unicode::decode_last(text.text, end, &bytes))) end -= bytes;
    text = text.sub(begin, end);
  }

 private:
  const bool left_, right_;
};

class ByteLevelNormalizer : public Normalizer {
 public:
  size_t shrink_max() const override { return 1; }
  void apply(MarkedText& text) const override {
    Rewriter out(text);
    for (size_t at = 0; at < text.text.size(); ++at) {
      out.put(byte_level::from_bytes(std::string_view(text.text).substr(at, 1)), at, at + 1);
    }
    text = out.take();
  }
};

class CharsmapNormalizer : public Normalizer {
 public:
  explicit CharsmapNormalizer(Charsmap map) : map_(std::move(map)) {}
  size_t shrink_max() const override { return 0; }
  void apply(MarkedText& text) const override { map_.apply(text); }

 private:
  const Charsmap map_;
};

class Sequence : public Normalizer {
 public:
  explicit Sequence(std::vector<std::unique_ptr<Normalizer>> steps) : steps_(std::move(steps)) {}
  void apply(MarkedText& text) const override {
    const size_t bytes_max = text.text.size() * kGrowthMax + kGrowthSlackBytes;
    for (const auto& step : steps_) {
      if (text.text.size() <= bytes_max) step->apply(text);
    }
  }
  size_t shrink_max() const override {
    size_t all = 1;
    for (const auto& step : steps_) all = std::min(all * step->shrink_max(), kShrinkMax);
    return all < kShrinkMax ? all : 0;
  }

 private:
  const std::vector<std::unique_ptr<Normalizer>> steps_;
};

using Made = StatusOr<std::unique_ptr<Normalizer>>;

Made make_sequence(const Json& config, int depth) {
  RETURN_IF_ERROR(check_sequence_depth(depth));
  ASSIGN_OR_RETURN(const Json* const items, array_member(config, "normalizers"));
  std::vector<std::unique_ptr<Normalizer>> steps;
  for (const Json& item : *items) {
    auto step = make_normalizer(item, depth + 1);
    if (!step.ok()) return annotate(step.status(), absl::StrCat("normalizers[", steps.size(), "]"));
    steps.push_back(*std::move(step));
  }
  return std::make_unique<Sequence>(std::move(steps));
}

Made make_replace(const Json& config) {
  ASSIGN_OR_RETURN(Pattern pattern, pattern_member(config));
  ASSIGN_OR_RETURN(std::string content, json_string(config, "content", ""));
  RETURN_IF_ERROR(check_content("content", content));
  if (pattern.is_literal) return std::make_unique<ReplaceLiteral>(std::move(pattern.literal), std::move(content));
  return std::make_unique<ReplaceRegex>(std::move(pattern.regex), std::move(content));
}

Made make_bert(const Json& config) {
  ASSIGN_OR_RETURN(const bool clean, json_bool(config, "clean_text", true));
  ASSIGN_OR_RETURN(const bool chinese, json_bool(config, "handle_chinese_chars", true));
  ASSIGN_OR_RETURN(const bool lower, json_bool(config, "lowercase", true));
  ASSIGN_OR_RETURN(const bool strip, json_bool(config, "strip_accents", lower));  // absent or null: as lowercase
  std::vector<std::unique_ptr<Normalizer>> steps;
  if (clean) steps.push_back(std::make_unique<CharNormalizer>(bert_clean, /*drops=*/true));
  if (chinese) steps.push_back(std::make_unique<CharNormalizer>(bert_chinese, /*drops=*/false));
  if (strip) {
    steps.push_back(std::make_unique<UnicodeForm>(unicode::Form::kNfd));
    steps.push_back(std::make_unique<CharNormalizer>(drop_nonspacing_marks, /*drops=*/true));
  }
  if (lower) steps.push_back(std::make_unique<CharNormalizer>(lowercase, /*drops=*/false));
  return std::make_unique<Sequence>(std::move(steps));
}

Made make_strip(const Json& config) {
  ASSIGN_OR_RETURN(const bool left, json_bool(config, "strip_left", true));
  ASSIGN_OR_RETURN(const bool right, json_bool(config, "strip_right", true));
  return std::make_unique<Strip>(left, right);
}

Made make_charsmap(const Json& config) {
  ASSIGN_OR_RETURN(const std::string encoded, json_string(config, "precompiled_charsmap", ""));
  std::string blob;
  if (!absl::Base64Unescape(encoded, &blob)) return invalid_argument("'precompiled_charsmap' is not base64");
  if (blob.empty()) return std::make_unique<Sequence>(std::vector<std::unique_ptr<Normalizer>>());
  ASSIGN_OR_RETURN(Charsmap map, Charsmap::parse(blob));
  return std::make_unique<CharsmapNormalizer>(std::move(map));
}

}  // namespace

StatusOr<std::unique_ptr<Normalizer>> make_normalizer(const Json& config, int depth) {
  ASSIGN_OR_RETURN(const std::string type, component_type(config));
  if (type == "Sequence") return make_sequence(config, depth);
  if (type == "NFC") return std::make_unique<UnicodeForm>(unicode::Form::kNfc);
  if (type == "NFD") return std::make_unique<UnicodeForm>(unicode::Form::kNfd);
  if (type == "NFKC") return std::make_unique<UnicodeForm>(unicode::Form::kNfkc);
  if (type == "NFKD") return std::make_unique<UnicodeForm>(unicode::Form::kNfkd);
  if (type == "Lowercase") return std::make_unique<CharNormalizer>(lowercase, /*drops=*/false);
  if (type == "StripAccents") return std::make_unique<CharNormalizer>(drop_marks, /*drops=*/true);
  if (type == "Nmt") return std::make_unique<CharNormalizer>(nmt, /*drops=*/true);
  if (type == "BertNormalizer") return make_bert(config);
  if (type == "Replace") return make_replace(config);
  if (type == "Strip") return make_strip(config);
  if (type == "ByteLevel") return std::make_unique<ByteLevelNormalizer>();
  if (type == "Precompiled") return make_charsmap(config);
  if (type == "Prepend") {
    ASSIGN_OR_RETURN(std::string prefix, json_string(config, "prepend", ""));
    RETURN_IF_ERROR(check_content("prepend", prefix));
    return std::make_unique<Prepend>(std::move(prefix));
  }
  return unimplemented("normalizer '", type, "' is not supported");
}

std::unique_ptr<Normalizer> make_prepend_normalizer(std::string prefix) {
  return std::make_unique<Prepend>(std::move(prefix));
}

std::unique_ptr<Normalizer> make_replace_normalizer(std::string from, std::string to) {
  return std::make_unique<ReplaceLiteral>(std::move(from), std::move(to));
}

std::unique_ptr<Normalizer> make_normalizer_sequence(std::vector<std::unique_ptr<Normalizer>> steps) {
  return std::make_unique<Sequence>(std::move(steps));
}

StatusOr<std::unique_ptr<Normalizer>> make_charsmap_normalizer(std::string_view blob) {
  ASSIGN_OR_RETURN(Charsmap map, Charsmap::parse(blob));
  return std::make_unique<CharsmapNormalizer>(std::move(map));
}

StatusOr<std::unique_ptr<Normalizer>> make_space_collapsing_normalizer() {
  ASSIGN_OR_RETURN(Regex ends, Regex::compile("\\A +| +\\z"));
  ASSIGN_OR_RETURN(Regex runs, Regex::compile(" {2,}"));
  std::vector<std::unique_ptr<Normalizer>> steps;
  steps.push_back(std::make_unique<ReplaceRegex>(std::move(ends), ""));
  steps.push_back(std::make_unique<ReplaceRegex>(std::move(runs), " "));
  return make_normalizer_sequence(std::move(steps));
}

}  // namespace shoal
