#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/tokenizer/pcre_regex.h"

#include <pcre2.h>

#include <optional>

namespace shoal {
namespace {

constexpr size_t kPatternBytesMax = 64 << 10;
constexpr uint32_t kNestingMax = 100;
constexpr uint32_t kMatchStepsMax = 2'000'000;
constexpr uint32_t kHeapKibMax = 16 << 10;
constexpr size_t kJitStackBytes = 512 << 10;

// White_Space as the inside of a class. PCRE2's own \s also takes U+180E, which has not been a space since Unicode 6.3.
constexpr std::string_view kSpaceClass =
    "\\t-\\r \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}";
constexpr std::string_view kWordClass = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}";
constexpr std::string_view kHexClass = "0-9A-Fa-f";

// The body of the class that a shorthand stands for, or nothing if PCRE2 reads the shorthand as Oniguruma does.
std::string_view shorthand_class(char c) {
  switch (c) {
    case 's': case 'S': return kSpaceClass;
    case 'w': case 'W': return kWordClass;
    case 'h': case 'H': return kHexClass;
    default: return {};
  }
}

// Rewrites the shorthands. A negated shorthand inside a class has no spelling as a list, so PCRE2's own is used there.
StatusOr<std::string> translate(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char next = pattern[++i];
      const std::string_view body = shorthand_class(next);
      const bool negated = next >= 'A' && next <= 'Z';
      if (body.empty() || (in_class && negated)) {
        out += {c, next};
      } else if (in_class) {
        out += body;
      } else {
        out.append(negated ? "[^" : "[").append(body).append("]");
      }
    } else if (in_class && c == '[' && pattern.substr(i, 2) != "[:") {
      return invalid_argument("nested character class at offset ", i, "; write the class without nesting");
    } else if (in_class && pattern.substr(i, 2) == "&&") {
      return invalid_argument("class intersection '&&' at offset ", i, "; write the class without it");
    } else if (in_class && pattern.substr(i, 2) == "[:") {
      const size_t close = pattern.find(":]", i);
      if (close == std::string_view::npos) return invalid_argument("unclosed '[:' at offset ", i);
      out += pattern.substr(i, close + 2 - i);
      i = close + 1;
    } else {
      out += c;
      if (c == '[' && !in_class) {
        in_class = true;
        if (pattern.substr(i + 1, 1) == "^") out += pattern[++i];
        if (pattern.substr(i + 1, 1) == "]") out += pattern[++i];
      } else if (c == ']') {
        in_class = false;
      }
    }
  }
  return out;
}

// What a thread needs to run matches: one pair of offsets, limits, a stack for compiled code.
struct MatchScratch {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(32 << 10, kJitStackBytes, nullptr);
  MatchScratch() {
    pcre2_set_match_limit(context, kMatchStepsMax);
    pcre2_set_heap_limit(context, kHeapKibMax);
    if (stack != nullptr) pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~MatchScratch() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }
};

}  // namespace

struct Regex::Code {
  pcre2_code* code = nullptr;
  ~Code() { pcre2_code_free(code); }
};

StatusOr<Regex> Regex::compile(std::string_view pattern) {
  if (pattern.size() > kPatternBytesMax) {
    return invalid_argument("regular expression of ", pattern.size(), " bytes; the limit is ", kPatternBytesMax);
  }
  ASSIGN_OR_RETURN(const std::string translated, translate(pattern));
  std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), kNestingMax);
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto code = std::make_shared<Code>();
  code->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                             PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &offset, context.get());
  if (code->code == nullptr) {
    PCRE2_UCHAR text[160] = {};
    pcre2_get_error_message(error, text, sizeof(text));
    return invalid_argument("regular expression does not compile: ", reinterpret_cast<const char*>(text), " at offset ", offset);
  }
  pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE);  // without it the interpreter gives the same answers
  return Regex(std::move(code));
}

Regex::Found Regex::find(std::string_view subject, size_t from, size_t* begin, size_t* end) const {
  static thread_local MatchScratch scratch;
  const char* data = subject.data() == nullptr ? "" : subject.data();
  const int rc = pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(data), subject.size(), from, PCRE2_NO_UTF_CHECK,
                             scratch.data, scratch.context);
  if (rc == PCRE2_ERROR_NOMATCH) return Found::kNone;
  if (rc < 0) return Found::kLimit;
  const PCRE2_SIZE* pair = pcre2_get_ovector_pointer(scratch.data);
  if (pair[0] > pair[1] || pair[0] < from) return Found::kNone;  // \K inside a lookahead may invert the pair
  *begin = pair[0];
  *end = pair[1];
  return Found::kMatch;
}

}  // namespace shoal
