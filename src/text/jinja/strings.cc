#include "text/jinja/strings.h"

#include <algorithm>

namespace shoal::jinja {
namespace {

bool is_space(char32_t c) { return unicode::is_whitespace(c) || (c >= 0x1C && c <= 0x1F); }

}  // namespace

size_t offset_of(std::string_view s, size_t index) {
  size_t at = 0;
  while (index-- > 0 && at < s.size()) at += unicode::step(s, at);
  return std::min(at, s.size());
}

MarkedText capitalize(const MarkedText& s) {
  return map_chars(s, [](std::string& out, char32_t c, size_t index) {
    index == 0 ? unicode::append_title(out, c) : unicode::append_lower(out, c);
  });
}

MarkedText strip(const MarkedText& s, bool left, bool right, const std::string* chars) {
  const auto drops = [&](size_t at, size_t bytes, char32_t c) {
    return chars == nullptr ? is_space(c) : chars->find(s.text.substr(at, bytes)) != std::string::npos;
  };
  size_t begin = 0, end = s.text.size(), bytes = 0;
  while (left && begin < end) {
    const char32_t c = unicode::decode(s.text, begin, &bytes);
    if (!drops(begin, bytes, c)) break;
    begin += bytes;
  }
  while (right && end > begin) {
    const char32_t c = unicode::decode_last(s.text, end, &bytes);
    if (!drops(end - bytes, bytes, c)) break;
    end -= bytes;
  }
  return s.sub(begin, end);
}

std::vector<TextRange> split_on(std::string_view s, std::string_view separator, int64_t limit, bool from_right) {
  std::vector<TextRange> out;
  if (from_right) {
    size_t end = s.size();
    while (limit != 0 && end >= separator.size()) {
      const size_t at = s.rfind(separator, end - separator.size());
      if (at == std::string_view::npos) break;
      out.push_back({at + separator.size(), end});
      end = at;
      if (limit > 0) --limit;
    }
    out.push_back({0, end});
    std::reverse(out.begin(), out.end());
    return out;
  }
  size_t begin = 0;
  for (size_t at = s.find(separator); at != std::string_view::npos && limit != 0; at = s.find(separator, begin)) {
    out.push_back({begin, at});
    begin = at + separator.size();
    if (limit > 0) --limit;
  }
  out.push_back({begin, s.size()});
  return out;
}

std::vector<TextRange> split_spaces(std::string_view s, int64_t limit, bool from_right) {
  std::vector<TextRange> words;
  for (size_t at = 0, bytes = 0; at < s.size();) {
    if (is_space(unicode::decode(s, at, &bytes))) {
      at += bytes;
      continue;
    }
    const size_t begin = at;
    while (at < s.size() && !is_space(unicode::decode(s, at, &bytes))) at += bytes;
    words.push_back({begin, at});
  }
  const size_t keep = limit < 0 ? SIZE_MAX : static_cast<size_t>(limit);
  if (words.size() <= keep) return words;
  // What is beyond the limit stays one piece, with the space on its outer side.
  if (from_right) {
    const size_t rest = words.size() - keep;
    const TextRange head{0, words[rest - 1].end};
    words.erase(words.begin(), words.begin() + static_cast<ptrdiff_t>(rest));
    words.insert(words.begin(), head);
  } else {
    const size_t begin = words[keep].begin;
    words.resize(keep);
    words.push_back({begin, s.size()});
  }
  return words;
}

Value texts(Interpreter& in, const MarkedText& s, const std::vector<TextRange>& ranges) {
  in.charge(ranges.size());
  in.charge_bytes(s.text.size());
  std::vector<Value> out;
  out.reserve(ranges.size());
  for (const TextRange& range : ranges) out.push_back(Value::string(s.sub(range.begin, range.end)));
  return in.make_list(std::move(out));
}

Value replace_text(Interpreter& in, const MarkedText& s, std::string_view from, const MarkedText& to, int64_t limit) {
  in.charge_bytes(s.text.size());
  MarkedText out;
  size_t kept = 0;
  const auto insert = [&](size_t at) {
    append(out, s.sub(kept, at));
    append(out, to);
    in.check_size(out.text.size());
    in.charge_bytes(to.text.size());
    if (limit > 0) --limit;
  };
  if (from.empty()) {
    for (size_t at = 0; limit != 0; at += unicode::step(s.text, at)) {
      insert(at);
      kept = at;
      if (at >= s.text.size()) break;
    }
  } else {
    for (size_t at = s.text.find(from); at != std::string::npos && limit != 0; at = s.text.find(from, kept)) {
      insert(at);
      kept = at + from.size();
    }
  }
  append(out, s.sub(kept, s.text.size()));
  return in.make_string(std::move(out));
}

MarkedText pad(Interpreter& in, const MarkedText& s, int64_t width, const MarkedText& fill, Align align) {
  const auto length = static_cast<int64_t>(unicode::length(s.text));
  if (width <= length) return s;
  const auto missing = static_cast<size_t>(width - length);
  in.check_size(missing);
  in.check_size(missing * fill.text.size());
  in.charge(missing / 8);
  const size_t left = align == Align::kLeft ? 0 : align == Align::kRight ? missing : missing / 2 + (missing & static_cast<size_t>(width) & 1);
  MarkedText out;
  for (size_t i = 0; i < left; ++i) append(out, fill);
  append(out, s);
  for (size_t i = left; i < missing; ++i) append(out, fill);
  return out;
}

}  // namespace shoal::jinja
