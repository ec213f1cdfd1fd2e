#include "text/tokenizer/decoder.h"

#include <optional>

#include "absl/strings/str_replace.h"
#include "nlohmann/json.hpp"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/json_fields.h"
#include "text/tokenizer/unicode.h"

namespace shoal {
namespace {

using Chunks = std::vector<DecodeChunk>;

// Gathers the chunks of a token; true with the whole of it in chunk.bytes once it has ended.
class Gather {
 public:
  bool whole(DecodeChunk& chunk) {
    if (chunk.begins && chunk.ends) return true;
    held_ += chunk.bytes;
    if (!chunk.ends) return false;
    chunk = {std::move(held_), true, true};
    held_.clear();
    return true;
  }

 private:
  std::string held_;
};

// Rewrites whole tokens one by one.
class TokenStage : public DecodeStage {
 public:
  void push(DecodeChunk chunk, Chunks& out) final {
    if (!gather_.whole(chunk)) return;
    rewrite(chunk.bytes, first_);
    first_ = false;
    out.push_back(std::move(chunk));
  }
  void skip_first() final { first_ = false; }

 protected:
  virtual void rewrite(std::string& token, bool first) const = 0;

 private:
  Gather gather_;
  bool first_ = true;
};

class SpaceJoin : public TokenStage {
 public:
  std::unique_ptr<DecodeStage> clone() const override { return std::make_unique<SpaceJoin>(); }

 protected:
  void rewrite(std::string& token, bool first) const override {
    if (!first) token.insert(token.begin(), ' ');
  }
};

// Drops every replacement character of the first token, as the reference does; elsewhere it is a space.
class Metaspace : public TokenStage {
 public:
  Metaspace(std::string replacement, bool strip_first) : replacement_(std::move(replacement)), strip_first_(strip_first) {}
  std::unique_ptr<DecodeStage> clone() const override { return std::make_unique<Metaspace>(replacement_, strip_first_); }

 protected:
  void rewrite(std::string& token, bool first) const override {
    token = absl::StrReplaceAll(token, {{replacement_, first && strip_first_ ? "" : " "}});
  }

 private:
  const std::string replacement_;
  const bool strip_first_;
};

class WordPiece : public TokenStage {
 public:
  WordPiece(std::string prefix, bool cleanup) : prefix_(std::move(prefix)), cleanup_(cleanup) {}
  std::unique_ptr<DecodeStage> clone() const override { return std::make_unique<WordPiece>(prefix_, cleanup_); }

 protected:
  void rewrite(std::string& token, bool first) const override {
    if (!first) {
      if (token.starts_with(prefix_)) {
        token.erase(0, prefix_.size());
      } else {
        token.insert(token.begin(), ' ');
      }
    }
    if (!cleanup_) return;
    static constexpr std::pair<const char*, const char*> kRules[] = {
        {" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"}, {" n't", "n't"}, {" 'm", "'m"},
        {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (const auto& rule : kRules) token = absl::StrReplaceAll(token, {rule});
  }

 private:
  const std::string prefix_;
  const bool cleanup_;
};

class ReplaceRegex : public TokenStage {
 public:
  ReplaceRegex(Regex regex, std::string to) : regex_(std::move(regex)), to_(std::move(to)) {}
  std::unique_ptr<DecodeStage> clone() const override { return std::make_unique<ReplaceRegex>(regex_, to_); }

 protected:
  void rewrite(std::string& token, bool) const override {
    const std::string source = unicode::sanitize(token);
    token.clear();
    size_t kept = 0;
    regex_.for_each_match(source, [&](size_t begin, size_t end) {
      token.append(source, kept, begin - kept).append(to_);
      kept = end;
      return true;
    });
    token.append(source, kept, std::string::npos);
  }

 private:
  const Regex regex_;
  const std::string to_;
};

// A literal may begin in one chunk and end in the next, so what may yet become one is held.
class ReplaceLiteral : public DecodeStage {
 public:
  ReplaceLiteral(std::string from, std::string to) : from_(std::move(from)), to_(std::move(to)) {}
  std::unique_ptr<DecodeStage> clone() const override { return std::make_unique<ReplaceLiteral>(from_, to_); }

  void push(DecodeChunk chunk, Chunks& out) override {
    held_ += chunk.bytes;
    std::string done;
    size_t kept = 0;
    for (size_t at = held_.find(from_); at != std::string::npos; at = held_.find(from_, kept)) {
      done.append(held_, kept, at - kept).append(to_);
      kept = at + from_.size();
    }
    held_.erase(0, kept);
    const size_t hold = chunk.ends ? 0 : possible_beginning();
    done.append(held_, 0, held_.size() - hold);
    held_.erase(0, held_.size() - hold);
    chunk.bytes = std::move(done);
    out.push_back(std::move(chunk));
  }

 private:
  size_t possible_beginning() const {
    for (size_t n = std::min(from_.size() - 1, held_.size()); n > 0; --n) {
      if (std::string_view(held_).substr(held_.size() - n) == std::string_view(from_).substr(0, n)) return n;
    }
    return 0;
  }
  const std::string from_, to_;
  std::string held_;
};

// Takes up to `start` content characters off the beginning of each token and up to `stop` off its end.
class Strip : public DecodeStage {
 public:
  Strip(std::string content, size_t start, size_t stop) : content_(std::move(content)), start_(start), stop_(stop) {}
  std::unique_ptr<DecodeStage> clone() const override { return std::make_unique<Strip>(content_, start_, stop_); }
  void skip_first() override { skip_ = true; }

  void push(DecodeChunk chunk, Chunks& out) override {
    if (chunk.begins) left_ = skip_ ? 0 : start_;
    skip_ = false;
    held_ += chunk.bytes;
    while (left_ > 0 && held_.starts_with(content_)) held_.erase(0, content_.size()), --left_;
    const bool may_still_strip = left_ > 0 && std::string_view(content_).starts_with(held_);
    if (!held_.empty() && !may_still_strip) left_ = 0;
    size_t tail = 0;  // content characters at the end, at most stop_
    while (tail < stop_ && ends_in_content(held_.size() - tail * content_.size())) ++tail;
    const size_t keep = may_still_strip && !chunk.ends ? held_.size() : tail * content_.size();
    chunk.bytes = held_.substr(0, held_.size() - keep);
    held_.erase(0, chunk.ends ? std::string::npos : held_.size() - keep);
    out.push_back(std::move(chunk));
  }

 private:
  bool ends_in_content(size_t end) const { return std::string_view(held_).substr(0, end).ends_with(content_); }
  const std::string content_;
  const size_t start_, stop_;
  size_t left_ = 0;    // still to strip from the beginning of the current token
  bool skip_ = false;
  std::string held_;
};

class Fuse : public DecodeStage {
 public:
  std::unique_ptr<DecodeStage> clone() const override { return std::make_unique<Fuse>(); }
  void push(DecodeChunk chunk, Chunks& out) override {
    out.push_back({std::move(chunk.bytes), first_, false});
    first_ = false;
  }
  void finish(Chunks& out) override { out.push_back({"", first_, true}); }
  void skip_first() override { first_ = false; }

 private:
  bool first_ = true;
};

// Bytes of all tokens in one; a spelling with a character outside of the mapping stands for itself.
class ByteLevel : public DecodeStage {
 public:
  std::unique_ptr<DecodeStage> clone() const override { return std::make_unique<ByteLevel>(); }
  void push(DecodeChunk chunk, Chunks& out) override {
    if (!gather_.whole(chunk)) return;
    auto bytes = byte_level::to_bytes(chunk.bytes);
    out.push_back({bytes ? *std::move(bytes) : std::move(chunk.bytes), first_, false});
    first_ = false;
  }
  void finish(Chunks& out) override { out.push_back({"", first_, true}); }
  void skip_first() override { first_ = false; }

 private:
  Gather gather_;
  bool first_ = true;
};

// Runs of byte tokens give UTF-8. What is not well-formed gives one U+FFFD for each byte. (The reference gives that for
// every byte of a run that is not well-formed as a whole; a stream that must not wait for the end of the run cannot.)
class ByteFallback : public DecodeStage {
 public:
  std::unique_ptr<DecodeStage> clone() const override { return std::make_unique<ByteFallback>(); }

  void push(DecodeChunk chunk, Chunks& out) override {
    if (!gather_.whole(chunk)) return;
    const int byte = byte_token_value(chunk.bytes);
    if (byte < 0) {
      end_run(out);
      out.push_back(std::move(chunk));
      return;
    }
    held_.push_back(static_cast<char>(byte));
    std::string ready;
    while (!held_.empty()) {
      const unicode::Sequence sequence = unicode::sequence_at(held_, 0);
      if (sequence.truncated) break;
      if (sequence.complete) {
        ready.append(held_, 0, sequence.bytes);
      } else {
        for (int i = 0; i < sequence.bytes; ++i) ready += unicode::kReplacementUtf8;
      }
      held_.erase(0, sequence.bytes);
    }
    out.push_back({std::move(ready), !in_run_, false});
    in_run_ = true;
  }
  void finish(Chunks& out) override { end_run(out); }

 private:
  void end_run(Chunks& out) {
    if (!in_run_) return;
    std::string rest;
    for (size_t i = 0; i < held_.size(); ++i) rest += unicode::kReplacementUtf8;
    held_.clear();
    in_run_ = false;
    out.push_back({std::move(rest), false, true});
  }
  Gather gather_;
  bool in_run_ = false;
  std::string held_;
};

// The end-of-word suffix is a space, except at the end of the text: a token waits for its successor.
class BpeSuffix : public DecodeStage {
 public:
  explicit BpeSuffix(std::string suffix) : suffix_(std::move(suffix)) {}
  std::unique_ptr<DecodeStage> clone() const override { return std::make_unique<BpeSuffix>(suffix_); }
  void push(DecodeChunk chunk, Chunks& out) override {
    if (!gather_.whole(chunk)) return;
    release(" ", out);
    held_ = std::move(chunk.bytes);
  }
  void finish(Chunks& out) override { release("", out); }

 private:
  void release(const char* replacement, Chunks& out) {
    if (held_) out.push_back({absl::StrReplaceAll(*held_, {{suffix_, replacement}}), true, true});
    held_.reset();
  }
  const std::string suffix_;
  Gather gather_;
  std::optional<std::string> held_;
};

using Stages = std::vector<std::unique_ptr<DecodeStage>>;

Status add_sequence(const Json& config, Stages& stages, int depth);

Status add_strip(const Json& config, Stages& stages) {
  ASSIGN_OR_RETURN(std::string content, json_string(config, "content", ""));
  ASSIGN_OR_RETURN(const int64_t start, json_int(config, "start", 0, 0, 1 << 20));
  ASSIGN_OR_RETURN(const int64_t stop, json_int(config, "stop", 0, 0, 1 << 20));
  if (unicode::length(content) != 1) return invalid_argument("'content' must be one character");
  stages.push_back(std::make_unique<Strip>(std::move(content), static_cast<size_t>(start), static_cast<size_t>(stop)));
  return OkStatus();
}

Status add_replace(const Json& config, Stages& stages) {
  ASSIGN_OR_RETURN(Pattern pattern, pattern_member(config));
  ASSIGN_OR_RETURN(std::string content, json_string(config, "content", ""));
  if (pattern.is_literal) {
    stages.push_back(std::make_unique<ReplaceLiteral>(std::move(pattern.literal), std::move(content)));
  } else {
    stages.push_back(std::make_unique<ReplaceRegex>(std::move(pattern.regex), std::move(content)));
  }
  return OkStatus();
}

Status add_metaspace(const Json& config, Stages& stages) {
  ASSIGN_OR_RETURN(std::string replacement, json_string(config, "replacement", "\u2581"));
  ASSIGN_OR_RETURN(const bool prefix, json_bool(config, "add_prefix_space", true));
  ASSIGN_OR_RETURN(const std::string scheme, json_string(config, "prepend_scheme", prefix ? "always" : "never"));
  if (replacement.empty()) return invalid_argument("'replacement' must not be empty");
  stages.push_back(std::make_unique<Metaspace>(std::move(replacement), scheme != "never"));
  return OkStatus();
}

Status add_stage(const Json& config, Stages& stages, int depth) {
  ASSIGN_OR_RETURN(const std::string type, component_type(config));
  if (type == "Sequence") return add_sequence(config, stages, depth);
  if (type == "Strip") return add_strip(config, stages);
  if (type == "Replace") return add_replace(config, stages);
  if (type == "Metaspace") return add_metaspace(config, stages);
  if (type == "ByteLevel") {
    stages.push_back(std::make_unique<ByteLevel>());
  } else if (type == "ByteFallback") {
    stages.push_back(std::make_unique<ByteFallback>());
  } else if (type == "Fuse") {
    stages.push_back(std::make_unique<Fuse>());
  } else if (type == "WordPiece") {
    ASSIGN_OR_RETURN(std::string prefix, json_string(config, "prefix", "##"));
    ASSIGN_OR_RETURN(const bool cleanup, json_bool(config, "cleanup", true));
    stages.push_back(std::make_unique<WordPiece>(std::move(prefix), cleanup));
  } else if (type == "BPEDecoder") {
    ASSIGN_OR_RETURN(std::string suffix, json_string(config, "suffix", "</w>"));
    if (suffix.empty()) return invalid_argument("'suffix' must not be empty");
    stages.push_back(std::make_unique<BpeSuffix>(std::move(suffix)));
  } else {
    return unimplemented("decoder '", type, "' is not supported");
  }
  return OkStatus();
}

constexpr size_t kStagesMax = 64;

Status add_sequence(const Json& config, Stages& stages, int depth) {
  RETURN_IF_ERROR(check_sequence_depth(depth));
  ASSIGN_OR_RETURN(const Json* const items, array_member(config, "decoders"));
  for (const Json& item : *items) {
    if (stages.size() >= kStagesMax) return invalid_argument("more than ", kStagesMax, " stages");
    RETURN_IF_ERROR(add_stage(item, stages, depth + 1));
  }
  return OkStatus();
}

}  // namespace

Decoder Decoder::clone() const {
  Stages stages;
  stages.reserve(stages_.size());
  for (const auto& stage : stages_) stages.push_back(stage->clone());
  return Decoder(std::move(stages));
}

std::string Decoder::run(Chunks chunks, size_t stage) const {
  for (; stage < stages_.size(); ++stage) {
    Chunks out;
    for (DecodeChunk& chunk : chunks) stages_[stage]->push(std::move(chunk), out);
    chunks = std::move(out);
  }
  if (chunks.size() == 1) return std::move(chunks[0].bytes);
  std::string text;
  for (const DecodeChunk& chunk : chunks) text += chunk.bytes;
  return text;
}

std::string Decoder::push(std::string_view spelling) {
  Chunks chunks;
  chunks.push_back({std::string(spelling), true, true});
  return run(std::move(chunks), 0);
}

std::string Decoder::finish() {
  std::string text;
  for (size_t stage = 0; stage < stages_.size(); ++stage) {
    Chunks chunks;
    stages_[stage]->finish(chunks);
    text += run(std::move(chunks), stage + 1);
  }
  return text;
}

void Decoder::skip_first() {
  for (const auto& stage : stages_) stage->skip_first();
}

StatusOr<Decoder> make_decoder(const Json& config) {
  Stages stages;
  if (config.is_null()) {
    stages.push_back(std::make_unique<SpaceJoin>());
  } else {
    RETURN_IF_ERROR(add_stage(config, stages, 0));
  }
  return Decoder(std::move(stages));
}

Decoder make_byte_level_decoder() {
  Stages stages;
  stages.push_back(std::make_unique<ByteLevel>());
  return Decoder(std::move(stages));
}

Decoder make_sentencepiece_decoder(bool strip_first_space) {
  Stages stages;
  stages.push_back(std::make_unique<ReplaceLiteral>("\u2581", " "));
  stages.push_back(std::make_unique<ByteFallback>());
  stages.push_back(std::make_unique<Fuse>());
  if (strip_first_space) stages.push_back(std::make_unique<Strip>(" ", 1, 0));
  return Decoder(std::move(stages));
}

int byte_token_value(std::string_view spelling) {
  if (spelling.size() != 6 || !spelling.starts_with("<0x") || spelling[5] != '>') return -1;
  int value = 0;
  for (const char c : spelling.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

}  // namespace shoal
