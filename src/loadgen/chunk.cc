#include "loadgen/chunk.h"

#include "base/json.h"
#include "workload/views.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr int kDepthMax = 32;

// Walks JSON text once. Strings and numbers are views of it; what is not asked for is skipped.
class Walker {
 public:
  explicit Walker(std::string_view text) : text_(text) {}

  bool ok() const { return ok_; }
  bool at_end() { return peek() == '\0' && at_ == text_.size(); }

  // Calls field(key) for each member; it must consume the value (skip() if it does not want it).
  template <typename Field>
  void object(const Field& field) {
    list('{', '}', [&] {
      const std::string_view key = string();
      expect(':');
      if (ok_) field(key);
    });
  }
  template <typename Item>
  void array(const Item& item) { list('[', ']', item); }

  // Without its quotes, escapes as written.
  std::string_view string() {
    if (!expect('"')) return {};
    const size_t begin = at_;
    while (at_ < text_.size() && text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
    if (at_ >= text_.size()) return fail();
    return text_.substr(begin, at_++ - begin);
  }
  std::string_view scalar() {
    peek();
    const size_t begin = at_;
    while (at_ < text_.size() && std::string_view(",]} \t\r\n").find(text_[at_]) == std::string_view::npos) ++at_;
    return at_ == begin ? fail() : text_.substr(begin, at_ - begin);
  }
  // The value as it is written.
  std::string_view skip() {
    const char c = peek();
    const size_t begin = at_;
    if (c == '{') object([&](std::string_view) { skip(); });
    else if (c == '[') array([&] { skip(); });
    else if (c == '"') string();
    else scalar();
    return ok_ ? text_.substr(begin, at_ - begin) : std::string_view();
  }
  char peek() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) ++at_;
    return ok_ && at_ < text_.size() ? text_[at_] : '\0';
  }

 private:
  template <typename Item>
  void list(char open, char close, const Item& item) {
    if (!expect(open) || ++depth_ > kDepthMax) return void(fail());
    if (peek() == close) {
      ++at_;
    } else {
      do item(); while (ok_ && peek() == ',' && ++at_);
      expect(close);
    }
    --depth_;
  }
  bool expect(char c) {
    if (peek() != c) return fail(), false;
    ++at_;
    return true;
  }
  std::string_view fail() {
    ok_ = false;
    return {};
  }

  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
  bool ok_ = true;
};

std::string unescaped(std::string_view raw) {
  if (raw.find('\\') == std::string_view::npos) return std::string(raw);
  const auto parsed = parse_json(absl::StrCat("\"", own(raw), "\""));
  return parsed.ok() && parsed->is_string() ? parsed->get<std::string>() : std::string(raw);
}

struct ChunkReader {
  Walker walk;
  bool want_text;
  Chunk chunk;
  bool empty_text = false;  // a completion's "text":""

  // A member that may hold text; anything else there counts as nothing.
  void text(bool* empty) {
    if (walk.peek() != '"') return void(walk.skip());
    const std::string_view raw = walk.string();
    if (raw.empty() && empty != nullptr) *empty = true;
    if (raw.empty()) return;
    chunk.has_token = true;
    if (want_text) chunk.text += unescaped(raw);
  }

  void message() {
    if (walk.peek() != '{') return void(walk.skip());
    walk.object([&](std::string_view key) {
      if (key == "content" || key == "reasoning_content" || key == "reasoning") return text(nullptr);
      const std::string_view value = walk.skip();
      if (key == "tool_calls" && value.size() > 2 && value.front() == '[') chunk.has_token = true;
    });
  }

  void choice() {
    if (walk.peek() != '{') return void(walk.skip());
    walk.object([&](std::string_view key) {
      if (key == "delta" || key == "message") return message();
      if (key == "text") return text(&empty_text);
      if (key == "finish_reason" && walk.peek() == '"') return void(chunk.finish_reason = walk.string());
      walk.skip();
    });
  }

  void usage() {
    if (walk.peek() != '{') return void(walk.skip());
    walk.object([&](std::string_view key) {
      const std::string_view value = walk.skip();
      const auto count = number_in<uint32_t>(value);
      if (!count) return;
      if (key == "prompt_tokens") chunk.prompt_tokens = count;
      if (key == "completion_tokens") chunk.completion_tokens = count;
    });
  }

  void error() {
    if (walk.peek() != '{') {
      const std::string_view value = walk.skip();
      if (value != "null") chunk.error = std::string(value);
      return;
    }
    chunk.error = "";
    walk.object([&](std::string_view key) {
      if (key == "message" && walk.peek() == '"') return void(chunk.error = unescaped(walk.string()));
      walk.skip();
    });
  }
};

}  // namespace

StatusOr<Chunk> read_chunk(std::string_view json, bool want_text) {
  ChunkReader reader{Walker(json), want_text, {}};
  reader.walk.object([&](std::string_view key) {
    if (key == "choices" && reader.walk.peek() == '[') return reader.walk.array([&] { reader.choice(); });
    if (key == "usage") return reader.usage();
    if (key == "error") return reader.error();
    reader.walk.skip();
  });
  if (!reader.walk.ok() || !reader.walk.at_end()) return invalid_argument("an event of the stream is not a JSON object");
  // A token whose text is still held back (part of a character, a special token) is a token all the same.
  if (reader.empty_text && reader.chunk.finish_reason.empty()) reader.chunk.has_token = true;
  return std::move(reader.chunk);
}

}  // namespace shoal
