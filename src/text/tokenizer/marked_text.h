// Text together with who wrote each byte.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace shoal {

// `marks` is empty when every byte is trusted, otherwise it holds one char per byte: kUntrusted or kTrusted. A step
// that rewrites text gives what it writes the marks of what it read.
struct MarkedText {
  static constexpr char kTrusted = 0;
  static constexpr char kUntrusted = 1;

  std::string text;
  std::string marks;

  // Whether text[begin, end) has a byte that the template did not write.
  bool untrusted(size_t begin, size_t end) const {
    return !marks.empty() && std::string_view(marks).substr(begin, end - begin).find(kUntrusted) != std::string_view::npos;
  }
  MarkedText sub(size_t begin, size_t end) const {
    return {text.substr(begin, end - begin), marks.empty() ? std::string() : marks.substr(begin, end - begin)};
  }
};

// Builds the outcome of a rewrite of `source` from left to right.
class Rewriter {
 public:
  explicit Rewriter(const MarkedText& source) : source_(source) { out_.text.reserve(source.text.size() + 16); }

  // source[begin, end) unchanged.
  void keep(size_t begin, size_t end) {
    out_.text.append(source_.text, begin, end - begin);
    if (!source_.marks.empty()) out_.marks.append(source_.marks, begin, end - begin);
  }
  // `text` in place of source[begin, end); for an insertion (begin == end) it takes the mark of its neighbour.
  void put(std::string_view text, size_t begin, size_t end) {
    out_.text += text;
    if (source_.marks.empty()) return;
    if (begin == end) end = std::min(begin + 1, source_.text.size());
    out_.marks.append(text.size(), source_.untrusted(begin, end) ? MarkedText::kUntrusted : MarkedText::kTrusted);
  }
  MarkedText take() { return std::move(out_); }

 private:
  const MarkedText& source_;
  MarkedText out_;
};

}  // namespace shoal
